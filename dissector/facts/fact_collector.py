"""`FactCollector`: the facts of each drain's messages, kept until their exchanges are finished."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from kafkatap.kernels.arrays import grown, is_among, return_memory, taken, untouched, zeros

from ..batch_headers import BATCH_HEADER, CODEC_BITS
from ..inspection import Frames
from ..programs.fact_kinds import BATCH, BATCH_SAMPLE, KINDS, PRINCIPAL, SASL_ANSWER, SASL_MESSAGE, columns_of
from ..programs.machine import JOB, SCRATCH_SIZE, TAPE
from ..programs.program import DENSE, KEYS, VERSIONS, Programs
from ..strings import Strings, StringTable
from .fact_rows import FACT, FACT_STRINGS, FACTS_STATE, NEEDS_TAPE, FactTables, collect_facts, count_facts, take_facts
from .sasl_tokens import token_facts

Array = np.ndarray[Any, Any]
_NO_FACTS = np.zeros(0, FACT)
#: Places of counts in a FACTS_STATE.
_FACTS, _SAMPLES, _JOBS, _TOKENS = range(4)
_SASL_AUTHENTICATE = 36
_TOPS: Array = np.zeros(2 * KEYS, np.uint8)
_ITEMS: Array = np.zeros(len(KINDS), np.uint8)
_ITEM_TYPES = ("", "number", "text")
_WIDTHS: Array = np.array(
    [max((int(c[1:]) + 1 for c in columns_of(n).values() if c[0] == "v"), default=0) for n in range(len(KINDS))],
    np.uint8,
)


for _number, _kind in enumerate(KINDS):
    if _kind.api_key >= 0 and not _kind.element and _kind.name not in ("batch", "fetched batch"):
        _TOPS[_kind.direction * KEYS + _kind.api_key] = 1 + _number
    _ITEMS[_number] = _ITEM_TYPES.index(_kind.items)


class FactCollector:
    """`kinds`: the wanted kinds, by number; only messages that have them are decoded. `programs`: of the profile
    `facts`. `strings`: those of the dissector, whose numbers the rows have."""

    def __init__(self, kinds: Iterable[int], programs: Programs, strings: StringTable) -> None:
        wanted = frozenset(kinds)
        if BATCH_SAMPLE in wanted:
            wanted |= {BATCH}
        self._programs = programs
        self._strings = strings
        self._messages: Array = np.zeros(2 * KEYS, np.uint8)  # by direction * KEYS + api_key
        for number in wanted:
            kind = KINDS[number]
            if kind.api_key >= 0:
                self._messages[kind.direction * KEYS + kind.api_key] = 1
        self._of_tokens = wanted & {PRINCIPAL, SASL_MESSAGE, SASL_ANSWER}
        self._messages[_SASL_AUTHENTICATE] |= bool(self._of_tokens)
        self._messages[KEYS + _SASL_AUTHENTICATE] |= SASL_ANSWER in wanted
        #: Whether there are facts of bare SASL tokens.
        self.has_tokens = SASL_MESSAGE in wanted
        self._wanted: Array = is_among(np.arange(len(KINDS)), sorted(wanted)).astype(np.uint8)
        self._of_programs: tuple[Programs, Array, Array] | None = None
        self._jobs: Array = untouched(1 << 12, JOB)
        self._tape: Array = untouched(1 << 14, TAPE)
        self._scratch: Array = np.zeros(SCRATCH_SIZE, np.int64)
        self._contexts: Array = np.zeros(4 << 10, np.int64)
        self._state: Array = np.zeros(1, FACTS_STATE)
        self._numbers: Array = self._state.view(np.int64)  # numpy takes a microsecond for a field of a record
        #: The facts of exchanges that are not finished, and room for more.
        self._facts: Array = untouched(1 << 14, FACT)
        self._samples: Array = untouched(len(self._facts), np.int64)
        self._places: Array = np.zeros(1 << 11, np.int32)
        self._bound: _Bound | None = None

    @property
    def _count(self) -> int:
        return int(self._numbers.item(_FACTS))

    def return_memory(self) -> None:
        """Return the memory that large messages needed to the system."""
        for array in (self._jobs, self._tape, self._samples, self._contexts):
            return_memory(array)
        return_memory(self._facts, self._count)

    def look(self, frames: Frames) -> None:
        """Make the facts of these messages."""
        if self._of_programs is None or self._of_programs[0] is not frames.programs:
            self._of_programs = frames.programs, *self._programs_by(frames.programs)
            self._bound = None
        if len(frames.jobs) > len(self._jobs):
            self._jobs = untouched(2 * len(frames.jobs), JOB)
            self._bound = None
        while need := self._kernels().collect(frames.jobs, frames.rows, frames.links, *frames.buffers):
            self._make_room(need)
        numbers = self._numbers
        if numbers.item(_SAMPLES):
            _fill_samples(self._facts, self._samples[: numbers.item(_SAMPLES)], frames.buffers)
        if self.has_tokens and numbers.item(_TOKENS):
            tokens = np.flatnonzero(frames.links["token"][frames.jobs["frame"] >> 1] == 1)
            self._append(token_facts(taken(frames.jobs, tokens), frames, self._strings, self._of_tokens))
        if self._of_tokens and numbers.item(_JOBS):
            jobs = self._jobs[: numbers.item(_JOBS)]
            self._append(token_facts(jobs, frames, self._strings, self._of_tokens))

    def _programs_by(self, others: Programs) -> tuple[Array, Array]:
        """`programs` and `may_have` of FactTables, by programs of another profile."""
        wanted = np.ones(len(others.index), bool)
        wanted[:DENSE] = np.repeat(self._messages != 0, VERSIONS)
        may_have_facts = np.zeros(len(others.code) + 1, np.uint8)
        may_have_facts[others.index[wanted & (others.index >= 0)]] = 1
        may_have_facts[-1] = bool(self._of_tokens)
        return self._programs.by_program_of(others), may_have_facts

    def _make_room(self, need: int) -> None:
        """Do what the kernel needs before it goes on."""
        state = self._state[0]
        if need == NEEDS_TAPE:
            self._tape = grown(self._tape)
        elif state.needed_rows:
            self._reserve(self._count + int(state.needed_rows))
        else:
            self._strings.reserve(int(state.needed_texts), int(state.needed_bytes))
            if state.needed_contexts > len(self._contexts):
                self._contexts = zeros(2 * int(state.needed_contexts), np.int64)
        self._bound = None

    def _reserve(self, count: int) -> None:
        """Make room for so many facts."""
        if count > len(self._facts):
            self._facts = grown(self._facts, count, self._count)
            self._samples = grown(self._samples, len(self._facts))
            self._bound = None

    def _kernels(self) -> _Bound:
        """The kernels with the tables of now."""
        bound, strings = self._bound, self._strings.arrays
        if bound is None or bound.strings is not strings:
            assert self._of_programs is not None
            tables = FactTables(
                self._programs.code, *self._of_programs[1:], self._messages, self._jobs, self._tape, self._scratch,
                self._programs.roles, _TOPS, _ITEMS, _WIDTHS, self._wanted, self._contexts, self._facts,
                self._facts.view(np.int64), self._facts.view(np.int32), self._samples, strings, self._state,
            )  # fmt: skip
            bound = self._bound = _Bound(
                collect_facts.bound(tables), count_facts.bound(tables), take_facts.bound(tables), strings
            )
        return bound

    def _append(self, facts: Array) -> None:
        end = self._count + len(facts)
        self._reserve(end)
        self._facts[self._count : end] = facts
        self._numbers[_FACTS] = end

    def take(self, exchanges: Array) -> Array:
        """Remove and return the facts of finished exchanges (EXCHANGE), in order of their numbers."""
        if not self._count or not len(exchanges):
            return _NO_FACTS
        if 2 * len(exchanges) > len(self._places):
            self._places = np.zeros(1 << (4 * len(exchanges) - 1).bit_length(), np.int32)
        kernels, begins = self._kernels(), np.empty(len(exchanges), np.int64)
        order = np.argsort(exchanges["exchange"], kind="stable")
        found: Array = np.empty(kernels.count(exchanges, self._places, order, begins), FACT)
        kernels.take(exchanges, self._places, begins, found)
        return found

    def string_columns(self) -> list[tuple[Array, str]]:
        """The arrays and columns that hold numbers of strings: `Dissector.forget_strings` changes them in place."""
        return [(self._facts[: self._count], name) for name in FACT_STRINGS]


class _Bound(NamedTuple):
    """Kernels with their tables, for as long as no table is replaced."""

    collect: Callable[..., int]
    count: Callable[..., int]
    take: Callable[..., int]
    strings: Strings


@cache
def _bounds() -> Any:
    from ..records.codecs import Bounds

    return Bounds()


def _fill_samples(facts: Array, numbers: Array, buffers: Sequence[Array]) -> None:
    """Set how large sampled batches are when decompressed, and whether their checksum is right: the columns of
    `facts[numbers]` (int64). `v3` has their checksum before.

    Only batches that were captured whole are sampled. The size of one that cannot be decompressed is -1.
    """
    views = [memoryview(buffer) for buffer in buffers]  # type: ignore[arg-type]
    sizes, damaged = np.full(len(numbers), -1, np.int64), np.zeros(len(numbers), np.int64)
    columns = (facts[name][numbers].tolist() for name in ("source", "at", "v0", "v2", "v3"))
    for i, (source, at, size, attributes, checksum) in enumerate(zip(*columns, strict=True)):
        batch = views[source][at : at + size]
        sizes[i] = _decompressed_size(batch, attributes & CODEC_BITS)
        damaged[i] = _is_damaged(batch, checksum)
    facts["v1"][numbers], facts["v3"][numbers] = sizes, damaged


def _is_damaged(batch: memoryview, checksum: int) -> bool:
    from ..records.checksums import crc_of

    return crc_of(2, batch) != checksum


def _decompressed_size(batch: memoryview, codec: int) -> int:
    """The bytes of a batch with its records decompressed, or -1 if they cannot be."""
    if codec == 0:
        return len(batch)
    from ..records.codecs import DONE, decompress

    found = decompress(codec, 2, batch[BATCH_HEADER:], _bounds())
    return BATCH_HEADER + len(found.data) if found.problem == DONE else -1
