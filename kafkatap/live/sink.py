"""Who listens to a monitor: the part that recorders, metrics and tables take in its loop."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kafkatap.reports.batch import Array, Batch, Context

if TYPE_CHECKING:
    from kafkatap.reports.counting.counts import ReportCounts

    from ..engine import Engine


class Sink:
    """All is called from the monitor's loop, in this order: packets, then the batches that they finished; once a
    second `provisional`, `health` and `second`. Nothing may block for long: packets wait meanwhile.

    Numbers of strings and addresses in rows are those of `engine` at the time of the call. `forget` announces that
    they are about to change: what was kept by number is lost unless it is looked up now.
    """

    def add_packets(self, buffer: Array, packets: Array, count: int) -> None:
        """packets[:count] (PACKET rows), whose bytes lie in `buffer` (uint8) during this call."""

    def add_batch(self, batch: Batch, engine: Engine) -> None:
        """Finished rows; the arrays may be kept."""

    def add_provisional(self, batch: Batch, engine: Engine) -> None:
        """Rows of requests that will most likely end without an answer (`Engine.provisional_rows`), each once.

        Their final rows come later, through `add_batch`.
        """

    def add_health(self, rows: Mapping[str, Array]) -> None:
        """What came new of the brokers' connections in the last second: `broker_health.VALUES` by broker."""

    def end_second(self, now: int, counts: ReportCounts, engine: Engine) -> None:
        """`counts` (finished) of the exchanges of the last second; `now`: ns since the epoch."""

    def add_connections(self, rows: Array, engine: Engine) -> None:
        """CONNECTION_ROW of connections that are over."""

    def resolve_names(self, engine: Engine) -> None:
        """Look up now what is kept by number."""

    def close(self, engine: Engine) -> None:
        """The monitor has ended; all rows were given."""


def names_of(engine: Engine) -> Context:
    """The names behind the numbers in rows and counts. Not a copy: valid only while the monitor's lock is held."""
    return Context(strings=engine.strings, addresses=engine.addresses, topic_names=engine.topic_names)
