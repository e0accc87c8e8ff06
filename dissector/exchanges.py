"""From tape to exchanges: what reports need of the bodies.

Kernels in the order in which they run over a batch: `collect` reads the tape of all decoded bodies into their
exchanges, `collect_results` makes one RESULT row for each error code of a response. `times.settle` comes after them.
"""

from __future__ import annotations

import numpy as np

from kafkatap.kernels import kernel
from kafkatap.kernels.decorator import helper, record_dtype
from kafkatap.kernels.readers import be32, be64

from .dtypes import (
    EXCHANGE,
    INCOMPLETE,
    KIND_GROUP,
    KIND_OTHER,
    KIND_PARTITION,
    KIND_RESOURCE,
    KIND_RESPONSE,
    KIND_TOPIC,
    NO_INT32,
    RESULT,
    TOO_LARGE,
)
from .framing.buffers import intern
from .framing.connections import DIALOG, LINK, MAX_FRAME, STRING
from .programs.machine import JOB, TAPE
from .programs.roles import (
    R_ACKS,
    R_API_KEY,
    R_BASE_OFFSET,
    R_ENTITY_NAME,
    R_ERROR_CODE,
    R_GROUP_ID,
    R_HIGH_WATERMARK,
    R_MAX_VERSION,
    R_MAX_WAIT_MS,
    R_MIN_BYTES,
    R_OFFSET_OTHER,
    R_PARTITION,
    R_RECORDS,
    R_RESOURCE_NAME,
    R_SASL_MECHANISM,
    R_SOFTWARE_NAME,
    R_SOFTWARE_VERSION,
    R_THROTTLE_TIME_MS,
    R_TOPIC_ID,
    R_TOPIC_NAME,
    R_TRANSACTIONAL_ID,
)

FETCH, PRODUCE = 1, 0
#: APIs whose bodies tell about exchanges of all others: Metadata and CreateTopics (names of topic ids), SaslHandshake,
#: ApiVersions (client software, what the broker knows).
TELLING = frozenset((3, 19, 17, 18))
#: The first versions of Produce and Fetch that only brokers with KIP-219 know.
PRODUCE_219, FETCH_219 = 6, 8

#: A topic's id and name as a Metadata or CreateTopics response told them.
TOPIC_NAME = record_dtype(("topic_id", "i4"), ("topic", "i4"))
#: A topic that a request is about.
EXCHANGE_TOPIC = record_dtype(("exchange", "i8"), ("topic", "i4"), ("topic_id", "i4"))
#: One partition of a Produce request, kept until its response: rows of one exchange are chained.
PART = record_dtype(
    ("bytes", "i8"), ("records", "i8"), ("topic", "i4"), ("topic_id", "i4"), ("partition", "i4"), ("next", "i4")
)

#: Context of one array element while its message's results are made: what its own fields say (-1: nothing).
CONTEXT = record_dtype(
    ("offset", "i8"),
    ("records_at", "i8"),
    ("records_length", "i8"),
    ("topic", "i4"),
    ("topic_id", "i4"),
    ("partition", "i4"),
    ("name", "i4"),
    ("up", "i4"),
    ("kind", "u1"),
)

#: State (int64) of `collect` and `collect_results`.
AGAIN, NAMES, RESULTS, TOPICS, FREE_PARTS, FREE_PARTS_LEFT, STOPPED = range(7)
STATE_SIZE = 8
DONE, FULL = 0, 1


@helper
def _status_of(job, size, state):  # type: ignore[no-untyped-def]
    """The status of a decoded body whose size field says `size`."""
    return TOO_LARGE if job.status == INCOMPLETE and size + 4 > state[MAX_FRAME] else np.int64(job.status)


@helper
def _is_id(buf, at):  # type: ignore[no-untyped-def]
    """Whether the 16 bytes at `at` are a topic's id: all zeros stand for none."""
    return be64(buf, at) != 0 or be64(buf, at + 8) != 0


