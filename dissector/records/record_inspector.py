"""The records of a run: an inspector that copies the `records` fields of messages, and makes rows of them.

`look` copies the bytes of a drain's fields into the arena. `chunks`, called after it, walks and decompresses them chunk
by chunk. So only one chunk of decompressed bytes is held at a time (`HELD` and one batch).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from kafkatap.kernels.arrays import taken

from ..dtypes import NO_INT32
from ..inspection import Frames
from ..programs.machine import TAPE
from ..programs.profiles import FETCH_REQUEST, with_records
from ..programs.program import Programs
from ..programs.roles import R_FETCH_OFFSET, R_PARTITION, R_RECORDS, R_TOPIC_ID, R_TOPIC_NAME
from ..programs.tape import decode_jobs
from . import batches as b
from .checksums import check_crcs, check_messages
from .codecs import CORRUPT, DONE, NONE, TOO_LARGE, UNKNOWN, Bounds, decompress
from .fetched import FetchRequests, aborted_transactions
from .nested_sets import flattened
from .record_reader import read_records

Array = np.ndarray[Any, Any]

#: Decompressed bytes that end a chunk.
HELD = 16 << 20
#: Most bytes of keys, values and headers in a chunk, as each is held several times until it is written. A single record
#: may have more.
LARGEST = 16 << 20
#: Rows of a chunk, at most.
BATCHES, RECORDS, HEADERS = 1 << 14, 1 << 16, 1 << 17

_STATUS = {DONE: b.OK, CORRUPT: b.CORRUPT, TOO_LARGE: b.TOO_LARGE, UNKNOWN: b.UNKNOWN_CODEC}

#: Selects messages: for rows of `frames.jobs` (int64) whether their records are collected (bool).
Choice = Callable[[Frames, Array], Array]
#: A topic's name and id (16 bytes) in its message.
Topic = tuple[bytes | None, bytes | None]


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some records. The arrays are valid until the next chunk. `batches` are those of the records; `topics` are by the
    numbers in `parts`. `are_final`: which offsets of produced records are those that the broker gave; None: none."""

    arena: Array  # uint8
    parts: Array  # PART
    batches: Array  # BATCH
    records: Array  # RECORD
    headers: Array  # HEADER
    topics: list[Topic]
    are_final: Array | None = None  # bool


@dataclass(slots=True)
class Tally:
    """Counts. `batches` by status (`batches.RECORD_STATUSES`). `wrong_messages`: within compressed messages."""

    batches: Array
    records: int = 0
    wrong_crc: int = 0
    wrong_messages: int = 0


