"""Counts of parts of a run add up to those of the whole, with any numbers of names, in any order of parts, pickled."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkatap.engine.engine import Engine
from kafkatap.reports.batch import Batch, Context
from kafkatap.reports.build import build_report
from kafkatap.reports.connection_columns import CONNECTION_ROW
from kafkatap.reports.counting.connection_counts import ConnectionCounts
from kafkatap.reports.counting.counts import ReportCounts
from kafkatap.reports.model import Report
from kafkatap.reports.sections.latency import BY
from kafkatap.run import Run
from kafkatap.splits.run_options import RunOptions
from kafkatap.splits.split_counts import SplitCounts, TotalCounts
from tests.reports.rows import connection, context, exchange
from tests.reports.rows import counted as counts_of

SAMPLES = Path(__file__).resolve().parents[2] / "samples"
NAMES = (
    "apache-0.8.2.pcap.zst", "apache-0.10.2.pcap.zst", "apache-2.8.pcap.zst", "apache-4.3.pcap.zst",
    "apache-4.3-two-interfaces.pcapng", "live-4.3.pcap.zst",
)  # fmt: skip


@dataclass(frozen=True)
class Decoded:
    batches: Sequence[Batch]
    context: Context
    connections: np.ndarray
    expected: Sequence[Report]


def reports(counts: ReportCounts, context: Context) -> list[Report]:
    return [build_report(counts, context, by=by, curves=True) for by in BY]


@cache
def decoded(*paths: Path) -> Decoded:
    engine = Engine(all_results=True)
    run = Run([str(path) for path in paths], engine)
    batches = [b.picked(np.ones(len(b.exchanges), bool)) for b in run.batches()]
    counts, connections = ReportCounts(by_topic=True), ConnectionCounts()
    for part in batches:
        counts.add(part)
    rows = engine.connections
    connections.add(rows)
    context = run.context()._replace(connections=np.zeros(0, CONNECTION_ROW), counted=connections)
    return Decoded(batches, context, rows, reports(counts, context))


def renumbered(part: SplitCounts, names: Context, rng: np.random.Generator) -> SplitCounts:
    """The same counts as another process would have numbered and sent them."""
    strings, addresses = rng.permutation(len(names.strings)), rng.permutation(len(names.addresses))
    numbers = np.argsort(strings), np.argsort(addresses)
    part.report.renumber(*numbers)
    shared = part.shared.copy()
    for name in ("client_id", "software", "software_version", "tls_server_certificate", "tls_ja4"):
        shared[name] = np.append(numbers[0], -1)[shared[name]]
    for name in ("client_ip", "broker_ip"):
        shared[name] = np.append(numbers[1], -1)[shared[name]]
    turned = Context(strings=[names.strings[i] for i in strings], addresses=[names.addresses[i] for i in addresses])
    made = SplitCounts.of(part.report, part.connections, None, shared, turned)
    return pickle.loads(pickle.dumps(made))


def cut_anyhow(sample: Decoded, parts: int, seed: int) -> list[SplitCounts]:
    """Counts of parts of a run, as if each had been a run of its own: batches are cut and dealt out at random, and so
    are connections, of which some are in two parts."""
    rng = np.random.default_rng(seed)
    counts = [ReportCounts(by_topic=True) for _ in range(parts)]
    for whole in sample.batches:
        place = rng.integers(0, parts, len(whole.exchanges))
        for i, mine in enumerate(counts):
            mine.add(whole.picked(place == i))
    place = rng.integers(0, parts, len(sample.connections))
    return [
        renumbered(
            SplitCounts(mine, ConnectionCounts(), None, sample.connections[place == i], {}, {}), sample.context, rng
        )
        for i, mine in enumerate(counts)
    ]


def added_up(parts: Sequence[SplitCounts], sample: Decoded) -> list[Report]:
    total = TotalCounts(RunOptions(by_topic=True))
    for part in parts:
        total.add(part)
    strings = sample.context.strings
    total.name_topics(
        [{strings[number] or b"": strings[name] or b"" for number, name in sample.context.topic_names.items()}]
    )
    assert len(total.end_connections()) == len(sample.connections)
    assert len(total.end_connections()) == 0
    names = total.names
    known = sample.context._replace(
        strings=names.strings, addresses=names.addresses, topic_names=names.topic_names, counted=total.connections
    )
    return reports(total.report, known)


@pytest.mark.parametrize("name", NAMES)
def test_parts_add_up_to_the_whole(name: str) -> None:
    sample = decoded(SAMPLES / name)
    for parts, seed in ((1, 0), (2, 1), (5, 2)):
        assert added_up(cut_anyhow(sample, parts, seed), sample) == sample.expected


def test_two_captures() -> None:
    sample = decoded(SAMPLES / "apache-2.8.pcap.zst", SAMPLES / "apache-0.10.2.pcap.zst")
    assert added_up(cut_anyhow(sample, 3, 4), sample) == sample.expected


@settings(max_examples=10, deadline=None)
@given(st.integers(1, 6), st.integers(0, 1000))
def test_a_sum_is_a_part(parts: int, seed: int) -> None:
    """A stream adds the sum of earlier batches to the parts of the next one. Open connections wait in it."""
    sample = decoded(SAMPLES / "apache-2.8.pcap.zst")
    some = cut_anyhow(sample, parts, seed)
    still_open = set(sample.connections["connection"][::3].tolist())
    earlier = TotalCounts(RunOptions(by_topic=True))
    for part in some[: parts // 2]:
        earlier.add(part)
    ended = earlier.end_connections(still_open)
    assert not still_open & set(ended["connection"].tolist())
    sent = pickle.loads(pickle.dumps(earlier.as_split()))
    assert set(sent.shared["connection"].tolist()) <= still_open
    total = TotalCounts(RunOptions(by_topic=True))
    for part in (sent, *some[parts // 2 :]):
        total.add(part)
    assert len(total.end_connections()) + len(ended) == len(sample.connections)
    for name in ("connections", "tls"):
        got, wanted = total.connections[name], sample.context.counted[name]  # type: ignore[index]
        assert sorted(got.table.value_rows().tolist()) == sorted(wanted.table.value_rows().tolist())


def test_to_add_a_part_does_not_change_it() -> None:
    sample = decoded(SAMPLES / "apache-4.3.pcap.zst")
    parts = cut_anyhow(sample, 3, 7)
    assert added_up(parts, sample) == added_up(parts, sample) == sample.expected


def test_names_that_are_no_text() -> None:
    """Clients whose ids print alike stay apart."""
    strings: list[bytes | None] = [b"caf\xe9", b"", b"caf\\xe9"]
    exchanges = [exchange(i, client_id=number) for i, number in enumerate((0, 1, 2, -1, 0))]
    rows = np.concatenate([connection(client_id=n) for n in (0, 1, 2, -1)])
    known = context(strings=strings)
    connections = ConnectionCounts()
    connections.add(rows)
    part = SplitCounts.of(counts_of(exchanges), connections, None, rows[:0], known)
    total = TotalCounts(RunOptions())
    total.add(pickle.loads(pickle.dumps(part)))
    assert [total.names.strings[n] for n in total.report.groups.key_rows()[:, 2].tolist() if n >= 0] == strings
    keys = total.connections.table.key_rows()[:, 0].tolist()
    assert sorted(total.names.strings[n] or b"" for n in keys if n >= 0) == sorted(strings)  # type: ignore[type-var]


@pytest.mark.parametrize("rows", [1, 5, 40])
def test_totals_are_bounded(rows: int) -> None:
    """Splits are bounded, and their sum is too: what is left out is added up as (other)."""
    total = TotalCounts(RunOptions())
    total._limit = rows
    for start in range(0, 400, 40):
        strings: list[bytes | None] = [b"client %d" % n for n in range(start, start + 40)]
        part = SplitCounts.of(
            counts_of([exchange(n, client_id=n) for n in range(40)]), ConnectionCounts(), None,
            np.zeros(0, CONNECTION_ROW), context(strings=strings),
        )  # fmt: skip
        total.add(part)
        assert len(total.report.groups) <= max(rows, 1)
    assert total.report.total("answered") == 400
    assert any(total.names.strings[n] == b"(other)" for n in total.report.groups.key_rows()[:, 2].tolist())