@kernel(
    JOB, int, np.uint8, np.uint8, np.uint8, TAPE, np.uint8, EXCHANGE, LINK, DIALOG, STRING, np.uint8, np.int32,
    TOPIC_NAME, np.int32, np.int64, np.int64,
)  # fmt: skip
def collect(  # type: ignore[no-untyped-def]
    jobs, count, block, held, pool, tape, roles, exchanges, links, dialogs, strings, text, buckets, topic_names, again,
    string_state, state,
):  # fmt: skip
    """Read the tape of jobs[:count] into their exchanges. again[:state[AGAIN]] are the responses with an error code,
    topic_names[:state[NAMES]] the topic ids that were told with their names. Room for all of it is the caller's part.
    """
    state[AGAIN] = 0
    state[NAMES] = 0
    for j in range(count):
        job = jobs[j]
        slot = job.frame >> 1
        x = exchanges[slot]
        source = np.int64(job.source)
        buf = block if source == 0 else (held if source == 1 else pool)
        first = job.tape_first
        last = first + np.int64(job.tape_count)
        if job.frame & 1 == 0:
            # In the order of the requests: what an earlier one told of the client holds from here on.
            x.client_software = dialogs[links[slot].dialog].software
            x.client_software_version = dialogs[links[slot].dialog].software_version
            if job.program >= 0:
                x.request_status = _status_of(job, x.request_bytes, string_state)
            for r in range(first, last):
                row = tape[r]
                role = np.int64(roles[row.field])
                if role == R_ACKS:
                    x.acks = row.value
                elif role == R_MAX_WAIT_MS:
                    x.max_wait_ms = row.value
                elif role == R_MIN_BYTES:
                    x.min_bytes = row.value
                elif role == R_GROUP_ID or role == R_TRANSACTIONAL_ID:
                    if row.length >= 0 and links[slot].name < 0:
                        links[slot].name = intern(
                            buf, row.value, np.int64(row.length), strings, text, buckets, string_state
                        )
                elif role == R_SOFTWARE_NAME or role == R_SOFTWARE_VERSION or role == R_SASL_MECHANISM:
                    number = intern(buf, row.value, np.int64(row.length), strings, text, buckets, string_state)
                    dialog = dialogs[links[slot].dialog]
                    if role == R_SOFTWARE_NAME:
                        dialog.software = number
                        x.client_software = number
                    elif role == R_SOFTWARE_VERSION:
                        dialog.software_version = number
                        x.client_software_version = number
                    else:
                        dialog.mechanism = number
        elif job.program >= 0:
            x.response_status = _status_of(job, x.response_bytes, string_state)
            failed = False
            key = np.int64(-1)
            produce = np.int64(-1)
            fetch = np.int64(-1)
            topic_id = np.int64(-1)
            topic = np.int64(-1)
            parent = np.int64(-2)
            for r in range(first, last):
                row = tape[r]
                role = np.int64(roles[row.field])
                if role == R_ERROR_CODE:
                    failed = failed or row.value != 0
                elif role == R_THROTTLE_TIME_MS:
                    x.throttle_time_ms = row.value
                elif role == R_API_KEY:
                    key = row.value
                elif role == R_MAX_VERSION:
                    if key == PRODUCE:
                        produce = row.value
                    elif key == FETCH:
                        fetch = row.value
                elif (role == R_TOPIC_ID or role == R_TOPIC_NAME) and (x.api_key == 3 or x.api_key == 19):
                    if np.int64(row.parent) != parent:
                        parent = np.int64(row.parent)
                        topic_id = np.int64(-1)
                        topic = np.int64(-1)
                    if role == R_TOPIC_ID and not _is_id(buf, row.value):
                        continue
                    number = intern(buf, row.value, np.int64(row.length), strings, text, buckets, string_state)
                    if role == R_TOPIC_ID:
                        topic_id = number
                    else:
                        topic = number
                    if topic_id >= 0 and topic >= 0:
                        topic_names[state[NAMES]].topic_id = topic_id
                        topic_names[state[NAMES]].topic = topic
                        state[NAMES] += 1
                        topic_id = np.int64(-1)
                        topic = np.int64(-1)
            if produce >= 0 and fetch >= 0:
                links[slot].offered = 1 if produce >= PRODUCE_219 and fetch >= FETCH_219 else 0
            if failed:
                again[state[AGAIN]] = j
                state[AGAIN] += 1
    return 0


