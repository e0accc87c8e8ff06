"""Decryption where packets are missing: exchanges whose records are all captured equal those of the whole capture."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import pytest

from kafkatap import analyze
from kafkatap.reports.connection_words import D_DECRYPTED
from tests.support.captures import Packet, read_capture
from tests.support.tls_records import APPLICATION_DATA, Stream, TlsRecord, copy_without, losing, payloads, tls_records

from .real_endpoints import FOLDER, TIMES, Row, by_client, exchanges, rows, truth

MATRIX = truth("matrix")
#: The client's ports of connections that came through, with their cases.
PORTS: dict[int, str] = {row["front"]: row["case"] for row in MATRIX["connections"] if "back" in row}
BEHIND = {row["front"]: row["back"] for row in MATRIX["connections"] if "back" in row}
EQUAL = (
    "api_key", "api_version", "correlation_id", "client_id", "request_bytes", "response_bytes", "errors",
    "throttle_time_ms", "request_status", "response_status", *TIMES,
)  # fmt: skip


@cache
def packets() -> list[Packet]:
    return read_capture(FOLDER / "matrix.pcap.zst").packets


@cache
def records() -> dict[Stream, list[TlsRecord]]:
    return tls_records(packets(), MATRIX["front"])


def damaged_by(row: Row, dropped: set[int]) -> bool:
    """Whether a packet with a record of this exchange is missing."""
    for direction, name in enumerate(("request", "response")):
        first, last = row[f"{name}_packet_first"], row[f"{name}_packet_last"]
        if first is None:
            return True
        for record in records()[row["client_port"], direction]:
            # A plain byte's packet is the last one of its record.
            if first <= record.packets[-1] <= last and dropped.intersection(record.packets):
                return True
    return False


def handshake_packets(port: int) -> set[int]:
    """The packets with records up to the first application data of each direction."""
    found: set[int] = set()
    for direction in (0, 1):
        for record in records().get((port, direction), ()):
            found.update(record.packets)
            if record.kind == APPLICATION_DATA:
                break
    return found


def identity(row: Row) -> tuple[object, ...]:
    return row["client_port"], row["correlation_id"], row["api_key"], row["request_first"]


class Outcome:
    """What became of the exchanges of the whole capture in a damaged copy."""

    def __init__(self, path: Path, dropped: set[int]) -> None:
        self.analysis = analyze(path, keylog=FOLDER / "matrix.keys.log")
        self.rows = rows(self.analysis.exchanges)
        found = {identity(row): row for row in self.rows if row["outcome"] == "answered"}
        self.counts: Counter[str] = Counter()
        self.wrong: list[tuple[object, ...]] = []
        self.lost: list[Row] = []
        for row in exchanges("matrix", "matrix"):
            if row["client_port"] not in PORTS or row["outcome"] != "answered":
                continue
            ours = found.get(identity(row))
            if damaged_by(row, dropped):
                self.counts["damaged"] += 1
            elif ours is None:
                self.counts["lost"] += 1
                self.lost.append(row)
            else:
                self.counts["equal"] += 1
                self.wrong += [(identity(row), name) for name in EQUAL if ours[name] != row[name]]
        context = self.analysis.context
        self.decrypted = {
            int(row["client_port"]) for row in context.connections if row["tls_decryption"] == D_DECRYPTED
        }

    def check(self) -> None:
        """Nothing is invented, and the ledger adds up."""
        assert self.wrong == []
        whole = {(*identity(row)[:3], row["request_bytes"]) for row in exchanges("matrix", "matrix")}
        invented = [row for row in self.rows if row["api_key"] is not None and row["request_bytes"] is not None
                    and (*identity(row)[:3], row["request_bytes"]) not in whole]  # fmt: skip
        assert invented == []
        for places in self.analysis.context.ledger.values():
            counts = dict(places)
            assert counts.pop("total") == sum(counts.values())


def clear_losses(outcome: Outcome, dropped: Iterable[int]) -> None:
    """For a reader of failures: which exchanges were lost, by case."""
    by_case = Counter(PORTS[row["client_port"]] for row in outcome.lost)
    print(dict(outcome.counts), dict(by_case), len(set(dropped)), "packets dropped")


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_one_percent_of_the_packets_is_lost(seed: int, tmp_path: Path) -> None:
    path = tmp_path / "lossy.pcap"
    dropped = copy_without(FOLDER / "matrix.pcap.zst", path, losing(0.01, seed))
    outcome = Outcome(path, dropped)
    clear_losses(outcome, dropped)
    outcome.check()
    assert outcome.counts["damaged"] > 10
    # Of the connections whose handshake is whole, nothing else is lost.
    whole = {port for port in PORTS if not dropped & handshake_packets(port)}
    assert whole <= outcome.decrypted | {port for port in PORTS if not by_client("matrix", "matrix").get(port)}
    lost = [row for row in outcome.lost if row["client_port"] in whole]
    assert lost == []
    assert outcome.counts["lost"] <= LOST_IN_ALL * outcome.counts["equal"]


#: The share of exchanges that are lost beside those whose records are damaged: hellos of TLS 1.2 are missing.
LOST_IN_ALL = 0.025


@pytest.mark.parametrize("case", ["long-13-gcm", "long-13-chacha", "long-12-gcm", "long-12-cbc"])
def test_begin_in_mid_connection(case: str, tmp_path: Path) -> None:
    """The first third of a connection is missing. TLS 1.3 is decrypted by trial, TLS 1.2 cannot be."""
    port = next(port for port, name in PORTS.items() if name == case)
    ours = [p.number for p in payloads(packets()) if port in (p.source, p.target)]
    first = ours[len(ours) // 3]
    path = tmp_path / "middle.pcap"
    dropped = copy_without(FOLDER / "matrix.pcap.zst", path, lambda number, _: number < first)
    outcome = Outcome(path, dropped)
    outcome.check()
    seen = [row for row in outcome.rows if row["client_port"] == port and row["outcome"] == "answered"]
    if "-12-" in case:
        assert seen == []
        assert port not in outcome.decrypted
        return
    assert port in outcome.decrypted
    lost = [row for row in outcome.lost if row["client_port"] == port]
    assert len(seen) >= 60
    assert len(lost) <= 2
