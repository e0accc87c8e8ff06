"""What an output of the monitor implements: recorders, metrics, tables, plain lines, recent exchanges."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kafkatap.reports.batch import Array, Batch, Context

if TYPE_CHECKING:
    from kafkatap.reports.counting.counts import ReportCounts
    from kafkatap.reports.findings import Finding

    from ..engine.engine import Engine


class Sink:
    """The monitor's loop calls these methods: `add_packets`, then `add_batch` for what they finished; once a second
    `add_provisional`, `add_waiting`, `add_event`, `add_health` and `end_second`. None may block for long, because
    packets wait meanwhile.

    Rows contain numbers of strings and addresses of `engine`. They are valid until `resolve_names` is called.
    """

    #: Whether `add_packets` is called. Without it, packets become chunks in one pass.
    reads_packets = False

    def add_packets(self, buffer: Array, packets: Array, count: int) -> None:
        """Read packets[:count] (PACKET rows). Their bytes are in `buffer` (uint8) during this call only."""

    def add_batch(self, batch: Batch, engine: Engine) -> None:
        """Read finished rows. The arrays may be kept."""

    def add_provisional(self, batch: Batch, engine: Engine) -> None:
        """Read rows of requests that will most likely end without a response, each once. Their final rows come later,
        through `add_batch`."""

    def add_waiting(self, batch: Batch, engine: Engine) -> None:
        """Read the requests that wait for too long now (`Engine.overdue`), every second anew. Their final rows come
        later, through `add_batch`."""

    def add_health(self, rows: Mapping[str, Array]) -> None:
        """Read the connection counts of the last second: `broker_health.VALUES` by broker."""

    def add_event(self, finding: Finding) -> None:
        """Read an event (`event_watch`), once, within a second of the packets that show it."""

    def end_second(self, now: int, counts: ReportCounts, engine: Engine) -> None:
        """Read the sealed counts of the last second's exchanges. `now`: ns since the epoch."""

    def add_connections(self, rows: Array, engine: Engine) -> None:
        """Read the CONNECTION_ROW of connections that ended."""

    def unwritten(self) -> Mapping[str, int]:
        """What it could not write so far, by the metric `kafkatap_unwritten_NAME_total`."""
        return {}

    def resolve_names(self, engine: Engine) -> None:
        """Look up the names of all kept rows: the engine is about to change its numbers."""

    def reopen(self, engine: Engine) -> None:
        """End the files that are open now: what comes next goes to new ones."""

    def close(self, engine: Engine) -> None:
        """Finish: the monitor has ended, and no more rows come."""


class Elapsed:
    """The time that passes by a clock that may be set: where it goes back, no time has passed."""

    def __init__(self) -> None:
        self._last = self._back = 0
        self.steps = 0  # times that it went back

    def at(self, now: int) -> int:
        """`now` (ns since the epoch), moved so that it never goes back: for intervals, not for users."""
        if now < self._last:
            self._back += self._last - now
            self.steps += 1
        self._last = now
        return now + self._back


def names_of(engine: Engine) -> Context:
    """The names behind the numbers in rows and counts. Not a copy: valid only while the monitor's lock is held."""
    return Context(
        strings=engine.strings, addresses=engine.addresses, topic_names=engine.topic_names, hosts=engine.hosts
    )
