"""Results of a response, one for each error code, and the topics of a request.

A message is a tree of array elements: topics, their partitions, groups. Each element has a context, which holds what
its own fields say. A result takes its values from the context of its error code, and from those above it.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np

from kafkatap.kernels.decorator import helper, record_dtype
from kafkatap.kernels.hashing import hash_start, mix, spread
from kafkatap.kernels.table import release_row, rows_left, take_row

from .batch_headers import count_records
from .dtypes import (
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
from .exchanges import PRODUCE, body_of, intern_row, is_topic_id
from .programs.roles import (
    R_BASE_OFFSET,
    R_ENTITY_NAME,
    R_ERROR_CODE,
    R_ERROR_MESSAGE,
    R_GROUP_ID,
    R_HIGH_WATERMARK,
    R_OFFSET_OTHER,
    R_PARTITION,
    R_RECORD_MESSAGE,
    R_RECORDS,
    R_RESOURCE_NAME,
    R_TOPIC_ID,
    R_TOPIC_NAME,
    R_TRANSACTIONAL_ID,
)

Array = np.ndarray[Any, Any]

#: A topic of a request.
EXCHANGE_TOPIC = record_dtype(("exchange", "i8"), ("topic", "i4"), ("topic_id", "i4"))
#: The same, kept until the exchange is finished. Rows of one exchange are chained, in order.
OPEN_TOPIC = record_dtype(("topic", "i4"), ("topic_id", "i4"), ("next", "i4"))
#: One partition of a Produce request, kept until its response comes. Rows of one exchange are chained.
PRODUCE_PARTITION = record_dtype(
    ("bytes", "i8"), ("records", "i8"), ("topic", "i4"), ("topic_id", "i4"), ("partition", "i4"), ("next", "i4")
)
#: What the fields of one array element say (-1: nothing).
CONTEXT = record_dtype(
    ("offset", "i8"),
    ("records_at", "i8"),
    ("records_length", "i8"),
    ("topic", "i4"),
    ("topic_id", "i4"),
    ("partition", "i4"),  # NO_INT32
    ("name", "i4"),
    ("message", "i4"),  # of an error
    ("up", "i4"),  # the context of the enclosing element
    ("kind", "u1"),
)
#: `kind` of a context whose other values are not set: most rows of the tape are no elements.
UNOPENED = 255
#: `seed`: that of the hashes of kept partitions.
RESULTS_STATE = record_dtype(("results", "i8"), ("topics", "i8"), ("seed", "i8"))
#: Places that are searched for a partition of a Produce request. Hashes spread so well that none is farther.
_MOST_PLACES = 256


class Results(NamedTuple):
    """The tables that results are written to. Context 0 is the message's top, the others its rows on the tape.

    `produce_places`: while results of a Produce response are written, its partitions by their hash: the numbers of
    produce_partitions, plus one. At other times they are 0.
    """

    contexts: Annotated[Array, CONTEXT]
    produce_partitions: Annotated[Array, PRODUCE_PARTITION]
    produce_places: Annotated[Array, np.int32]
    free_partitions: Annotated[Array, np.int32]
    open_topics: Annotated[Array, OPEN_TOPIC]
    free_topics: Annotated[Array, np.int32]
    results: Annotated[Array, RESULT]
    topics: Annotated[Array, EXCHANGE_TOPIC]
    state: Annotated[Array, RESULTS_STATE]


@helper
def _records_in(b, job, context):  # type: ignore[no-untyped-def]
    """The records of an element, -1 if it has none or their number is unknown."""
    if context.records_length < 0:
        return np.int64(-1)
    at = np.int64(context.records_at)
    end = at + np.int64(context.records_length)
    return count_records(body_of(b, job).buf, at, min(end, np.int64(job.end)), end)


@helper
def _clear(context):  # type: ignore[no-untyped-def]
    context.offset = -1
    context.records_at = -1
    context.records_length = -1
    context.topic = -1
    context.topic_id = -1
    context.partition = NO_INT32
    context.name = -1
    context.message = -1
    context.kind = KIND_OTHER


@helper
def _open_context(r, number):  # type: ignore[no-untyped-def]
    """The context of an element, cleared with those above it if none of its fields came before."""
    level = number
    while level >= 0 and r.contexts[level].kind == UNOPENED:
        _clear(r.contexts[level])
        level = np.int64(r.contexts[level].up)
    return r.contexts[number]


@helper
def _read_name(b, job, row, role, context):  # type: ignore[no-untyped-def]
    """Read a string that names an element: a topic, group or resource."""
    if role == R_TOPIC_NAME:
        context.topic = intern_row(b, job, row)
    elif role == R_TOPIC_ID:
        if is_topic_id(b, job, row):
            context.topic_id = intern_row(b, job, row)
    else:
        context.name = intern_row(b, job, row)
    if context.kind == KIND_OTHER:
        if role == R_TOPIC_NAME or role == R_TOPIC_ID:
            context.kind = KIND_TOPIC
        elif role == R_GROUP_ID or role == R_TRANSACTIONAL_ID:
            context.kind = KIND_GROUP
        else:
            context.kind = KIND_RESOURCE


@helper
def _is_name(role):  # type: ignore[no-untyped-def]
    """Whether a field names its element."""
    return (
        role == R_TOPIC_NAME or role == R_TOPIC_ID or role == R_GROUP_ID or role == R_TRANSACTIONAL_ID
        or role == R_RESOURCE_NAME or role == R_ENTITY_NAME
    )  # fmt: skip


@helper
def _read_contexts(b, r, job):  # type: ignore[no-untyped-def]
    """Read the contexts of a message's elements."""
    first = job.tape_first
    r.contexts[0].up = -1
    _clear(r.contexts[0])
    for k in range(np.int64(job.tape_count)):
        row = b.tape[first + k]
        above = max(np.int64(row.parent) - first + 1, np.int64(0))
        r.contexts[k + 1].up = above
        r.contexts[k + 1].kind = UNOPENED
        context = _open_context(r, above)
        role = np.int64(b.roles[row.field])
        if role == R_PARTITION and row.length == 0:
            context.partition = row.value
            context.kind = KIND_PARTITION
        elif role == R_BASE_OFFSET or role == R_HIGH_WATERMARK or role == R_OFFSET_OTHER:
            if context.offset < 0:  # of ListOffsets 0 the first of several
                context.offset = row.value
        elif role == R_RECORDS:
            context.records_at = row.value
            context.records_length = row.length
        elif role == R_ERROR_MESSAGE or role == R_RECORD_MESSAGE:
            # Of several messages the first one, which is that of a record. It is said of the element around.
            said = context if role == R_ERROR_MESSAGE else _open_context(r, np.int64(context.up))
            if np.int64(row.length) > 0 and said.message < 0:
                said.message = intern_row(b, job, row)
        elif np.int64(row.length) >= 0 and _is_name(role):
            _read_name(b, job, row, role, context)


