"""The monitor's loop over captures: what it counts is what a report counts, whatever the bounds do meanwhile."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kafkatap.dissector.dtypes import ORPHAN_RESPONSE
from kafkatap.engine.engine import Engine
from kafkatap.engine.read_options import ReadOptions
from kafkatap.engine.tls.key_log import KeyLog
from kafkatap.live.capture import capabilities
from kafkatap.live.governor import CALM, FULL, HEADERS, LEAN, LONGEST_CALM, PAUSED, Governor, Priority
from kafkatap.live.memory_limits import MemoryLimits, fold_small_rows
from kafkatap.live.monitor import Monitor
from kafkatap.live.sink import Sink
from kafkatap.reports.batch import Context
from kafkatap.reports.build import build_report
from kafkatap.reports.counting import tally
from kafkatap.reports.counting.counts import ReportCounts
from kafkatap.reports.encryption import encryption_of
from kafkatap.reports.model import Report
from kafkatap.run import Run
from tests.support.captures import pcap_bytes, read_capture

from .support import SECOND, FileSource

#: <linux/capability.h>
CAP_SYS_NICE = 23

SAMPLES = sorted(Path("samples").glob("*.pcap*"))
WANTED = ("latency", "throttle", "errors", "clients", "timeline")


def watched(path: Path, limits: MemoryLimits | None = None, step: int = SECOND // 10) -> tuple[Monitor, FileSource]:
    source = FileSource(str(path), step)
    monitor = Monitor(source, Engine(all_results=True), limits=limits, clock=source.clock, governor=Governor(None))
    monitor.run(lambda: source.over)
    return monitor, source


def reported(path: Path, by: str) -> tuple[Report, Context]:
    engine = Engine(all_results=True)
    counts = ReportCounts(by_topic=True)
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


def test_its_size_is_that_of_a_pcap(tmp_path: Path) -> None:
    """Of its packets: what a report on the recorded packets says."""
    packets = read_capture(SAMPLES[0]).packets
    path = tmp_path / "x.pcap"
    path.write_bytes(pcap_bytes(packets))
    monitor, _ = watched(path)
    made = build_report(monitor.windows.start, monitor.context())
    wanted, _ = reported(path, "api")
    tables = [report.table("heading") for report in (made, wanted)]
    assert [table.named(table.rows[0])["bytes"] for table in tables] == [path.stat().st_size] * 2


@pytest.mark.parametrize("path", SAMPLES[:2], ids=lambda p: p.name)
def test_forgetting_names_changes_no_number(path: Path) -> None:
    """Bounds so tight that names are looked through every second."""
    monitor, _ = watched(path, MemoryLimits(strings=1, text=1, addresses=1), SECOND // 50)
    made = build_report(monitor.windows.start, monitor.context(), by="topic")
    wanted, _ = reported(path, "topic")
    for name in WANTED:
        assert made.table(name).rows == wanted.table(name).rows


class _Gone(Sink):
    """The reader of its lines is gone from the second line on."""

    def __init__(self) -> None:
        self._lines = 0

    def end_second(self, now: int, counts: ReportCounts, engine: Engine) -> None:
        self._lines += 1
        if self._lines == 2:
            raise BrokenPipeError


def test_a_sink_that_fails_ends_it() -> None:
    """What connections still had is counted, too: the report is whole."""
    source = FileSource("samples/events/hang.pcap.zst", SECOND // 10)
    monitor = Monitor(source, Engine(all_results=True), clock=source.clock, governor=Governor(None))
    monitor.sinks.append(_Gone())
    with closing(source), pytest.raises(BrokenPipeError):
        monitor.run(lambda: source.over)
    counted = monitor.windows.start.groups.value_rows()[:, :ORPHAN_RESPONSE].sum()
    assert counted == monitor.context().ledger["requests"]["total"] > 0


@pytest.mark.parametrize("path", SAMPLES[:1], ids=lambda p: p.name)
def test_small_rows_are_added_up(path: Path) -> None:
    monitor, _ = watched(path, MemoryLimits(rows=6))
    wanted, _ = reported(path, "api")
    made = build_report(monitor.windows.start, monitor.context(), by="client")
    column = [c.name for c in made.table("latency").columns].index("count")
    asked = [c.name for c in wanted.table("latency").columns].index("count")
    assert sum(r[column] for r in made.table("latency").rows) == sum(r[asked] for r in wanted.table("latency").rows)
    assert "(other)" in {r[1] for r in made.table("latency").rows}
    fold_small_rows(monitor.windows.start, MemoryLimits(rows=6), monitor.engine)
    keys = monitor.windows.start.groups.key_rows()
    kinds = {(api, poll) for api, poll in zip(keys[:, 0], keys[:, tally.GROUP_KEY.index("long_poll")], strict=True)}
    assert len(keys) <= 3 + len(kinds)


def test_windows_are_the_last_seconds() -> None:
    path = SAMPLES[0]
    source = FileSource(str(path))
    monitor = Monitor(source, Engine(all_results=True), clock=source.clock, governor=Governor(None))
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
    monitor = Monitor(source, Engine(all_results=True), clock=source.clock, governor=Governor(None))
    before = 0
    while not source.over:
        source.wait(0.1)
        monitor.step()
        if not before and monitor.engine.packets > 200:
            before = monitor.engine.packets
            monitor.reset()
            monitor.step()
    total = monitor.engine.packets
    monitor.finish()
    context = monitor.context()
    assert 200 < before < total
    assert context.packets == context.ledger["packets"]["total"] == total - before
    counted = monitor.windows.start.groups.value_rows()[:, list(tally.GROUP_VALUES).index("answered")].sum()
    assert 0 < counted == context.ledger["requests"]["answered"]
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
    assert governor.pause() == 0.0


def test_a_moment_above_the_limit_is_no_reason() -> None:
    governor = Governor(0.33)
    for second in range(60):
        governor.judge(second * SECOND, 0.38 if second % 3 == 0 else 0.25, 0)
    assert governor.level == FULL


def calm_seconds(governor: Governor, second: int) -> int:
    """Drop the level in this second; the calm seconds until it rises again."""
    governor.judge(second * SECOND, 0.9, 0)
    assert governor.level == LEAN
    for calm in range(1, 2 * LONGEST_CALM):
        if governor.judge((second + calm) * SECOND, 0.05, 0):
            assert governor.level == FULL
            return calm
    raise AssertionError("it does not rise")


def test_a_rise_that_was_too_early_doubles_the_calm_seconds_before_the_next() -> None:
    governor, second, waited = Governor(0.33), 1_000, []
    for _ in range(9):
        waited.append(calm_seconds(governor, second))
        second += waited[-1] + 1
    assert waited == [10, 20, 40, 80, 160, 320, 600, 600, 600]


@pytest.mark.parametrize(("later", "wanted"), [(2 * CALM - 1, 2 * CALM), (2 * CALM, CALM)])
def test_a_rise_was_too_early_if_less_than_twice_its_calm_seconds_passed(later: int, wanted: int) -> None:
    governor = Governor(0.33)
    assert calm_seconds(governor, 1_000) == CALM
    assert calm_seconds(governor, 1_000 + CALM + later) == wanted


def test_each_level_rises_after_its_own_calm_seconds() -> None:
    governor = Governor(0.33)
    for second in (1_000, 1_001):
        governor.judge(second * SECOND, 0.9, 0)
    assert governor.level == HEADERS
    levels = []
    for second in range(1_002, 1_002 + 2 * CALM):
        governor.judge(second * SECOND, 0.05, 0)
        levels.append(governor.level)
        assert bool(governor.reason) == (governor.level != FULL)
    assert levels == [HEADERS] * (CALM - 1) + [LEAN] * CALM + [FULL]


def test_a_second_that_is_neither_calm_nor_too_much_starts_the_calm_ones_again() -> None:
    governor, levels = Governor(0.33), []
    governor.judge(1_000 * SECOND, 0.9, 0)
    for second, cpu in enumerate([0.05] * (CALM - 1) + [0.25] + [0.05] * CALM, 1_001):
        governor.judge(second * SECOND, cpu, 0)
        levels.append(governor.level)
    assert levels == [LEAN] * (2 * CALM - 1) + [FULL]


def test_paused_it_uses_all_that_it_may_and_rises_nevertheless() -> None:
    governor = Governor(0.33, strict=True)
    for second in range(1_000, 1_003):
        governor.judge(second * SECOND, 0.9, 0)
    assert governor.level == PAUSED
    for second in range(1_003, 1_003 + CALM):
        governor.judge(second * SECOND, 0.3, 0)
    assert governor.level == HEADERS


class Busy(Governor):
    """A governor that took this part of a core since the last second. Its priority is what it says."""

    def __init__(self, share: float, may_rise: bool = False) -> None:
        super().__init__(None, priority=Raised(may_rise))
        self.share = share

    def _since(self) -> tuple[float, float]:
        return self.share, 1.0


class Raised(Priority):
    """A niceness that may be raised, or not, and notes it."""

    def __init__(self, may: bool) -> None:
        super().__init__()
        self._may = may
        self._raised = False

    @property
    def is_raised(self) -> bool:
        return self._raised

    def raise_(self) -> bool:
        better = self._may and not self._raised
        self._raised = self._raised or better
        return better

    def restore(self) -> None:
        self._raised = False


def test_what_waits_in_the_buffer_leads_to_less_detail() -> None:
    source = FileSource(str(SAMPLES[0]))
    monitor = Monitor(source, Engine(all_results=True), clock=source.clock, governor=Busy(1.0))
    for backlog, level in ((0.1, FULL), (0.3, LEAN), (0.34, LEAN), (0.1, LEAN), (0.3, HEADERS), (1.0, HEADERS)):
        source.backlog = backlog
        source.wait(0.1)
        monitor.step()
        assert monitor.governor.level == level
    monitor.finish()
    source.close()
    assert "buffer" in monitor.governor.reason


@pytest.mark.parametrize("may_rise", [False, True])
def test_packets_that_wait_as_others_have_the_processors_raise_the_priority_first(may_rise: bool) -> None:
    governor = Busy(0.27, may_rise)
    assert governor.check_backlog(SECOND, 0.3) != may_rise
    assert governor.priority.is_raised == may_rise
    assert governor.level == (FULL if may_rise else LEAN)
    governor.check_backlog(SECOND, 0.4)
    assert governor.level == (LEAN if may_rise else HEADERS)


def test_packets_that_wait_as_nothing_ran_lower_no_level() -> None:
    """As after the machine was stopped for a while: there is no work that less detail would spare."""
    governor = Busy(0.05, may_rise=False)
    assert [governor.check_backlog(SECOND, part) for part in (0.3, 0.5, 0.9)] == [False] * 3
    assert governor.level == FULL


def test_a_buffer_that_fills_at_once_leads_to_headers_within_three_looks() -> None:
    governor = Busy(0.27, may_rise=True)
    levels = []
    for _ in range(4):
        governor.check_backlog(SECOND, 0.7)
        levels.append(governor.level)
    assert levels == [FULL, LEAN, HEADERS, HEADERS]


def test_a_priority_is_raised_until_it_is_calm() -> None:
    governor = Busy(0.3, may_rise=True)
    governor.judge(SECOND, 0.3, dropped=500)
    assert governor.priority.is_raised
    assert governor.level == FULL
    for second in range(2, 2 + CALM):
        assert governor.priority.is_raised
        governor.judge(second * SECOND, 0.3, dropped=0)
    assert not governor.priority.is_raised
    governor.judge(100 * SECOND, 0.3, dropped=500)
    governor.judge(101 * SECOND, 0.3, dropped=500)
    assert governor.level == LEAN


def test_a_thread_gets_its_niceness_back() -> None:
    """Also without any capability, where `allow_return` was called before."""
    steps = (
        "import os, json, resource; from kafkatap.live.capture import capabilities;"
        "from kafkatap.live.governor import *;"
        "before = os.nice(0); allow_return(); os.nice(5); capabilities.keep_only(()); p = Priority(before);"
        "print(json.dumps([os.nice(0) - before, p.raise_(), os.nice(0) - before, p.raise_(), p.restore(), "
        "os.nice(0) - before, resource.getrlimit(resource.RLIMIT_NICE)[0] >= 20 - before]))"
    )
    ran = subprocess.run([sys.executable, "-c", steps], capture_output=True, text=True, check=True, timeout=60)
    *found, may = json.loads(ran.stdout)
    assert found == [5, may, 0 if may else 5, False, None, 5]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, whose capabilities it drops or keeps")
@pytest.mark.parametrize("may_return", [False, True])
def test_a_niceness_without_a_way_back_is_not_used(may_return: bool) -> None:
    """As root in a container, which has none of the capabilities and a limit that is set from outside; and as root."""
    steps = (
        "import os, json; from kafkatap.commands.live.command import _be_nice;"
        "from kafkatap.live.governor import Priority; before = os.nice(0); best = _be_nice(5);"
        "found = [best, os.nice(0), Priority(best).raise_(), os.nice(0)]; print(json.dumps([before, *found]))"
    )
    bare = ["prlimit", "--nice=0:0", "setpriv", "--bounding-set=-sys_nice,-sys_resource"]
    ran = subprocess.run(
        [*([] if may_return else bare), sys.executable, "-c", steps],
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    before, *found = json.loads(ran.stdout)
    if may_return and CAP_SYS_NICE in capabilities.held():
        assert (found, ran.stderr) == ([before, before + 5, True, before], "")
    else:
        assert found == [before, before, False, before]
        assert ran.stderr.startswith("kafkatap: --nice 5 is not used: this process could not return")
        assert f"LimitNICE={before:+}" in ran.stderr


def test_headers_only_loses_no_exchange() -> None:
    """Requests, responses and their times are those of full detail, whatever the bodies."""
    tables = {}
    for level in (FULL, HEADERS):
        source = FileSource(str(SAMPLES[0]))
        governor = Governor(None)
        governor.level = governor.lowest = level
        monitor = Monitor(source, Engine(all_results=level == FULL), clock=source.clock, governor=governor)
        monitor._apply_level()
        monitor.run(lambda source=source: source.over)
        tables[level] = monitor
    wanted, found = (tables[level].engine.ledger() for level in (FULL, HEADERS))
    assert found == wanted
    columns = [tally.GROUP_KEY.index(name) for name in ("api_key", "api_version", "broker_port")]
    names = (
        "answered",
        "no_reply_expected",
        "unanswered",
        "request_bytes",
        "response_bytes",
        "total_ns",
        "hol_wait_ns",
    )
    values = [list(tally.GROUP_VALUES).index(name) for name in names]
    sums = []
    for monitor in tables.values():
        counts = monitor.windows.start.groups
        total: dict[tuple[int, ...], Any] = {}
        for key, row in zip(counts.key_rows()[:, columns].tolist(), counts.value_rows()[:, values], strict=True):
            total[tuple(key)] = total.get(tuple(key), 0) + row
        sums.append({key: row.tolist() for key, row in total.items()})
    assert sums[0] == sums[1]


def test_drops_alone_go_no_further_than_headers() -> None:
    governor = Governor(None)
    for second in range(10):
        governor.judge((second + 1) * SECOND, 0.1, 1000)
    assert governor.level == HEADERS


def test_headers_only_is_a_level_to_start_at() -> None:
    governor = Governor(0.33, headers_only=True)
    source = FileSource(str(SAMPLES[0]))
    monitor = Monitor(source, Engine(all_results=False), clock=source.clock, governor=governor)
    assert monitor.status.level == HEADERS
    for second in range(100):
        governor.judge((second + 1) * SECOND, 0.01, 0)
    assert governor.level == HEADERS
    monitor.finish()
    source.close()


def test_without_topics_results_are_only_errors() -> None:
    source = FileSource(str(SAMPLES[0]))
    monitor = Monitor(source, Engine(all_results=False), clock=source.clock, governor=Governor(None, topics=False))
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
    """Only the way to the brokers is captured: requests wait, but not for ever, and each ends without a response."""
    _, context = reported(SAMPLES[0], "api")
    source = OneWay(str(SAMPLES[0]), set(context.connections["broker_port"].tolist()))
    limits = MemoryLimits(patience=3 * SECOND)
    monitor = Monitor(source, Engine(all_results=True), clock=source.clock, governor=Governor(None), limits=limits)
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
    assert requests["unanswered"] >= given_up
    assert requests["unanswered"] + requests["response_lost"] >= given_up + left
    assert requests["answered"] == 0
    assert sum(n for part, n in requests.items() if part != "total") == requests["total"]


def test_the_encrypted_share_is_known_before_connections_end() -> None:
    source = FileSource("samples/apache-4.3.pcap.zst")
    monitor = Monitor(source, Engine(all_results=True), clock=source.clock, governor=Governor(None))
    while not source.over:
        source.wait(0.1)
        monitor.step()
    before = monitor.engine.encrypted_share
    monitor.finish()
    payload = monitor.engine.ledger()["payload bytes"]
    assert 0 < before == monitor.engine.encrypted_share == payload["encrypted"] / payload["total"]


def test_the_decrypted_share_is_known_before_connections_end() -> None:
    source = FileSource("samples/tls/broker.pcap.zst")
    engine = Engine(ReadOptions(key_log=KeyLog(["samples/tls/broker.keys.log"])), all_results=True)
    monitor = Monitor(source, engine, clock=source.clock, governor=Governor(None))
    while not source.over:
        source.wait(0.1)
        monitor.step()
    before = monitor.engine.decrypted_share
    monitor.finish()
    assert 0 < before == pytest.approx(monitor.engine.decrypted_share)
    assert monitor.engine.decrypted_share == pytest.approx(encryption_of(monitor.context()).decrypted, rel=0.01)
