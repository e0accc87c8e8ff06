"""The rollup of a lake: counts by capture and hour become tables, and these the same counts again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkatap.dissector import dtypes as r
from kafkatap.engine.engine import Engine
from kafkatap.kernels.arrays import joined
from kafkatap.parquet.partitions import exchange_begins
from kafkatap.parquet.row_names import named
from kafkatap.reports.batch import Array, Batch, Context, id_of_text, uuid_text
from kafkatap.reports.counting.connection_counts import CONNECTIONS, count_connections
from kafkatap.reports.counting.count_forms import ADDRESS, TEXT, FormCounts
from kafkatap.reports.counting.counts import ERRORS, GROUPS, ReportCounts
from kafkatap.reports.counting.histogram import BUCKETS, buckets, largest
from kafkatap.reports.counting.hour_counts import HOUR, HourCounts
from kafkatap.reports.rollup_tables import FORMS, ROLLUP_TABLES, add_rollup, rollup_table
from kafkatap.run import Run

from .rows import ADDRESSES, START, STRINGS, exchange, result


def named_rows(counts: FormCounts, names: Any, keep: int = 0) -> dict[Any, Any]:
    """Values and histograms by the names in the keys, without the keys before the last ones of the form."""
    keys, values = list(counts.keys().items())[keep:], counts.values()
    found: dict[Any, Any] = {}
    histograms: dict[int, list[tuple[str, int, int]]] = {}
    for metric in counts.form.metrics:
        for row, bucket, count in zip(*(part.tolist() for part in counts.buckets(metric)), strict=True):
            histograms.setdefault(row, []).append((metric, bucket, count))
    for row in range(len(counts)):
        key = tuple(_text(names, counts.form.keys[name], name, int(column[row])) for name, column in keys)
        assert key not in found
        found[key] = {name: int(column[row]) for name, column in values.items()}, sorted(histograms.get(row, []))
    return found


def _text(names: Any, kind: str, key: str, number: int) -> Any:
    if number < 0 or kind not in (TEXT, ADDRESS):
        return number
    if kind == ADDRESS:
        return names.addresses[number]
    value = names.strings[number]
    return uuid_text(value) if key == "topic_id" else value.decode("utf-8", "replace")


def through_tables(counts: HourCounts) -> HourCounts:
    made = HourCounts(most_rows=None)
    for table in FORMS:
        rows = rollup_table(table, counts)
        assert rows.column_names == [*(c.name for c in ROLLUP_TABLES[table]), "capture"]
        rows.validate(full=True)
        add_rollup(table, rows.slice(0, 3), made)  # in parts, as a lake is read
        add_rollup(table, rows.slice(3), made)
    return made


def check(counts: HourCounts, whole: ReportCounts, context: Any) -> None:
    """The counts, and those that went through tables, are those of a report."""
    for made in (counts, through_tables(counts)):
        made.add_to(report := ReportCounts())
        for form in (GROUPS, ERRORS):
            assert named_rows(report.counts_of(form), made.names) == named_rows(whole.counts_of(form), context)
        timelines = [each._store["timeline"] for each in (report, whole)]
        assert named_rows(timelines[0], made.names) == named_rows(timelines[1], context)


@given(st.integers(0, 2**63 - 1))
def test_the_largest_value_of_a_bucket(value: int) -> None:
    bucket = buckets(np.array([value], np.int64))
    [top] = largest(bucket).tolist()
    assert top >= value
    assert buckets(np.array([top], np.int64)) == bucket
    if top < 2**63 - 1:
        assert buckets(np.array([top + 1], np.int64)) == bucket + 1
    assert bucket[0] < BUCKETS


@given(st.binary(min_size=16, max_size=16))
def test_ids_and_their_text(value: bytes) -> None:
    assert id_of_text(uuid_text(value) or "") == value


@pytest.mark.parametrize("text", ["(other)", "x" * 22, "é" * 22, "", "A" * 21 + "B", "-" * 22])
def test_a_text_that_is_no_id(text: str) -> None:
    assert uuid_text(id_of_text(text)) == text


@given(st.integers(0, 1000), st.integers(1, 30))
@settings(max_examples=25, deadline=None)
def test_any_parts_of_any_rows(seed: int, size: int) -> None:
    rng = np.random.default_rng(seed)
    exchanges, results = [], []
    for n in range(60):
        exchanges.append(
            exchange(
                n, at=int(rng.integers(0, 5 * HOUR)), broker=int(rng.integers(0, 1 << int(rng.integers(1, 40)))),
                api_key=int(rng.integers(-1, 4)), api_version=int(rng.integers(-1, 3)), outcome=int(rng.integers(0, 6)),
                client_id=int(rng.integers(-1, 3)), client_ip=int(rng.integers(0, 3)),
                long_poll=int(rng.integers(0, 2)), throttle_time_ms=int(rng.integers(0, 3)),
                throttle_wait_ns=int(rng.integers(0, 2)), hol_wait_ns=int(rng.integers(0, 5)),
            )
        )  # fmt: skip
        for p in range(int(rng.integers(0, 3))):
            topic, topic_id = (3, -1) if p else (-1, 4)
            results.append(result(n, int(rng.integers(-1, 4)), partition=p, topic=topic, topic_id=topic_id))
    rows, of_rows = (np.array(some, dtype) for some, dtype in ((exchanges, r.EXCHANGE), (results, r.RESULT)))
    orphans = rows["outcome"] == r.ORPHAN_RESPONSE
    rows["response_first"][orphans], rows["request_first"][orphans] = rows["request_first"][orphans], r.NO_TIME
    context = Context(STRINGS, ADDRESSES)
    whole, counts = ReportCounts(interval=HOUR), HourCounts()
    whole.add(Batch(rows, of_rows))
    whole.finish()
    for first in range(0, len(rows), size):
        some = rows[first : first + size]
        mine = of_rows[np.isin(of_rows["exchange"], some["exchange"])]
        begins = exchange_begins(some)
        counts.add(some, mine, some["exchange"] % 3, begins // HOUR, context)
    check(counts, whole, context)
    assert counts["groups"].keys()["hour"].min() >= START // HOUR


def read(path: Path) -> tuple[Run, Array, Array]:
    """A run over a capture, and its EXCHANGE and RESULT rows."""
    run = Run([str(path)], Engine(all_results=True, tables=True))
    batches = list(run.batches())
    return run, joined([b.exchanges for b in batches], r.EXCHANGE), joined([b.results for b in batches], r.RESULT)


@pytest.mark.parametrize("name", ["apache-0.8.2", "apache-2.8", "apache-4.3"])
def test_a_capture(samples: Path, name: str) -> None:
    run, exchanges, results = read(samples / f"{name}.pcap.zst")
    context = run.context()
    whole, counts = ReportCounts(interval=HOUR), HourCounts()
    whole.add(Batch(exchanges, results))
    whole.finish()
    for part in range(4):  # of connections, each with numbers of names of its own
        mine = exchanges[exchanges["connection"] % 4 == part].copy()
        of_mine = results[np.isin(results["exchange"], mine["exchange"])].copy()
        names = named([mine, of_mine], run.engine)
        counts.add(mine, of_mine, mine["connection"] % 3, exchange_begins(mine) // HOUR, names)
    connections = run.engine.connections
    for part in range(2):
        rows = connections[part::2].copy()
        names = named([rows], run.engine)
        counts.add_connections(rows, np.full(len(rows), part), rows["first"] // HOUR, names)
    assert len(whole.groups) > 20
    for row in rollup_table("rollup_errors", counts).to_pylist():  # an id is there only instead of a name
        assert row["topic_id"] in (None, row["topic"])
    known = context._replace(strings=run.engine.strings, addresses=run.engine.addresses)
    for made in (counts, through_tables(counts)):
        made.add_to(report := ReportCounts())
        assert named_rows(report.counts_of(GROUPS), made.names) == named_rows(whole.counts_of(GROUPS), known)
        found = named_rows(made.connection_counts()[CONNECTIONS.name], made.names)
        for key, value in named_rows(count_connections(connections)[CONNECTIONS.name], known).items():
            found[key][0]["rtt_max"] = max(found[key][0]["rtt_max"], -1)  # -1: no round trip was seen
            assert found.pop(key) == value
        assert not found
        codes = {name: int(counts.values()["count"].sum()) for name, counts in (
            ("made", report.counts_of(ERRORS)), ("whole", whole.counts_of(ERRORS)))}  # fmt: skip
        assert codes["made"] == codes["whole"] == int((results["error_code"] != 0).sum())


def test_there_are_not_more_rows_than_the_limit() -> None:
    rows = np.array([exchange(n, client_id=-1, client_port=n, api_version=n) for n in range(50)], r.EXCHANGE)
    counts = HourCounts(most_rows=20)
    for row in range(50):
        context = Context([f"client-{row}".encode(), *STRINGS[1:]], ADDRESSES)
        mine = rows[row : row + 1].copy()
        mine["client_id"] = 0
        begins = exchange_begins(mine)
        counts.add(mine, np.zeros(0, r.RESULT), np.zeros(1, np.int64), begins // HOUR, context)
    found = rollup_table("rollup", counts)
    assert found.num_rows <= 20
    assert sum(found["answered"].to_pylist()) == 50
    assert "(other)" in found["client_id"].to_pylist()


def test_columns_that_a_table_lacks() -> None:
    """An earlier version of kafkatap may have had fewer columns."""
    counts = HourCounts()
    rows = np.array([exchange(1)], r.EXCHANGE)
    begins = exchange_begins(rows)
    counts.add(rows, np.zeros(0, r.RESULT), np.zeros(1, np.int64), begins // HOUR, Context(STRINGS, ADDRESSES))
    table = rollup_table("rollup", counts)
    made = HourCounts()
    add_rollup("rollup", table.drop_columns(["nagle_ns", "total_histogram", "client_software"]), made)
    [row] = named_rows(made["groups"], made.names, 2).values()
    assert row[0]["answered"] == 1
    assert row[0]["nagle_ns"] == 0
    assert {metric for metric, *_ in row[1]} == {"broker"}
    assert isinstance(table, pa.Table)
