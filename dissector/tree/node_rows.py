"""Trees of many messages as rows, in the order of their lines: what `node` has, without a Python object for each node.

`nodes_of_tapes` makes the rows of messages in which nothing is unusual, from the machine's rows. It walks as `treewalk`
does, but needs no plan: a field's row says which struct it belongs to, so the structs in between end before it. It
leaves out messages with a problem, a null where none may be, an unknown tag or a very long text. `treewalk` makes the
trees of these, and of messages that can hold secrets or nested layouts.
"""

from __future__ import annotations

import numpy as np

from kafkatap.kernels import kernel
from kafkatap.kernels.decorator import helper, record_dtype
from kafkatap.kernels.readers import be16, be32, signed16, signed32

from ..batch_headers import BATCH_HEADER
from ..dtypes import OK
from ..programs.fields import K_COUNT, K_ELEMENT, K_STRUCT, K_TAG
from ..programs.machine import JOB, TAPE, long_varint
from ..records.batches import BATCH as BATCH_ROW
from ..records.batches import CRC_WRONG, PARTIAL
from ..records.batches import OK as READABLE

#: How a value is written. NOTHING: it has none. NESTED, BATCH: the note is in its place. SIZE, HIDDEN: a number of
#: bytes. ELEMENTS: a number of elements. COUNT: of a tag section. LIST: so many of the next rows are its elements, all
#: of them plain values. STRING, ODD, UUID, BYTES: data[value:value + bytes]; ODD is a string with characters to escape.
#: LITERAL: the text of this number.
(
    NOTHING, NESTED, BATCH, NUMBER, BOOL, UUID, STRING, ODD, BYTES, NULL, HIDDEN, SIZE, ELEMENTS, LIST, LITERAL, COUNT,
) = range(16)  # fmt: skip

#: One node. Texts have numbers; 0 is the empty one. A note below 0 is still to be made: -1 for that of a BATCH, whose
#: value is a row of its batches; else -2 less than the number of the field's source of notes.
NODE = record_dtype(
    ("value", "i8"),
    ("offset", "i4"),  # in the frame
    ("length", "i4"),
    ("name", "i4"),
    ("index", "i4"),  # of an array's element, in place of a name; else -1
    ("type", "i4"),  # 0 if it is not shown
    ("bytes", "i4"),
    ("note", "i4"),
    ("problem", "i4"),
    ("form", "u1"),
    ("depth", "u1"),
)
BATCH_NOTE, FIRST_NOTE = -1, -2

#: A field by its id. `form`: of its values. `owner`: the id of the struct that it is in, -1 for the body.
FIELD = record_dtype(
    ("name", "i4"),  # texts
    ("type", "i4"),
    ("owner", "i4"),
    ("tag", "i4"),  # -1: it is not tagged
    ("note", "i4"),  # as in NODE
    ("elements", "i4"),  # of a COUNT: the form of the elements, NOTHING for structs
    ("form", "u1"),
    ("kind", "u1"),  # K_...
    ("is_element", "u1"),  # of an array
)

#: What is before a body, beside its job. Numbers of texts as in NODE.
HEAD = record_dtype(
    ("frame_at", "i8"),  # where the frame begins in the data
    ("api_note", "i4"),
    ("body_type", "i4"),
    ("is_request", "u1"),
    ("has_client_id", "u1"),
    ("has_header_tags", "u1"),
    ("is_flexible", "u1"),
)

#: Texts that the kernel needs, in this order.
WORDS = (
    "Size", "Header", "ApiKey", "ApiVersion", "CorrelationId", "ClientId", "Body", "tags", "wrong CRC",
    "Message v0", "Message v1", "RecordBatch",
)  # fmt: skip
(
    _SIZE, _HEADER, _API_KEY, _API_VERSION, _CORRELATION_ID, _CLIENT_ID, _BODY, _TAGS, _WRONG_CRC, _MAGIC_0,
) = range(10)  # fmt: skip

#: Rows of the header and the body.
HEAD_ROWS = 7
#: The stack: so many levels, each with these columns. IN_TAGS: of a struct, whether its tag section was read.
_DEEPEST, _LEVEL = 64, 5
STACK = _DEEPEST * _LEVEL
_KIND, _ROW, _ID, _LEFT, _INDEX = range(_LEVEL)
_IN_STRUCT, _IN_ARRAY, _IN_TAGS, _BEHIND_TAGS = range(4)


@helper
def _set_node(nodes, made, offset, length, depth, form, name):  # type: ignore[no-untyped-def]
    node = nodes[made]
    node.value = 0
    node.offset = offset
    node.length = length
    node.name = name
    node.index = -1
    node.type = 0
    node.bytes = 0
    node.note = 0
    node.problem = 0
    node.form = form
    node.depth = depth
    return made + 1


