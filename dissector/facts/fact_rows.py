"""Rows of facts, and the kernel that makes them of the messages of a drain: it decodes those of the wanted APIs once
more, with the programs of the profile `facts`.

The tape has the fields of the profile `facts`, and their numbers say where a value goes. An element's row comes
before the rows of its fields, so a fact begins with it, and takes topic and partition of the elements around it.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np

from kafkatap.kernels import kernel
from kafkatap.kernels.decorator import helper, record_dtype
from kafkatap.kernels.readers import be16, be32, be64, signed16, signed32

from ..batch_headers import BATCH_HEADER, THERE, next_header, record_count
from ..dtypes import EXCHANGE, FETCHES, INCOMPLETE, NO_INT32, OK, TRAILING_BYTES
from ..exchange_places import enter_places, row_of
from ..exchanges import PRODUCE
from ..framing.tables import LINK, SOURCE_BLOCK, SOURCE_HELD
from ..programs.fact_kinds import (
    BATCH,
    BATCH_SAMPLE,
    FETCHED_BATCH,
    TO_COUNT,
    TO_ERROR,
    TO_NOWHERE,
    TO_NUMBER,
    TO_PARTITION,
    TO_RECORDS,
    TO_ROW,
    TO_TEXT,
    TO_TOPIC,
    TO_TOPIC_ID,
)
from ..programs.machine import JOB, ROWS, TAPE, run_jobs
from ..programs.program import KEYS
from ..strings import Strings, intern

Array = np.ndarray[Any, Any]
FETCH, SHARE_FETCH = FETCHES

#: One fact. `columns_of` of `fact_kinds` names its columns v0 to v9 (NO_NUMBER: absent) and s0 to s3 (numbers of
#: strings, -1: null or absent).
FACT = record_dtype(
    ("exchange", "i8"),  # its number in this run
    ("at", "i8"),  # of a record batch: where its bytes begin in the buffer; only during a drain
    ("v0", "i8"),
    ("v1", "i8"),
    ("v2", "i8"),
    ("v3", "i8"),
    ("v4", "i8"),
    ("v5", "i8"),
    ("v6", "i8"),
    ("v7", "i8"),
    ("v8", "i8"),
    ("v9", "i8"),
    ("s0", "i4"),
    ("s1", "i4"),
    ("s2", "i4"),
    ("s3", "i4"),
    ("topic", "i4"),
    ("topic_id", "i4"),
    ("partition", "i4"),  # NO_INT32: none
    ("source", "i4"),  # of a record batch: its buffer; only during a drain
    ("kind", "i4"),
    ("error_code", "i4"),
)
#: Columns that are numbers of strings.
FACT_STRINGS = ("s0", "s1", "s2", "s3", "topic", "topic_id")
NO_NUMBER = -(2**63)
#: Words of 8 bytes and of 4 bytes in a row, and the first of the numbers and of the strings.
_WORDS, _FIRST_NUMBER = FACT.itemsize // 8, 2
_HALVES, _FIRST_TEXT = FACT.itemsize // 4, 24
#: `FactTables.items` of kinds whose items are strings.
_TEXT_ITEMS = 2

#: What `collect_facts` returns. NEEDS_ROOM: for `needed_rows` facts, `needed_contexts` contexts, and `needed_texts`
#: strings with `needed_bytes` in all.
COLLECTED, NEEDS_TAPE, NEEDS_ROOM = range(3)
#: What it does next.
STEP_BEGIN, STEP_DECODE, STEP_COLLECT, STEP_READ = range(4)

#: `facts`: how many rows there are. `samples`: how many of them are samples that this drain has added. `jobs`: how many
#: messages are decoded. `done`: how many of them the current step has read. `tokens`: how many messages are bare SASL
#: tokens.
FACTS_STATE = record_dtype(
    ("facts", "i8"),
    ("samples", "i8"),
    ("jobs", "i8"),
    ("tokens", "i8"),
    ("step", "i8"),
    ("done", "i8"),
    ("needed_rows", "i8"),
    ("needed_contexts", "i8"),
    ("needed_texts", "i8"),
    ("needed_bytes", "i8"),
)
#: One batch of so many is sampled: those whose checksum has this divisor, whatever the blocks or splits.
SAMPLED = 64


class FactTables(NamedTuple):
    """`code`: of the programs of facts. `programs`, `may_have`: by a program of other profiles, last for -1: that of
    facts, and 1 if its messages may have facts, as several messages may share a program. `messages`: by
    direction * KEYS + api_key, 1: they have facts. `jobs`: room for those of a drain.

    `places`: by field, where its value goes. `tops`: by direction * KEYS + api_key, 1 + the kind of the message's
    top, or 0. By kind, `items`: 1: an item is a number, 2: a string; `widths`: how many numbers a row has; `wanted`:
    1: it has rows. `words`, `halves`: the bytes of `facts`. `samples`: the numbers of the rows that are samples.

    `contexts` has a row for the top (0) and for each row of the tape: its fact or -1, topic, topic id, partition.
    """

    code: Annotated[Array, np.int32]
    programs: Annotated[Array, np.int32]
    may_have: Annotated[Array, np.uint8]
    messages: Annotated[Array, np.uint8]
    jobs: Annotated[Array, JOB]
    tape: Annotated[Array, TAPE]
    scratch: Annotated[Array, np.int64]
    places: Annotated[Array, np.uint8]
    tops: Annotated[Array, np.uint8]
    items: Annotated[Array, np.uint8]
    widths: Annotated[Array, np.uint8]
    wanted: Annotated[Array, np.uint8]
    contexts: Annotated[Array, np.int64]
    facts: Annotated[Array, FACT]
    words: Annotated[Array, np.int64]
    halves: Annotated[Array, np.int32]
    samples: Annotated[Array, np.int64]
    strings: Strings
    state: Annotated[Array, FACTS_STATE]


@helper
def _add_fact(t, exchange, kind, topic, topic_id, partition):  # type: ignore[no-untyped-def]
    """Begin a row; return its number, or -1 if its kind is not wanted."""
    if t.wanted[kind] == 0:
        return np.int64(-1)
    number = np.int64(t.state[0].facts)
    t.state[0].facts = number + 1
    fact = t.facts[number]
    first = number * _WORDS + _FIRST_NUMBER
    for k in range(np.int64(t.widths[kind])):
        t.words[first + k] = NO_NUMBER
    fact.exchange = exchange
    fact.at = -1
    fact.s0 = -1
    fact.s1 = -1
    fact.s2 = -1
    fact.s3 = -1
    fact.topic = topic
    fact.topic_id = topic_id
    fact.partition = partition
    fact.source = 0
    fact.kind = kind
    fact.error_code = 0
    return number


@helper
def _add_batch(t, exchange, kind, context, at, source):  # type: ignore[no-untyped-def]
    number = _add_fact(t, exchange, kind, t.contexts[context + 1], t.contexts[context + 2], t.contexts[context + 3])
    t.facts[number].at = at
    t.facts[number].source = source
    return t.facts[number]


@helper
def _add_sample(t, batch):  # type: ignore[no-untyped-def]
    """Add a row for a sampled batch, which was captured whole: its size and attributes, and where it lies.

    The rest is filled in when the batch is decompressed.
    """
    number = _add_fact(t, batch.exchange, np.int64(BATCH_SAMPLE), batch.topic, batch.topic_id, batch.partition)
    sample = t.facts[number]
    sample.at = batch.at
    sample.source = batch.source
    sample.v0 = batch.v0
    sample.v2 = batch.v2
    sample.v3 = batch.v6
    t.samples[t.state[0].samples] = number
    t.state[0].samples += 1


@helper
def _add_batches(t, buf, row, end, exchange, kind, context, source):  # type: ignore[no-untyped-def]
    """Add a row for each record batch whose header was captured, and one for all messages of magic 0 and 1.

    A broker may cut off the last batch of a response to a Fetch. Such a batch has no row: clients drop it.
    """
    at = np.int64(row.value)
    stop = at + np.int64(row.length)
    end = min(np.int64(end), stop)
    messages = np.int64(-1)
    header = next_header(buf, at, end, stop)
    while header.state == THERE:
        at = header.at
        count = record_count(buf, header)
        if header.magic == 2:
            fact = _add_batch(t, exchange, kind, context, at, source)
            fact.v0 = header.following - at
            fact.v1 = count
            fact.v2 = be16(buf, at + 21) | header.magic << 16
            fact.v3 = be64(buf, at + 43)
            fact.v4 = signed16(be16(buf, at + 51))
            fact.v5 = signed32(be32(buf, at + 53))
            fact.v6 = be32(buf, at + 17)
            fact.v7 = be64(buf, at + 27)
            fact.v8 = be64(buf, at + 35)
            fact.v9 = be64(buf, at)
            is_whole = header.following <= end
            if kind == BATCH and t.wanted[BATCH_SAMPLE] and fact.v6 % SAMPLED == 0 and is_whole:
                _add_sample(t, fact)
        else:
            if messages < 0:
                fact = _add_batch(t, exchange, kind, context, at, source)
                messages = np.int64(t.state[0].facts) - 1
                fact.v0 = 0
                fact.v1 = 0
                fact.v2 = np.int64(buf[at + 17]) | header.magic << 16
                fact.v9 = be64(buf, at)
            fact = t.facts[messages]
            fact.v0 += header.following - at
            fact.v1 = np.int64(-1) if count < 0 or fact.v1 < 0 else fact.v1 + count
        header = next_header(buf, header.following, end, stop)


@helper
def _set_text(t, buf, row, context, place):  # type: ignore[no-untyped-def]
    """Set a topic, topic id or text."""
    if place == TO_TOPIC:
        t.contexts[context + 1] = intern(t.strings, buf, row.value, np.int64(row.length))
    elif place == TO_TOPIC_ID:
        is_set = be64(buf, row.value) != 0 or be64(buf, row.value + 8) != 0
        t.contexts[context + 2] = intern(t.strings, buf, row.value, np.int64(row.length)) if is_set else np.int64(-1)
    fact = t.contexts[context]
    if fact < 0:
        return
    if place == TO_TOPIC:
        t.facts[fact].topic = t.contexts[context + 1]
    elif place == TO_TOPIC_ID:
        t.facts[fact].topic_id = t.contexts[context + 2]
    else:
        text = intern(t.strings, buf, row.value, np.int64(row.length))
        t.halves[fact * _HALVES + _FIRST_TEXT + place - TO_TEXT] = text


@helper
def _set_number(t, value, context, place):  # type: ignore[no-untyped-def]
    """Set a partition, error code or number."""
    if place == TO_PARTITION:
        t.contexts[context + 3] = value
    fact = t.contexts[context]
    if fact < 0:
        return
    if place == TO_PARTITION:
        t.facts[fact].partition = value
    elif place == TO_ERROR:
        t.facts[fact].error_code = value
    else:
        word = fact * _WORDS + _FIRST_NUMBER + place - TO_NUMBER
        if t.words[word] == NO_NUMBER:  # of an array, the first number
            t.words[word] = value


@helper
def _open_context(t, context, above, fact):  # type: ignore[no-untyped-def]
    t.contexts[context] = fact
    for k in range(1, 4):
        t.contexts[context + k] = t.contexts[above + k]


@helper
def _read_row(t, buf, job, tape, k, x):  # type: ignore[no-untyped-def]
    """Read one row of the tape."""
    row = tape[job.tape_first + k]
    place = np.int64(t.places[row.field])
    above = 4 * max(np.int64(row.parent) - job.tape_first + 1, np.int64(0))
    context = 4 * (k + 1)
    if place >= TO_ROW or place == TO_NOWHERE:
        kind = place - TO_ROW
        _open_context(t, context, above, np.int64(-1))
        if kind < 0:
            return
        fact = _add_fact(t, x.exchange, kind, t.contexts[above + 1], t.contexts[above + 2], t.contexts[above + 3])
        if t.items[kind] == 1:
            if fact >= 0:
                t.facts[fact].v0 = row.value
        elif t.items[kind] == 2:
            if fact >= 0:
                t.facts[fact].s0 = intern(t.strings, buf, row.value, np.int64(row.length))
        else:
            t.contexts[context] = fact
    elif place == TO_RECORDS:
        kind = np.int64(BATCH if job.frame & 1 == 0 else FETCHED_BATCH)
        if row.length > 0 and t.wanted[kind]:
            _add_batches(t, buf, row, job.end, x.exchange, kind, above, np.int64(job.source))
    elif place == TO_TOPIC or place == TO_TOPIC_ID or (place >= TO_TEXT and place < TO_TOPIC):
        if row.length >= 0:
            _set_text(t, buf, row, above, place)
    elif place == TO_COUNT:
        _set_number(t, row.length, above, TO_NUMBER)
    else:
        _set_number(t, row.value, above, place)


@helper
def _begin(t, jobs, exchanges, links):  # type: ignore[no-untyped-def]
    """Choose the messages of a drain that have facts, and count its bare tokens."""
    state = t.state[0]
    state.samples = 0
    state.tokens = 0
    state.done = 0
    t.scratch[ROWS] = 0
    last = np.int64(len(t.may_have)) - 1
    count = np.int64(0)
    for j in range(len(jobs)):
        job = jobs[j]
        program = np.int64(job.program) if job.program >= 0 else last
        if t.may_have[program] == 0:
            continue
        slot = job.frame >> 1
        if links[slot].token == 1:
            state.tokens += 1
            continue
        key = np.int64(exchanges[slot].api_key)
        if key >= 0 and key < KEYS and t.messages[(job.frame & 1) * KEYS + key]:
            t.jobs[count] = jobs[j]
            t.jobs[count].program = t.programs[program]
            count += 1
    state.jobs = count
    state.step = STEP_DECODE


@helper
def _has_room(t):  # type: ignore[no-untyped-def]
    """Whether there is room for the contexts and strings of the rows on the tape."""
    state = t.state[0]
    longest = np.int64(0)
    for j in range(state.jobs):
        longest = max(longest, np.int64(t.jobs[j].tape_count))
    texts = np.int64(0)
    size = np.int64(0)
    for k in range(t.scratch[ROWS]):
        row = t.tape[k]
        place = t.places[row.field]
        is_item = place >= TO_ROW and t.items[np.int64(place) - TO_ROW] == _TEXT_ITEMS
        if is_item or (place >= TO_TEXT and place <= TO_TOPIC_ID):
            texts += 1
            size += max(np.int64(row.length), np.int64(0))
    state.needed_contexts = 4 * (longest + 2)
    state.needed_texts = texts + 1
    state.needed_bytes = size + 16
    state.needed_rows = 0
    strings = t.strings.state[0]
    count = strings.count + state.needed_texts
    return (
        state.needed_contexts <= len(t.contexts)
        and count <= len(t.strings.entries)
        and 2 * count <= len(t.strings.buckets)
        and strings.text_used + state.needed_bytes < len(t.strings.text)
    )


@helper
def _read_job(t, buf, job, x):  # type: ignore[no-untyped-def]
    """Add the facts of a message."""
    t.contexts[0] = -1
    t.contexts[1] = -1
    t.contexts[2] = -1
    t.contexts[3] = NO_INT32
    top = np.int64(0)
    if x.api_key >= 0 and x.api_key < KEYS:
        top = np.int64(t.tops[(job.frame & 1) * KEYS + x.api_key])
    if top > 0:
        t.contexts[0] = _add_fact(t, x.exchange, top - 1, np.int64(-1), np.int64(-1), np.int64(NO_INT32))
    for k in range(np.int64(job.tape_count)):
        _read_row(t, buf, job, t.tape, k, x)


@kernel(FactTables, JOB, EXCHANGE, LINK, np.uint8, np.uint8, np.uint8)
def collect_facts(t, jobs, exchanges, links, block, held, pool):  # type: ignore[no-untyped-def]
    """Add the facts of a drain's messages. Return COLLECTED, or NEEDS_* before it is called again."""
    state = t.state[0]
    if state.step == STEP_BEGIN:
        _begin(t, jobs, exchanges, links)
    if state.step == STEP_DECODE:
        state.done = run_jobs(t.code, t.jobs, state.jobs, state.done, block, held, pool, t.tape, t.scratch)
        if state.done < state.jobs:
            return NEEDS_TAPE
        state.done = 0
        state.step = STEP_COLLECT
    if state.step == STEP_COLLECT:
        if not _has_room(t):
            return NEEDS_ROOM
        state.step = STEP_READ
    while state.done < state.jobs:
        job = t.jobs[state.done]
        status = np.int64(job.status)
        if job.program >= 0 and (status == OK or status == TRAILING_BYTES or status == INCOMPLETE):
            x = exchanges[job.frame >> 1]
            most = np.int64(job.tape_count) + 2
            if x.api_key == PRODUCE or x.api_key == FETCH or x.api_key == SHARE_FETCH:
                most += 2 * ((job.end - job.at) // BATCH_HEADER)
            if state.facts + most > len(t.facts):
                state.needed_rows = most
                return NEEDS_ROOM
            source = np.int64(job.source)
            buf = block if source == SOURCE_BLOCK else (held if source == SOURCE_HELD else pool)
            _read_job(t, buf, job, x)
        state.done += 1
    state.step = STEP_BEGIN
    return COLLECTED


@kernel(FactTables, EXCHANGE, np.int32, np.int64, np.int64)
def count_facts(t, exchanges, numbers, order, begins):  # type: ignore[no-untyped-def]
    """Write where the facts of each exchange begin among those of all, and return how many these are.

    `order`: the exchanges in order of their numbers. `numbers`: places of the exchanges, as of `exchange_places`.
    """
    enter_places(numbers, exchanges)
    for k in range(len(begins)):
        begins[k] = 0
    before = np.int64(-1)
    row = np.int64(-1)
    for i in range(t.state[0].facts):
        number = np.int64(t.facts[i].exchange)
        if i == 0 or number != before:
            row = np.int64(row_of(numbers, exchanges, number))
            before = number
        if row >= 0:
            begins[row] += 1
    count = np.int64(0)
    for k in range(len(order)):
        row = order[k]
        end = count + begins[row]
        begins[row] = count
        count = end
    return count


@kernel(FactTables, EXCHANGE, np.int32, np.int64, FACT)
def take_facts(t, exchanges, numbers, begins, taken):  # type: ignore[no-untyped-def]
    """Move the facts of some exchanges to `taken`, in order of the numbers of these. The rest as of `count_facts`."""
    state = t.state[0]
    before = np.int64(-1)
    row = np.int64(-1)
    kept = np.int64(0)
    for i in range(state.facts):
        number = np.int64(t.facts[i].exchange)
        if i == 0 or number != before:
            row = np.int64(row_of(numbers, exchanges, number))
            before = number
        if row >= 0:
            taken[begins[row]] = t.facts[i]
            begins[row] += 1
        else:
            if kept < i:
                t.facts[kept] = t.facts[i]
            kept += 1
    state.facts = kept
    return kept