@helper
def _note_produce_partition(b, r, job, context):  # type: ignore[no-untyped-def]
    """Keep a partition of a Produce request until the response comes."""
    link = b.links[job.frame >> 1]
    number = take_row(r.free_partitions)
    kept = r.produce_partitions[number]
    kept.topic = r.contexts[context.up].topic
    kept.topic_id = r.contexts[context.up].topic_id
    kept.partition = context.partition
    kept.bytes = context.records_length
    kept.records = _records_in(b, job, context)
    kept.next = link.partitions
    link.partitions = number


@helper
def _collect_topics(b, r, job):  # type: ignore[no-untyped-def]
    """Keep the topics of a request until its exchange is finished."""
    x = b.exchanges[job.frame >> 1]
    link = b.links[job.frame >> 1]
    last = np.int64(-1)
    for k in range(np.int64(job.tape_count) + 1):
        context = r.contexts[k]
        if context.kind == UNOPENED:
            continue
        if context.topic >= 0 or context.topic_id >= 0:
            number = take_row(r.free_topics)
            topic = r.open_topics[number]
            topic.topic = context.topic
            topic.topic_id = context.topic_id
            topic.next = -1
            if last < 0:
                link.topics = number
            else:
                r.open_topics[last].next = number
            last = number
        if x.api_key == PRODUCE and context.partition != NO_INT32:
            _note_produce_partition(b, r, job, context)


@helper
def write_topics(r, link, exchange, is_wanted):  # type: ignore[no-untyped-def]
    """Write the topics of a finished exchange, or drop them. Return whether there was room for all of them."""
    state = r.state[0]
    while link.topics >= 0:
        number = np.int64(link.topics)
        if is_wanted:
            if state.topics >= r.topics.shape[0]:
                return False
            kept = r.open_topics[number]
            topic = r.topics[state.topics]
            state.topics += 1
            topic.exchange = exchange
            topic.topic = kept.topic
            topic.topic_id = kept.topic_id
        link.topics = r.open_topics[number].next
        release_row(r.free_topics, number)
    return True


@helper
def _set_place(r, result, place, request_name):  # type: ignore[no-untyped-def]
    """Set the topic, partition and name of a result: the nearest ones from its own context on."""
    topic = np.int64(-1)
    topic_id = np.int64(-1)
    partition = np.int64(NO_INT32)
    name = np.int64(-1)
    level = place
    while level >= 0:
        context = r.contexts[level]
        if topic < 0 and topic_id < 0:
            topic = np.int64(context.topic)
            topic_id = np.int64(context.topic_id)
        if partition == NO_INT32:
            partition = np.int64(context.partition)
        if name < 0:
            name = np.int64(context.name)
        level = np.int64(context.up)
    result.topic = topic
    result.topic_id = topic_id
    result.partition = partition
    result.name = name if name >= 0 else request_name