@helper
def _string_form(data, at, length):  # type: ignore[no-untyped-def]
    """STRING, or ODD for one with other characters than printable ASCII."""
    for k in range(length):
        byte = data[np.uintp(at + k)]
        if byte < 0x20 or byte > 0x7E:
            return np.int64(ODD)
    return np.int64(STRING)


@helper
def _set_number(nodes, made, offset, length, name, value):  # type: ignore[no-untyped-def]
    """The row of a number in the header."""
    following = _set_node(nodes, made, offset, length, 1, NUMBER, name)
    nodes[made].value = value
    return following


@helper
def _set_header(nodes, made, data, head, words, at):  # type: ignore[no-untyped-def]
    """The rows of size and header, which ends at `at` but for its tags."""
    base = np.int64(head.frame_at)
    made = _set_node(nodes, made, 0, 4, 0, NUMBER, words[_SIZE])
    nodes[made - 1].value = signed32(be32(data, base))
    made = _set_node(nodes, made, 4, at - base - 4, 0, NOTHING, words[_HEADER])
    place = np.int64(4)
    if head.is_request:
        made = _set_number(nodes, made, 4, 2, words[_API_KEY], signed16(be16(data, base + 4)))
        nodes[made - 1].note = head.api_note
        made = _set_number(nodes, made, 6, 2, words[_API_VERSION], signed16(be16(data, base + 6)))
        place = np.int64(8)
    made = _set_number(nodes, made, place, 4, words[_CORRELATION_ID], signed32(be32(data, base + place)))
    if head.has_client_id:
        length = signed16(be16(data, base + 12))
        if length < 0:
            made = _set_node(nodes, made, 12, 2, 1, NULL, words[_CLIENT_ID])
        else:
            form = _string_form(data, base + 14, length)
            made = _set_node(nodes, made, 12, 2 + length, 1, form, words[_CLIENT_ID])
            nodes[made - 1].value = base + 14
            nodes[made - 1].bytes = length
    return made


@helper
def _close(stack, sp, nodes, data, at, base, is_flexible):  # type: ignore[no-untyped-def]
    """End the level at `sp`; return where the bytes of its node end, -1 if it does not end there."""
    kind = stack[sp + _KIND]
    if kind == _IN_STRUCT:
        if is_flexible:
            if at >= len(data) or data[np.uintp(at)] != 0:
                return np.int64(-1)
            at += 1
    elif kind != _BEHIND_TAGS and stack[sp + _LEFT] != 0:
        return np.int64(-1)
    node = nodes[stack[sp + _ROW]]
    node.length = at - base - node.offset
    return at


@helper
def _push(stack, sp, kind, row, number, left):  # type: ignore[no-untyped-def]
    sp += _LEVEL
    stack[sp + _KIND] = kind
    stack[sp + _ROW] = row
    stack[sp + _ID] = number
    stack[sp + _LEFT] = left
    stack[sp + _INDEX] = 0
    return sp


@helper
def _varint(data, at, limit):  # type: ignore[no-untyped-def]
    """An unsigned varint and the place behind it; there is one, as the machine has read it."""
    value = np.int64(data[np.uintp(at)])
    if value < 128:
        return value, at + 1
    found = long_varint(data, at, limit)
    if found < 0:
        return np.int64(-1), at
    return found & 0xFFFFFFFF, at + (found >> 32)


