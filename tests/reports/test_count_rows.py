"""Counts as rows: written, added up as SQL does it, read again, in any parts and with any numbers of names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkatap.dissector import dtypes as r
from kafkatap.engine import Engine
from kafkatap.reports.batch import STRING_COLUMNS, Batch, Context
from kafkatap.reports.build import build_report
from kafkatap.reports.counting import counts as counts_module
from kafkatap.reports.counting import tally
from kafkatap.reports.counting.count_rows import (
    ADDED_BY,
    COLUMNS,
    KEYS,
    NameTable,
    counts_of_rows,
    escape,
    rows_of_counts,
    unescape,
)
from kafkatap.reports.counting.counts import SECOND, ReportCounts
from kafkatap.reports.model import Report
from kafkatap.reports.sections.latency import BY
from kafkatap.reports.tables import arrow_schema
from kafkatap.run import Run

from . import rows as made
from .rows import MS, context, counted, exchange, result


def added_up(*tables: pa.Table) -> pa.Table:
    """What the SQL statement of the module's docstring gives."""
    rows = pa.concat_tables(tables)
    found = rows.group_by(list(KEYS)).aggregate(list(ADDED_BY.values()))
    return found.rename_columns({f"{name}_{function}": name for name, function in ADDED_BY.values()})


def renumbered(counts: ReportCounts, names: Context, rng: np.random.Generator) -> tuple[ReportCounts, Context]:
    """The same counts as another run would have numbered them."""
    strings, addresses = rng.permutation(len(names.strings)), rng.permutation(len(names.addresses))
    turned = counts.renumber(np.argsort(strings), np.argsort(addresses))
    new = np.argsort(strings)
    return turned, Context(
        strings=[names.strings[i] for i in strings],
        addresses=[names.addresses[i] for i in addresses],
        topic_names={int(new[i]): int(new[n]) for i, n in names.topic_names.items()},
    )


def in_numbers_of(context: Context, names: NameTable) -> Context:
    """A context whose connections are numbered by `names`."""
    connections = context.connections.copy()
    for column in STRING_COLUMNS & set(connections.dtype.names or ()):
        numbers = connections[column].tolist()
        connections[column] = [names.string(context.strings[n] if n >= 0 else None) for n in numbers]
    for column in ("client_ip", "broker_ip"):
        connections[column] = [names.address(context.address(n)) for n in connections[column].tolist()]
    return context._replace(
        strings=names.strings,
        addresses=names.addresses,
        topic_names=names.topic_names,
        connections=connections,
    )


def reports(counts: ReportCounts, context: Context) -> list[Report]:
    return [build_report(counts, context, by=by, curves=True) for by in BY]


def read_back(rows: pa.Table, context: Context, **options: int) -> list[Report]:
    counts, names = counts_of_rows(rows, by_topic=True, **options)
    return reports(counts, in_numbers_of(context, names))


@dataclass(frozen=True)
class Decoded:
    batches: Sequence[Batch]
    context: Context
    expected: Sequence[Report]


def decode(path: Path) -> Decoded:
    run = Run([str(path)], Engine(all_results=True))
    batches = [b.picked(np.ones(len(b.exchanges), bool)) for b in run.batches()]
    counts = ReportCounts(by_topic=True)
    for part in batches:
        counts.add(part)
    context = run.context()
    return Decoded(batches, context, reports(counts, context))


decoded = cache(decode)


def cut_anyhow(decoded: Decoded, parts: int, seed: int) -> list[pa.Table]:
    """Rows of parts of a run, as if each had been a run of its own: batches are cut and dealt out at random."""
    rng = np.random.default_rng(seed)
    counts = [ReportCounts(by_topic=True) for _ in range(parts)]
    for whole in decoded.batches:
        place = rng.integers(0, parts, len(whole.exchanges))
        for i, mine in enumerate(counts):
            mine.add(whole.picked(place == i))
    return [rows_of_counts(*renumbered(mine, decoded.context, rng)) for mine in counts]


SAMPLES = (
    "apache-0.8.2.pcap.zst", "apache-0.10.2.pcap.zst", "apache-2.8.pcap.zst", "apache-4.3.pcap.zst",
    "apache-4.3-two-interfaces.pcapng", "live-4.3.pcap.zst",
)  # fmt: skip


