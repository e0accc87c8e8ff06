"""The software of clients that do not name it, and of clients that were not decrypted, in the table `clients`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kafkatap import analyze
from kafkatap.reports.rendering.json_report import report_object
from kafkatap.reports.sections.row_commands import RowCommander

SOFTWARE = {
    "Java": 6, "OpenSSL client": 7, "Python": 12, "Node.js": 7, "Go": 21
}  # fmt: skip


@pytest.fixture(scope="module")
def recordings(samples: Path) -> Path:
    return samples / "tls"


def clients(recordings: Path, name: str, keys: str | None = None, **chosen: Any) -> list[dict[str, Any]]:
    key_log = None if keys is None else recordings / f"{keys}.keys.log"
    return analyze(recordings / f"{name}.pcap.zst", keylog=key_log, **chosen).report().table("clients").named_rows()


def test_clients_that_were_not_decrypted_have_rows_by_address_and_software(recordings: Path) -> None:
    rows = clients(recordings, "libraries")
    assert {row["software"]: row["connections"] for row in rows} == {
        f"probably {name}": connections for name, connections in SOFTWARE.items()
    }
    for row in rows:
        assert (row["client_id"], row["address"], row["verdict"]) == (None, "127.0.0.1", "encrypted")
        assert row["rtt_ns"] > 0
        assert {row[name] for name in ("requests", "failed_exchanges", "throttled", "total_sum_ns", "evidence")} == {
            None
        }


def test_clients_that_name_no_software_have_that_of_their_hellos(recordings: Path) -> None:
    rows = clients(recordings, "libraries", "libraries")
    software = {row["client_id"].partition("-")[0]: row["software"] for row in rows if row["client_id"]}
    assert software["aiokafka"] == "probably Python"
    assert software["segmentio"] == "probably Go"
    assert software["kafkajs"] == "probably Node.js"
    assert software["java"].startswith("apache-kafka-java ")  # it names its software
    assert "encrypted" not in {row["verdict"] for row in rows}


def test_some_clients_decrypted_and_others_not(recordings: Path) -> None:
    rows = clients(recordings, "broker", "broker.python")
    assert [row["requests"] is None for row in rows] == sorted(row["requests"] is None for row in rows)
    hidden = {row["software"]: row["connections"] for row in rows if row["requests"] is None}
    assert hidden == {"probably Java": 6, "probably OpenSSL client": 6}
    assert {row["client_id"] for row in rows if row["requests"]} >= {"aiokafka-12", "kafka-python-13"}


def test_a_selection_of_exchanges_has_no_clients_without_any(recordings: Path) -> None:
    assert clients(recordings, "libraries", filter="api == Produce") == []


def test_what_counts_clients_does_not_count_encrypted_ones(recordings: Path) -> None:
    """They may be many clients in a row, or one in several."""
    made = analyze(recordings / "broker.pcap.zst").report()
    assert len(made.table("clients").rows) == 3
    (heading,) = made.heading.named_rows()
    assert heading["client_count"] == 0
    read = report_object(made, "0")["reports"]["clients"]
    assert {(row["requests"], row["verdict"], tuple(row["api_versions"])) for row in read} == {(None, "encrypted", ())}


def test_encrypted_clients_have_no_command(recordings: Path) -> None:
    """There is nothing to show."""
    made = analyze(recordings / "broker.pcap.zst").report()
    table = made.table("clients")
    assert [RowCommander(made).commands(table, row) for row in table.rows] == [()] * 3


def test_connections_in_the_clear_say_nothing(samples: Path) -> None:
    table = analyze(samples / "compare" / "before.pcap.zst").report().table("clients")
    assert not any(str(row["software"]).startswith("prob") for row in table.named_rows())
    assert not any("encrypted" in note for note in table.notes)