@helper
def _nodes_of_body(job, head, tape, data, fields, batches, batch, longest, words, nodes, made, stack):  # type: ignore[no-untyped-def]
    """The rows of one message from nodes[made:] on; the next free row, -1 if something in it is unusual."""
    base, limit = np.int64(head.frame_at), np.int64(job.limit)
    at = np.int64(job.at)
    header = made + 1
    made = _set_header(nodes, made, data, head, words, at)
    if head.has_header_tags:
        if at >= limit or data[np.uintp(at)] != 0:
            return np.int64(-1)
        at += 1
    nodes[header].length = at - base - 4
    made = _set_node(nodes, made, at - base, 0, 0, NOTHING, words[_BODY])
    nodes[made - 1].type = head.body_type
    sp = _push(stack, np.int64(-_LEVEL), _IN_STRUCT, made - 1, -1, 0)
    for k in range(job.tape_count):
        row = tape[job.tape_first + k]
        number = np.int64(row.field)
        field = fields[np.uintp(number)]
        length, value = np.int64(row.length), np.int64(row.value)
        if field.kind == K_TAG:
            return np.int64(-1)
        while True:  # end what ends before this row
            if sp < 0:
                return np.int64(-1)
            kind = stack[sp + _KIND]
            if field.is_element:
                if kind == _IN_ARRAY and stack[sp + _ID] == number and stack[sp + _LEFT] > 0:
                    break
            elif stack[sp + _ID] == field.owner and (
                kind == _IN_STRUCT or (kind == _IN_TAGS and field.tag >= 0 and stack[sp + _LEFT] > 0)
            ):
                break
            at = _close(stack, sp, nodes, data, at, base, head.is_flexible)
            if at < 0:
                return np.int64(-1)
            sp -= _LEVEL
        if field.tag >= 0 and stack[sp + _KIND] == _IN_STRUCT:
            stack[sp + _KIND] = _BEHIND_TAGS
            count, behind = _varint(data, at, limit)
            made = _set_node(nodes, made, at - base, 0, sp // _LEVEL + 1, COUNT, words[_TAGS])
            nodes[made - 1].value = count
            sp = _push(stack, sp, _IN_TAGS, made - 1, field.owner, count)
            at = behind
        start, index = at, np.int64(-1)
        if field.is_element:
            index = stack[sp + _INDEX]
            stack[sp + _INDEX] += 1
            stack[sp + _LEFT] -= 1
        elif field.tag >= 0:
            stack[sp + _LEFT] -= 1
            tag, at = _varint(data, at, limit)
            if tag != field.tag:
                return np.int64(-1)
        at = np.int64(job.at) + row.stop
        form = np.int64(field.form)
        is_null = length < 0 and form != NUMBER and form != BOOL
        if is_null and (index >= 0 or field.kind == K_ELEMENT):
            return np.int64(-1)
        if sp + 2 * _LEVEL >= STACK:
            return np.int64(-1)
        made = _set_node(nodes, made, start - base, at - start, sp // _LEVEL + 1, NULL if is_null else form, field.name)
        node = nodes[made - 1]
        node.index = index
        if is_null:
            continue
        node.note = field.note
        if field.kind == K_COUNT:
            node.value = length
            if length > 0:
                if field.elements != NOTHING:
                    node.form = LIST
                sp = _push(stack, sp, _IN_ARRAY, made - 1, number - 1, length)
        elif field.kind == K_ELEMENT or field.kind == K_STRUCT:
            node.type = field.type
            sp = _push(stack, sp, _IN_STRUCT, made - 1, number, 0)
        elif form == NUMBER or form == BOOL:
            node.value = value
        elif form == SIZE:
            node.value = length
            while batch < len(batches) and batches[batch].at < value:
                batch += 1
            first = batch
            while batch < len(batches) and batches[batch].at < value + length:
                found = batches[batch]
                end = np.int64(found.end)
                if found.magic < 0 or found.magic > 2 or (found.status != READABLE and not (
                    found.status == PARTIAL and found.magic == 2 and end - found.at >= BATCH_HEADER
                )):  # fmt: skip
                    return np.int64(-1)
                made = _set_node(
                    nodes, made, np.int64(found.at) - base, end - np.int64(found.at), sp // _LEVEL + 2, BATCH, 0
                )
                part = nodes[made - 1]
                part.index = batch - first
                part.type = words[_MAGIC_0 + found.magic]
                part.value = batch
                part.note = BATCH_NOTE
                if found.crc_state == CRC_WRONG:
                    part.problem = words[_WRONG_CRC]
                batch += 1
        else:
            node.value = value
            node.bytes = length
            if form == UUID:
                node.bytes = 16
            elif form == STRING:
                if length > longest:
                    return np.int64(-1)
                node.form = _string_form(data, value, length)
    while sp >= 0:
        at = _close(stack, sp, nodes, data, at, base, head.is_flexible)
        if at < 0:
            return np.int64(-1)
        sp -= _LEVEL
    return made if at == limit else np.int64(-1)


@kernel(JOB, HEAD, TAPE, np.uint8, FIELD, BATCH_ROW, int, np.int64, NODE, np.int64, np.int64)
def nodes_of_tapes(jobs, heads, tape, data, fields, batches, longest, words, nodes, ends, stack):  # type: ignore[no-untyped-def]
    """Make the rows of all jobs, which are decoded; return how many. ends[j]: where those of job j end, and those of
    the next one begin; all bits inverted if it has none because something in it is unusual.

    `batches`: those of all records fields, with what is known of their CRCs. `longest`: bytes of a text. `words`: the
    numbers of WORDS. `nodes` has room for HEAD_ROWS for each job, two for each row of the tape, one for each batch.
    """
    made = np.int64(0)
    batch = np.int64(0)
    for j in range(len(jobs)):
        job = jobs[j]
        following = np.int64(-1)
        if job.status == OK and job.nulls == 0:
            while batch < len(batches) and batches[batch].at < job.at:
                batch += 1
            following = _nodes_of_body(
                job, heads[j], tape, data, fields, batches, batch, longest, words, nodes, made, stack
            )
        if following >= 0:
            made = following
            ends[j] = made
        else:
            ends[j] = ~made
    return made