@pytest.mark.parametrize("name", SAMPLES)
def test_rows_of_any_parts_add_up_to_the_reports_of_all(samples: Path, name: str) -> None:
    sample = decoded(samples / name)
    for parts, seed in ((1, 0), (2, 1), (5, 2)):
        assert read_back(added_up(*cut_anyhow(sample, parts, seed)), sample.context) == sample.expected


def test_a_long_recording_in_parts(corpus: Path) -> None:
    recording = decode(next((corpus / "captures").glob("apache-2.8.pcap*")))
    assert read_back(added_up(*cut_anyhow(recording, 7, 3)), recording.context) == recording.expected


@settings(max_examples=10, deadline=None)
@given(st.integers(1, 6), st.integers(0, 1000), st.booleans())
def test_rows_may_be_added_in_any_order_or_not_at_all(parts: int, seed: int, summed: bool) -> None:
    sample = decoded(Path(__file__).resolve().parents[2] / "samples" / "apache-2.8.pcap.zst")
    tables = cut_anyhow(sample, parts, seed)
    rows = added_up(*(added_up(t) for t in tables)) if summed else pa.concat_tables(tables)
    shuffled = rows.take(np.random.default_rng(seed).permutation(len(rows)))
    assert read_back(shuffled, sample.context) == sample.expected


def test_engines_of_their_own(samples: Path, tmp_path: Path) -> None:
    """Two captures, each with its own engine: rows add up to what one engine says of the exchanges of both."""
    a, b = decoded(samples / "apache-2.8.pcap.zst"), decoded(samples / "apache-0.10.2.pcap.zst")
    rows = []
    for each in (a, b):
        counts = ReportCounts(by_topic=True)
        for part in each.batches:
            counts.add(part)
        rows.append(rows_of_counts(counts, each.context))
    both = Run(
        [str(samples / "apache-2.8.pcap.zst"), str(samples / "apache-0.10.2.pcap.zst")], Engine(all_results=True)
    )
    counts = ReportCounts(by_topic=True)
    for part in both.batches():
        counts.add(part)
    counts_read, names = counts_of_rows(added_up(*rows), by_topic=True)
    context = both.context()
    for by in BY:
        got = build_report(counts_read, in_numbers_of(context, names), by=by)
        wanted = build_report(counts, context, by=by)
        for name in ("latency", "throttle", "clients", "timeline", "heading"):
            assert got.table(name) == wanted.table(name)


def test_rows_have_the_declared_columns_and_little_else() -> None:
    counts = counted([exchange(0), exchange(1, broker=2 * MS, client_id=-1)], [result(0, 3)], by_topic=True)
    rows = rows_of_counts(counts, context())
    rows.validate(full=True)
    assert rows.schema == arrow_schema(COLUMNS)
    one_number = sum(pc.cast(pc.is_valid(rows[name]), "int8").to_numpy() for name, _ in ADDED_BY.values())
    assert (one_number == 1).all()
    [error] = [row for row in rows.to_pylist() if row["counts"] == "errors" and row["measure"] == "count"]
    said = {name: value for name, value in error.items() if value is not None}
    assert said == {
        "counts": "errors", "measure": "count", "added": 1, "error_code": 3, "api_key": 1, "kind": "partition",
        "topic": "orders", "client_id": "billing", "broker_ip": "10.0.0.2", "broker_port": 9092,
    }  # fmt: skip
    assert "unanswered" not in rows["measure"].to_pylist()  # zeros are left out


def test_of_nothing() -> None:
    rows = rows_of_counts(ReportCounts(), Context())
    assert len(rows) == 0
    counts, _ = counts_of_rows(rows)
    assert build_report(counts, Context()) == build_report(ReportCounts(), Context())


@given(st.binary(max_size=20))
@settings(deadline=None)
def test_strings_of_any_bytes(value: bytes) -> None:
    text = escape(value)
    assert text is not None
    assert unescape(text) == value
    assert pa.array([text], pa.string()).to_pylist() == [text]


