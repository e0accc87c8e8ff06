"""`OpenConnections`: what is known of connections that did not end, for the watch of events.

Each second it looks at those that had packets, in the engine's own tables: whether one began, or changed so that it may
tell an event. Rows of CONNECTION_ROW cost more. They are made when they are wanted, and again only after packets.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from kafkatap.kernels.arrays import grown, taken
from kafkatap.kernels.decorator import record_dtype
from kafkatap.reassembly.dtypes import ROW_OPEN
from kafkatap.reports.batch import Array
from kafkatap.reports.connection_columns import CONNECTION_ROW
from kafkatap.reports.sections.event_counts import RESENT_PACKETS

if TYPE_CHECKING:
    from ..engine.engine import Engine

#: Of a connection by number: which one it was, and how many packets it had, when its row was made.
_MADE = record_dtype(("serial", "i8"), ("packets", "i8"))
#: The same when it was looked at, with what was seen. `state`: what its row says in words. `waits_for`: _RESENT, _STUCK
_SEEN = record_dtype(
    ("serial", "i8"), ("packets", "i8"), ("client_id", "i4"), ("state", "i4"), ("waits_for", "u1")
)  # fmt: skip
#: Packets were sent again; nothing acknowledges what was sent again.
_RESENT, _STUCK = 1, 2


class OpenConnections:
    """`columns`: those of CONNECTION_ROW that the rows have. A row takes memory for these only. `engine`: one whose
    tables have the connections."""

    def __init__(self, columns: Sequence[str], engine: Engine) -> None:
        self._columns = columns
        self._engine = engine
        self._rows: Array = np.zeros(256, [(name, CONNECTION_ROW[name]) for name in columns])
        self._made: Array = np.zeros(256, _MADE)
        self._seen: Array = np.zeros(256, _SEEN)
        self._numbers: Array = np.zeros(0, np.int64)

    def read(self) -> bool:
        """Look at the connections that had packets. Return whether one began, or changed so that it may tell an event:
        its handshake, its close, its ends, packets that were sent again, bytes that are missing."""
        engine, table = self._engine, self._engine.assembler.connections
        if len(self._rows) < len(table):
            self._rows, self._made, self._seen = (
                grown(rows, len(table)) for rows in (self._rows, self._made, self._seen)
            )
        numbers = self._numbers = np.flatnonzero(table["used"] == ROW_OPEN)
        changed = numbers[_differs(self._seen, table, numbers)]
        if not len(changed):
            return False
        before, now = taken(self._seen, changed), np.zeros(len(changed), _SEEN)
        rows, known = taken(table, changed), taken(engine.dissector.connections, changed)
        is_closed = (rows["fin_by"] >= 0) | (rows["reset_by"] >= 0)
        for name in ("serial", "packets"):
            now[name] = rows[name]
        now["client_id"] = known["client_id"]
        now["state"], now["waits_for"] = _states(engine, changed, rows, known, is_closed)
        self._seen[changed] = now
        return bool(is_closed.any()) or any(
            bool((before[name] != now[name]).any()) for name in ("serial", "client_id", "state")
        )

    def rows(self) -> Array:
        """A copy of the rows of all connections that were open when they were read."""
        engine, table = self._engine, self._engine.assembler.connections
        changed = self._numbers[_differs(self._made, table, self._numbers)]
        if len(changed):
            rows = engine.open_rows(changed)
            for name in self._columns:
                self._rows[name][changed] = rows[name]
            for name in ("serial", "packets"):
                self._made[name][changed] = table[name][changed]
        return taken(self._rows, self._numbers)

    @property
    def has_stuck(self) -> bool:
        """Whether nothing acknowledges what was sent again on one of them."""
        return bool((self._seen["waits_for"][self._numbers] & _STUCK).any())

    def resent(self) -> Array:
        """The connections (CONNECTION_ROW.connection) with packets that were sent again: int64."""
        some = self._numbers[(self._seen["waits_for"][self._numbers] & _RESENT) != 0]
        found: Array = self._engine.dissector.connections["key"][some]
        return found


def _differs(noted: Array, table: Array, numbers: Array) -> Array:
    """Which connections (by number) are others than those that were noted, or had packets since: bool."""
    found: Array = noted["packets"][numbers] != table["packets"][numbers]
    found |= noted["serial"][numbers] != table["serial"][numbers]
    return found


def _states(engine: Engine, numbers: Array, rows: Array, known: Array, is_closed: Array) -> tuple[Array, Array]:
    """`state` and `waits_for` of connections. `rows`, `known`: of the tables of reassembly and dissector."""
    both = (2 * numbers[:, None] + (0, 1)).reshape(-1)
    sent = engine.assembler.directions
    resent, gaps, size = (
        sent[name][both].reshape(-1, 2) for name in ("retransmitted_packets", "gap_bytes", "bytes")
    )  # fmt: skip
    is_stuck = _is_stuck(engine, sent["recovery_row"][both], np.repeat(rows["last"], 2)).reshape(-1, 2).any(axis=1)
    is_resent = resent.max(axis=1) >= RESENT_PACKETS
    parts = (
        (known["protocol"], 32), (known["client"] + 1, 4), (rows["fin_by"] + 1, 4), (rows["reset_by"] + 1, 4),
        (rows["is_unreachable"] != 0, 2), (rows["syn_at"] != 0, 2), (rows["syn_ack_at"] != 0, 2),
        (rows["handshake_rtt_ns"] >= 0, 2), (is_resent, 2), (is_stuck, 2),
        *((each[:, end] > 0, 2) for each in (gaps, size) for end in (0, 1)),
    )  # fmt: skip
    state = np.zeros(len(numbers), np.int32)
    for values, room in parts:
        state = state * room + values.astype(np.int32)
    return state, is_resent * _RESENT + (is_stuck & ~is_closed) * _STUCK


def _is_stuck(engine: Engine, recovery_rows: Array, last: Array) -> Array:
    """Whether nothing acknowledges what was sent again, or nothing did until the last packet, of directions: bool."""
    found: Array = np.zeros(len(recovery_rows), bool)
    some = np.flatnonzero(recovery_rows)
    if len(some):
        more = taken(engine.assembler.recoveries, recovery_rows[some])
        found[some] = (more["copy_end"] != 0) & (more["copies"] > 1)
        found[some] |= (more["stuck_ns"] > 0) & (more["stuck_at"] + more["stuck_ns"] >= last[some])
    return found