@helper
def count_records(buf, at, length):  # type: ignore[no-untyped-def]
    """Records in a records field, where the batch headers tell: -1 with compressed message sets of magic 0 and 1."""
    end = at + length
    total = np.int64(0)
    while at + 17 <= end:
        size = be32(buf, at + 8)
        magic = buf[at + 16]
        if size > 0x7FFFFFFF - 12 or size < 14 or magic > 2:
            break
        if magic == 2:
            if at + 61 > end:
                break
            total += be32(buf, at + 57)
        else:
            if at + 18 > end:
                break
            if at + 12 + size > end:
                break  # a partial last message
            if buf[at + 17] & 7:
                return np.int64(-1)
            total += 1
        at += 12 + size
    return total


@helper
def _clear(context, up):  # type: ignore[no-untyped-def]
    context.offset = -1
    context.records_at = -1
    context.records_length = -1
    context.topic = -1
    context.topic_id = -1
    context.partition = NO_INT32
    context.name = -1
    context.up = up
    context.kind = KIND_OTHER


@helper
def _read_context(buf, tape, first, last, roles, contexts, strings, text, buckets, string_state):  # type: ignore[no-untyped-def]
    """Note what each array element of a message names (row r: contexts[r - first + 1]; its top: contexts[0])."""
    _clear(contexts[0], -1)
    for r in range(first, last):
        row = tape[r]
        parent = np.int64(row.parent)
        above = parent - first + 1 if parent >= first else np.int64(0)
        _clear(contexts[r - first + 1], above)
        context = contexts[above]
        role = np.int64(roles[row.field])
        if role == R_PARTITION and row.length == 0:
            context.partition = row.value
            context.kind = KIND_PARTITION
        elif role == R_BASE_OFFSET or role == R_HIGH_WATERMARK or role == R_OFFSET_OTHER:
            context.offset = row.value
        elif role == R_RECORDS:
            context.records_at = row.value
            context.records_length = row.length
        elif role == R_TOPIC_NAME or role == R_TOPIC_ID:
            if np.int64(row.length) >= 0:
                if role == R_TOPIC_NAME or _is_id(buf, row.value):
                    number = intern(buf, row.value, np.int64(row.length), strings, text, buckets, string_state)
                    if role == R_TOPIC_NAME:
                        context.topic = number
                    else:
                        context.topic_id = number
                if context.kind == KIND_OTHER:
                    context.kind = KIND_TOPIC
        elif np.int64(row.length) >= 0 and (
            role == R_GROUP_ID or role == R_TRANSACTIONAL_ID or role == R_RESOURCE_NAME or role == R_ENTITY_NAME
        ):
            context.name = intern(buf, row.value, np.int64(row.length), strings, text, buckets, string_state)
            if context.kind == KIND_OTHER:
                context.kind = KIND_GROUP if role == R_GROUP_ID or role == R_TRANSACTIONAL_ID else KIND_RESOURCE


