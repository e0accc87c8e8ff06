"""Reports from tables and rows of counts say what a run in one process says, to the letter."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from kafkatap.engine import Engine
from kafkatap.reports.batch import Context
from kafkatap.reports.build import build_report
from kafkatap.reports.counting.count_rows import counts_of_rows, rows_of_counts
from kafkatap.reports.counting.counts import ReportCounts
from kafkatap.reports.model import Report
from kafkatap.reports.rendering.text import write_text
from kafkatap.reports.sections.latency import BY
from kafkatap.reports.tables import connections_table, files_table, ledger_table
from kafkatap.run import Run
from kafkatap.splits import summing
from kafkatap.splits.packed_rows import packed, unpacked
from kafkatap.splits.summing import context_of_tables
from tests.reports.rows import connection, context, counted, exchange

SAMPLES = (
    "apache-0.8.2.pcap.zst", "apache-0.10.2.pcap.zst", "apache-2.8.pcap.zst", "apache-4.3.pcap.zst",
    "apache-4.3-two-interfaces.pcapng", "live-4.3.pcap.zst",
)  # fmt: skip


@dataclass(frozen=True)
class Local:
    """A run in one process: its reports, and what it hands to Spark."""

    context: Context
    counts: ReportCounts
    parts: Sequence[pa.Table]

    def report(self, by: str) -> Report:
        return build_report(self.counts, self.context, by=by, curves=True)

    def tables(self) -> tuple[pa.Table, pa.Table, pa.Table]:
        """connections, files, ledger; rows in no order."""
        c = self.context
        rng = np.random.default_rng(5)
        made = (connections_table(c.connections, c), files_table(c), ledger_table(c))
        return tuple(t.take(rng.permutation(len(t))) for t in made)


def run_locally(*paths: Path, parts: int = 3) -> Local:
    run = Run([str(path) for path in paths], Engine(all_results=True))
    whole, pieces = ReportCounts(by_topic=True), [ReportCounts(by_topic=True) for _ in range(parts)]
    for batch in run.batches():
        whole.add(batch)
        for i, piece in enumerate(pieces):
            piece.add(batch.picked(batch.exchanges["exchange"] % parts == i))
    context = run.context()
    return Local(context, whole, [rows_of_counts(piece, context) for piece in pieces])


local = cache(run_locally)


def text(report: Report) -> str:
    out = io.StringIO()
    write_text(report, out, top=1000, utc=True, color=False, width=200)
    return out.getvalue()


@pytest.mark.parametrize("name", SAMPLES)
def test_tables_tell_all_that_reports_need(samples: Path, name: str) -> None:
    run = local(samples / name)
    counts, names = counts_of_rows(pa.concat_tables(run.parts), by_topic=True)
    context = context_of_tables(*run.tables(), names, not_captured=run.context.not_captured)
    for by in BY:
        report = build_report(counts, context, by=by, curves=True)
        assert text(report) == text(run.report(by))
        assert report == run.report(by)


def test_several_files_and_times_to_the_microsecond(samples: Path) -> None:
    run = local(samples / "apache-2.8.pcap.zst", samples / "apache-0.10.2.pcap.zst")
    connections, files, ledger = run.tables()
    schema = pa.schema(
        [f.with_type(pa.timestamp("us", "UTC")) if pa.types.is_timestamp(f.type) else f for f in connections.schema]
    )
    counts, names = counts_of_rows(pa.concat_tables(run.parts))
    context = context_of_tables(connections.cast(schema, safe=False), files, ledger, names)
    assert build_report(counts, context) == build_report(run.counts, run.context)


def test_ledgers_of_parts_add_up() -> None:
    def ledger(*rows: tuple[str, str, int]) -> pa.Table:
        return pa.table(dict(zip(("section", "part", "count"), map(list, zip(*rows, strict=True)), strict=True)))

    a = ledger(("requests", "total", 7), ("requests", "answered", 7), ("packets", "tcp", 9), ("more", "x", 1))
    b = ledger(("requests", "unanswered", 2), ("requests", "total", 3), ("requests", "answered", 1))
    empty = Context()
    context = context_of_tables(
        connections_table(empty.connections, empty), files_table(empty), pa.concat_tables([a, b])
    )
    assert {s: list(parts.items()) for s, parts in context.ledger.items()} == {
        "packets": [("tcp", 9)], "requests": [("answered", 8), ("unanswered", 2), ("total", 10)], "more": [("x", 1)],
    }  # fmt: skip
    assert list(context.ledger) == ["packets", "requests", "more"]
    assert (context.first, context.last, context.encrypted_share) == (None, None, 0.0)


def test_topic_names_that_only_the_plan_knows(samples: Path) -> None:
    run = local(samples / "apache-4.3.pcap.zst")
    strings, known = run.context.strings, run.context.topic_names
    known_names = {strings[topic_id] or b"": strings[name] or b"" for topic_id, name in known.items()}
    unnamed = Context(strings=strings, addresses=run.context.addresses)
    counts, names = counts_of_rows(rows_of_counts(run.counts, unnamed), by_topic=True)
    report = build_report(
        counts, context_of_tables(*run.tables(), names, topic_names=known_names), by="topic", curves=True
    )
    assert known_names
    assert report == run.report("topic")
    counts, names = counts_of_rows(rows_of_counts(run.counts, unnamed), by_topic=True)
    assert build_report(counts, context_of_tables(*run.tables(), names), by="topic", curves=True) != report


@pytest.mark.parametrize("name", ["apache-4.3.pcap.zst", "apache-0.8.2.pcap.zst"])
def test_rows_of_several_runs_add_up(samples: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run = local(samples / name)
    summed = summing.sum_rows(run.parts)
    assert len(summed) == len(rows_of_counts(run.counts, run.context)) < sum(map(len, run.parts))
    sent = [packed(part) for part in run.parts]
    assert [unpacked(rows, part.schema) for rows, part in zip(sent, run.parts, strict=True)] == run.parts
    assert sum(map(len, sent)) < sum(part.nbytes for part in run.parts) / 5
    monkeypatch.setattr(summing, "_GATHER", 100)  # adds up in many steps
    assert sorted_rows(summing.sum_rows(run.parts)) == sorted_rows(summed)
    for by in ("api", "topic"):
        report = summing.report_of(summed, *run.tables(), by=by, curves=True, not_captured=run.context.not_captured)
        assert text(report) == text(run.report(by))
        assert report == run.report(by)


def sorted_rows(table: pa.Table) -> list[str]:
    return sorted(map(str, table.to_pylist()))


def test_strings_that_are_no_text_stay_with_their_connection() -> None:
    """The table `connections` has them as they print; the client of the requests and of the connection is one."""
    strings: list[bytes | None] = [b"caf\xe9", b"", b"caf\\xe9"]
    exchanges = [exchange(i, client_id=number) for i, number in enumerate((0, 1, 2, -1, 0))]
    connections = np.concatenate([connection(client_id=n) for n in (0, 1, 2, -1)])
    known = context(strings=strings, connections=connections, files=[], first=None, last=None, ledger={}, packets=0)
    counts, names = counts_of_rows(rows_of_counts(counted(exchanges), known))
    tables = (connections_table(connections, known), files_table(known), ledger_table(known))
    got, wanted = build_report(counts, context_of_tables(*tables, names)), build_report(counted(exchanges), known)
    assert got == wanted
    assert [row[0] for row in got.table("clients").rows] == ["caf\ufffd", "", "caf\\xe9", None]
    assert [row[3] for row in got.table("clients").rows] == [1, 1, 1, 1]
