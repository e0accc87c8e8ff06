"""`FactCollector`: the facts of each drain's messages, kept until their exchanges are finished.

It decodes the messages of the wanted APIs once more, with the programs of the profile `facts`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from kafkatap.kernels.arrays import grown, taken, untouched

from ..inspection import Frames
from ..programs.fact_kinds import (
    BATCH,
    BATCH_SAMPLE,
    KINDS,
    PRINCIPAL,
    SASL_ANSWER,
    SASL_MESSAGE,
    TO_ROW,
    TO_TEXT,
    TO_TOPIC_ID,
    columns_of,
)
from ..programs.machine import TAPE
from ..programs.program import DENSE, KEYS, VERSIONS, Programs
from ..programs.tape import decode_jobs
from ..strings import StringTable
from .fact_rows import FACT, FACT_STRINGS, FACTS_STATE, FactTables, collect_facts
from .samples import fill_samples
from .sasl_tokens import token_facts

Array = np.ndarray[Any, Any]
_SASL_AUTHENTICATE = 36
_TOPS: Array = np.zeros(2 * KEYS, np.uint8)
_ITEMS: Array = np.zeros(len(KINDS), np.uint8)
_ITEM_TYPES = ("", "number", "text")
_TEXT_ITEMS = _ITEM_TYPES.index("text")
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
        self._messages = np.zeros(2 * KEYS + 1, bool)  # by direction * KEYS + api_key
        for number in wanted:
            kind = KINDS[number]
            if kind.api_key >= 0:
                self._messages[kind.direction * KEYS + kind.api_key] = True
        self._of_tokens = wanted & {PRINCIPAL, SASL_MESSAGE, SASL_ANSWER}
        self._messages[_SASL_AUTHENTICATE] |= bool(self._of_tokens)
        self._messages[KEYS + _SASL_AUTHENTICATE] |= SASL_ANSWER in wanted
        #: Whether there are facts of bare SASL tokens.
        self.has_tokens = SASL_MESSAGE in wanted
        self._wanted: Array = np.isin(np.arange(len(KINDS)), sorted(wanted)).astype(np.uint8)
        roles = programs.roles
        has_text_items = (roles >= TO_ROW) & (_ITEMS[np.maximum(roles, TO_ROW) - TO_ROW] == _TEXT_ITEMS)
        self._is_text = (roles >= TO_TEXT) & (roles <= TO_TOPIC_ID) | has_text_items
        self._as_facts: tuple[Programs, Array, Array] | None = None
        self._tape: Array = untouched(1 << 14, TAPE)
        self._contexts: Array = np.zeros(4 << 10, np.int64)
        self._state: Array = np.zeros(1, FACTS_STATE)
        #: The facts of exchanges that are not finished, and room for more.
        self._facts: Array = untouched(1 << 14, FACT)
        self._samples: Array = untouched(len(self._facts), np.int64)
        self._count = 0
        self._bound_to: tuple[object, ...] = (None,) * 4
        self._bound: Callable[..., int]

    def look(self, frames: Frames) -> None:
        """Make the facts of these messages."""
        programs, may_have_facts = self._programs_by(frames.programs)
        jobs = taken(frames.jobs, np.flatnonzero(may_have_facts[frames.jobs["program"]]))
        if not len(jobs):
            return
        slots = jobs["frame"] >> 1
        keys = frames.rows["api_key"][slots].astype(np.int64)
        place = (jobs["frame"] & 1) * KEYS + keys
        place[(keys < 0) | (keys >= KEYS)] = 2 * KEYS
        is_bare = frames.links["token"][slots] == 1
        if self.has_tokens and is_bare.any():
            tokens = taken(jobs, np.flatnonzero(is_bare))
            self._append(token_facts(tokens, frames, self._strings, self._of_tokens))
        chosen = np.flatnonzero(self._messages[place] & ~is_bare)
        if not len(chosen):
            return
        jobs = taken(jobs, chosen)
        jobs["program"] = programs[jobs["program"]]
        tape = decode_jobs(self._programs, jobs, frames.buffers, self._tape)
        if len(tape) > len(self._tape):
            self._tape = untouched(2 * len(tape), TAPE)
        self._collect(jobs, tape, frames)
        if self._of_tokens:
            self._append(token_facts(jobs, frames, self._strings, self._of_tokens))

    def _programs_by(self, others: Programs) -> tuple[Array, Array]:
        """By programs of another profile: the programs of facts, int32; and whether their messages may have facts,
        bool, as several messages may share a program. Both have an item more, for program -1: a bare token has it."""
        if self._as_facts is None or self._as_facts[0] is not others:
            wanted = np.ones(len(others.index), bool)
            wanted[:DENSE] = np.repeat(self._messages[: 2 * KEYS], VERSIONS)
            may_have_facts = np.zeros(len(others.code) + 1, bool)
            may_have_facts[others.index[wanted & (others.index >= 0)]] = True
            may_have_facts[-1] = bool(self._of_tokens)
            self._as_facts = others, self._programs.by_program_of(others), may_have_facts
        return self._as_facts[1:]

    def _collect(self, jobs: Array, tape: Array, frames: Frames) -> None:
        """Add the facts of jobs, whose fields are on the tape."""
        longest = int(jobs["tape_count"].max(initial=0)) + 2
        if 4 * longest > len(self._contexts):
            self._contexts = np.zeros(8 * longest, np.int64)
        texts = tape["length"][self._is_text[tape["field"]]]
        self._strings.reserve(len(texts) + 1, int(np.maximum(texts, 0).sum(dtype=np.int64)) + 16)
        self._state[0] = (self._count, 0, 0)
        while True:
            needed = self._kernel()(jobs, tape, frames.rows, *frames.buffers)
            self._count = int(self._state[0].facts)
            if not needed:
                break
            self._facts = grown(self._facts, self._count + int(needed), self._count)
            self._samples = grown(self._samples, len(self._facts), int(self._state[0].samples))
        samples = self._samples[: int(self._state[0].samples)]
        if len(samples):
            fill_samples(self._facts, samples, frames.buffers)

    def _kernel(self) -> Callable[..., int]:
        """The kernel with the tables of now."""
        arrays = (self._contexts, self._facts, self._samples, self._strings.arrays)
        if any(mine is not other for mine, other in zip(arrays, self._bound_to, strict=True)):
            self._bound = collect_facts.bound(FactTables(
                self._programs.roles, _TOPS, _ITEMS, _WIDTHS, self._wanted, self._contexts, self._facts,
                self._facts.view(np.int64), self._facts.view(np.int32), self._samples, self._strings.arrays,
                self._state,
            ))  # fmt: skip
            self._bound_to = arrays
        return self._bound

    def _append(self, facts: Array) -> None:
        end = self._count + len(facts)
        if end > len(self._facts):
            self._facts = grown(self._facts, end, self._count)
            self._samples = grown(self._samples, len(self._facts), 0)
        self._facts[self._count : end] = facts
        self._count = end

    def take(self, exchanges: Array) -> Array:
        """Remove and return the facts of finished exchanges (their numbers, int64), in order of these."""
        rows = self._facts[: self._count]
        if not len(rows) or not len(exchanges):
            return rows[:0].copy()
        numbers, ordered = rows["exchange"], np.sort(exchanges)  # `np.isin` costs more
        at = np.minimum(np.searchsorted(ordered, numbers), len(ordered) - 1)
        is_finished = ordered[at] == numbers
        finished, left = np.flatnonzero(is_finished), np.flatnonzero(~is_finished)
        of_finished = numbers[finished]
        if (of_finished[1:] < of_finished[:-1]).any():
            finished = finished[np.argsort(of_finished, kind="stable")]
        found = taken(rows, finished)
        if len(finished):
            self._count = 0
            self._append(taken(rows, left))
        return found

    def string_columns(self) -> list[tuple[Array, str]]:
        """The arrays and columns that hold numbers of strings: `Dissector.forget_strings` changes them in place."""
        return [(self._facts[: self._count], name) for name in FACT_STRINGS]