@kernel(
    JOB, int, np.int32, int, np.uint8, np.uint8, np.uint8, TAPE, np.uint8, EXCHANGE, LINK, STRING, np.uint8, np.int32,
    CONTEXT, PART, RESULT, EXCHANGE_TOPIC, int, np.int64, np.int64,
)  # fmt: skip
def collect_results(  # type: ignore[no-untyped-def]
    jobs, count, chosen, first_job, block, held, pool, tape, roles, exchanges, links, strings, text, buckets,
    contexts, parts, results, topics, all_codes, string_state, state,
):  # fmt: skip
    """Make RESULT rows of jobs chosen[first_job:count] (of non-zero codes only unless `all_codes`), and EXCHANGE_TOPIC
    rows of requests. Return the first job not taken: state[STOPPED] is FULL when `results`, `topics` or `parts` is."""
    state[STOPPED] = DONE
    i = first_job
    while i < count:
        job = jobs[chosen[i]]
        slot = job.frame >> 1
        x = exchanges[slot]
        link = links[slot]
        first = job.tape_first
        rows = np.int64(job.tape_count)
        if (
            state[RESULTS] + rows > results.shape[0]
            or state[TOPICS] + rows > topics.shape[0]
            or state[FREE_PARTS_LEFT] < rows
        ):
            state[STOPPED] = FULL
            break
        source = np.int64(job.source)
        buf = block if source == 0 else (held if source == 1 else pool)
        last = first + rows
        _read_context(buf, tape, first, last, roles, contexts, strings, text, buckets, string_state)
        if job.frame & 1 == 0:
            for k in range(rows + 1):
                context = contexts[k]
                if context.topic >= 0 or context.topic_id >= 0:
                    topics[state[TOPICS]].exchange = x.exchange
                    topics[state[TOPICS]].topic = context.topic
                    topics[state[TOPICS]].topic_id = context.topic_id
                    state[TOPICS] += 1
                if x.api_key == PRODUCE and context.partition != NO_INT32:
                    number = state[FREE_PARTS]
                    part = parts[number]
                    state[FREE_PARTS] = np.int64(part.next)
                    state[FREE_PARTS_LEFT] -= 1
                    part.topic = contexts[context.up].topic
                    part.topic_id = contexts[context.up].topic_id
                    part.partition = context.partition
                    part.bytes = context.records_length
                    part.records = -1
                    if context.records_length >= 0:
                        reach = min(context.records_length, job.end - context.records_at)
                        part.records = count_records(buf, context.records_at, reach)
                    part.next = link.parts
                    link.parts = number
            i += 1
            continue
        for r in range(first, last):
            row = tape[r]
            if np.int64(roles[row.field]) != R_ERROR_CODE or (row.value == 0 and all_codes == 0):
                continue
            parent = np.int64(row.parent)
            own = parent - first + 1 if parent >= first else np.int64(0)
            result = results[state[RESULTS]]
            state[RESULTS] += 1
            result.exchange = x.exchange
            result.error_code = row.value
            result.kind = KIND_RESPONSE if own == 0 else contexts[own].kind
            result.offset = contexts[own].offset
            result.bytes = contexts[own].records_length
            result.records = -1
            if contexts[own].records_length >= 0:
                reach = min(contexts[own].records_length, job.end - contexts[own].records_at)
                result.records = count_records(buf, contexts[own].records_at, reach)
            topic = np.int64(-1)
            topic_id = np.int64(-1)
            partition = np.int64(NO_INT32)
            name = np.int64(-1)
            level = own
            while level >= 0:
                context = contexts[level]
                if topic < 0 and topic_id < 0:
                    topic = np.int64(context.topic)
                    topic_id = np.int64(context.topic_id)
                if partition == NO_INT32:
                    partition = np.int64(context.partition)
                if name < 0:
                    name = np.int64(context.name)
                level = np.int64(context.up)
            if name < 0:
                name = np.int64(link.name)
            result.topic = topic
            result.topic_id = topic_id
            result.partition = partition
            result.name = name
            if x.api_key == PRODUCE and result.bytes < 0:
                number = np.int64(link.parts)
                while number >= 0:
                    part = parts[number]
                    if part.partition == partition and part.topic == topic and part.topic_id == topic_id:
                        result.bytes = part.bytes
                        result.records = part.records
                        break
                    number = np.int64(part.next)
        i += 1
    return i