class RecordCollector:
    """An inspector that collects record fields, for `chunks`. `programs` are those of the RECORDS profile; `choose`
    selects messages, `topic_wanted` topics."""

    def __init__(
        self,
        programs: Programs,
        choose: Choice | None = None,
        topic_wanted: Callable[[Topic], bool] | None = None,
        bounds: Bounds | None = None,
    ) -> None:
        self.topics: list[Topic] = []
        self.tally = Tally(np.zeros(len(b.RECORD_STATUSES), np.int64))
        self._programs = programs
        self._carrying = [key * 2 + direction for key, direction in {*with_records(programs), FETCH_REQUEST}]
        self._choose = choose
        self._topic_wanted = topic_wanted
        self._bounds = bounds or Bounds()
        self._numbers: dict[Topic, int] = {}
        self._passing: list[bool] = []  # by number of the topic: whether it is wanted
        self._tape = np.zeros(1 << 12, TAPE)
        self._arena: Array = np.empty(1 << 20, np.uint8)
        self._used = 0
        self._parts: list[Array] = []
        self._requests = FetchRequests()
        self._aborted: Array = b.NO_ABORTED
        self._batches = np.zeros(BATCHES, b.BATCH)
        self._records = np.zeros(RECORDS, b.RECORD)
        self._headers = np.zeros(HEADERS, b.HEADER)

    def look(self, frames: Frames) -> None:
        jobs, rows = frames.jobs, frames.rows
        keys = rows["api_key"][jobs["frame"] >> 1]
        carries = np.isin(keys.astype(np.int64) * 2 + (jobs["frame"] & 1), self._carrying)
        chosen = np.flatnonzero(carries & (jobs["program"] >= 0))
        if self._choose is not None and len(chosen):
            chosen = chosen[self._choose(frames, chosen)]
        if not len(chosen):
            return
        mine = taken(jobs, chosen)
        mine["program"] = self._programs.same_as(frames.programs, mine["program"])
        mine["frame"] = np.arange(len(mine))
        tape = decode_jobs(self._programs, mine, frames.buffers, self._tape)
        if len(tape) > len(self._tape):
            self._tape = np.zeros(2 * len(tape), TAPE)
        roles = self._programs.roles[tape["field"]]
        topics, partitions = self._names(tape, roles, mine, frames.buffers)
        # A partition, as Fetch has them, lies in its topic.
        places = topics[tape["parent"]].astype(np.int64) << 32 | partitions[:-1].view(np.uint32)
        exchanges = rows["key"][jobs["frame"][chosen] >> 1]
        self._requests.add(tape, roles, places, exchanges)
        fields, numbers = self._fields(tape, roles, topics)
        owners, beside = tape["frame"][fields], tape["parent"][fields]
        slots = jobs["frame"][chosen[owners]] >> 1
        fetch = (jobs["frame"][chosen[owners]] & 1) == 1
        at, length = tape["value"][fields], tape["length"][fields]
        ends = np.minimum(at + length, mine["end"][owners])
        parts = np.zeros(len(fields), b.PART)
        parts["exchange"] = exchanges[owners]
        parts["message_first"] = np.where(fetch, rows["response_first"][slots], rows["request_first"][slots])
        parts["packet"] = np.where(fetch, rows["response_packet_first"][slots], rows["request_packet_first"][slots])
        parts["client_id"] = rows["client_id"][slots]
        parts["fetch"] = fetch
        cut = np.where(fetch, rows["response_cut_bytes"][slots], rows["request_cut_bytes"][slots])
        parts["cut"] = (ends < at + length) * np.where(cut > 0, 2, 1)
        parts["topic"], parts["partition"] = numbers, partitions[beside]
        aborted, first, end = aborted_transactions(tape, roles, beside)
        parts["aborted_at"] = len(self._aborted) + first
        parts["aborted_end"] = np.where(end < 0, -1, len(self._aborted) + end)
        self._requests.fill(parts, places[beside], exchanges[(jobs["frame"][chosen] & 1) == 1])
        if len(fields):
            self._aborted = np.concatenate((self._aborted, aborted))
            self.take(parts, at, ends - at, mine["source"][owners], frames.buffers)

    def _names(self, tape: Array, roles: Array, jobs: Array, buffers: tuple[Array, ...]) -> tuple[Array, Array]:
        """The numbers of the topics and the partitions that are named in an element, by its row (int32, -1 none)."""
        partitions = np.full(len(tape) + 1, NO_INT32, np.int32)
        where = np.flatnonzero((roles == R_PARTITION) & (tape["parent"] >= 0))
        partitions[tape["parent"][where]] = tape["value"][where]
        topics = np.full(len(tape) + 1, -1, np.int32)
        where = np.flatnonzero((roles == R_TOPIC_NAME) | (roles == R_TOPIC_ID))
        elements = tape["parent"][where]
        # As in Kafka, the topic of records is named around their partition; otherwise beside them, or nowhere.
        beside = tape["parent"][((roles == R_RECORDS) & (tape["length"] > 0)) | (roles == R_FETCH_OFFSET)]
        around = np.where(beside >= 0, tape["parent"][beside], -1)
        kept = (elements >= 0) & np.isin(elements, np.concatenate((beside, around)))
        named = where[kept]
        for element, is_id, at, length, job in zip(
            elements[kept].tolist(), (roles[named] == R_TOPIC_ID).tolist(), tape["value"][named].tolist(),
            tape["length"][named].tolist(), tape["frame"][named].tolist(), strict=True,
        ):  # fmt: skip
            text = buffers[jobs["source"][job]][at : at + max(length, 0)].tobytes()
            topics[element] = self._number_of((None, text) if is_id else (text, None))
        return topics, partitions

    def _fields(self, tape: Array, roles: Array, topics: Array) -> tuple[Array, Array]:
        """The rows of the records fields of wanted topics, and the numbers of their topics."""
        rows = np.flatnonzero((roles == R_RECORDS) & (tape["length"] > 0))
        beside = tape["parent"][rows]
        around = np.where(beside >= 0, tape["parent"][beside], -1)
        numbers = np.where(topics[around] >= 0, topics[around], topics[beside])
        if (numbers < 0).any():
            numbers[numbers < 0] = self._number_of((None, None))
        if self._topic_wanted is not None:
            passing = np.array([*self._passing, True])[numbers]
            rows, numbers = rows[passing], numbers[passing]
        return rows, numbers

    def _number_of(self, topic: Topic) -> int:
        number = self._numbers.get(topic)
        if number is None:
            number = self._numbers[topic] = len(self.topics)
            self.topics.append(topic)
            self._passing.append(self._topic_wanted is None or self._topic_wanted(topic))
        return number

    def forget_topics(self) -> None:
        """Forget the topics so far, between two calls of `chunks`: they get new numbers."""
        self.topics = []
        self._numbers.clear()
        self._passing.clear()
        self._requests.clear()

    def take(self, parts: Array, at: Array, length: Array, sources: Array, buffers: tuple[Array, ...]) -> None:
        """Copy fields into the arena, and keep their PART rows with their places there. `at` (int64) are the places of
        the fields in the buffers `sources`."""
        target = self._used + np.cumsum(length) - length
        parts["at"], parts["end"] = target, target + length
        self._room(int(length.sum()))
        for source in np.unique(sources).tolist():
            mine = np.flatnonzero(sources == source)
            b.gather(buffers[source], at[mine], length[mine], target[mine], len(mine), self._arena)
        self._used += int(length.sum())
        self._parts.append(parts)

    def _room(self, size: int) -> None:
        if self._used + size > len(self._arena):
            bigger = np.empty(max(2 * len(self._arena), self._used + size), np.uint8)
            bigger[: self._used] = self._arena[: self._used]
            self._arena = bigger

    def chunks(self) -> Iterator[Chunk]:
        """The records since the last call. The iterator has to be read to its end."""
        if not self._parts:
            return
        parts = np.concatenate([p.view(np.uint8) for p in self._parts]).view(b.PART)
        self._parts = []
        state = np.zeros(b.WALK_STATE, np.int64)
        state[[b.POSITION, b.LAST_EXCHANGE]] = -1
        field_bytes = self._used
        while state[b.PART_NUMBER] < len(parts):
            made = b.walk_batches(self._arena, parts, len(parts), self._aborted, self._batches, state)
            yield from self._unpack(parts, self._batches[:made])
            self._used = field_bytes
        self._used = 0
        self._aborted = b.NO_ABORTED

    def _unpack(self, parts: Array, batches: Array) -> Iterator[Chunk]:
        """Check and decompress the batches, and read their records; large ones in several steps."""
        field_bytes = self._used
        check_crcs(self._arena.data, batches)
        self.tally.wrong_crc += int(np.count_nonzero(batches["crc_state"] == b.CRC_WRONG))
        packed = np.flatnonzero((batches["body"] >= 0) & (batches["codec"] != NONE))
        first = done = 0
        while done < len(packed):
            done += self._decompress(batches, packed[done:])
            stop = int(packed[done]) if done < len(packed) else len(batches)
            yield from self._read(parts, batches, first, stop)
            first, self._used = stop, field_bytes
        yield from self._read(parts, batches, first, len(batches))
        self.tally.batches += np.bincount(batches["status"], minlength=len(b.RECORD_STATUSES))

    def _decompress(self, batches: Array, packed: Array) -> int:
        """Decompress batches by their numbers until HELD bytes are held; return how many."""
        bodies: list[int] = []
        ends: list[int] = []
        statuses: list[int] = []
        full = self._used + HELD
        arena = self._arena.data
        columns = (batches[name][packed].tolist() for name in ("codec", "magic", "body", "body_end"))
        for codec, magic, at, end in zip(*columns, strict=True):
            unpacked = decompress(codec, magic, arena[at:end], self._bounds)
            problem, data = unpacked.problem, unpacked.data
            if magic < 2 and problem == DONE:
                data = flattened(data, self._bounds, self._bounds.of(end - at))
            size = len(data)
            statuses.append(_STATUS[problem])
            ends.append(self._used + size)
            # Without its end the offsets of a message set of magic 1 are unknown, and one of magic 0 is useless.
            unread = problem in (TOO_LARGE, UNKNOWN) or (problem == CORRUPT and magic < 2)
            bodies.append(-1 if unread else self._used)
            if self._used + size > len(arena):
                arena.release()
                self._room(size)
                arena = self._arena.data
            arena[self._used : self._used + size] = data
            self._used += size
            if self._used >= full:
                break
        done = packed[: len(bodies)]
        batches["body"][done], batches["body_end"][done], batches["status"][done] = bodies, ends, statuses
        return len(bodies)

    def _read(self, parts: Array, batches: Array, first: int, stop: int) -> Iterator[Chunk]:
        state = np.zeros(b.READ_STATE, np.int64)
        state[b.NEXT] = -1
        while first < stop:
            state[b.RECORDS] = state[b.HEADERS] = 0
            first = read_records(self._arena, batches, first, stop, self._records, self._headers, state)
            made = int(state[b.RECORDS])
            if made:
                self.tally.wrong_messages += check_messages(self._arena.data, batches, self._records[:made])
                self.tally.records += int(np.count_nonzero(self._records["status"][:made] == b.OK))
                records, headers = self._records[:made], self._headers[: int(state[b.HEADERS])]
                yield from _split(Chunk(self._arena, parts, batches, records, headers, self.topics))


def _split(chunk: Chunk) -> Iterator[Chunk]:
    """A chunk, split in halves while its keys, values and headers exceed `LARGEST` bytes."""
    records, headers = chunk.records, chunk.headers
    columns = (records["key_length"], records["value_length"], headers["key_length"], headers["value_length"])
    if len(records) == 1 or sum(int(np.maximum(column, 0).sum(dtype=np.int64)) for column in columns) <= LARGEST:
        yield chunk
        return
    half = len(records) // 2
    used = int(records["headers"][:half].sum(dtype=np.int64))
    yield from _split(replace(chunk, records=records[:half], headers=headers[:used]))
    yield from _split(replace(chunk, records=records[half:], headers=headers[used:]))
