"""`--plain`: one line per interval, for logs: `key=value` pairs, always the same keys in the same order.

    time=2026-11-21T15:10:40Z level=full requests_s=678.0 packets_s=12345.0 mb_s=4.21 p50_ms=0.412 p99_ms=12.801
    slowest=Produce slowest_p99_ms=31.214 throttled=0 throttle_wait_ms=0.000 failed=2 error_codes=3
    error=NOT_LEADER_OR_FOLLOWER unanswered=0 connections=117 waiting=43 opened=2 refused=0 no_answer=0 resets=0
    retransmitted=0 zero_windows=0 rtt_ms=0.213 drops=0 cpu=0.07 events_late_s=0             (all on one line)

`requests_s` counts requests when they arrive; of a selection, when their exchanges end.
Broker times exclude requests that wait for something else: Fetch, JoinGroup and SyncGroup. `slowest` is the API with
the longest p99 of the others. `error` is the most frequent error code. Counts are those of the interval. A missing
value is `-`. No value contains a space. As JSON, each line is an object with the same keys, and `kind` (status); counts
and times are numbers, and a missing value is null.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TextIO

from kafkatap.reports.batch import Array, Context
from kafkatap.reports.counting.counts import ReportCounts

from ...complaints import json_line
from ..background import Background
from ..broker_health import added, mean_round_trip, value
from ..governor import LEVELS
from ..sink import Elapsed, Sink
from .breakdown import SECOND, Row, total_row, window_rows

if TYPE_CHECKING:
    from ...engine.engine import Engine
    from ..monitor import Monitor

NONE = "-"
#: Characters that may wait for the reader. Further lines are left out.
ROOM = 1 << 20


class Plain(Sink):
    """Writes a line to `file` every `interval` ns, rounded to seconds. `utc`: times in UTC, else with the local offset;
    as JSON (`is_json`) always in UTC.

    A thread writes them. OSError, at a later line, if that is not possible; after that nothing more is written.
    """

    def __init__(self, monitor: Monitor, interval: int, file: TextIO, utc: bool = False, is_json: bool = False) -> None:
        self._monitor, self._file, self._utc, self._is_json = monitor, file, utc, is_json
        self._interval = max(interval, SECOND)
        self._elapsed = Elapsed()
        self._wall = monitor.status.now
        self._since = self._now = self._elapsed.at(self._wall)  # they never go back
        self._counts = ReportCounts()
        self._before = self._totals(monitor.engine)
        self._health = added({})
        self._any = False
        self._writer = Background("kafkatap-lines", ROOM)
        self.left_out = 0  # lines without room
        self.is_stuck = False  # the reader does not read: known in the end

    def add_health(self, rows: Mapping[str, Array]) -> None:
        self._health += added(rows)

    def end_second(self, now: int, counts: ReportCounts, engine: Engine) -> None:
        self._counts.merge(counts)
        self._wall, self._now = now, self._elapsed.at(now)
        if self._seconds() >= self._interval // SECOND:
            self._write(engine)

    def close(self, engine: Engine) -> None:
        """Write the last, shorter interval if it has a whole second, or if no line was written yet."""
        try:
            if self._seconds() or not self._any:
                self._write(engine)
        finally:
            self.is_stuck = not self._writer.close()

    def _seconds(self) -> int:
        """Whole seconds of the clock since the last line."""
        return self._now // SECOND - self._since // SECOND

    def _totals(self, engine: Engine) -> tuple[int, int, int, int]:
        """Packets, payload bytes, requests and drops so far."""
        ledger = engine.ledger()
        return (
            engine.packets, ledger["payload bytes"]["total"], ledger["requests"]["total"],
            self._monitor.source.counters()[1],
        )  # fmt: skip

    def _write(self, engine: Engine) -> None:
        length, counts, totals = max(self._now - self._since, SECOND), self._counts, self._totals(engine)
        packets, payload, requests, drops = (a - b for a, b in zip(totals, self._before, strict=True))
        health, self._health = self._health, added({})
        self._since, self._counts, self._before = self._now, ReportCounts(), totals
        total, arrived = total_row(counts, length), requests * SECOND / length
        values: dict[str, _Value] = {
            "level": LEVELS[self._monitor.governor.level],
            "requests_s": _Fixed(arrived if self._monitor.counts_all else total.request_rate if total else 0, 1),
            **_traffic(length, packets, payload),
            **_answers(total, counts, length),
            "connections": engine.connections_open,
            "waiting": engine.requests_waiting,
            "longest_wait_ms": _ms(max(self._monitor.longest_waits.values(), default=None)),
            **_connections(health),
            "drops": drops,
            "cpu": _Fixed(self._monitor.status.cpu, 2),
            "events_late_s": self._monitor.status.events_late,
        }
        if self._is_json:
            line = json_line(self._wall // SECOND * SECOND, "status", **values)
        else:
            line = " ".join(f"{key}={_text(value)}" for key, value in {"time": self._time(), **values}.items())
        self._any = True
        self.left_out += not self._writer.add(lambda: self._put(line), len(line))

    def _put(self, line: str) -> None:
        self._file.write(line + "\n")
        self._file.flush()

    def _time(self) -> str:
        at = datetime.fromtimestamp(self._wall // SECOND, UTC)
        return at.strftime("%Y-%m-%dT%H:%M:%SZ") if self._utc else at.astimezone().isoformat()


class _Fixed(float):
    """A number with so many digits after the point."""

    digits: int

    def __new__(cls, number: float, digits: int) -> _Fixed:
        made = super().__new__(cls, round(number, digits))
        made.digits = digits
        return made

    def __str__(self) -> str:
        return f"{float(self):.{self.digits}f}"


_Value = str | int | _Fixed | None


def _text(value: _Value) -> str:
    return NONE if value is None else str(value).replace(" ", "_")


def _traffic(length: int, packets: int, payload: int) -> dict[str, _Value]:
    seconds = length / SECOND
    return {"packets_s": _Fixed(packets / seconds, 1), "mb_s": _Fixed(payload / seconds / 1e6, 2)}


def _answers(total: Row | None, counts: ReportCounts, length: int) -> dict[str, _Value]:
    prompt = total if total and not total.waits else None
    apis = [row for row in window_rows(counts, Context(), "api", length) if not row.waits]
    slowest = max(apis, key=lambda row: (row.broker_p99 or -1, row.name or ""), default=None)
    return {
        "p50_ms": _ms(prompt.broker_p50 if prompt else None),
        "p99_ms": _ms(prompt.broker_p99 if prompt else None),
        "slowest": slowest.name if slowest and slowest.broker_p99 is not None else None,
        "slowest_p99_ms": _ms(slowest.broker_p99 if slowest else None),
        "throttled": total.throttled if total else 0,
        "throttle_wait_ms": _ms(total.throttle_wait if total else 0),
        "failed": total.failed if total else 0,
        "error_codes": total.error_codes if total else 0,
        "error": total.top_error or None if total else None,
        "unanswered": total.unanswered if total else 0,
    }


def _connections(health: Array) -> dict[str, _Value]:
    return {
        "opened": value(health, "opened"),
        "refused": value(health, "refused"),
        "no_answer": value(health, "unanswered"),
        "resets": value(health, "reset_by_client") + value(health, "reset_by_broker"),
        "retransmitted": value(health, "client_retransmitted") + value(health, "broker_retransmitted"),
        "zero_windows": value(health, "client_zero_windows") + value(health, "broker_zero_windows"),
        "rtt_ms": _ms(mean_round_trip(health)),
    }


def _ms(ns: int | None) -> _Fixed | None:
    return None if ns is None else _Fixed(ns / 1e6, 3)
