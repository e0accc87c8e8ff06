"""Software of TLS clients that only one side has, by their ClientHellos."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kafkatap import compare
from kafkatap.reports.batch import Array
from kafkatap.reports.comparison.comparison import Compared, compare_sides
from kafkatap.reports.comparison.leaves import Side
from kafkatap.reports.comparison.side_counts import SideCounts
from kafkatap.reports.connection_columns import CONNECTION_ROW
from kafkatap.reports.connection_words import D_NO_KEY_LOG, H_COMPLETE, P_TLS

from .loads import SECOND, START, Load, context_of

TLS = Path(__file__).resolve().parents[2] / "samples" / "tls"
JAVA, JAVA_BY_NAME = "t13i371100_db35923f8641_7c76daad20ec", "t13d381100_db35923f8641_7c76daad20ec"
OLD_JAVA, GO = "t12i340900_0ca14b6c4d46_1f7ae294493e", "t13i131000_f57a46bbacb6_ab7e3b40a677"
UNKNOWN = "t13d1516h2_8daaf6152771_e5627efa2ab1"


def hellos(ja4: int, count: int, ports: int) -> Array:
    """TLS connections in every second of a minute, each from another port and address. `ja4`: -1 without a hello."""
    rows = np.zeros(count, CONNECTION_ROW)
    rows["first"] = START + np.arange(count) * 60 * SECOND // count
    rows["last"] = rows["first"] + SECOND
    rows["protocol"], rows["handshake"], rows["tls_decryption"] = P_TLS, H_COMPLETE, D_NO_KEY_LOG
    rows["client_id"] = rows["software"] = -1
    rows["tls_ja4"], rows["client_port"] = ja4, ports + np.arange(count)
    rows["client_packets"] = rows["broker_packets"] = rows["client_bytes"] = rows["broker_bytes"] = 9
    return rows


def side(software: Sequence[str | None], seed: int, exchanges: bool = True, count: int = 40) -> Side:
    """A side of a minute, with connections of each of some softwares."""
    made = Load({"billing": 20.0}).side(seed) if exchanges else None
    strings: list[bytes | None] = [*(made.context.strings if made else ()), *(s.encode() for s in software if s)]
    rows = [hellos(strings.index(s.encode()) if s else -1, count, 30_000 + 1_000 * seed) for s in software]
    whole = np.concatenate(rows) if rows else np.zeros(0, CONNECTION_ROW)
    if made is None:
        made = Side(SideCounts(), context_of(strings), START, START + 60 * SECOND)
    made.counts.add_connections(whole, START, START + 61 * SECOND)
    return made._replace(context=made.context._replace(strings=strings, connections=whole))


def found(compared: Compared, sure: bool = True) -> dict[str, tuple[str, int]]:
    """What appeared and disappeared: the change and the connections, by name."""
    rows = [row for row in compared.table("presence").named_rows() if row["what"] == "TLS software"]
    assert all((row["ja4"] is None, row["client_id"], row["broker"]) == (False, None, None) for row in rows)
    return {str(r["name"]): (str(r["change"]), int(str(r["exchanges"]))) for r in rows if r["is_sure"] or not sure}


@pytest.mark.parametrize("exchanges", [True, False], ids=["decrypted", "no requests"])
def test_new_and_gone(exchanges: bool) -> None:
    compared = compare_sides(side([JAVA, OLD_JAVA], 1, exchanges), side([JAVA_BY_NAME, GO, UNKNOWN], 2, exchanges))
    assert found(compared) == {
        "TLS software: probably Java (JA4 *_0ca14b6c4d46_1f7ae294493e)": ("disappeared", 40),
        "TLS software: probably Go (JA4 *_f57a46bbacb6_ab7e3b40a677)": ("appeared", 40),
        "TLS software: unknown (JA4 *_8daaf6152771_e5627efa2ab1)": ("appeared", 40),
    }


def test_one_connection_may_be_chance() -> None:
    one, other = side([JAVA], 1), side([JAVA], 2)
    other.counts.add_connections(hellos(len(other.context.strings), 1, 1), START, START + 60 * SECOND)
    other = other._replace(context=other.context._replace(strings=[*other.context.strings, GO.encode()]))
    compared = compare_sides(one, other)
    assert found(compared) == {}
    assert len(found(compared, sure=False)) == 1


@pytest.mark.parametrize("both", [([], [GO]), ([GO], []), ([], []), ([JAVA], [JAVA])])
def test_silent_without_tls_on_both_sides_and_without_a_difference(both: tuple[list[str], list[str]]) -> None:
    assert found(compare_sides(side(both[0], 1), side(both[1], 2)), sure=False) == {}


def test_hellos_that_are_cut_are_not_gone() -> None:
    compared = compare_sides(side([JAVA, GO], 1), side([JAVA, None], 2))
    assert found(compared, sure=False) == {}
    ((sentence, _),) = compared.left_out
    assert sentence == (
        "The side after is incomplete: 50.0 % of its ClientHellos are missing or cut. TLS clients that appeared or "
        "disappeared are not listed."
    )


def test_longer_blocks_keep_the_connections() -> None:
    """Blocks double while connections are added."""
    one = side([JAVA], 1)
    late = hellos(len(one.context.strings) - 1, 1, 1)
    late["first"] = START + 9_000 * SECOND
    one.counts.add_connections(late, START, START + 10_000 * SECOND)
    counts = one.counts.forms["hellos"]
    assert int(counts.values()["connections"].sum()) == 41
    assert int(counts.keys()["block"].max()) == (START + 9_000 * SECOND) // one.counts.length


def test_recordings_without_keys() -> None:
    """Neither side has a request."""
    same = compare(TLS / "broker.pcap.zst", TLS / "broker.pcap.zst")
    assert same.table("presence").rows == []
    compared: Any = compare(TLS / "libraries.pcap.zst", TLS / "matrix.pcap.zst")
    (row,) = (row for row in compared.table("presence").named_rows() if row["is_sure"])
    assert row["name"] == "TLS software: probably OpenSSL client (JA4 *_e8f1e7e78f70_1f22a2ca17c4)"
    assert (row["change"], row["what"], row["exchanges"]) == ("appeared", "TLS software", 19)
    assert f"Appeared    {row['name']} (19 connections)" in str(compared).replace("\n            ", " ")
    gone = {
        str(r["name"]).partition(" (")[0] for r in compared.table("presence").named_rows() if r["change"] != "appeared"
    }
    assert gone >= {f"TLS software: probably {name}" for name in ("Java", "Go", "Node.js", "Python")}


def test_parts_of_a_recording() -> None:
    """The Java clients come first, Python's last."""
    compared = compare(TLS / "broker.pcap.zst", split="+5s", keylog=TLS / "broker.keys.log")
    rows = [row for row in compared.table("presence").named_rows() if row["what"] == "TLS software"]
    names = {(row["change"], str(row["name"]).split(" (")[0].rpartition(" ")[2]) for row in rows}
    assert {("disappeared", "Java"), ("appeared", "Python")} <= names


def test_a_filter_selects_exchanges_and_no_connections() -> None:
    keys = [TLS / "broker.keys.log", TLS / "libraries.keys.log"]
    compared = compare(TLS / "broker.pcap.zst", TLS / "libraries.pcap.zst", keylog=keys, filter="tls")
    assert "TLS software" not in {row["what"] for row in compared.table("presence").named_rows()}
