"""The bodies of a drain: decoded onto the tape, then read into exchanges, results and topics."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from kafkatap.kernels.arrays import copied, grown, taken, untouched
from kafkatap.kernels.table import SlotTable

from .dtypes import RESULT
from .exchanges import BODIES_STATE, NEEDED_BY_ALL, TOPIC_NAME, Bodies, collect_fields
from .framing.program_index import HEAD_ONLY
from .framing.tables import Tables
from .programs.machine import SCRATCH_SIZE, TAPE, decode_frames
from .programs.program import Programs
from .results import CONTEXT, EXCHANGE_TOPIC, PRODUCE_PARTITION, RESULTS_STATE, Results, collect_results
from .strings import StringTable

if TYPE_CHECKING:
    from .problems import ProblemFinder

Array = np.ndarray[Any, Any]
#: Malformed messages between two reservations of strings.
_PROBLEMS_AT_ONCE = 4_096


@dataclass(frozen=True)
class ChosenPrograms:
    """The programs of a dissector: `framed` for framing, `bodies` for all bodies, `details` for responses with error
    codes or for all bodies. `index`: that of `framed`, with HEAD_ONLY. `as_bodies`, `as_details`: the programs by those
    of `framed` (None: they are the same)."""

    framed: Programs
    bodies: Programs
    details: Programs
    index: Array
    as_bodies: Array | None
    as_details: Array


@lru_cache(8)
def choose_programs(
    programs: Programs, details: Programs, head: Programs | None, apis: frozenset[int]
) -> ChosenPrograms:
    """`head` decodes all APIs but `apis` and those that all others need (None: no API).

    Choices are kept, as they take some ms and executors make a dissector for each split.
    """
    bodies, index = programs, programs.index
    if head is not None:
        bodies, details = (each.only_for(apis | NEEDED_BY_ALL, head) for each in (programs, details))
        is_head_only = (bodies.index != programs.index) & head.short_heads()
        index = np.where(is_head_only, programs.index | HEAD_ONLY, programs.index)
    as_bodies = None if bodies is programs else bodies.by_program_of(programs)
    return ChosenPrograms(programs, bodies, details, index, as_bodies, details.by_program_of(programs))


class BodyDecoder:
    """Runs the programs for bodies over all bodies of a drain, and those for details over responses with error codes;
    or those for details over all bodies. `load_whole` loads the programs of the EVERYTHING profile, which name the
    field of a malformed message. None: no field is named."""

    def __init__(self, chosen: ChosenPrograms, load_whole: Callable[[], Programs] | None, strings: StringTable) -> None:
        self.bodies, self.details = chosen.bodies, chosen.details
        self._problems = None if load_whole is None else _problem_finder(load_whole)
        self.topic_names: dict[int, int] = {}  # string number of a topic's id -> that of its name
        self.tape: Array = untouched(1 << 16, TAPE)
        self.scratch: Array = np.zeros(SCRATCH_SIZE, np.int64)
        self.partitions = SlotTable(1_024, partitions=PRODUCE_PARTITION)
        self._strings = strings
        self._as_bodies, self._as_details = chosen.as_bodies, chosen.as_details
        self._topic_names: Array = np.zeros(1_024, TOPIC_NAME)
        self._failed: Array = np.zeros(0, np.int32)
        self._contexts: Array = np.zeros(1_024, CONTEXT)
        self._results: Array = np.zeros(1_024, RESULT)
        self._topics: Array = np.zeros(1_024, EXCHANGE_TOPIC)
        self._bodies_state: Array = np.zeros(1, BODIES_STATE)
        self._results_state: Array = np.zeros(1, RESULTS_STATE)

    def clear(self) -> None:
        """Drop the results and topics of the drain before."""
        self._results_state[0].results = 0
        self._results_state[0].topics = 0

    @property
    def results(self) -> Array:
        """A copy of the results of this drain."""
        return copied(self._results[: self._results_state[0].results])

    @property
    def topics(self) -> Array:
        """A copy of the topics of this drain's requests."""
        return copied(self._topics[: self._results_state[0].topics])

    def decode(self, t: Tables, count: int, all_results: bool) -> None:
        """Decode the bodies of t.jobs[:count]."""
        programs = self.details if all_results else self.bodies
        if all_results:
            self._choose(self._as_details, t.jobs, count)
        elif self._as_bodies is not None:
            self._choose(self._as_bodies, t.jobs, count)
        rows = self._run(programs, t, t.jobs, count)
        if count > len(self._failed):
            self._failed = np.zeros(len(t.jobs), np.int32)
        self._reserve(t, t.jobs[:count], rows)
        self._bodies_state[0].max_frame = t.state[0].max_frame
        collect_fields(self._arrays(t, t.jobs, programs), count)
        self._note_problems(t, programs, count)
        names = self._topic_names[: self._bodies_state[0].topic_names]
        if len(names):
            self.topic_names.update(zip(names["topic_id"].tolist(), names["topic"].tolist(), strict=True))
        if all_results:
            self._collect_results(t, t.jobs, count, True)
        elif failed := int(self._bodies_state[0].failed):
            self._decode_failed(t, taken(t.jobs, self._failed[:failed]))

    def _decode_failed(self, t: Tables, jobs: Array) -> None:
        """Decode the responses with error codes once more, with their details."""
        self._choose(self._as_details, jobs, len(jobs))
        rows = self._run(self.details, t, jobs, len(jobs))
        self._reserve(t, jobs, rows)
        self._collect_results(t, jobs, len(jobs), False)

    def _note_problems(self, t: Tables, programs: Programs, count: int) -> None:
        """Note where the malformed messages of t.jobs[:count] are malformed."""
        if self._problems is None:
            return
        from .problems import note_problems

        failed = self._problems.failed_jobs(t.jobs[:count], programs)
        for first in range(0, len(failed), _PROBLEMS_AT_ONCE):
            some = failed[first : first + _PROBLEMS_AT_ONCE]
            self._strings.reserve(len(some), len(some) * self._problems.templates.longest)
            note_problems(self._arrays(t, some, programs), self._problems.arrays, len(some))

    def _choose(self, programs: Array, jobs: Array, count: int) -> None:
        """Point jobs at other programs for the same messages. A program that runs first keeps its place, so a job may
        be pointed twice."""
        jobs["program"][:count] = programs[jobs["program"][:count]]

    def _run(self, programs: Programs, t: Tables, jobs: Array, count: int) -> int:
        """Run the programs of jobs[:count]; return how many rows are on the tape."""
        self.scratch[0] = 0
        done = 0
        while True:
            done = decode_frames(programs.code, jobs, count, done, t.block, t.held, t.pool, self.tape, self.scratch)
            if done == count:
                return int(self.scratch[0])
            self.tape = grown(self.tape)

    def _reserve(self, t: Tables, jobs: Array, rows: int) -> None:
        """Make room for all that a tape of so many rows, from the bodies of these jobs, can name."""
        if rows > len(self._topic_names):
            self._topic_names = np.zeros(2 * rows, TOPIC_NAME)
        if rows + 2 > len(self._contexts):
            self._contexts = np.zeros(2 * rows + 2, CONTEXT)
        most = len(t.block) + len(t.held) + int(t.state[0].pool_top)
        is_ample = self._strings.text_left > most
        size = 0 if is_ample else min(int(np.sum(jobs["end"] - jobs["at"])), 65_536 * rows)
        self._strings.reserve(rows, size)

    def _collect_results(self, t: Tables, jobs: Array, count: int, all_codes: bool) -> None:
        bodies = self._arrays(t, jobs, self.details)
        done = 0
        while True:
            tables = Results(
                self._contexts, self.partitions["partitions"], self.partitions.free, self._results, self._topics,
                self._results_state,
            )  # fmt: skip
            done = collect_results(bodies, tables, done, count, int(all_codes))
            if done == count:
                return
            self._results = grown(self._results)
            self._topics = grown(self._topics)
            self.partitions.grow()

    def _arrays(self, t: Tables, jobs: Array, programs: Programs) -> Bodies:
        return Bodies(
            t.block, t.held, t.pool, jobs, self.tape, programs.roles, t.exchanges, t.links, t.connections,
            self._strings.arrays, self._topic_names, self._failed, self._bodies_state,
        )  # fmt: skip


def _problem_finder(load_whole: Callable[[], Programs]) -> ProblemFinder:
    from .problems import ProblemFinder  # reports do without

    return ProblemFinder(load_whole)
