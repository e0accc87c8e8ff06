"""From tape to exchanges: what reports need of the bodies.

A drain (`drain`) decodes its bodies onto the tape. Then `collect_fields` reads the tape into their exchanges and
connections, and `results.collect_results` makes one RESULT row for each error code of a response.
`times.charge_times` comes last.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np

from kafkatap.kernels.decorator import helper, record_dtype
from kafkatap.kernels.readers import be64

from .dtypes import EXCHANGE, INCOMPLETE, MALFORMED, TOO_LARGE, TRAILING_BYTES
from .framing.connections import CONNECTION
from .framing.cursor import Cursor
from .framing.tables import LINK, SOURCE_BLOCK, SOURCE_HELD
from .programs.machine import JOB, TAPE
from .programs.roles import (
    NAMING_REQUESTS,
    NAMING_RESPONSES,
    R_ACKS,
    R_API_KEY,
    R_COORDINATOR_KEY,
    R_ERROR_CODE,
    R_GROUP_ID,
    R_MAX_VERSION,
    R_MAX_WAIT_MS,
    R_MIN_BYTES,
    R_SASL_MECHANISM,
    R_SOFTWARE_NAME,
    R_SOFTWARE_VERSION,
    R_THROTTLE_TIME_MS,
    R_TOPIC_ID,
    R_TOPIC_NAME,
    R_TRANSACTIONAL_ID,
    R_WAIT_MS,
)
from .strings import Strings, intern

Array = np.ndarray[Any, Any]

PRODUCE, FETCH, JOIN_GROUP, SYNC_GROUP = 0, 1, 11, 14
#: APIs whose bodies matter for the exchanges of all others: those that name topic ids, and SaslHandshake, ApiVersions
#: (client software, what the broker supports).
NEEDED_BY_ALL = frozenset((*NAMING_REQUESTS, *NAMING_RESPONSES, 17, 18))
#: The first versions of Produce and Fetch that only brokers with KIP-219 support.
PRODUCE_219, FETCH_219 = 6, 8

#: A topic's id and its name, as one of `roles.TOPIC_NAMES` has them.
TOPIC_NAME = record_dtype(("topic_id", "i4"), ("topic", "i4"))
#: What is known of a drain's bodies. `failed` and `topic_names` are how many rows `collect_fields` has made, `problems`
#: how many bodies are malformed or have trailing bytes. `max_frame`: as in FRAMING_STATE.
#: `shortened`: messages with more rows than MOST_ROWS, of all drains.
BODIES_STATE = record_dtype(
    ("failed", "i8"), ("topic_names", "i8"), ("problems", "i8"), ("max_frame", "i8"), ("shortened", "i8")
)


class Bodies(NamedTuple):
    """The decoded bodies of a drain, and the tables that they are read into."""

    block: Annotated[Array, np.uint8]
    held: Annotated[Array, np.uint8]
    pool: Annotated[Array, np.uint8]
    jobs: Annotated[Array, JOB]
    tape: Annotated[Array, TAPE]
    roles: Annotated[Array, np.uint8]  # by field: R_*
    exchanges: Annotated[Array, EXCHANGE]
    links: Annotated[Array, LINK]
    connections: Annotated[Array, CONNECTION]
    strings: Strings
    topic_names: Annotated[Array, TOPIC_NAME]
    failed: Annotated[Array, JOB]  # copies of the jobs whose response has an error code
    state: Annotated[Array, BODIES_STATE]


@helper
def body_of(b, job):  # type: ignore[no-untyped-def]
    """A cursor over the captured bytes of a job's body."""
    source = np.int64(job.source)
    buf = b.block if source == SOURCE_BLOCK else (b.held if source == SOURCE_HELD else b.pool)
    return Cursor(buf, job.at, job.end)


@helper
def intern_row(b, job, row):  # type: ignore[no-untyped-def]
    """The number of the string that a row of the tape holds."""
    return intern(b.strings, body_of(b, job).buf, row.value, np.int64(row.length))


@helper
def is_topic_id(b, job, row):  # type: ignore[no-untyped-def]
    """Whether a row's 16 bytes are a topic's id: all zeros mean none."""
    buf = body_of(b, job).buf
    return be64(buf, row.value) != 0 or be64(buf, row.value + 8) != 0


@helper
def _status_of(b, job, size):  # type: ignore[no-untyped-def]
    """The status of a decoded body whose size field says `size`."""
    is_too_large = job.status == INCOMPLETE and size + 4 > b.state[0].max_frame
    return np.int64(TOO_LARGE if is_too_large else job.status)


