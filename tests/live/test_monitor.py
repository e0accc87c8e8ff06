"""The monitor's loop over captures: what it counts is what a report counts, whatever the bounds do meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kafkatap.dissector.exchanges import EXCHANGE_TOPIC
from kafkatap.engine import Engine
from kafkatap.live.bounds import Bounds, fold
from kafkatap.live.governor import FULL, HEADER_BYTES, HEADERS, LEAN, PAUSED, Governor
from kafkatap.live.monitor import Monitor
from kafkatap.open_topics import OpenTopics
from kafkatap.reports import tally
from kafkatap.reports.batch import Context
from kafkatap.reports.build import build_report
from kafkatap.reports.counts import ReportCounts
from kafkatap.reports.model import Report
from kafkatap.running import Run

from .support import SECOND, FileSource

SAMPLES = sorted(Path("samples").glob("*.pcap*"))
WANTED = ("latency", "throttle", "errors", "clients", "timeline")


def watched(path: Path, bounds: Bounds | None = None, step: int = SECOND // 10) -> tuple[Monitor, FileSource]:
    source = FileSource(str(path), step)
    monitor = Monitor(source, Engine(True), bounds=bounds, clock=source.clock, governor=Governor(None))
    monitor.run(lambda: source.over)
    return monitor, source


def reported(path: Path, by: str) -> tuple[Report, Context]:
    engine = Engine(True)
    counts = ReportCounts(None, engine, by_topic=True)
    run = Run([str(path)], engine)
    for batch in run.batches():
        counts.add(batch)
    context = run.context()
    return build_report(counts, context, by=by), context


@pytest.mark.parametrize("path", SAMPLES, ids=lambda p: p.name)
@pytest.mark.parametrize("by", ["api", "topic"])
def test_what_it_counts_is_what_a_report_counts(path: Path, by: str) -> None:
    monitor, _ = watched(path)
    made = build_report(monitor.windows.start, monitor.context(), by=by)
    wanted, context = reported(path, by)
    for name in WANTED:
        assert made.table(name).rows == wanted.table(name).rows
    assert monitor.context().ledger == context.ledger


@pytest.mark.parametrize("path", SAMPLES[:2], ids=lambda p: p.name)
def test_forgetting_names_changes_no_number(path: Path) -> None:
    """Bounds so tight that names are looked through every second."""
    monitor, _ = watched(path, Bounds(strings=1, text=1, addresses=1), SECOND // 50)
    made = build_report(monitor.windows.start, monitor.context(), by="topic")
    wanted, _ = reported(path, "topic")
    for name in WANTED:
        assert made.table(name).rows == wanted.table(name).rows


@pytest.mark.parametrize("path", SAMPLES[:1], ids=lambda p: p.name)
def test_small_rows_are_added_up(path: Path) -> None:
    monitor, _ = watched(path, Bounds(rows=6))
    wanted, _ = reported(path, "api")
    made = build_report(monitor.windows.start, monitor.context(), by="client")
    column = [c.name for c in made.table("latency").columns].index("count")
    asked = [c.name for c in wanted.table("latency").columns].index("count")
    assert sum(r[column] for r in made.table("latency").rows) == sum(r[asked] for r in wanted.table("latency").rows)
    assert "(other)" in {r[1] for r in made.table("latency").rows}
    keys = fold(monitor.windows.start, Bounds(rows=6), monitor.engine).groups.key_rows()
    kinds = {(api, poll) for api, poll in zip(keys[:, 0], keys[:, tally.GROUP_KEY.index("long_poll")], strict=True)}
    assert len(keys) <= 3 + len(kinds)


def test_windows_are_the_last_seconds() -> None:
    path = SAMPLES[0]
    source = FileSource(str(path))
    monitor = Monitor(source, Engine(True), clock=source.clock, governor=Governor(None))
    while not source.over:
        source.wait(0.1)
        monitor.step()
        every = list(monitor.windows.seconds)
        for seconds in (1, 10, 60):
            with monitor.reading(seconds) as counts:
                got = counts.groups.value_rows()[:, :5].sum()
            assert got == sum(c.groups.value_rows()[:, :5].sum() for c in every[-seconds:])
    monitor.finish()


def test_a_reset_starts_anew() -> None:
    source = FileSource(str(SAMPLES[0]))
    monitor = Monitor(source, Engine(True), clock=source.clock, governor=Governor(None))
    half = False
    packets = 0
    while not source.over:
        source.wait(0.1)
        monitor.step()
        if not half and monitor.engine.packets > 200:
            monitor.reset()
            monitor.step()
            half, packets = True, monitor.engine.packets
    total = monitor.engine.packets
    monitor.finish()
    context = monitor.context()
    assert half
    assert context.packets == context.ledger["packets"]["total"] <= total - 200
    assert packets >= 200
    for parts in context.ledger.values():
        assert sum(n for part, n in parts.items() if part != "total") == parts["total"]


def test_the_governor_steps_back_and_returns() -> None:
    governor = Governor(0.33, strict=True)
    assert governor.level == FULL
    now = 1_000 * SECOND
    levels = []
    for cpu in (0.2, 0.5, 0.34, 0.34, 0.34, 0.5, 0.5):
        now += SECOND
        governor.judge(now, cpu, 0)
        levels.append(governor.level)
    assert levels == [FULL, LEAN, LEAN, LEAN, HEADERS, PAUSED, PAUSED]
    assert "50%" in governor.reason
    for _ in range(60):
        now += SECOND
        governor.judge(now, 0.05, 0)
    assert governor.level == FULL
    assert governor.reason == ""


def test_a_limit_that_nobody_asked_for_loses_no_packets() -> None:
    governor = Governor(0.33)
    for second in range(20):
        governor.judge((second + 1) * SECOND, 0.9, 0)
    assert governor.level == HEADERS
    assert governor.rest() == 0.0


def test_a_moment_above_the_limit_is_no_reason() -> None:
    governor = Governor(0.33)
    for second in range(60):
        governor.judge(second * SECOND, 0.38 if second % 3 == 0 else 0.25, 0)
    assert governor.level == FULL


def test_what_waits_in_the_buffer_leads_to_less_detail() -> None:
    source = FileSource(str(SAMPLES[0]))
    monitor = Monitor(source, Engine(True), clock=source.clock, governor=Governor(None))
    for backlog, level in ((0.1, FULL), (0.6, LEAN), (0.65, LEAN), (0.2, LEAN), (0.6, HEADERS), (1.0, HEADERS)):
        source.backlog = backlog
        source.wait(0.1)
        monitor.step()
        assert monitor.governor.level == level
    monitor.finish()
    source.close()
    assert source.trimmed == [None, HEADER_BYTES]
    assert "buffer" in monitor.governor.reason


def test_drops_alone_go_no_further_than_headers() -> None:
    governor = Governor(None)
    for second in range(10):
        governor.judge((second + 1) * SECOND, 0.1, 1000)
    assert governor.level == HEADERS


def test_without_topics_results_are_only_errors() -> None:
    source = FileSource(str(SAMPLES[0]))
    monitor = Monitor(source, Engine(False), clock=source.clock, governor=Governor(None, topics=False))
    monitor.run(lambda: source.over)
    wanted, _ = reported(SAMPLES[0], "api")
    made = build_report(monitor.windows.start, monitor.context(), by="api")
    assert made.table("latency").rows == wanted.table("latency").rows
    assert np.all(monitor.windows.start.topics.value_rows() == 0)


class OneWay(FileSource):
    """Only packets of Ethernet and IPv4 to these TCP ports."""

    def __init__(self, path: str, ports: set[int]) -> None:
        super().__init__(path)
        self._ports = list(ports)

    def blocks(self) -> Iterator[tuple[Any, Any, int]]:
        for buffer, rows, _ in super().blocks():
            tcp = rows["at"] + 14 + 4 * (buffer[rows["at"] + 14] & 15).astype(np.int64)
            port = buffer[tcp + 2].astype(np.int64) << 8 | buffer[tcp + 3]
            kept = rows[np.isin(port, self._ports)]
            if len(kept):
                yield buffer, kept, len(kept)


def test_requests_that_nothing_answers_are_given_up() -> None:
    """Only the way to the brokers is captured: requests wait, but not for ever, and each ends as unanswered."""
    _, context = reported(SAMPLES[0], "api")
    source = OneWay(str(SAMPLES[0]), set(context.connections["broker_port"].tolist()))
    bounds = Bounds(patience=3 * SECOND)
    monitor = Monitor(source, Engine(True), clock=source.clock, governor=Governor(None), bounds=bounds)
    most = 0
    while not source.over:
        source.wait(0.1)
        monitor.step()
        most = max(most, monitor.engine.requests_waiting)
    given_up = monitor.engine.ledger()["requests"]["unanswered"]
    left = monitor.engine.requests_waiting
    monitor.finish()
    requests = monitor.context().ledger["requests"]
    assert given_up > most > left > 0
    assert requests["unanswered"] >= given_up + left
    assert requests["answered"] == 0
    assert sum(n for part, n in requests.items() if part != "total") == requests["total"]


def test_open_topics_are_taken_once_in_order() -> None:
    rng = np.random.default_rng(7)
    topics, kept = OpenTopics(), {}
    following = 1
    for _ in range(300):
        rows = np.zeros(int(rng.integers(0, 200)), EXCHANGE_TOPIC)
        rows["exchange"] = np.sort(rng.integers(following, following + 60, len(rows)))
        rows["topic"] = rng.integers(0, 1000, len(rows))
        following += 60
        topics.add(rows)
        for row in rows:
            kept.setdefault(int(row["exchange"]), []).append(int(row["topic"]))
        wanted = rng.permutation(list(kept))[: int(rng.integers(0, 50))]
        got = topics.take(wanted)
        expected = [(int(n), t) for n in sorted(wanted) for t in kept.pop(int(n))]
        assert list(zip(got["exchange"].tolist(), got["topic"].tolist(), strict=True)) == expected
    assert sorted(topics.rows["exchange"].tolist()) == sorted(n for n, ts in kept.items() for _ in ts)


def test_the_encrypted_share_is_known_before_connections_end() -> None:
    source = FileSource("samples/apache-4.3.pcap.zst")
    monitor = Monitor(source, Engine(True), clock=source.clock, governor=Governor(None))
    while not source.over:
        source.wait(0.1)
        monitor.step()
    before = monitor.engine.encrypted_share
    monitor.finish()
    payload = monitor.engine.ledger()["payload bytes"]
    assert 0 < before == monitor.engine.encrypted_share == payload["encrypted"] / payload["total"]
