"""The tables of a drain: what its kernel (`drain`) decodes bodies with, and reads them into."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from kafkatap.kernels.arrays import copied, grown, joined, return_memory, taken, untouched, zeros
from kafkatap.kernels.hashing import new_seed
from kafkatap.kernels.table import Column, SlotTable

from .drain import DRAIN_STATE, MOST_TAPE, NEEDS_PROBLEMS, NEEDS_RESULTS, NEEDS_ROOM, NEEDS_TAPE, DrainTables
from .dtypes import RESULT
from .exchanges import BODIES_STATE, NEEDED_BY_ALL, TOPIC_NAME, Bodies
from .framing.program_index import HEAD_ONLY, framing_index
from .framing.tables import Tables
from .programs.machine import JOB, ROWS, SCRATCH_SIZE, TAPE
from .programs.program import Programs
from .results import CONTEXT, EXCHANGE_TOPIC, OPEN_TOPIC, PRODUCE_PARTITION, RESULTS_STATE, Results
from .strings import StringTable

if TYPE_CHECKING:
    from .problems import ProblemFinder

Array = np.ndarray[Any, Any]
#: Malformed messages between two reservations of strings.
_PROBLEMS_AT_ONCE = 4_096
#: Places of counts in a RESULTS_STATE.
_RESULTS, _TOPICS = range(2)
_NO_RESULTS, _NO_TOPICS, _NO_PROGRAMS = np.zeros(0, RESULT), np.zeros(0, EXCHANGE_TOPIC), np.zeros(0, np.int32)


class ChosenPrograms(NamedTuple):
    """The programs of a dissector: `framed` for framing, `bodies` for all bodies, `details` for responses with error
    codes or for all bodies. `framed_index`: that of `framed`, with HEAD_ONLY. `as_bodies`, `as_details`: the programs
    by those of `framed` (None: they are the same)."""

    framed: Programs
    bodies: Programs
    details: Programs
    framed_index: Array
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
    framed_index = framing_index(index, programs.others)
    return ChosenPrograms(programs, bodies, details, framed_index, as_bodies, details.by_program_of(programs))


class BodyDecoder:
    """The tables and programs of a drain: those for bodies run over all bodies, and those for details over responses
    with error codes; or those for details over all bodies.

    `load_whole` loads the programs of the EVERYTHING profile, which name the field of a malformed message. None: no
    field is named. After `make_room` the arrays are new ones.
    """

    def __init__(self, chosen: ChosenPrograms, load_whole: Callable[[], Programs] | None, strings: StringTable) -> None:
        self.bodies, self.details = chosen.bodies, chosen.details
        self._problems = None if load_whole is None else _problem_finder(load_whole)
        self.topic_names: dict[int, int] = {}  # string number of a topic's id -> that of its name
        self.scratch: Array = np.zeros(SCRATCH_SIZE, np.int64)
        self._strings = strings
        self._as_bodies = _NO_PROGRAMS if chosen.as_bodies is None else chosen.as_bodies
        self._as_details = chosen.as_details
        self._bodies_state: Array = np.zeros(1, BODIES_STATE)
        self._results_state: Array = np.zeros(1, RESULTS_STATE)
        self._results_state[0].seed = new_seed()
        self._state: Array = np.zeros(1, DRAIN_STATE)
        self._state[0].finds_problems = load_whole is not None
        # numpy takes a microsecond for a field of a record, and a tenth of that for an item of an array.
        self._made = self._state["made"]
        self._counts = self._results_state.view(np.int64)
        self._names_found = self._bodies_state["topic_names"]
        self.tape: Array = untouched(1 << 16, TAPE)
        self.partitions = SlotTable(1_024, partitions=PRODUCE_PARTITION, places=Column(np.int32, 2))
        self.open_topics = SlotTable(1_024, topics=OPEN_TOPIC)
        self._topic_names: Array = np.zeros(1_024, TOPIC_NAME)
        self._failed: Array = untouched(16, JOB)
        self._contexts: Array = np.zeros(1_024, CONTEXT)
        self._results: Array = np.zeros(1_024, RESULT)
        self._topics: Array = np.zeros(1_024, EXCHANGE_TOPIC)

    def return_memory(self) -> None:
        """Return the memory that large messages needed to the system."""
        for array in (self.tape, self._topic_names, self._failed, self._contexts, self._results, self._topics):
            return_memory(array)
        self.partitions.return_memory()
        self.open_topics.return_memory()

    def tables(self, jobs: int, ends: Array, marks: Array) -> DrainTables:
        """The arrays for drains of up to so many jobs."""
        if len(self._failed) < jobs:
            self._failed = untouched(jobs, JOB)
        results = Results(
            self._contexts, self.partitions["partitions"], self.partitions["places"], self.partitions.free,
            self.open_topics["topics"], self.open_topics.free, self._results, self._topics, self._results_state,
        )  # fmt: skip
        return DrainTables(
            self.bodies.code, self.bodies.roles, self.details.code, self.details.roles, self._as_bodies,
            self._as_details, self._topic_names, self._failed, self._bodies_state, results, ends, marks, self._state,
        )  # fmt: skip

    def set_mode(self, all_results: bool, is_inspected: bool) -> None:
        """Set whether every body is decoded with its details, and whether inspectors see each drain."""
        self._state[0].all_results = all_results
        self._state[0].is_inspected = is_inspected

    @property
    def made(self) -> int:
        """How many exchanges the last drain has finished."""
        return int(self._made.item(0))

    @property
    def shortened(self) -> int:
        """How many messages had more fields than are read of one."""
        return int(self._bodies_state[0].shortened)

    @property
    def results(self) -> Array:
        """A copy of the results of the last drain."""
        count = self._counts.item(_RESULTS)
        return copied(self._results[:count]) if count else _NO_RESULTS

    @property
    def topics(self) -> Array:
        """A copy of the topics of the last drain's exchanges, in ascending order of these."""
        count = self._counts.item(_TOPICS)
        if not count:
            return _NO_TOPICS
        rows = self._topics[:count]
        return taken(rows, np.argsort(rows["exchange"], kind="stable"))

    def topics_of(self, exchanges: Array, first: Array) -> Array:
        """EXCHANGE_TOPIC rows of exchanges that are not finished, in ascending order of these. `exchanges`: their
        numbers (int64). `first`: their links' `topics`."""
        kept, parts = self.open_topics["topics"], []
        while len(first := first[(waits := first >= 0)]):
            exchanges = exchanges[waits]
            rows = np.zeros(len(first), EXCHANGE_TOPIC)
            rows["exchange"], rows["topic"], rows["topic_id"] = exchanges, kept["topic"][first], kept["topic_id"][first]
            parts.append(rows)
            first = kept["next"][first]
        found = joined(parts, EXCHANGE_TOPIC)
        return taken(found, np.argsort(found["exchange"], kind="stable"))

    def note_topic_names(self) -> None:
        """Note the topic ids and names that the last drain has found."""
        found = self._names_found.item(0)
        if found:
            names = self._topic_names[:found]
            self.topic_names.update(zip(names["topic_id"].tolist(), names["topic"].tolist(), strict=True))
            self.topic_names.pop(self._strings.other, None)  # the name of one of them is not that of all

    def make_room(self, need: int, t: Tables, block: Array, held: Array) -> None:
        """Do what a drain NEEDS_... before it goes on."""
        if need == NEEDS_TAPE:
            self.tape = grown(self.tape)
        elif need == NEEDS_ROOM:
            self._reserve(t, block, held)
        elif need == NEEDS_RESULTS:
            self._results = grown(self._results)
            self._topics = grown(self._topics)
            self.partitions.grow()
            self.open_topics.grow()
        elif need == NEEDS_PROBLEMS:
            self._note_problems(t, block, held)

    def _reserve(self, t: Tables, block: Array, held: Array) -> None:
        """Make room for all that the rows on the tape can name."""
        state, rows = self._state[0], int(self.scratch[ROWS])
        jobs = (self._failed if state.in_details else t.jobs)[int(state.first) : int(state.end)]
        room = min(2 * rows, MOST_TAPE)
        if rows > len(self._topic_names):
            self._topic_names = grown(self._topic_names, room)  # holds those of the first look
        if rows + 2 > len(self._contexts):
            self._contexts = zeros(room + 2, CONTEXT)
        most = len(block) + len(held) + int(t.state[0].pool_top)
        is_ample = self._strings.text_left > most
        size = 0 if is_ample else min(int(np.sum(jobs["end"] - jobs["at"])), 65_536 * rows)
        self._strings.reserve(rows, size)
        state.has_room = 1

    def _note_problems(self, t: Tables, block: Array, held: Array) -> None:
        """Note where the malformed messages of a drain are malformed."""
        if self._problems is None:
            return
        from .problems import note_problems

        programs = self.details if self._state[0].all_results else self.bodies
        failed = self._problems.failed_jobs(t.jobs[: t.state[0].jobs], programs)
        for first in range(0, len(failed), _PROBLEMS_AT_ONCE):
            some = failed[first : first + _PROBLEMS_AT_ONCE]
            self._strings.reserve(len(some), len(some) * self._problems.templates.longest)
            bodies = Bodies(
                block, held, t.pool, some, self.tape, programs.roles, t.exchanges, t.links, t.connections,
                self._strings.arrays, self._topic_names, self._failed, self._bodies_state,
            )  # fmt: skip
            note_problems(bodies, self._problems.arrays, len(some))


def _problem_finder(load_whole: Callable[[], Programs]) -> ProblemFinder:
    from .problems import ProblemFinder  # reports do without

    return ProblemFinder(load_whole)
