"""The layer between reassembly and the dissector: chunks in, chunks out.

`TlsLayer.read(part)` returns the part itself if nothing in it is decrypted. Otherwise the chunks of decrypted
connections are replaced, in place, by chunks of their plain bytes. The time and packet of a plain byte are those of the
last packet of its record, and its sequence number is that of its ciphertext. All other chunks stay as they are.

No chunk of a connection that is not TLS waits. Without a key log none waits at all.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from kafkatap.engine.assembly import Assembled
from kafkatap.kernels.arrays import distinct_values
from kafkatap.kernels.table import Column, SlotTable, Table, take_row
from kafkatap.reassembly.dtypes import CHUNK_START, OPENING_HINT, OPENING_UNKNOWN
from kafkatap.reports.connection_words import D_NO_HANDSHAKE, D_NO_KEY, D_WRONG_KEY

from .chunk_rows import ChunkRows, copied_chunks
from .estimates import FIRST_TURNS, overhead_of
from .record_header import APPLICATION_DATA, HANDSHAKE
from .record_tables import (
    DECRYPTED,
    EMIT_ALL,
    EMIT_HANDSHAKE,
    EMIT_NONE,
    FLOW,
    FLOW_SEARCH,
    HOLDING,
    LINK,
    LINK_TRACKED,
    QUEUED_BYTES,
    QUIET,
    RECORD_ROOM,
    ROW,
    ROW_BEGIN,
    ROW_BROKEN,
    ROW_END,
    ROW_NOT_TLS,
    ROW_PASS,
    ROW_RECORD,
    SHOWN_BY,
    TRACK,
    TURN_ROW,
    WALK,
    RecordRow,
    RecordTables,
)
from .records import walk_chunks
from .suites import FAILED

if TYPE_CHECKING:
    from .key_log import KeyLog
    from .tracked import Tracked

Array = np.ndarray[Any, Any]
OnRecord = Callable[["Tracked", RecordRow, Array], None]
#: Connections that are tracked at most, at one time.
MOST_TRACKED = 32_768
#: Bytes of records that are gathered at most, of all connections together.
GATHERED_BYTES = 64 << 20
#: How long a connection waits for its secrets, ns of capture time, and what all connections that wait take, bytes.
HOLD_NS = 3_000_000_000
HOLD_ALL = 64 << 20
#: What looking for the secrets of a connection costs, ns. For late ones it takes 5 % of the time at most.
_LOOK_NS = 5_000
#: Records of a connection without a ClientHello that secrets are tried on: those of the handshake open with none.
_MOST_TRIALS = 12
#: The values of QUIET among those of a TRACK.
_QUIET = itemgetter(*(list(TRACK.fields or ()).index(name) for name in QUIET))
#: Rows of the kernel at once.
_ROWS = 4_096
#: What becomes of the chunks of a tracked connection.
_PASS, _DROP, _HOLD = range(3)


class TlsLayer:
    """Finds TLS connections, and decrypts those whose secrets are in `key_log` (None: none).

    `on_record`: called with each record of all connections, also with broken ones: the connection, the row of the
    record, and the chunks of the part. Nothing is estimated then.
    """

    def __init__(self, key_log: KeyLog | None = None, on_record: OnRecord | None = None) -> None:
        self.key_log = key_log
        self._on_record = on_record
        #: The ends of a connection: an address and a port each.
        self.ends_of: Callable[[int], tuple[tuple[str, int], tuple[str, int]]] | None = None
        self.tracked: dict[int, Tracked] = {}  # by connection, until it is forgotten
        #: Connections whose client a ClientHello shows, and its direction. The reader empties it.
        self.oriented: list[tuple[int, int]] = []
        self._slots = SlotTable(64, tracks=TRACK, flows=Column(FLOW, 2))
        self._by_slot: list[Tracked | None] = []
        self._links = Table(256, links=LINK)
        self._gathered = SlotTable(GATHERED_BYTES // RECORD_ROOM, gathered=Column(np.uint8, RECORD_ROOM))
        self._rows = np.zeros(_ROWS, ROW)
        self._turns = np.zeros(_ROWS, TURN_ROW)
        #: TURN_ROWs that wait to be taken: their connections, the overhead of a record, and the rows.
        self._estimates: list[tuple[int, int, Array]] = []
        self._owners = np.zeros(1, np.int32)
        self._walk = np.zeros(1, WALK)
        self._fates = np.zeros(len(self._slots) + 1, np.uint8)  # the last one stands for no slot
        self._made = ChunkRows()
        self._released: list[int] = []  # slots that are free after this part
        self._held_bytes = 0
        self._holding: dict[int, Tracked] = {}  # by slot
        #: By slot, connections whose secrets did not come in time. They are decrypted from when these come.
        self._late: dict[int, Tracked] = {}
        self._late_version = -1  # of the key log when they were looked for
        self._late_at = 0  # when that was, ns of the monotonic clock
        self._holding_version = -1  # of the key log when those that wait were looked for
        self._kernel: Callable[..., int] | None = None
        self._emit = EMIT_HANDSHAKE if key_log is None and on_record is None else EMIT_ALL

    def use(self, key_log: KeyLog) -> None:
        """Decrypt the connections that begin from now on, and those that wait, with this key log."""
        self.key_log = key_log
        self._emit = EMIT_ALL
        self._kernel = None
        self._late_version = self._holding_version = -1
        for tracked in (*self._holding.values(), *self._late.values()):
            tracked.session.use(key_log)

    @property
    def is_waiting(self) -> bool:
        """Whether connections wait for their secrets, or for more bytes."""
        return bool(self._holding or self._late)

    # Parts.

    def read(self, part: Assembled, now: int = 0) -> Assembled:
        """The part for the dissector. `now`: the latest time so far, ns. The result refers to arrays that the next call
        changes."""
        made = self._made
        if len(made) or made.used:
            made.clear()
        if self._holding or self._late:
            self._review(part, now)
        count = part.chunk_count
        owned = self._read_chunks(part) if count else False
        if not owned and not len(made):
            return part
        return self._merged(part, owned)

    def _read_chunks(self, part: Assembled) -> bool:
        """Walk the chunks of a part. Return whether some are of tracked connections."""
        count, walk = part.chunk_count, self._walk
        if self._links.reserve(part.connections):
            self._kernel = None
        if len(self._owners) < count:
            self._owners = np.zeros(len(part.table), np.int32)
            self._kernel = None
        numbers = walk.view(np.int64)
        numbers[:] = 0
        while True:
            room = MOST_TRACKED - self._slots.in_use
            kernel = self._kernel or self._bind()
            done = kernel(part.block, part.held, part.table, count, self._emit, room)
            made = int(walk["rows"][0])
            turns = int(walk["estimates"][0])
            if made:
                self._read_rows(part, made)
            if turns and self._on_record is None:
                self._note_turns(turns)
            if done == count:
                return bool(walk["owned"][0])
            if walk["needs_slots"][0]:
                self._grow_slots()

    def _grow_slots(self) -> None:
        """Make room for more connections."""
        self._slots.grow()
        fates = np.zeros(len(self._slots) + 1, np.uint8)
        fates[: len(self._fates) - 1] = self._fates[:-1]
        self._fates = fates
        self._kernel = None

    def _add(self, tracked: Tracked) -> None:
        self.tracked[tracked.connection] = tracked
        if tracked.slot >= len(self._by_slot):
            self._by_slot += [None] * (tracked.slot + 1 - len(self._by_slot))
        self._by_slot[tracked.slot] = tracked

    def _bind(self) -> Callable[..., int]:
        slots, gathered = self._slots, self._gathered
        self._kernel = walk_chunks.bound(
            RecordTables(
                self._links["links"], slots["tracks"], slots["flows"], slots.free, gathered["gathered"], gathered.free,
                self._rows, self._turns, self._owners, self._walk,
            )
        )  # fmt: skip
        return self._kernel

    def _merged(self, part: Assembled, owned: bool) -> Assembled:
        """The part with the chunks that pass and those that were made."""
        made, count = self._made, part.chunk_count
        chunks = part.table[:count]
        if owned:
            fates = self._fates[self._owners[:count]]
            if (fates == _HOLD).any():
                self._hold(part, np.flatnonzero(fates == _HOLD))
                fates = self._fates[self._owners[:count]]
            kept = fates == _PASS
        else:
            kept = np.ones(count, bool)
        self._free_slots()
        if kept.all() and not len(made):
            return part
        table, held = made.merged(chunks, kept, part.held)
        return part._replace(table=table, chunk_count=len(table), held=held)

    def _hold(self, part: Assembled, places: Array) -> None:
        """Copy chunks of connections that are not decided. If too much waits, those of the connections with the most
        pass instead."""
        owners = self._owners[places]
        order = np.argsort(owners, kind="stable")
        places, owners = places[order], owners[order]
        groups = np.split(places, np.flatnonzero(np.diff(owners)) + 1)
        found = {int(self._owners[group[0]]): part.table[group] for group in groups}
        sizes = {slot: int(rows["captured"].sum(dtype=np.int64)) + rows.nbytes for slot, rows in found.items()}
        self._make_room(sizes)
        for slot, size in sizes.items():
            tracked = self._by_slot[slot]
            assert tracked is not None
            tracked.held.append(copied_chunks(found[slot], part.block, part.held))
            tracked.held_bytes += size
            self._held_bytes += size

    def _make_room(self, sizes: dict[int, int]) -> None:
        """If more waits than may, give up the connections with the most, so that a quarter is free. `sizes`: by slot,
        bytes that are to wait, too; without those of connections that were given up."""
        new = sum(sizes.values())
        if self._held_bytes + new <= HOLD_ALL:
            return
        waiting = {slot: tracked.waiting_bytes + sizes.get(slot, 0) for slot, tracked in self._holding.items()}
        for slot in sorted(waiting, key=waiting.__getitem__, reverse=True):
            new -= sizes.pop(slot, 0)
            self._give_up(self._holding[slot])
            if self._held_bytes + new <= HOLD_ALL - HOLD_ALL // 4:
                return

    # Rows of the kernel.

    def _read_rows(self, part: Assembled, count: int) -> None:
        """Read what the kernel emitted."""
        arrays: tuple[Any, ...] = (part.block, part.held, self._gathered["gathered"])
        views = tuple(memoryview(array) for array in arrays)
        by_slot, made, rows = self._by_slot, self._made, self._rows[:count]
        whole: list[tuple[int, ...]] = []
        plain: list[int] = []
        for number, (is_data, slot, direction, source, at, length) in enumerate(self._columns(rows)):
            tracked = by_slot[slot] if slot < len(by_slot) else None
            cipher = tracked.session.ciphers[direction] if is_data and tracked and tracked.is_regular else None
            if cipher is None or tracked is None:
                whole = whole or rows.tolist()
                self._read_row(RecordRow._make(whole[number]), tracked, views, part)
                continue
            record, out = views[source][at : at + length], made.room(length)
            size = cipher.open(record, out)
            if size >= 0:
                plain += number, made.used, size, cipher.at, tracked.facts.version
                made.used += size
                tracked.read_bytes += length
                tracked.plain_bytes += size
                continue
            whole = whole or rows.tolist()
            row = RecordRow._make(whole[number])
            if size == FAILED:
                tracked.decrypt(row, record, made)
            else:
                tracked.read_opened(row, tracked.session.inside(direction, cipher, out, 0), made)
        if plain:
            made.add_records(rows, plain, self._slots["tracks"]["connection"])
        gathered = rows["row"][rows["row"] >= 0]
        if len(gathered):
            self._gathered.release(gathered.astype(np.int32))

    def _columns(self, rows: Array) -> Iterator[tuple[Any, ...]]:
        """For each row, whether it is a record with application data before which nothing is missing; and where it
        is."""
        is_data = (rows["kind"] == ROW_RECORD) & (rows["type"] == APPLICATION_DATA) & (rows["before"] == 0)
        if self._on_record is not None:
            is_data[:] = False  # `_read_row` calls it
        names = ("slot", "direction", "source", "at", "length")
        return zip(is_data.tolist(), *(rows[name].tolist() for name in names), strict=True)

    def _read_row(
        self, row: RecordRow, tracked: Tracked | None, views: tuple[memoryview, ...], part: Assembled
    ) -> None:
        """Read a row that is more than the next data of a connection that is decrypted."""
        kind = row.kind
        if kind == ROW_RECORD and tracked is not None:
            record = views[row.source][row.at : row.at + row.length]
            if tracked.mode == DECRYPTED:
                tracked.decrypt(row, record, self._made)
            else:
                self._read_record(tracked, row, record, part)
        elif kind == ROW_BEGIN:
            self._begin(row)
        elif tracked is None:
            pass
        elif kind == ROW_BROKEN:
            if tracked.mode == DECRYPTED:
                tracked.lose(row)
            elif row.is_early and row.type == HANDSHAKE:
                tracked.observe_cut(row, views[row.source][row.at : row.at + row.whole])
            elif row.is_early:
                tracked.session.lost(row.direction)
        elif kind == ROW_PASS:
            self._keep_proxy(tracked, row, views)
        elif kind in (ROW_END, ROW_NOT_TLS):
            self._end(tracked, row, kind == ROW_NOT_TLS)
        if self._on_record is not None and tracked is not None and kind in (ROW_RECORD, ROW_BROKEN):
            self._on_record(tracked, row, part.table)

    def _begin(self, row: RecordRow) -> None:
        from .session import Session  # only captures with TLS need these
        from .tracked import Tracked

        slot = row.slot
        connection = int(self._slots["tracks"]["connection"][slot])
        session = Session(self.key_log, self.name_of_ends(connection))
        tracked = Tracked(connection, slot, session, self.key_log is not None, row.ts)
        self._add(tracked)
        if tracked.mode == HOLDING:
            self._fates[slot] = _HOLD
            self._holding[slot] = tracked

    def name_of_ends(self, connection: int) -> bytes:
        """What a key log may have in place of the client random of a connection; nothing without a key log."""
        from .secrets import name_of_ends  # only captures with TLS need it

        return b"" if self.key_log is None or self.ends_of is None else name_of_ends(*self.ends_of(connection))

    def _read_record(self, tracked: Tracked, row: RecordRow, record: memoryview, part: Assembled) -> None:
        """Read a record of a connection that is not decrypted, or not yet."""
        facts = tracked.facts
        had_client = facts.client >= 0
        if tracked.mode != HOLDING:
            if row.is_early:
                tracked.observe(row, record)
        elif row.type == APPLICATION_DATA and tracked.lacks_hellos:
            self._try_middle(tracked, row, record)
        elif not tracked.has_secrets and tracked.is_protected(row):
            self._read_protected(tracked, row, record)
        else:
            self._open_held(tracked, row, record)
        if not had_client and facts.client >= 0:
            self._orient(tracked, part)

    def _open_held(self, tracked: Tracked, row: RecordRow, record: memoryview) -> None:
        """Open a record of a connection that waits: it is in the clear, or secrets are known."""
        waiting = tracked.waiting_bytes
        if tracked.open_held(row, record, self._made):
            self._held_bytes -= waiting
            self._begin_decryption(tracked)
        elif tracked.is_hopeless:
            tracked.reason = D_WRONG_KEY if tracked.failures else 0
            self._give_up(tracked)

    def _read_protected(self, tracked: Tracked, row: RecordRow, record: memoryview) -> None:
        """The first protected records of a connection that waits: the key log decides."""
        key_log = self.key_log
        assert key_log is not None
        if not tracked.queue:
            if key_log.is_growing:
                key_log.poll()  # most programs have written them by now
            tracked.has_secrets = tracked.session.has_secrets()
        if tracked.has_secrets:
            self._open_held(tracked, row, record)
        elif key_log.is_growing:
            tracked.queue.append((row, bytes(record)))
            size = len(record) + QUEUED_BYTES
            tracked.queued_bytes += size
            self._held_bytes += size
            self._make_room({})
        else:
            tracked.reason = D_NO_KEY
            self._give_up(tracked)
            if row.is_early:
                tracked.observe(row, record)

    def _try_middle(self, tracked: Tracked, row: RecordRow, record: memoryview) -> None:
        """Try the secrets of the key log on a record of a connection whose handshake was not captured."""
        key_log = self.key_log
        assert key_log is not None
        tracked.is_middle = True
        tracked.trials += 1
        own = tracked.session.traffic_secrets()
        if tracked.session.try_secrets(row.direction, record, own or key_log.traffic_secrets()):
            tracked.has_secrets = True
            self._open_held(tracked, row, record)
        elif tracked.facts.client < 0 or tracked.trials >= _MOST_TRIALS:  # else the handshake may still go on
            tracked.reason = D_NO_HANDSHAKE
            self._give_up(tracked)

    def _begin_decryption(self, tracked: Tracked) -> None:
        self._fates[tracked.slot] = _DROP
        self._holding.pop(tracked.slot, None)

    def _keep_proxy(self, tracked: Tracked, row: RecordRow, views: tuple[memoryview, ...]) -> None:
        """Keep the PROXY header in a chunk whose rest is TLS: it passes if the connection is decrypted."""
        tracked.proxy = row, bytes(views[row.source][row.at : row.at + row.length])

    def _give_up(self, tracked: Tracked) -> None:
        """The chunks of a connection pass as they are: those that waited, before all chunks of this part, and all later
        ones."""
        key_log, slot = self.key_log, tracked.slot
        self._held_bytes -= tracked.waiting_bytes
        if not tracked.reason and not tracked.is_hopeless:
            tracked.reason = D_NO_KEY
        if key_log is not None and key_log.is_growing and tracked.reason in (D_NO_KEY, D_NO_HANDSHAKE) and slot >= 0:
            self._late[slot] = tracked
            self._late_version = -1
        for rows, data in tracked.release():
            self._made.add_copies(0, rows, data)
        self._emit_turns(tracked)
        if slot >= 0:
            self._fates[slot] = _PASS
            self._holding.pop(slot, None)
            self.flows(tracked)["emit"] = EMIT_HANDSHAKE

    def _end(self, tracked: Tracked, row: RecordRow, is_plain: bool) -> None:
        """A connection is over, or is no TLS: nothing of it waits any more."""
        slot = tracked.slot
        if tracked.mode == HOLDING:
            self._give_up(tracked)
        self._late.pop(slot, None)
        rows = self.flows(tracked)["row"]
        if max(rows.tolist()) >= 0:
            self._gathered.release(rows[rows >= 0])
            rows[:] = -1
        tracked.end(row, self._made)
        tracked.counts = self.counts(tracked)
        tracked.base = self.records(tracked)
        tracked.facts.turns = self.turns(tracked)
        tracked.messages = self.messages(tracked)
        self._released.append(slot)
        if is_plain and tracked.mode != DECRYPTED:
            del self.tracked[tracked.connection]
        tracked.slot = -1

    # What is known of a connection.

    def link(self, connection: int) -> Any | None:
        """Its LINK; None if no chunk of it came."""
        links = self._links["links"]
        return links[connection] if connection < len(links) else None

    def flows(self, tracked: Tracked) -> Array:
        """The FLOWs of a connection that is not over."""
        return self._slots["flows"][2 * tracked.slot : 2 * tracked.slot + 2]

    def track(self, tracked: Tracked) -> Any:
        """The TRACK of a connection that is not over."""
        return self._slots["tracks"][tracked.slot]

    def client(self, tracked: Tracked) -> int:
        """The direction of its client by its handshake or its SYN; -1."""
        client = tracked.facts.client
        return client if client >= 0 else int(self._links["links"]["client"][tracked.connection])

    def turns(self, tracked: Tracked) -> list[int]:
        """What later estimates depend on when it is quiet: QUIET of TRACK, up to where more makes no difference."""
        if tracked.slot < 0:
            return tracked.facts.turns
        is_13, turns, *others = _QUIET(self.track(tracked).item())
        return [is_13, min(turns, FIRST_TURNS + 1) if is_13 else 0, *others]

    def messages(self, tracked: Tracked) -> int:
        """The client's requests so far, about."""
        return int(self.track(tracked)["messages"]) if tracked.slot >= 0 else tracked.messages

    def records(self, tracked: Tracked) -> list[int]:
        """Its records with application data so far, by direction, those of earlier runs included."""
        counted = self.flows(tracked)["records"].tolist() if tracked.slot >= 0 else (0, 0)
        return [base + count for base, count in zip(tracked.base, counted, strict=True)]

    def counts(self, tracked: Tracked) -> tuple[int, int, int]:
        """Of both flows of a connection: bytes, records with application data, those of which bytes are missing."""
        if tracked.slot < 0:
            return tracked.counts
        flows = self.flows(tracked)
        return sum(flows["bytes"].tolist()), sum(flows["records"].tolist()), sum(flows["lost"].tolist())

    def _free_slots(self) -> None:
        """Release the slots of connections that ended in this part."""
        if self._released:
            slots = self._released
            self._fates[slots] = _PASS
            for slot in slots:
                self._by_slot[slot] = None
            self._slots.release(np.array(slots, np.int32))
            self._released = []

    # Connections that continue from another run.

    def begin_link(self, connection: int, state: int, client: int = -1) -> None:
        """Look at a connection from here on, in this state (LINK_...)."""
        if self._links.reserve(connection + 1):
            self._kernel = None
        link = self._links["links"][connection]
        link["slot"], link["state"], link["client"], link["tries"], link["headers"] = -1, state, client, 0, 0
        link["hello"] = -1

    def resume(self, tracked: Tracked, client: int) -> None:
        """Track a connection whose handshake is over. `client`: its direction; -1."""
        slots = self._slots
        if not slots.free[0]:
            self._grow_slots()
        slot = tracked.slot = int(take_row(slots.free))
        self.begin_link(tracked.connection, LINK_TRACKED, client)
        link = self._links["links"][tracked.connection]
        link["slot"], link["headers"] = slot, SHOWN_BY
        slots["tracks"][slot] = np.zeros(1, TRACK)[0]
        track, flows = self.track(tracked), self.flows(tracked)
        track["connection"], track["last_record"], track["is_middle"] = tracked.connection, 1, 1
        for name, value in zip(QUIET, tracked.facts.turns, strict=True):
            track[name] = value
        flows[:] = np.zeros(2, FLOW)
        is_decrypted = tracked.mode == DECRYPTED
        flows["row"], flows["mode"], flows["emit"] = -1, FLOW_SEARCH, EMIT_ALL if is_decrypted else EMIT_NONE
        self._add(tracked)
        self._fates[slot] = _DROP if is_decrypted else _PASS

    def discount(self) -> None:
        """Set the counts of all connections to 0: another run has them."""
        for tracked in self.tracked.values():
            if tracked.slot >= 0:
                tracked.base = self.records(tracked)
                flows = self.flows(tracked)
                for name in ("records", "lost", "bytes"):
                    flows[name] = 0
                self.track(tracked)["messages"] = 0
            tracked.discount()

    def ignore_records(self, tracked: Tracked) -> None:
        """Emit no more records of a connection."""
        self.flows(tracked)["emit"] = EMIT_NONE

    # Estimates.

    def _note_turns(self, count: int) -> None:
        """Keep the turns that the kernel emitted, of connections that are not decrypted."""
        turns = self._turns[:count]
        for slot in distinct_values(turns["slot"]).tolist():
            tracked = self._by_slot[slot] if slot < len(self._by_slot) else None
            if tracked is not None and tracked.mode != DECRYPTED:
                tracked.turns.append(turns[turns["slot"] == slot].copy())
                if tracked.mode != HOLDING:
                    self._emit_turns(tracked)

    def _emit_turns(self, tracked: Tracked) -> None:
        overhead = overhead_of(tracked.facts.version, tracked.facts.suite)
        for rows in tracked.turns:
            tracked.estimated += len(rows)
            self._estimates.append((tracked.connection, overhead, rows))
        tracked.turns = []

    def take_turns(self) -> tuple[Array, Array, Array] | None:
        """Remove and return the turns so far: TURN_ROW (n,), and for each its connection and the overhead of its
        records; None if there are none."""
        found, self._estimates = self._estimates, []
        if not found:
            return None
        lengths = [len(rows) for _, _, rows in found]
        connections = np.repeat(np.array([c for c, _, _ in found], np.int64), lengths)
        overheads = np.repeat(np.array([overhead for _, overhead, _ in found], np.int64), lengths)
        return np.concatenate([rows for _, _, rows in found]), connections, overheads

    # Connections that wait.

    def _review(self, part: Assembled, now: int) -> None:
        """Look at the connections that wait: their secrets may have come, or they have waited too long."""
        key_log = self.key_log
        assert key_log is not None
        key_log.poll()
        if self._late and key_log.version != self._late_version:
            self._look_for_late(key_log)
        holding = [each for each in self._holding.values() if not each.has_secrets and each.facts.client >= 0]
        found: set[int] = set()
        if key_log.version != self._holding_version:
            self._holding_version = key_log.version
            found = {tracked.slot for tracked in _with_lines([each for each in holding if each.queue], key_log)}
        for tracked in holding:
            if tracked.slot in found and tracked.session.has_secrets():
                tracked.has_secrets = True
                self._held_bytes -= tracked.queued_bytes
                queue, tracked.queue, tracked.queued_bytes = tracked.queue, [], 0
                for row, record in queue:
                    row = row._replace(place=0)  # before all chunks of this part
                    if tracked.mode == DECRYPTED:
                        tracked.decrypt(row, memoryview(record), self._made)
                    else:
                        self._read_record(tracked, row, memoryview(record), part)
            elif key_log.is_growing and now - tracked.since > HOLD_NS:
                self._give_up(tracked)

    def _look_for_late(self, key_log: KeyLog) -> None:
        """Decrypt the connections whose secrets have come too late, from the next record on."""
        now = time.monotonic_ns()
        if now - self._late_at < 20 * _LOOK_NS * len(self._late):
            return
        self._late_at, self._late_version = now, key_log.version
        for tracked in _with_lines(list(self._late.values()), key_log):
            if tracked.lacks_hellos:
                self._hold_again(tracked)
                continue
            if not tracked.session.has_secrets() or not tracked.facts.is_chosen:
                continue
            del self._late[tracked.slot]
            if tracked.begin_late(self.records(tracked), key_log, self._made):
                self._fates[tracked.slot] = _DROP
                self.flows(tracked)["emit"] = EMIT_ALL

    def _hold_again(self, tracked: Tracked) -> None:
        """There are secrets for the ends of a connection whose handshake was not captured: try them from here on."""
        del self._late[tracked.slot]
        tracked.mode, tracked.was_late, tracked.reason, tracked.trials = HOLDING, True, 0, 0
        self._holding[tracked.slot] = tracked
        self._fates[tracked.slot] = _HOLD
        self.flows(tracked)["emit"] = EMIT_ALL

    def _orient(self, tracked: Tracked, part: Assembled) -> None:
        """A ClientHello shows the client of a connection without a SYN."""
        connection, client = tracked.connection, tracked.facts.client
        link = self._links["links"][connection]
        if link["client"] >= 0:
            return
        link["client"] = client
        self.oriented.append((connection, client))
        chunks = part.table[: part.chunk_count]
        starts = (chunks["connection"] == connection) & (chunks["kind"] == CHUNK_START)
        starts &= chunks["opening"] == OPENING_UNKNOWN
        for place in np.flatnonzero(starts).tolist():
            chunks["opening"][place], chunks["direction"][place] = OPENING_HINT, client

    def encrypted_now(self) -> int:
        """Payload of open connections that are decrypted that could not be decrypted."""
        found = (t for t in self.tracked.values() if t.mode == DECRYPTED and t.slot >= 0)
        return sum(max(0, self.counts(t)[0] - t.read_bytes) for t in found)

    def decrypted_now(self) -> int:
        """Payload of open connections that are decrypted, without what could not be."""
        found = (t for t in self.tracked.values() if t.mode == DECRYPTED and t.slot >= 0)
        return sum(min(self.counts(t)[0], t.read_bytes) for t in found)

    def forget(self, connections: Array) -> None:
        """Forget connections that are over."""
        for connection in connections.tolist():
            self.tracked.pop(connection, None)


def _with_lines(connections: list[Tracked], key_log: KeyLog) -> list[Tracked]:
    """Those for which a key log may have lines."""
    if not connections:
        return []
    names = [(each.facts.client_random or each.session.ends, each.facts.session_id) for each in connections]
    has = key_log.have_lines(names)
    return [tracked for tracked, found in zip(connections, has, strict=True) if found]
