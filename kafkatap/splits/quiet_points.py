"""Points at which a TLS connection is quiet, and its ClientHello, for the survey of a split.

Between an answer and the next request, nothing is open: both directions are at the end of a record. From there on the
connection decodes on its own. Without its keys a survey sees sizes and directions of records only, so a point is a
guess: an answer may have more records, and requests from before the split may wait. The decoding pass proves it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kafkatap.reassembly.assembler import Assembler

from ..engine.tls.layer import TlsLayer
from ..engine.tls.record_header import APPLICATION_DATA
from ..engine.tls.record_tables import ROW_BROKEN, RecordRow
from ..engine.tls.tracked import Tracked

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


class QuietPoints:
    """Finds the first quiet point of each TLS connection after a time. `layer`: without keys, it reads all chunks."""

    def __init__(self, assembler: Assembler) -> None:
        self.layer = TlsLayer(on_record=self._note)
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

    def forget(self, connections: Array) -> None:
        """Forget connections that are over."""
        self.layer.forget(connections)
        for connection in connections.tolist():
            self._progress.pop(connection, None)

    def _note(self, tracked: Tracked, row: RecordRow, chunks: Array) -> None:
        if row.type != APPLICATION_DATA:
            return
        found = self._progress.get(tracked.connection)
        if found is None:
            found = self._progress[tracked.connection] = _Progress(self._client(tracked))
        if found.is_over:
            return
        found.records += 1
        if row.kind == ROW_BROKEN or row.before:
            found.asked, found.answers = False, 0
        elif row.direction == found.client:
            found.asked = True
        elif found.asked and _ends_chunk(row, chunks):
            found.asked = False
            found.answers += 1
            if found.answers >= ANSWERS and row.ts >= self._from:
                found.quiet = row.packet
        if found.is_over:
            self.layer.ignore_records(tracked)

    def _client(self, tracked: Tracked) -> int:
        """The direction of a connection's client: a guess if its start is not captured."""
        known = self.layer.client(tracked)
        if known >= 0:
            return known
        flow = self._assembler.flows[int(self._assembler.connections["flow"][tracked.connection])]
        return 0 if flow["a_port"] > flow["b_port"] else 1


def _ends_chunk(row: RecordRow, chunks: Array) -> bool:
    """Whether a record ends where the chunk does that ended it."""
    chunk = chunks[row.place]
    return (int(chunk["seq"]) + int(chunk["length"]) - row.seq - row.length) & 0xFFFFFFFF == 0
