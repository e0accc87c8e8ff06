"""Chunks in, finished exchanges out: the tables of framing, correlation and decoding, and the loop that runs them.

`feed(block, held, chunks, count)` takes what reassembly made of one block; `drain(block, held)` decodes the bodies of
the frames found so far and gives the exchanges that are finished. Frames point into the block, so a drain has to come
before the block's bytes change; `feed` drains by itself when a table is full.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kafkatap.kernels.arrays import copied, drop_pages, grown, linked_free_list, moved, new_numbers, taken, untouched
from kafkatap.kernels.hashing import new_seed

from . import exchanges, expiry, times
from .dtypes import EXCHANGE, EXCHANGE_STRINGS, MAX_FRAME, RESULT
from .framing import buffers, correlation
from .framing import connections as dialogs
from .framing import frames as framing
from .inspection import Frames, Inspector
from .problems import WholeMessages, note_problems
from .programs.machine import JOB, SCRATCH_SIZE, TAPE, decode_frames
from .programs.program import Programs

Array = np.ndarray[Any, Any]
#: Bytes of a new pool; only those that are used take memory.
_POOL = 1 << 30
#: Free buffers may take that much memory.
_POOL_SLACK = 16 << 20
#: Malformed messages that are looked at together.
_PROBLEMS = 4_096
#: The one topic whose id is fixed, and that no Metadata response names (KIP-500).
METADATA_TOPIC, METADATA_TOPIC_ID = b"__cluster_metadata", bytes(15) + b"\1"


def _new_pool() -> Array:
    """The pool of buffers, so large that it has to be moved for few captures only. Where the system promises no memory
    that it does not have, a small one."""
    try:
        return untouched(_POOL, np.uint8)
    except OSError:
        return untouched(_POOL >> 4, np.uint8)


@dataclass(frozen=True, slots=True)
class Finished:
    """What one drain gives. `owners[i]` is the dialog (so connection) number of `exchanges[i]`. Arrays are the
    receiver's own."""

    exchanges: Array  # EXCHANGE
    results: Array  # RESULT
    topics: Array  # EXCHANGE_TOPIC
    owners: Array  # int32
    marks: Array | None  # uint64, by exchange: bits that inspectors set; None without inspectors
    provisional: Array | None = None  # uint8, by exchange: 1 + the outcome of its provisional row, 0; None without any


