"""Points at which a TLS connection is quiet, and its ClientHello, for the survey of a split.

Between an answer and the next request, nothing is open: both directions are at the end of a record. From there on the
connection decodes on its own. Without its keys a survey sees sizes and directions of records only, so a point is a
guess: an answer may have more records, and requests from before the split may wait. The decoding pass proves it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from kafkatap.dissector.framing.tls_records import APPLICATION_DATA

from ..tls.hand_over import quiet_turns
from ..tls.layer import TlsLayer
from ..tls.record_tables import EMIT_ALL, EMIT_NONE, ROW_BROKEN, ROW_RECORD

if TYPE_CHECKING:
    from kafkatap.reassembly.assembler import Assembler

    from ..assembly import Assembled
    from ..tls.tracked import Tracked

Array = np.ndarray[Any, Any]
#: Answers after which a connection is quiet: so many show the dissector where frames begin.
ANSWERS = 3
#: Records that are looked at in vain before a connection counts as one that is never quiet.
MOST_RECORDS = 20_000


class _Progress:
    """How far the search in one connection is. `asked`: a request came since the latest answer."""

    __slots__ = ("answers", "asked", "client", "quiet", "records")

    def __init__(self, client: int) -> None:
        self.client = client
        self.asked = False
        self.answers = 0
        self.records = 0
        self.quiet = 0  # the packet

    @property
    def is_over(self) -> bool:
        return self.quiet > 0 or self.records > MOST_RECORDS


class QuietPoints(TlsLayer):
    """A layer without keys that finds the first quiet point of each TLS connection after a time."""

    def __init__(self, assembler: Assembler) -> None:
        super().__init__()
        self._emit = EMIT_ALL
        self._assembler = assembler
        self._progress: dict[int, _Progress] = {}  # by connection
        self._from = 0

    def set_heads_from(self, time: int) -> None:
        """Quiet points before this time (ns) do not count."""
        self._from = time

    def quiet(self, connection: int) -> int:
        """The packet at which a connection is quiet first; 0 if there is none."""
        found = self._progress.get(connection)
        return 0 if found is None else found.quiet

    @property
    def settled(self) -> list[int]:
        """The connections that have a quiet point."""
        return [connection for connection, found in self._progress.items() if found.quiet]

    def forget(self, connections: Array) -> None:
        super().forget(connections)
        for connection in connections.tolist():
            self._progress.pop(connection, None)

    def _note_turns(self, count: int) -> None:
        """Surveys need no estimates."""

    def _end(self, tracked: Tracked, row: tuple[int, ...], is_plain: bool) -> None:
        tracked.quiet_turns = quiet_turns(self, tracked)
        super()._end(tracked, row, is_plain)

    def _read_rows(self, part: Assembled, count: int) -> None:
        super()._read_rows(part, count)
        by_slot = self._by_slot
        for row in self._rows[:count].tolist():
            if row[13] not in (ROW_RECORD, ROW_BROKEN) or row[11] != APPLICATION_DATA:
                continue
            tracked = by_slot[row[7]]
            if tracked is not None and tracked.slot >= 0:
                self._note(tracked, row, part.table)

    def _note(self, tracked: Tracked, row: tuple[int, ...], chunks: Array) -> None:
        found = self._progress.get(tracked.connection)
        if found is None:
            found = self._progress[tracked.connection] = _Progress(self._client(tracked))
        if found.is_over:
            return
        found.records += 1
        if row[13] == ROW_BROKEN or row[3]:
            found.asked, found.answers = False, 0
        elif row[10] == found.client:
            found.asked = True
        elif found.asked and _ends_chunk(row, chunks):
            found.asked = False
            found.answers += 1
            if found.answers >= ANSWERS and row[1] >= self._from:
                found.quiet = row[2]
        if found.is_over:
            self._set_emitted(tracked, EMIT_NONE)

    def _set_emitted(self, tracked: Tracked, emit: int) -> None:
        found = self._progress.get(tracked.connection)
        if found is not None and found.is_over:
            super()._set_emitted(tracked, EMIT_NONE)

    def _client(self, tracked: Tracked) -> int:
        """The direction of a connection's client: a guess if its start is not captured."""
        known = int(self._links["links"]["client"][tracked.connection])
        if tracked.facts.client >= 0 or known >= 0:
            return tracked.facts.client if tracked.facts.client >= 0 else known
        flow = self._assembler.flows[int(self._assembler.connections["flow"][tracked.connection])]
        return 0 if flow["a_port"] > flow["b_port"] else 1


def _ends_chunk(row: tuple[int, ...], chunks: Array) -> bool:
    """Whether a record ends where the chunk does that ended it."""
    chunk = chunks[row[8]]
    return (int(chunk["seq"]) + int(chunk["length"]) - row[4] - row[5]) & 0xFFFFFFFF == 0
