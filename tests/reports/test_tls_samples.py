"""The section `tls` over recordings of real clients and brokers, beside what the clients said themselves."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from kafkatap.engine.engine import Engine
from kafkatap.engine.read_options import ReadOptions
from kafkatap.engine.tls.key_log import KeyLog
from kafkatap.reports.batch import Context
from kafkatap.reports.build import build_report
from kafkatap.reports.counting.counts import ReportCounts
from kafkatap.reports.model import Report
from kafkatap.reports.section_parts.section_counts import SectionCounts
from kafkatap.reports.sections.tls_findings import tls_findings
from kafkatap.reports.tables import connections_table
from kafkatap.reports.tls_names import alert_name
from kafkatap.run import Run
from kafkatap.splits.run_options import RunOptions
from tests.support.captures import unpacked
from tests.ways.reports import assert_same, one_engine, over_splits

WANTED = ("tls", "summary", "connections", "clients", "auth")


@pytest.fixture(scope="module")
def recordings(samples: Path) -> Path:
    return samples / "tls"


def keys(recordings: Path, name: str, is_given: bool = True) -> KeyLog | None:
    return KeyLog([str(recordings / f"{name}.keys.log")]) if is_given else None


def report(path: Path, key_log: KeyLog | None, tables: bool = False) -> tuple[Report, Context]:
    engine = Engine(ReadOptions(key_log=key_log), tables=tables, measures=True)
    run, counts = Run([str(path)], engine), ReportCounts()
    sections = SectionCounts(("tls", "connections"), engine.limits.names, lambda: engine.dissector.strings.other)
    engine.on_connections(sections.add_connections)
    for batch in run.batches():
        counts.add(batch)
        sections.add(batch)
    context = run.context()
    wanted = ("tls", "summary", "connections")
    return build_report(counts, context, sections=wanted, over_facts=sections), context


def rows(made: Report, table: str) -> list[dict[str, Any]]:
    found = made.table(table)
    return [dict(zip([c.name for c in found.columns], row, strict=True)) for row in found.rows]


def test_failures_are_those_that_the_clients_had(recordings: Path) -> None:
    truth = json.loads((recordings / "failures.truth.json").read_text())["connections"]
    expected = Counter(
        (row["port"], alert_name(row["alert"]), row["alert_by"]) for row in truth if row["alert"] is not None
    )
    made, _ = report(recordings / "failures.pcap.zst", keys(recordings, "failures"))
    found: Counter[tuple[int, str | None, str | None]] = Counter()
    for row in rows(made, "tls_failures"):
        assert row["when"] == "handshake"
        if row["alert"] is not None:
            found[int(row["broker"].rpartition(":")[2]), row["alert"], row["sent_by"]] += row["connections"]
    assert found == expected
    summary = {row["finding"]: row["text"] for row in rows(made, "summary")}
    assert f"{sum(expected.values()) + 1} TLS handshakes failed" in summary["tls_failed"]  # and one at a plain port
    assert "expired on 2026-11-22" in summary["certificate"]


def test_ports_that_do_not_speak_what_clients_do(recordings: Path) -> None:
    """Two clients without TLS at ports with it, and one with TLS at a port without."""
    truth = json.loads((recordings / "failures.truth.json").read_text())["connections"]
    in_clear = {row["port"] for row in truth if "in-clear" in row["case"]}
    (with_tls,) = (row["port"] for row in truth if row["case"] == "tls-to-plain")
    for has_keys in (False, True):
        _, context = report(recordings / "failures.pcap.zst", keys(recordings, "failures", has_keys))
        found = [
            (
                {int(one.name.rpartition(":")[2]) for one in each.parties if one.kind == "broker"},
                each.numbers,
                each.text,
            )
            for each in tls_findings(context)
            if each.id == "wrong_port"
        ]
        assert [ports for ports, *_ in found] == [in_clear, {with_tls}]
        assert [numbers["connections"] for _, numbers, _ in found] == [2, 1]
        assert [" began without TLS" in text for *_, text in found] == [True, False]


def test_no_client_is_said_to_use_a_wrong_port_where_none_does(recordings: Path) -> None:
    for name in ("matrix", "broker"):
        _, context = report(recordings / f"{name}.pcap.zst", keys(recordings, name))
        assert "wrong_port" not in {each.id for each in tls_findings(context)}


@pytest.mark.parametrize("has_keys", [True, False], ids=["keys", "no keys"])
@pytest.mark.parametrize("name", ["broker", "failures"])
def test_any_number_of_processes(recordings: Path, tmp_path: Path, name: str, has_keys: bool) -> None:
    path = unpacked(recordings, name, tmp_path)
    key_log = keys(recordings, name, has_keys)
    options = RunOptions(ReadOptions(key_log=key_log), wanted=WANTED)
    wanted = one_engine([path], options)
    for processes in (1, 2, 4):
        assert_same(over_splits([path], processes, options), wanted)


@pytest.mark.parametrize("name", ["broker", "failures"])
def test_shares_and_connections_agree_with_and_without_tables(recordings: Path, name: str) -> None:
    """Kept rows and counts give the same heading. What was decrypted has no estimates."""
    path, key_log = recordings / f"{name}.pcap.zst", keys(recordings, name)
    (one, _), (other, context) = report(path, key_log), report(path, key_log, tables=True)
    assert one.heading == other.heading
    assert one.table("summary") == other.table("summary")
    table = connections_table(context.connections, context).to_pylist()
    estimated = {row["connection"]: row["tls_estimated"] for row in table if row["tls_estimated"]}
    counted = sum(row["estimated_count"] for row in rows(other, "tls_estimated_connections"))
    assert sum(estimated.values()) == counted
    for row in table:
        if row["tls_decryption"] == "decrypted":
            assert not row["tls_estimated"]
            assert row["protocol"] != "tls"
    by_section = sum(row["connections"] for row in rows(other, "tls"))
    assert by_section == sum(row["tls_decryption"] is not None for row in table)
    assert by_section == sum(row["tls"] for row in rows(other, "connections"))


def test_everything_adds_up_in_the_ledger(recordings: Path) -> None:
    """The shares of the heading are those of the ledger."""
    made, context = report(recordings / "broker.pcap.zst", keys(recordings, "broker"))
    payload = context.ledger["payload bytes"]
    (row,) = rows(made, "heading")
    total = payload["total"] - payload["duplicate"]
    assert row["encrypted_share"] == pytest.approx(payload["encrypted"] / total)
    assert sum(n for part, n in payload.items() if part != "total") == payload["total"]
    assert 0 < row["decrypted_share"] <= 1 - row["encrypted_share"]