class Dissector:
    """Kafka's side of the engine. `programs` are what bodies are decoded by; `details` (the RESULTS profile) is run
    over responses with error codes, or over every body when `all_results` is set. `load_whole` loads the programs of
    the EVERYTHING profile, which name the field at which a message is malformed. `inspectors` see each drain's
    messages. `apis`: of other APIs than these only the `head` of bodies is read, which is what it takes for the rows of
    these to stay the same. `max_frame`: of a larger frame (with its size field) only the first 64 KiB are decoded; its
    status is then `too_large`.

    The large tables are not touched before they are used, so until then they take no memory."""

    def __init__(
        self,
        programs: Programs,
        details: Programs,
        load_whole: Callable[[], Programs],
        all_results: bool = False,
        inspectors: Sequence[Inspector] = (),
        apis: frozenset[int] | None = None,
        head: Programs | None = None,
        max_frame: int = MAX_FRAME,
    ) -> None:
        self.programs = programs
        self.bodies, self.details = programs, details
        self._index = programs.index
        if apis is not None and head is not None:
            whole = apis | exchanges.TELLING
            self.bodies, self.details = (each.only_for(whole, head) for each in (programs, details))
            only_head = (self.bodies.index != programs.index) & head.short_heads()
            self._index = np.where(only_head, programs.index | correlation.ONLY_HEAD, programs.index)
        self._whole = WholeMessages(load_whole)
        self.all_results = all_results
        self.inspectors = tuple(inspectors)
        self.dialogs = np.zeros(256, dialogs.DIALOG)
        self.streams = np.zeros(512, dialogs.STREAM)
        self.marks = np.zeros(4_096, dialogs.MARK)
        self.exchanges = untouched(65_536, EXCHANGE)
        self.links = untouched(65_536, dialogs.LINK)
        self._bits = untouched(65_536, np.uint64)  # by slot: what inspectors found of the exchange
        self.jobs = untouched(49_152, JOB)
        self.strings = untouched(65_536, dialogs.STRING)
        self.text = untouched(64 << 20, np.uint8)
        self.buckets = untouched(1 << 17, np.int32)
        self.pool = _new_pool()
        self.tape = untouched(1 << 16, TAPE)
        self.topic_names: dict[int, int] = {}  # string number of a topic's id -> that of its name
        self._free = np.arange(len(self.exchanges) - 1, -1, -1, dtype=np.int32)
        self._done = np.zeros(98_304, np.int32)
        self._rows = np.zeros(len(self._done), np.int32)
        self._owners = np.zeros(len(self._done), np.int32)
        self._deferred = np.zeros(49_152, np.int64)
        self._scratch = np.zeros(SCRATCH_SIZE + 8, np.int64)
        self._pieces = np.zeros(2, dialogs.PIECE)
        self.state = np.zeros(dialogs.STATE_SIZE, np.int64)
        self.state[dialogs.SEED] = new_seed()
        self.state[dialogs.MAX_FRAME] = max_frame
        self.shed(None)
        self.state[dialogs.FREE_EXCHANGES] = len(self._free)
        self.state[dialogs.NEXT_EXCHANGE] = 1
        self.state[dialogs.FREE_MARKS] = linked_free_list(self.marks, 0, -1)
        self.state[dialogs.FREE_MARKS_LEFT] = len(self.marks)
        self._foretold = False  # whether any provisional row was given
        self._names = np.zeros(1_024, exchanges.TOPIC_NAME)
        self._again = np.zeros(len(self.jobs), np.int32)
        self._contexts = np.zeros(1_024, exchanges.CONTEXT)
        self._parts = np.zeros(1_024, exchanges.PART)
        self._results = np.zeros(1_024, RESULT)
        self._topics = np.zeros(1_024, exchanges.EXCHANGE_TOPIC)
        self._bodies_of = None if self.bodies is programs else self.bodies.by_program_of(programs)
        self._details_of = self.details.by_program_of(programs)
        self._state = np.zeros(exchanges.STATE_SIZE, np.int64)
        self._state[exchanges.FREE_PARTS] = linked_free_list(self._parts, 0, -1)
        self._state[exchanges.FREE_PARTS_LEFT] = len(self._parts)

        self.name_topic(METADATA_TOPIC_ID, METADATA_TOPIC)

    def number_of(self, value: bytes) -> int:
        """The number of a string; it is interned where it was not yet."""
        self._room_for_strings(1, len(value))
        array = np.frombuffer(value or b"\0", np.uint8)
        return int(buffers.intern(array, 0, len(value), self.strings, self.text, self.buckets, self.state))

    def name_topic(self, topic_id: bytes, name: bytes) -> None:
        """Note a topic's name that was told elsewhere."""
        self.topic_names[self.number_of(topic_id)] = self.number_of(name)

    @property
    def names_used(self) -> tuple[int, int]:
        """How many strings are interned, and their bytes."""
        return int(self.state[dialogs.STRINGS]), int(self.state[dialogs.TEXT])

    def forget_strings(self, kept: Array) -> Array:
        """Forget all strings but those numbered in `kept` (int64, any order) and those that open exchanges and
        connections need. Returns the new numbers by the old ones, int64 (strings + 1,): -1 for what is forgotten, and
        for -1. Numbers outside of this dissector are the caller's to change."""
        count, _ = self.names_used
        topic_names = np.array(list(self.topic_names.items()), np.int64).reshape(-1, 2)
        open_ = np.ones(len(self.exchanges), bool)
        open_[self._free[: self.state[dialogs.FREE_EXCHANGES]]] = False
        columns = [
            *((self.dialogs, name, None) for name in ("client_id", "software", "software_version", "mechanism")),
            *((self.exchanges, name, open_) for name in EXCHANGE_STRINGS),
            (self.links, "name", open_),
            (self._parts, "topic", None),
            (self._parts, "topic_id", None),
        ]
        needed = np.zeros(count + 1, bool)  # the last stands for -1
        needed[kept] = True
        needed[topic_names.reshape(-1)] = True
        for table, name, rows in columns:
            values = table[name] if rows is None else table[name][rows]
            needed[values[values < count]] = True
        needed[-1] = False
        numbers = new_numbers(needed)
        for table, name, rows in columns:
            at = slice(None) if rows is None else rows
            values = table[name][at]
            table[name][at] = numbers[np.where(values < count, values, -1)]
        self.topic_names = dict(zip(*numbers[topic_names].T.tolist(), strict=True)) if len(topic_names) else {}
        self._keep_strings(np.flatnonzero(needed))
        return numbers

    def _keep_strings(self, old: Array) -> None:
        """Have only these strings, in this order."""
        entries = taken(self.strings, old)
        lengths = entries["length"].astype(np.int64)
        starts = np.cumsum(lengths) - lengths
        at = np.repeat(entries["at"] - starts, lengths) + np.arange(int(lengths.sum()))
        text = self.text[at]
        self.text = untouched(max(64 << 20, 2 * len(text)), np.uint8)
        self.text[: len(text)] = text
        entries["at"] = starts
        self.strings = untouched(max(65_536, 2 * len(entries)), dialogs.STRING)
        self.strings[: len(entries)] = entries
        self.state[dialogs.STRINGS], self.state[dialogs.TEXT] = len(entries), len(text)
        self.buckets = untouched(max(1 << 17, 1 << (4 * len(entries)).bit_length()), np.int32)
        buffers.rehash_strings(self.strings, len(entries), self.buckets)

    def shed(self, kept: int | None) -> None:
        """From the next frames on keep no more than `kept` leading bytes of each (None: all): where the boundaries lie
        is known by arithmetic all the same, but bodies beyond are `incomplete`."""
        self.state[dialogs.SHED_FRAME] = 2**62 if kept is None else kept

    def make_room(self, connections: int) -> None:
        """Have rows for connections numbered below `connections`."""
        if connections > len(self.dialogs):
            self.dialogs = grown(self.dialogs, connections)
            self.streams = grown(self.streams, 2 * len(self.dialogs))

    def feed(self, block: Array, held: Array, chunks: Array, count: int, connections: int) -> Iterator[Finished]:
        """Take chunks[:count] of connections numbered below `connections`; yield what had to be drained on the way."""
        self.make_room(connections)
        state = self.state
        taken = 0
        while True:
            taken = framing.take_chunks(
                block, held, self.pool, chunks, taken, count, self.dialogs, self.streams, self.marks, self.exchanges,
                self.links, self._free, self._done, self.jobs, self.strings, self.text, self.buckets,
                self.programs.code, self._index, self.tape, self._scratch, self._deferred, self._pieces, state,
            )  # fmt: skip
            if taken == count:
                return
            stopped = int(state[dialogs.STOPPED])
            if state[dialogs.JOBS] or state[dialogs.DONE] or state[dialogs.DEFERRED]:
                yield self.drain(block, held)
            elif stopped == dialogs.JOBS_FULL:
                self.jobs = grown(self.jobs)
                self._again = np.zeros(len(self.jobs), np.int32)
            elif stopped == dialogs.DEFERRED_FULL:
                self._deferred = grown(self._deferred)
            if stopped == dialogs.DONE_FULL:
                self._done = grown(self._done)
            elif stopped == dialogs.EXCHANGES_FULL:
                self._grow_exchanges()
            elif stopped == dialogs.POOL_FULL:
                self.pool = moved(self.pool, int(state[dialogs.POOL_TOP]))
            elif stopped == dialogs.MARKS_FULL:
                first = len(self.marks)
                self.marks = grown(self.marks)
                state[dialogs.FREE_MARKS] = linked_free_list(self.marks, first, int(state[dialogs.FREE_MARKS]))
                state[dialogs.FREE_MARKS_LEFT] += first
            elif stopped == dialogs.STRINGS_FULL:
                self._room_for_strings(len(self.strings) + 1, 0)
            elif stopped == dialogs.TEXT_FULL:
                self._room_for_strings(0, len(self.text) + 1)

    def give_up(self, before: int, block: Array) -> Iterator[Finished]:
        """Finish the requests that came before a time (ns since the epoch) and still wait: nothing will answer them."""
        connection = 0
        while connection < len(self.dialogs):
            connection = expiry.expire(
                before, connection, self.dialogs, self.streams, self.exchanges, self.links, self._done, self.state
            )
            yield self.drain(block, block)

    def foretell(self, before: int, closed: Array) -> Finished:
        """Provisional rows of requests that will most likely end without an answer (`expiry`): with acks=0 that came
        before a time, and all of `closed` connections (uint8, by number). Each is given once."""
        slots = []
        while True:
            count = expiry.foretell(
                before, closed, self.dialogs, self.streams, self.exchanges, self.links, self._rows
            )  # fmt: skip
            slots.append(self._rows[:count].copy())
            if count < len(self._rows):
                break
        chosen = np.concatenate(slots)
        rows = taken(self.exchanges, chosen)
        rows["outcome"] = self.links["provisional"][chosen] - 1
        self._foretold = self._foretold or len(chosen) > 0
        return Finished(
            rows, np.zeros(0, RESULT), np.zeros(0, exchanges.EXCHANGE_TOPIC), self.links["dialog"][chosen],
            self._bits[chosen] if self.inspectors else None,
        )  # fmt: skip

    def count_waiting(self, closed: Array) -> int:
        """Requests that a response is expected to, of connections that are not `closed` (uint8, by number)."""
        return int(expiry.count_waiting(closed, self.dialogs, self.links))

    def drain(self, block: Array, held: Array) -> Finished:
        """Decode the frames found so far; give the exchanges that are finished, and free what they held."""
        state = self.state
        jobs = int(state[dialogs.JOBS])
        self._state[exchanges.RESULTS] = 0
        self._state[exchanges.TOPICS] = 0
        if jobs:
            self._decode(block, held, jobs)
            if self.inspectors:
                self._inspect(block, held, jobs)
        count = int(state[dialogs.DONE])
        rows, owners = self._rows, self._owners
        if len(rows) < count:
            rows, owners = self._rows, self._owners = np.zeros((2, 2 * count), np.int32)
        made = times.settle(
            self._done, count, self.exchanges, self.links, self.dialogs, self._parts, rows, owners, self._state
        )
        bits = None
        if self.inspectors:
            bits = self._bits[rows[:made]]
            self._bits[self._done[:count]] = 0
        provisional = self.links["provisional"][rows[:made]] if self._foretold else None
        free = int(state[dialogs.FREE_EXCHANGES])
        self._free[free : free + count] = self._done[:count]
        state[dialogs.FREE_EXCHANGES] = free + count
        state[dialogs.DONE] = 0
        state[dialogs.JOBS] = 0
        self._release_buffers()
        return Finished(
            taken(self.exchanges, rows[:made]),
            copied(self._results[: self._state[exchanges.RESULTS]]),
            copied(self._topics[: self._state[exchanges.TOPICS]]),
            owners[:made].copy(),
            bits,
            provisional,
        )

    def _release_buffers(self) -> None:
        """Give back the buffers of frames that were decoded, and the memory of large ones that are free."""
        state = self.state
        top = int(state[dialogs.POOL_TOP])
        buffers.release_buffers(self.pool, self._deferred, state)
        if state[dialogs.POOL_DIRTY] < _POOL_SLACK:
            return
        state[dialogs.POOL_DIRTY] = 0
        if not state[dialogs.LIVE_BUFFERS]:
            drop_pages(self.pool, _POOL_SLACK, top)
            return
        for place in range(buffers.LARGE - dialogs.SMALLEST_CLASS, dialogs.CLASSES):
            following = int(state[dialogs.POOL_LISTS + place])
            while following:
                at = following - 1
                following = int(self.pool[at : at + 8].view(np.int64)[0])
                drop_pages(self.pool, at + 8, at + (1 << place + dialogs.SMALLEST_CLASS))

    def _inspect(self, block: Array, held: Array, count: int) -> None:
        programs = self.details if self.all_results else self.bodies
        buffers = (block, held, self.pool)
        frames = Frames(self.jobs[:count], programs, self.exchanges, self.links, buffers, self._bits)
        for inspector in self.inspectors:
            inspector.look(frames)

    def string(self, number: int) -> bytes:
        """The bytes of an interned string."""
        entry = self.strings[number]
        return self.text[entry["at"] : entry["at"] + entry["length"]].tobytes()

    def _run(self, programs: Programs, block: Array, held: Array, jobs: Array, count: int) -> int:
        """Decode jobs[:count] onto the tape, growing it as needed; return its rows."""
        self._scratch[0] = 0
        done = 0
        while True:
            done = decode_frames(programs.code, jobs, count, done, block, held, self.pool, self.tape, self._scratch)
            if done == count:
                return int(self._scratch[0])
            self.tape = grown(self.tape)

    def _decode(self, block: Array, held: Array, count: int) -> None:
        jobs = self.jobs
        programs = self.details if self.all_results else self.bodies
        if self.all_results:
            self._choose(self._details_of, jobs, count)
        elif self._bodies_of is not None:
            self._choose(self._bodies_of, jobs, count)
        rows = self._run(programs, block, held, jobs, count)
        largest = len(block) + len(held) + int(self.state[dialogs.POOL_TOP])
        self._room(rows, jobs[:count], largest)
        exchanges.collect(
            jobs, count, block, held, self.pool, self.tape, programs.roles, self.exchanges, self.links, self.dialogs,
            self.strings, self.text, self.buckets, self._names, self._again, self.state, self._state,
        )  # fmt: skip
        self._note_problems(programs, block, held, jobs[:count])
        names = self._names[: self._state[exchanges.NAMES]]
        if len(names):
            self.topic_names.update(zip(names["topic_id"].tolist(), names["topic"].tolist(), strict=True))
        if self.all_results:
            self._again[:count] = np.arange(count, dtype=np.int32)
            self._make_results(block, held, jobs, count)
            return
        failed = int(self._state[exchanges.AGAIN])
        if failed:
            chosen = taken(jobs, self._again[:failed])
            self._choose(self._details_of, chosen, failed)
            rows = self._run(self.details, block, held, chosen, failed)
            self._room(rows, chosen, largest)
            self._again[:failed] = np.arange(failed, dtype=np.int32)
            self._make_results(block, held, chosen, failed)

    def _note_problems(self, programs: Programs, block: Array, held: Array, jobs: Array) -> None:
        """Note in their exchanges where these jobs are malformed, or have trailing bytes."""
        failed = self._whole.failed_jobs(jobs, programs)
        if not len(failed):
            return
        whole, templates = self._whole, self._whole.templates
        path = np.zeros(templates.longest, np.uint8)
        for first in range(0, len(failed), _PROBLEMS):
            some = failed[first : first + _PROBLEMS]
            self._room_for_strings(len(some), len(some) * templates.longest)
            note_problems(
                whole.programs.code, some, len(some), block, held, self.pool, whole.no_tape, templates.text,
                templates.starts, path, self.exchanges, self.strings, self.text, self.buckets, self.state,
                whole.scratch,
            )  # fmt: skip

    def _choose(self, of: Array, jobs: Array, count: int) -> None:
        """Point jobs at other programs for the same messages. (Only those that are run whole are pointed twice, and
        these keep their place at first.)"""
        jobs["program"][:count] = of[jobs["program"][:count]]

    def _make_results(self, block: Array, held: Array, jobs: Array, count: int) -> None:
        taken = 0
        while True:
            taken = exchanges.collect_results(
                jobs, count, self._again, taken, block, held, self.pool, self.tape, self.details.roles,
                self.exchanges, self.links, self.strings, self.text, self.buckets, self._contexts, self._parts,
                self._results, self._topics, int(self.all_results), self.state, self._state,
            )  # fmt: skip
            if taken == count:
                return
            self._results = grown(self._results)
            self._topics = grown(self._topics)
            first = len(self._parts)
            self._parts = grown(self._parts)
            head = int(self._state[exchanges.FREE_PARTS])
            self._state[exchanges.FREE_PARTS] = linked_free_list(self._parts, first, head)
            self._state[exchanges.FREE_PARTS_LEFT] += first

    def _room(self, rows: int, jobs: Array, largest: int) -> None:
        """Room for what a tape of so many rows, over the bodies of these jobs (`largest` bytes at most), can name."""
        if rows > len(self._names):
            self._names = np.zeros(2 * rows, exchanges.TOPIC_NAME)
        if rows + 2 > len(self._contexts):
            self._contexts = np.zeros(2 * rows + 2, exchanges.CONTEXT)
        free = len(self.text) - int(self.state[dialogs.TEXT])
        size = 0 if free > largest else min(int(np.sum(jobs["end"] - jobs["at"])), 65_536 * rows)
        self._room_for_strings(rows, size)

    def _room_for_strings(self, count: int, size: int) -> None:
        used = int(self.state[dialogs.STRINGS])
        if used + count > len(self.strings):
            self.strings = grown(self.strings, used + count, used)
        if 2 * (used + count) > len(self.buckets):
            self.buckets = np.zeros(1 << (4 * (used + count)).bit_length(), np.int32)
            buffers.rehash_strings(self.strings, used, self.buckets)
        text = int(self.state[dialogs.TEXT])
        if text + size > len(self.text):
            self.text = grown(self.text, text + size, text)

    def _grow_exchanges(self) -> None:
        old = len(self.exchanges)
        self.exchanges = grown(self.exchanges)
        self.links = grown(self.links)
        self._bits = grown(self._bits)
        free = int(self.state[dialogs.FREE_EXCHANGES])
        room = np.zeros(len(self.exchanges), np.int32)
        room[:free] = self._free[:free]
        room[free : free + old] = np.arange(2 * old - 1, old - 1, -1, dtype=np.int32)
        self._free = room
        self.state[dialogs.FREE_EXCHANGES] = free + old