@helper
def _first_place(r, topic, topic_id, partition):  # type: ignore[no-untyped-def]
    """The first place at which a partition is searched."""
    seed = np.int64(r.state[0].seed)
    h = mix(mix(mix(hash_start(seed), np.int64(partition), seed), np.int64(topic), seed), np.int64(topic_id), seed)
    return spread(h) & (r.produce_places.shape[0] - 1)


@helper
def _produced_place(r, topic, topic_id, partition):  # type: ignore[no-untyped-def]
    """The place of a partition of a Produce request, or an empty one for it; -1 if there is none."""
    at = _first_place(r, topic, topic_id, partition)
    for _ in range(_MOST_PLACES):
        number = np.int64(r.produce_places[at]) - 1
        if number < 0:
            return at
        kept = r.produce_partitions[number]
        if kept.partition == partition and kept.topic == topic and kept.topic_id == topic_id:
            return at
        at = (at + 1) & (r.produce_places.shape[0] - 1)
    return np.int64(-1)


@helper
def _place_produced(r, number):  # type: ignore[no-untyped-def]
    """Give places to the partitions of a Produce request, a chain from `number` on. The first of equal ones has it."""
    while number >= 0:
        kept = r.produce_partitions[number]
        at = _produced_place(r, kept.topic, kept.topic_id, kept.partition)
        if at >= 0 and r.produce_places[at] == 0:
            r.produce_places[at] = number + 1
        number = np.int64(kept.next)


@helper
def _clear_produced(r, number):  # type: ignore[no-untyped-def]
    """Empty the places of a chain: all from each partition's first one to the next empty one."""
    while number >= 0:
        kept = r.produce_partitions[number]
        at = _first_place(r, kept.topic, kept.topic_id, kept.partition)
        while r.produce_places[at] != 0:
            r.produce_places[at] = 0
            at = (at + 1) & (r.produce_places.shape[0] - 1)
        number = np.int64(kept.next)


@helper
def _set_produced(r, result):  # type: ignore[no-untyped-def]
    """Set the bytes and records of a Produce result from the request's partition."""
    at = _produced_place(r, result.topic, result.topic_id, result.partition)
    if at >= 0 and r.produce_places[at] != 0:
        kept = r.produce_partitions[np.int64(r.produce_places[at]) - 1]
        result.bytes = kept.bytes
        result.records = kept.records


@helper
def release_partitions(r, link):  # type: ignore[no-untyped-def]
    """Release the partitions that were kept for a Produce response."""
    number = np.int64(link.partitions)
    while number >= 0:
        following = np.int64(r.produce_partitions[number].next)
        release_row(r.free_partitions, number)
        number = following
    link.partitions = -1


@helper
def _collect_response(b, r, job, all_codes):  # type: ignore[no-untyped-def]
    """Write a result for each error code of a response; zeros only with `all_codes`."""
    slot = job.frame >> 1
    x = b.exchanges[slot]
    link = b.links[slot]
    first = job.tape_first
    produced = np.int64(link.partitions) if x.api_key == PRODUCE else np.int64(-1)
    _place_produced(r, produced)
    for k in range(np.int64(job.tape_count)):
        row = b.tape[first + k]
        if np.int64(b.roles[row.field]) != R_ERROR_CODE or (row.value == 0 and all_codes == 0):
            continue
        place = max(np.int64(row.parent) - first + 1, np.int64(0))
        context = r.contexts[place]
        result = r.results[r.state[0].results]
        r.state[0].results += 1
        result.exchange = x.exchange
        result.error_code = row.value
        result.error_message = context.message if row.value != 0 else -1
        result.kind = KIND_RESPONSE if place == 0 else context.kind
        result.offset = context.offset
        result.bytes = context.records_length
        result.records = _records_in(b, job, context)
        _set_place(r, result, place, np.int64(link.name))
        if produced >= 0 and result.bytes < 0:
            _set_produced(r, result)
    _clear_produced(r, produced)


@helper
def collect_results(b, r, first, count, all_codes):  # type: ignore[no-untyped-def]
    """Write the results of jobs[first:count], and keep the topics of requests. Return the first job for which a table
    has no room."""
    i = first
    while i < count:
        job = b.jobs[i]
        rows = np.int64(job.tape_count)
        is_request = job.frame & 1 == 0
        if r.state[0].results + rows > r.results.shape[0] or (
            is_request and (rows_left(r.free_partitions) < rows or rows_left(r.free_topics) < rows + 1)
        ):
            break
        _read_contexts(b, r, job)
        if is_request:
            _collect_topics(b, r, job)
        else:
            _collect_response(b, r, job, all_codes)
            x = b.exchanges[job.frame >> 1]
            if job.status == TOO_LARGE and x.response_status != TOO_LARGE:  # with its details only
                x.response_status = TOO_LARGE
                b.state[0].shortened += 1
        i += 1
    return i
