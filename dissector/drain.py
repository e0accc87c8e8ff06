"""One drain as one kernel: bodies onto the tape, tape into exchanges and results, then the finished exchanges.

`drain_frames` runs as far as it can. It returns DRAINED, or what Python has to do before it is called again (NEEDS_*):
make room, name the fields of malformed messages, or show the messages to inspectors. It then goes on where it was.

If the messages of a drain have more rows than a tape of MOST_TAPE, the first of them are a part, which is drained by
itself: afterwards the others are the jobs of the next drain. Every response of a part is of an exchange that it
finishes, since exchanges finish in the order of their responses. So memory does not depend on how many messages end in
a block.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np

from kafkatap.kernels import kernel
from kafkatap.kernels.decorator import helper, record_dtype
from kafkatap.kernels.table import release_row

from .dtypes import EXCHANGE, MOST_ROWS
from .exchanges import BODIES_STATE, TOPIC_NAME, Bodies, collect_fields
from .framing.buffers import release_buffers
from .framing.connections import AT_ONCE_UNKNOWN
from .framing.tables import Tables
from .framing.waiting import decide_in_flight
from .programs.machine import JOB, ROWS, run_jobs
from .results import Results, collect_results, release_partitions, write_topics
from .times import charge_times

Array = np.ndarray[Any, Any]

#: What `drain_frames` returns. NEEDS_TAPE: a longer tape. NEEDS_ROOM: room for all that the rows on the tape can name
#: (`rows` of DRAIN_STATE). NEEDS_RESULTS: more rows for results, topics or partitions. NEEDS_PROBLEMS: some bodies are
#: malformed. NEEDS_INSPECTION: inspectors look at the messages.
DRAINED, NEEDS_TAPE, NEEDS_ROOM, NEEDS_RESULTS, NEEDS_PROBLEMS, NEEDS_INSPECTION = range(6)

#: What a drain does next.
STEP_BEGIN, STEP_DECODE, STEP_COLLECT, STEP_RESULTS, STEP_INSPECT, STEP_FINISH = range(6)
#: Rows of the longest tape, in which one message has room at least.
MOST_TAPE = MOST_ROWS

#: The state of a drain, between calls too. All fields are int64.
DRAIN_STATE = record_dtype(
    ("step", "i8"),  # STEP_*
    ("in_details", "i8"),  # 1: responses with error codes are decoded once more, with their details
    ("done", "i8"),  # jobs that the current step has read
    ("has_room", "i8"),  # 1: Python has made room for the rows on the tape
    ("made", "i8"),  # out: finished exchanges
    ("left", "i8"),  # jobs behind those of the part that is drained
    ("first", "i8"),  # the jobs whose rows are on the tape: the first, and the one behind the last
    ("end", "i8"),
    # Set by Python:
    ("all_results", "i8"),  # 1: every body is decoded with its details
    ("finds_problems", "i8"),  # 1: NEEDS_PROBLEMS is wanted
    ("is_inspected", "i8"),  # 1: NEEDS_INSPECTION is wanted
)


class DrainTables(NamedTuple):
    """The programs for bodies and for details, and the tables that only a drain uses.

    `as_bodies`, `as_details`: programs by those of framing, where these differ (else empty). `ends`: eight numbers for
    each connection: address and port of the client, then of the broker, if end a is the client; then if end b is.
    `marks`: bits that inspectors set, by slot.
    """

    code: Annotated[Array, np.int32]
    roles: Annotated[Array, np.uint8]
    details_code: Annotated[Array, np.int32]
    details_roles: Annotated[Array, np.uint8]
    as_bodies: Annotated[Array, np.int32]
    as_details: Annotated[Array, np.int32]
    topic_names: Annotated[Array, TOPIC_NAME]
    failed: Annotated[Array, JOB]
    bodies_state: Annotated[Array, BODIES_STATE]
    results: Results
    ends: Annotated[Array, np.int32]
    marks: Annotated[Array, np.uint64]
    state: Annotated[Array, DRAIN_STATE]


@helper
def _choose(jobs, count, programs):  # type: ignore[no-untyped-def]
    """Point jobs at other programs for the same messages."""
    if programs.shape[0] == 0:
        return
    for j in range(count):
        job = jobs[j]
        if job.program >= 0:
            job.program = programs[job.program]


@helper
def _begin(t, d):  # type: ignore[no-untyped-def]
    """Begin with the jobs of a drain."""
    state = d.state[0]
    d.results.state[0].results = 0
    d.results.state[0].topics = 0
    d.bodies_state[0].failed = 0
    d.bodies_state[0].topic_names = 0
    d.bodies_state[0].max_frame = t.state[0].max_frame
    t.scratch[ROWS] = 0
    state.in_details = 0
    state.done = 0
    state.has_room = 0
    state.made = 0
    state.first = 0
    count = np.int64(t.state[0].jobs)
    state.step = STEP_DECODE if count > 0 else STEP_FINISH
    if state.left == 0:  # the jobs behind a part have theirs
        _choose(t.jobs, count, d.as_details if state.all_results else d.as_bodies)
    state.left = 0


@helper
def _begin_details(t, d):  # type: ignore[no-untyped-def]
    """Begin with the responses that have error codes once more."""
    state = d.state[0]
    state.in_details = 1
    state.done = 0
    state.first = 0
    state.has_room = 0
    t.scratch[ROWS] = 0
    _choose(d.failed, np.int64(d.bodies_state[0].failed), d.as_details)
    state.step = STEP_DECODE


@helper
def _begin_part(t, d, done):  # type: ignore[no-untyped-def]
    """Drain only the first jobs, as many as `done`. The exchanges of the others do not finish."""
    count = np.int64(t.state[0].jobs)
    d.state[0].left = count - done
    t.state[0].jobs = done
    for j in range(done, count):
        t.links[t.jobs[j].frame >> 1].undecoded = 1


@helper
def _end_part(t, d, finished):  # type: ignore[no-untyped-def]
    """Make the other jobs those of the next drain, and drop the exchanges that have `finished` (how many)."""
    state = t.state[0]
    first, left = np.int64(state.jobs), np.int64(d.state[0].left)
    for j in range(left):
        t.jobs[j] = t.jobs[first + j]
        t.links[t.jobs[j].frame >> 1].undecoded = 0
    state.jobs = left
    for i in range(finished, state.finished):
        t.finished[i - finished] = t.finished[i]
    state.finished -= finished


@helper
def _has_room(t, d, jobs, most_text):  # type: ignore[no-untyped-def]
    """Whether there is room for all that the rows on the tape can name. `most_text`: the bytes of all buffers."""
    rows = np.int64(t.scratch[ROWS])
    strings = t.strings.state[0]
    if strings.text_used + most_text >= t.strings.text.shape[0]:  # as for a block of a large ring
        most_text = np.int64(0)
        for i in range(d.state[0].first, d.state[0].end):
            most_text += jobs[i].end - jobs[i].at
    return (
        rows <= d.topic_names.shape[0]
        and rows + 2 <= d.results.contexts.shape[0]
        and strings.count + rows <= t.strings.entries.shape[0]
        and 2 * (strings.count + rows) <= t.strings.buckets.shape[0]
        and strings.text_used + most_text < t.strings.text.shape[0]
    )  # fmt: skip


@helper
def _set_ends(x, ends, connection, client):  # type: ignore[no-untyped-def]
    """Set the ends of an exchange. End a counts as the client if it is not known which end is."""
    at = 8 * connection + (4 if client == 1 else 0)
    x.client_ip = ends[np.uintp(at)]
    x.client_port = ends[np.uintp(at + 1)]
    x.broker_ip = ends[np.uintp(at + 2)]
    x.broker_port = ends[np.uintp(at + 3)]


@helper
def _finish_exchanges(t, d, rows, marks, provisional):  # type: ignore[no-untyped-def]
    """Set the times of the finished exchanges and copy them to `rows`; then free their slots. Bare tokens come last in
    `rows`, the first of them at its end.

    Return whether all are finished: if not, there is no room for their topics.
    """
    state = t.state[0]
    made = d.state[0].made
    count = np.int64(state.finished)
    for i in range(d.state[0].done, count):
        slot = np.int64(t.finished[i])
        link = t.links[slot]
        if link.undecoded:
            count = np.int64(i)
            break
        if link.topics >= 0 and not write_topics(d.results, link, t.exchanges[slot].exchange, d.state[0].all_results):
            d.state[0].done = i
            d.state[0].made = made
            return False
        connection = t.connections[link.connection]
        release_partitions(d.results, link)
        if link.answers_at_once >= 0 and connection.answers_at_once == AT_ONCE_UNKNOWN:
            connection.answers_at_once = link.answers_at_once
        if link.waited_until != 0:
            decide_in_flight(t, slot)
        if link.token == 0:
            x = t.exchanges[slot]
            charge_times(x, connection, link)
            _set_ends(x, d.ends, np.int64(link.connection), np.int64(connection.client))
            rows[made] = x
            if made < marks.shape[0]:
                marks[made] = d.marks[slot]
            if made < provisional.shape[0]:
                provisional[made] = link.provisional
            made += 1
        else:
            x = t.exchanges[slot]
            _set_ends(x, d.ends, np.int64(link.connection), np.int64(connection.client))
            rows[rows.shape[0] - 1 - (i - made)] = x
        if marks.shape[0] > 0:
            d.marks[slot] = 0
        release_row(t.free_exchanges, slot)
    d.state[0].made = made
    _end_part(t, d, count)
    return True


@kernel(Tables, DrainTables, np.uint8, np.uint8, EXCHANGE, np.uint64, np.uint8)
def drain_frames(t, d, block, held, rows, marks, provisional):  # type: ignore[no-untyped-def]
    """Decode the frames so far, whose bytes lie in `block`, `held` and the pool, and finish exchanges. Return DRAINED
    or NEEDS_*.

    `rows` has room for all finished exchanges. So have `marks` and `provisional`, or they are empty.
    """
    state = d.state[0]
    if state.step == STEP_BEGIN:
        _begin(t, d)
    while state.step < STEP_INSPECT:
        with_details = state.in_details or state.all_results
        jobs = d.failed if state.in_details else t.jobs
        count = np.int64(d.bodies_state[0].failed if state.in_details else t.state[0].jobs)
        b = Bodies(
            block, held, t.pool, jobs, t.tape, d.details_roles if with_details else d.roles, t.exchanges, t.links,
            t.connections, t.strings, d.topic_names, d.failed, d.bodies_state,
        )  # fmt: skip
        if state.step == STEP_DECODE:
            code = d.details_code if with_details else d.code
            state.done = run_jobs(code, jobs, count, state.done, block, held, t.pool, t.tape, t.scratch)
            if state.done < count:
                if t.tape.shape[0] < MOST_TAPE:
                    return NEEDS_TAPE
                if state.in_details == 0:
                    _begin_part(t, d, state.done)
            state.end = state.done
            state.step = STEP_COLLECT
        if state.step == STEP_COLLECT:
            most_text = block.shape[0] + held.shape[0] + np.int64(t.state[0].pool_top)
            if state.has_room == 0 and not _has_room(t, d, jobs, most_text):
                return NEEDS_ROOM
            state.done = state.first
            state.step = STEP_RESULTS
            if state.in_details == 0:
                collect_fields(b, state.end)
                if state.finds_problems and d.bodies_state[0].problems > 0:
                    return NEEDS_PROBLEMS
        if state.step == STEP_RESULTS:
            if with_details:
                state.done = collect_results(b, d.results, state.done, state.end, state.all_results)
                if state.done < state.end:
                    return NEEDS_RESULTS
            if state.in_details and state.end < count:  # the tape had no room for the others
                state.first = state.end
                state.has_room = 0
                t.scratch[ROWS] = 0
                state.step = STEP_DECODE
                continue
            state.step = STEP_INSPECT
            if not with_details and d.bodies_state[0].failed > 0:
                _begin_details(t, d)
    if state.step == STEP_INSPECT:
        state.done = 0
        state.step = STEP_FINISH
        if state.is_inspected:
            return NEEDS_INSPECTION
    if not _finish_exchanges(t, d, rows, marks, provisional):
        return NEEDS_RESULTS
    if t.state[0].jobs == 0:
        release_buffers(t.pool, t.free_buffers, t.deferred, t.state)
    state.step = STEP_BEGIN
    return DRAINED