def test_null_empty_and_broken_strings_stay_apart() -> None:
    strings: list[bytes | None] = [b"", b"\xff", b"\\xff", "ÿ".encode(), b"\\", b"a\x00b"]
    exchanges = [exchange(i, client_id=i) for i in range(-1, len(strings))]
    counts = counted(exchanges)
    back, names = counts_of_rows(added_up(rows_of_counts(counts, context(strings=strings))))
    ids = back.groups.key_rows()[:, tally.GROUP_KEY.index("client_id")].tolist()
    assert {names.strings[n] if n >= 0 else None for n in ids} == {*strings, None}
    assert len(back.groups) == len(exchanges)


def test_a_key_whose_numbers_are_all_zero_is_kept() -> None:
    """An orphan response without bytes: its interval has nothing but its place in the timeline."""
    orphan = exchange(0, outcome=r.ORPHAN_RESPONSE, request_bytes=-1, api_key=-1)
    orphan["response_first"] = orphan["request_first"] + 40 * SECOND
    counts = counted([orphan, exchange(1)])
    assert (counts.timeline.value_rows() == 0).sum(axis=1).max() == tally.TIMELINE_COLUMNS - 1
    assert read_back(rows_of_counts(counts, context()), context()) == reports(counts, context())


def test_topics_are_named_by_what_other_runs_know() -> None:
    """One run knows a topic by its id alone, another one saw its name too."""
    named = context(topic_names={made.ORDERS_ID: made.ORDERS})
    by_id = result(0, 6, topic=-1, topic_id=made.ORDERS_ID)
    unnamed = rows_of_counts(counted([exchange(0)], [by_id], by_topic=True), context())
    assert "orders" not in unnamed["topic"].to_pylist()
    rows = added_up(unnamed, rows_of_counts(counted([exchange(0)], [by_id], by_topic=True), named))
    wanted = counted(
        [exchange(0), exchange(1)], [by_id, result(1, 6, topic=-1, topic_id=made.ORDERS_ID)], by_topic=True
    )
    assert read_back(rows, context()) != read_back(unnamed, context())
    assert [r.table("latency") for r in read_back(rows, context())][-1].rows[0][1:3] == ("orders", 2)
    errors = [r.table("errors").rows for r in reports(wanted, named)]
    assert [row[:5] for row in read_back(rows, context())[0].table("errors").rows] == [row[:5] for row in errors[0]]


def test_the_coarsest_interval_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counts_module, "TIMELINE_LIMIT", 20)
    exchanges = [exchange(i, at=i * SECOND, broker=MS) for i in range(100)]
    whole, long, short = counted(exchanges), counted(exchanges[:60]), counted(exchanges[60:75])
    rest = counted(exchanges[75:])
    assert [c.interval // SECOND for c in (whole, long, short, rest)] == [10, 5, 1, 5]
    rows = added_up(*(rows_of_counts(c, context()) for c in (short, long, rest)))
    assert counts_of_rows(rows)[0].interval == 10 * SECOND
    assert read_back(rows, context()) == reports(whole, context())


def test_an_interval_that_was_asked_for() -> None:
    exchanges = [exchange(i, at=i * SECOND) for i in range(30)]
    rows = rows_of_counts(counted(exchanges, interval=2 * SECOND), context())
    for seconds in (2, 6):
        wanted = reports(counted(exchanges, interval=seconds * SECOND, by_topic=True), context())
        assert read_back(rows, context(), interval=seconds * SECOND) == wanted
    with pytest.raises(ValueError, match="counts: rows by 2000000000 ns cannot be counted by 1000000000 ns"):
        counts_of_rows(rows, interval=SECOND)
    with pytest.raises(ValueError, match="counts: not all intervals fit into 5000000000 ns"):
        counts_of_rows(rows, interval=5 * SECOND)


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("counts", "grops", "counts: there is no table 'grops'"),
        ("measure", "speed", "counts: groups have no measure 'speed'"),
        ("api_key", None, "counts: a row of groups has no api_key"),
        ("bucket", 7, "counts: a row of groups has a wrong bucket"),
    ],
)
def test_rows_that_cannot_be(column: str, value: object, message: str) -> None:
    rows = rows_of_counts(counted([exchange(0)]), context())
    first = {**rows.slice(0, 1).to_pylist()[0], column: value}
    with pytest.raises(ValueError, match=message):
        counts_of_rows(pa.Table.from_pylist([first], schema=rows.schema))
