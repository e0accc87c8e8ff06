"""One tracked connection: what becomes of its records.

A connection's `mode`:

    OBSERVED    its chunks pass as they are; the records of its handshake are read
    HOLDING     its chunks wait until it is known whether it can be decrypted
      → DECRYPTED   a record with application data or of the protected handshake opens
      → OBSERVED    the key log has no secret, none fits, or too much waits
    OBSERVED → DECRYPTED   the secrets came later; its chunks have passed until then
    DECRYPTED   plain bytes pass in place of its chunks
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from kafkatap.reports.connection_words import (
    D_CUT,
    D_DECRYPTED,
    D_FAILED_HANDSHAKE,
    D_LATE_KEY,
    D_NO_HANDSHAKE,
    D_NO_KEY,
    D_NO_KEY_LOG,
    D_UNSUPPORTED,
    D_WRONG_KEY,
)
from kafkatap.reports.tls_names import TLS_1_3

from .chunk_rows import ChunkRows
from .record_header import APPLICATION_DATA, CHANGE_CIPHER_SPEC
from .record_tables import DECRYPTED, HOLDING, OBSERVED, RecordRow
from .rejections import Outline

if TYPE_CHECKING:
    from .facts import TlsFacts
    from .key_log import KeyLog
    from .session import Opened, Session

Array = np.ndarray[Any, Any]
#: `handshake_ns` of a connection whose handshake another run has read.
BEGAN_ELSEWHERE = -2
#: A gap of unknown length is so long: longer than a frame, so that the next frame is searched.
UNKNOWN_GAP = 1 << 32
#: Records that may fail before a secret counts as wrong.
MOST_FAILURES = 32
#: A record length by which the length of a record's overhead is determined.
_SAMPLE = 1_024


class Tracked:
    """The state of one connection. `has_secrets`: the session can decrypt, or has tried its best to find out."""

    __slots__ = (
        "base", "clear_bytes", "connection", "counts", "estimated", "failed", "failures", "handshake_ns", "has_secrets",
        "held", "held_bytes", "is_changed", "is_cut", "is_middle", "is_regular", "lost", "messages", "mode", "outline",
        "pending", "pending_failed", "pending_records", "plain_bytes", "proxy", "queue", "queued_bytes", "read_bytes",
        "reason", "session", "since", "slot", "trials", "turns", "was_late",
    )  # fmt: skip

    def __init__(self, connection: int, slot: int, session: Session, is_holding: bool, since: int) -> None:
        self.connection = connection
        self.slot = slot
        self.session = session
        self.mode = HOLDING if is_holding else OBSERVED
        self.has_secrets = False
        self.since = since  # when its first chunk came, ns
        self.is_middle = False
        self.reason = 0  # D_... if it is known why it is not decrypted
        self.held: list[tuple[Array, bytes]] = []
        self.held_bytes = 0
        self.queue: list[tuple[RecordRow, bytes]] = []  # records that wait for secrets
        self.queued_bytes = 0
        self.is_cut = False  # bytes of its handshake were not captured
        self.trials = 0  # of secrets of others
        self.was_late = False  # its secrets came after its chunks had passed
        self.outline: Outline | None = None  # of its encrypted records, if it is not decrypted
        self.proxy: tuple[RecordRow, bytes] | None = None  # the PROXY header, and where it was
        self.failures = 0
        self.failed = 0
        self.lost = 0
        self.read_bytes = 0  # of records that were read, with headers and tags
        self.plain_bytes = 0
        self.clear_bytes = 0  # of those of them that were in the clear
        #: Whether it is decrypted, nothing is missing before its next records, and the last one was data.
        self.is_regular = False
        self.handshake_ns = -1
        self.estimated = 0  # rows of ESTIMATE
        self.messages = 0  # requests of a connection that is over, about
        self.turns: list[Array] = []  # TURN_ROWs, until it is known whether they are wanted
        self.is_changed = [False, False]  # by direction: a ChangeCipherSpec came
        self.pending = [0, 0]  # by direction: bytes of records that are missing before the next one
        self.pending_failed = [0, 0]  # how many of them were there and did not open
        self.pending_records = [0, 0]  # how many of them are known to be one record each
        self.counts: tuple[int, int, int] = (0, 0, 0)  # of its flows: bytes, records, lost
        self.base = [0, 0]  # by direction: records with application data that other runs count

    @property
    def decrypted_bytes(self) -> int:
        """Of records that opened, with headers and tags."""
        return self.read_bytes - self.clear_bytes

    @property
    def facts(self) -> TlsFacts:
        """What the handshake shows."""
        return self.session.facts

    def decryption(self, key_log: KeyLog | None) -> int:
        """Whether it was decrypted, and why not: D_..."""
        found = self._decryption(key_log)
        return D_NO_KEY if found == D_WRONG_KEY and self.session.is_by_ends else found

    def _decryption(self, key_log: KeyLog | None) -> int:
        facts = self.session.facts
        if self.mode == DECRYPTED:
            if facts.alert >= 0 and not self.plain_bytes:
                return D_FAILED_HANDSHAKE
            return D_LATE_KEY if self.was_late else D_DECRYPTED
        if facts.decryption == D_FAILED_HANDSHAKE:
            return D_FAILED_HANDSHAKE
        if key_log is None:
            return D_NO_KEY_LOG
        if self.is_cut and not (facts.client_random and facts.suite):
            return D_CUT
        if self.reason:
            return self.reason
        if facts.decryption in (D_UNSUPPORTED, D_NO_KEY):
            return facts.decryption
        if not facts.client_random:
            return D_NO_HANDSHAKE
        return D_WRONG_KEY if self.failures else D_NO_KEY

    @property
    def lacks_hellos(self) -> bool:
        """Whether its hellos were not captured, or bytes of them, so that TLS 1.3 is read by trial at most."""
        facts = self.session.facts
        is_missing = self.is_cut or not facts.client_random
        return is_missing and not facts.is_chosen and facts.version in (0, TLS_1_3)

    @property
    def waiting_bytes(self) -> int:
        """What the chunks and records that wait take."""
        return self.held_bytes + self.queued_bytes

    @property
    def is_unfinished(self) -> bool:
        """Whether the handshake was not completed so far, and nothing of it is missing."""
        is_tried = self.session.facts.client >= 0 and not self.session.facts.handshake_done
        return is_tried and self.counts[1:] == (0, 0) and not self.is_middle

    def is_protected(self, row: RecordRow) -> bool:
        """Whether a record is encrypted, as far as can be seen without keys. Called once for each record, in order."""
        if row.type == APPLICATION_DATA or self.is_changed[row.direction]:
            return True
        if row.type == CHANGE_CIPHER_SPEC and self.session.facts.version != TLS_1_3:
            self.is_changed[row.direction] = True
        return False

    def observe(self, row: RecordRow, record: memoryview) -> None:
        """Read a record of the handshake of a connection that is not decrypted."""
        self.session.read_handshake(row.direction, record)
        self._note_handshake(row)
        facts = self.session.facts
        if row.type == APPLICATION_DATA and facts.client >= 0:
            if self.outline is None:
                self.outline = Outline()
            if self.outline.is_open:
                self.outline.note(row.direction == facts.client, row.length, row.ts, facts)

    def observe_cut(self, row: RecordRow, record: memoryview) -> None:
        """Read the beginning of a record of the handshake, up to the first byte that was not captured."""
        self.is_cut = True
        self.session.lost(row.direction)
        self.session.read_cut(row.direction, record)

    def _note_handshake(self, row: RecordRow) -> None:
        """Note how long the handshake took, if it is complete with this record."""
        if self.handshake_ns == -1 and self.session.facts.handshake_done:
            self.handshake_ns = row.ts - self.since

    def open_held(self, row: RecordRow, record: memoryview, made: ChunkRows) -> bool:
        """Read a record while nothing is decrypted yet. Return whether the connection can be decrypted now."""
        kind, size, at, _ = self.session.open(row.direction, record, made.room(len(record)))
        if kind < 0:
            self.failures += 1
            return False
        self.read_bytes += len(record)
        self._note_handshake(row)
        if row.type != APPLICATION_DATA:
            self.clear_bytes += len(record)
            return False
        self.begin_decryption(row, size, made)
        if kind == APPLICATION_DATA and size:
            self.plain_bytes += size
            made.add_plain(row, self.connection, row.seq + at, size, self.facts.version)
        return True

    def begin_decryption(self, row: RecordRow, size: int, made: ChunkRows) -> None:
        """Plain bytes pass from now on. `size`: those that lie in the array already. The PROXY header comes first."""
        self.mode = DECRYPTED
        self.held, self.held_bytes, self.queue, self.queued_bytes, self.turns = [], 0, [], 0, []
        if self.was_late:
            made.add_begin(self.connection)
        if self.proxy is not None:
            proxy, data = self.proxy
            room = made.room(size + len(data))
            moved = bytes(room[:size])
            room[: len(data)] = data
            room[len(data) : len(data) + size] = moved
            made.add_plain(proxy._replace(place=row.place), self.connection, proxy.seq, len(data), self.facts.version)
            self.proxy = None

    def decrypt(self, row: RecordRow, record: memoryview, made: ChunkRows) -> None:
        """Decrypt a record of a connection that is decrypted."""
        if row.before:
            self._lose(row.direction, row.before, 0)
        self.read_opened(row, self.session.open(row.direction, record, made.room(row.length)), made)

    def read_opened(self, row: RecordRow, opened: Opened, made: ChunkRows) -> None:
        """Read what the session returned for a record of a connection that is decrypted."""
        direction, length = row.direction, row.length
        kind, size, at, skipped = opened
        self.is_regular = False
        if kind < 0:
            self.failed += row.type == APPLICATION_DATA
            if self.pending[direction]:
                self.pending[direction] += length
                self.pending_failed[direction] += 1
            else:
                plain = self.session.plain_length(direction, length)
                made.add_gap(row, self.connection, row.seq, plain if plain > 0 else UNKNOWN_GAP)
            return
        self.read_bytes += length
        if kind != APPLICATION_DATA:
            self._note_handshake(row)
            if row.type == CHANGE_CIPHER_SPEC:
                self.clear_bytes += length
        elif size:
            if self.pending[direction]:
                self._end_loss(row, skipped, made)
            self.is_regular = not any(self.pending)
            self.plain_bytes += size
            made.add_plain(row, self.connection, row.seq + at, size, self.facts.version)

    def begin_late(self, records: Sequence[int], key_log: KeyLog, made: ChunkRows) -> bool:
        """Decrypt the connection from its next record on. Return whether that is possible."""
        self.session = type(self.session).continued(self.facts, key_log, records, self.session.ends)
        if self.facts.decryption != D_DECRYPTED:
            self.reason = self.facts.decryption
            return False
        self.mode, self.reason = DECRYPTED, 0
        self.has_secrets = self.was_late = True
        made.add_begin(self.connection)
        return True

    def lose(self, row: RecordRow) -> None:
        """A record is broken: bytes of it are missing."""
        if row.before:
            self._lose(row.direction, row.before, 0)
        self._lose(row.direction, row.length, 1)

    def _lose(self, direction: int, length: int, records: int) -> None:
        """Bytes of records are missing. `records`: how many they are; 0 if unknown."""
        if not self.pending[direction]:
            self.pending_failed[direction] = self.pending_records[direction] = 0
        self.is_regular = False
        self.pending[direction] += length
        known = self.pending_records[direction]
        self.pending_records[direction] = known + records if records and known >= 0 else -1
        self.session.lost(direction)

    def _end_loss(self, row: RecordRow, skipped: int, made: ChunkRows) -> None:
        """A record opened behind missing ones: add the gap in the plain bytes before it."""
        length = self._lost_plain(row.direction, skipped)
        self.pending[row.direction] = 0
        self.lost += max(skipped, 1)
        if length > 0:
            made.add_gap(row, self.connection, row.seq, length)

    def _lost_plain(self, direction: int, skipped: int) -> int:
        """How many plain bytes the missing records had; UNKNOWN_GAP if that is unknown."""
        known, failed = self.pending_records[direction], self.pending_failed[direction]
        count = skipped if skipped >= 0 else known + failed if known >= 0 else -1
        plain = self.session.plain_length(direction, _SAMPLE)
        if count < 0 or plain < 0:
            return UNKNOWN_GAP
        length = self.pending[direction] - count * (_SAMPLE - plain)
        return length if length >= 0 else UNKNOWN_GAP

    def end(self, row: RecordRow, made: ChunkRows) -> None:
        """The connection is over: what is missing at its end is a gap."""
        for direction in range(2):
            if self.mode == DECRYPTED and self.pending[direction]:
                length = self._lost_plain(direction, self.pending_records[direction])
                self.pending[direction] = 0
                made.add_gap(row._replace(direction=direction), self.connection, 0, max(length, 1))

    def release(self) -> list[tuple[Array, bytes]]:
        """It cannot be decrypted: return the chunks that waited. They pass as they are."""
        self.mode = OBSERVED
        held, self.held, self.held_bytes = self.held, [], 0
        queue, self.queue, self.queued_bytes = self.queue, [], 0
        for row, record in queue:
            if row.is_early:
                self.observe(row, memoryview(record))
        return held

    def discount(self) -> None:
        """Set what was counted to 0: another run has it."""
        self.counts = (0, 0, 0)
        self.failed = self.lost = self.estimated = self.messages = 0
        self.read_bytes = self.plain_bytes = self.clear_bytes = 0
        if self.handshake_ns >= 0:
            self.handshake_ns = BEGAN_ELSEWHERE

    @property
    def is_hopeless(self) -> bool:
        """Whether too many records failed, or the suite is not supported."""
        return self.failures >= MOST_FAILURES or self.session.facts.decryption in (D_UNSUPPORTED, D_FAILED_HANDSHAKE)