@helper
def _collect_request(b, job):  # type: ignore[no-untyped-def]
    """Read the tape of a request. The client software of earlier requests holds for this one."""
    slot = job.frame >> 1
    x = b.exchanges[slot]
    link = b.links[slot]
    connection = b.connections[link.connection]
    x.client_software = connection.software
    x.client_software_version = connection.software_version
    if job.program >= 0:
        x.request_status = _status_of(b, job, x.request_bytes)
    if x.api_key == SYNC_GROUP:
        link.wait_ms = max(connection.rebalance_ms, 0)
        connection.rebalance_ms = 0
    for r in range(job.tape_first, job.tape_first + np.int64(job.tape_count)):
        row = b.tape[r]
        role = np.int64(b.roles[row.field])
        if role == R_ACKS:
            x.acks = row.value
        elif role == R_MAX_WAIT_MS:
            x.max_wait_ms = row.value
            link.wait_ms = max(row.value, 0)
        elif role == R_WAIT_MS:
            link.wait_ms = max(row.value, 0)
        elif role == R_MIN_BYTES:
            x.min_bytes = row.value
        elif role == R_GROUP_ID or role == R_TRANSACTIONAL_ID or role == R_COORDINATOR_KEY:
            if row.length >= 0 and link.name < 0:
                link.name = intern_row(b, job, row)
        elif role == R_SOFTWARE_NAME:
            connection.software = intern_row(b, job, row)
            x.client_software = connection.software
        elif role == R_SOFTWARE_VERSION:
            connection.software_version = intern_row(b, job, row)
            x.client_software_version = connection.software_version
        elif role == R_SASL_MECHANISM:
            connection.mechanism = intern_row(b, job, row)
    if x.api_key == JOIN_GROUP:
        connection.rebalance_ms = link.wait_ms
    if job.program >= 0 and x.api_key in NAMING_REQUESTS:
        _collect_topic_names(b, job)


@helper
def _collect_topic_names(b, job):  # type: ignore[no-untyped-def]
    """Note the topic ids of a message of `roles.TOPIC_NAMES` with their names."""
    state = b.state[0]
    topic_id = np.int64(-1)
    topic = np.int64(-1)
    parent = np.int64(-2)
    for r in range(job.tape_first, job.tape_first + np.int64(job.tape_count)):
        row = b.tape[r]
        role = np.int64(b.roles[row.field])
        if role != R_TOPIC_ID and role != R_TOPIC_NAME:
            continue
        if np.int64(row.parent) != parent:
            parent = np.int64(row.parent)
            topic_id = np.int64(-1)
            topic = np.int64(-1)
        if role == R_TOPIC_NAME:
            topic = intern_row(b, job, row)
        elif is_topic_id(b, job, row):
            topic_id = intern_row(b, job, row)
        if topic_id >= 0 and topic >= 0:
            found = b.topic_names[state.topic_names]
            found.topic_id = topic_id
            found.topic = topic
            state.topic_names += 1
            topic_id = np.int64(-1)
            topic = np.int64(-1)


@helper
def _collect_response(b, j):  # type: ignore[no-untyped-def]
    """Read the tape of the response of job `j`."""
    job = b.jobs[j]
    slot = job.frame >> 1
    x = b.exchanges[slot]
    x.response_status = _status_of(b, job, x.response_bytes)
    has_failed = False
    key = np.int64(-1)
    produce = np.int64(-1)
    fetch = np.int64(-1)
    for r in range(job.tape_first, job.tape_first + np.int64(job.tape_count)):
        row = b.tape[r]
        role = np.int64(b.roles[row.field])
        if role == R_ERROR_CODE:
            has_failed = has_failed or row.value != 0
        elif role == R_THROTTLE_TIME_MS:
            x.throttle_time_ms = row.value
        elif role == R_API_KEY:
            key = row.value
        elif role == R_MAX_VERSION:
            if key == PRODUCE:
                produce = row.value
            elif key == FETCH:
                fetch = row.value
    if x.api_key in NAMING_RESPONSES:
        _collect_topic_names(b, job)
    if produce >= 0 and fetch >= 0:
        b.links[slot].answers_at_once = 1 if produce >= PRODUCE_219 and fetch >= FETCH_219 else 0
    if has_failed:
        b.failed[b.state[0].failed] = b.jobs[j]
        b.state[0].failed += 1


@helper
def collect_fields(b, count):  # type: ignore[no-untyped-def]
    """Read the tape of jobs[:count] into their exchanges, in order. The caller has made room for all rows."""
    b.state[0].failed = 0
    b.state[0].topic_names = 0
    b.state[0].problems = 0
    for j in range(count):
        job = b.jobs[j]
        if job.status == MALFORMED or job.status == TRAILING_BYTES:
            b.state[0].problems += 1
        elif job.status == TOO_LARGE:
            b.state[0].shortened += 1
        if job.frame & 1 == 0:
            _collect_request(b, job)
        elif job.program >= 0:
            _collect_response(b, j)
