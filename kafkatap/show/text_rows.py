"""The rows of trees (`node_rows`) as lines of text, by a kernel: the only code that writes the lines of a tree."""

from __future__ import annotations

import numpy as np

from kafkatap.dissector.tree import node_rows
from kafkatap.dissector.tree.node_rows import NODE
from kafkatap.kernels import kernel
from kafkatap.kernels.decorator import helper, record_dtype

#: Where the line of a list is broken, in characters.
_WIDTH = 100
#: Bytes of a value that are shown, in hexadecimal.
BYTES_SHOWN = 32

#: One tree. Its rows are nodes[first:last]. `width`: of offsets and sizes; 0: lines have none.
TREE = record_dtype(("first", "i8"), ("last", "i8"), ("width", "i8"))

#: Words of values. `tree_text.TreeWriter` puts the numbers of these and of its escape sequences into `marks`.
WORDS = (
    "true", "false", "null", "hidden, ", " byte", " bytes", " element", " elements", "[]", "...", ": ", " (", ")",
    "  <- ",
)  # fmt: skip
(
    _TRUE, _FALSE, _NULL_WORD, _HIDDEN_WORD, _BYTE, _BYTES_WORD, _ELEMENT, _ELEMENTS_WORD, _EMPTY, _MORE, _COLON, _OPEN,
    _SHUT, _ARROW, _MARGIN, _NUMBER, _FAINT, _TEXT, _PROBLEM, _END,
) = range(20)  # fmt: skip

# Constants of the kernel.
_NOTHING, _NESTED, _BATCH, _NUMERIC, _BOOL, _UUID = (
    node_rows.NOTHING, node_rows.NESTED, node_rows.BATCH, node_rows.NUMBER, node_rows.BOOL, node_rows.UUID
)  # fmt: skip
_STRING, _BYTES, _NULL, _HIDDEN, _SIZE, _ELEMENTS, _LIST, _COUNT = (
    node_rows.STRING, node_rows.BYTES, node_rows.NULL, node_rows.HIDDEN, node_rows.SIZE, node_rows.ELEMENTS,
    node_rows.LIST, node_rows.COUNT,
)  # fmt: skip


@helper
def _put(out, at, byte):  # type: ignore[no-untyped-def]
    if at < out.shape[0]:
        out[np.uintp(at)] = byte
    return at + 1


@helper
def _put_text(out, at, texts, ends, number):  # type: ignore[no-untyped-def]
    """The text of this number."""
    first = ends[np.uintp(number)]
    length = ends[np.uintp(number + 1)] - first
    if at + length <= out.shape[0]:
        for k in range(length):
            out[np.uintp(at + k)] = texts[np.uintp(first + k)]
    return at + length


@helper
def _put_blanks(out, at, count):  # type: ignore[no-untyped-def]
    if at + count <= out.shape[0]:
        for k in range(count):
            out[np.uintp(at + k)] = 32
    return at + max(count, np.int64(0))


@helper
def _put_number(out, at, value, width):  # type: ignore[no-untyped-def]
    """A decimal number, right-aligned in `width` characters."""
    rest = np.uint64(value)
    size = np.int64(1)
    if value < 0:
        rest = ~rest + np.uint64(1)
        size += 1
    left = rest
    while left >= np.uint64(10):
        left //= np.uint64(10)
        size += 1
    at = _put_blanks(out, at, width - size) + size
    if at <= out.shape[0]:
        place = at
        for _ in range(size):
            place -= 1
            out[np.uintp(place)] = np.uint8(np.uint64(48) + rest % np.uint64(10))
            rest //= np.uint64(10)
        if value < 0:
            out[np.uintp(place)] = 45
    return at


@helper
def _put_count(out, at, count, one, texts, ends):  # type: ignore[no-untyped-def]
    """`1 byte`, `2 bytes`: a number, and the word of the number `one`, whose plural follows it."""
    return _put_text(out, _put_number(out, at, count, 0), texts, ends, one if count == 1 else one + 1)


@helper
def _put_string(out, at, data, first, length):  # type: ignore[no-untyped-def]
    """Printable ASCII between quotes."""
    at = _put(out, at, 34)
    for k in range(length):
        byte = data[np.uintp(first + k)]
        if byte == 34 or byte == 92:
            at = _put(out, at, 92)
        at = _put(out, at, byte)
    return _put(out, at, 34)


@helper
def _base64_letter(six):  # type: ignore[no-untyped-def]
    """The letter of six bits, in the URL-safe alphabet."""
    if six < 26:
        return six + 65
    if six < 52:
        return six + 71
    if six < 62:
        return six - 4
    return np.int64(45 if six == 62 else 95)


@helper
def _put_uuid(out, at, data, first):  # type: ignore[no-untyped-def]
    """16 bytes as Kafka writes them: base64 without padding."""
    bits = np.int64(0)
    count = 0
    for k in range(16):
        bits = (bits << 8 | np.int64(data[np.uintp(first + k)])) & 0xFFFF
        count += 8
        while count >= 6:
            count -= 6
            at = _put(out, at, _base64_letter(bits >> count & 63))
    return _put(out, at, _base64_letter(bits << 4 & 63))


@helper
def _put_bytes(out, at, data, first, length, marks, texts, ends):  # type: ignore[no-untyped-def]
    """`3 bytes: 0a0b0c`, with the first ones only."""
    at = _put_count(out, at, length, marks[_BYTE], texts, ends)
    if length:
        at = _put_text(out, at, texts, ends, marks[_COLON])
    for k in range(2 * min(length, BYTES_SHOWN)):
        byte = np.int64(data[np.uintp(first + k // 2)])
        four = byte & 15 if k & 1 else byte >> 4
        at = _put(out, at, four + 48 if four < 10 else four + 87)
    return _put_text(out, at, texts, ends, marks[_MORE]) if length > BYTES_SHOWN else at


@helper
def _put_value(out, at, node, data, marks, texts, ends):  # type: ignore[no-untyped-def]
    """A value by itself."""
    form = node.form
    value, size = np.int64(node.value), np.int64(node.bytes)
    if form == _NUMERIC or form == _COUNT:
        return _put_number(out, at, value, 0)
    if form == _STRING:
        return _put_string(out, at, data, value, size)
    if form == _BOOL:
        return _put_text(out, at, texts, ends, marks[_TRUE if value else _FALSE])
    if form == _UUID:
        return _put_uuid(out, at, data, value)
    if form == _BYTES:
        return _put_bytes(out, at, data, value, size, marks, texts, ends)
    if form == _NULL:
        return _put_text(out, at, texts, ends, marks[_NULL_WORD])
    if form == _HIDDEN:
        at = _put_text(out, at, texts, ends, marks[_HIDDEN_WORD])
        return _put_count(out, at, value, marks[_BYTE], texts, ends)
    if form == _SIZE:
        return _put_count(out, at, value, marks[_BYTE], texts, ends)
    if form == _ELEMENTS or form == _LIST:
        if value == 0:
            return _put_text(out, at, texts, ends, marks[_EMPTY])
        return _put_count(out, at, value, marks[_ELEMENT], texts, ends)
    return _put_text(out, at, texts, ends, value)


@helper
def _put_place(out, at, node, width, marks, texts, ends):  # type: ignore[no-untyped-def]
    """What a line begins with: the margin, offset and size."""
    at = _put_text(out, at, texts, ends, marks[_MARGIN])
    if width:
        at = _put_text(out, at, texts, ends, marks[_FAINT])
        at = _put(out, _put_number(out, at, np.int64(node.offset), width), 32)
        at = _put_blanks(out, _put_number(out, at, np.int64(node.length), width), np.int64(2))
        at = _put_text(out, at, texts, ends, marks[_END])
    return at


@helper
def _put_name(out, at, node, texts, ends):  # type: ignore[no-untyped-def]
    """The name, or an element's number, behind its indentation."""
    at = _put_blanks(out, at, 2 * np.int64(node.depth))
    if node.index < 0:
        return _put_text(out, at, texts, ends, node.name)
    return _put(out, _put_number(out, _put(out, at, 91), np.int64(node.index), 0), 93)


@helper
def _put_noted(out, at, note, before, behind, marks, texts, ends):  # type: ignore[no-untyped-def]
    """A note between two marks, with the end of its colour."""
    at = _put_text(out, at, texts, ends, marks[before])
    at = _put_text(out, at, texts, ends, note)
    if behind >= 0:
        at = _put_text(out, at, texts, ends, marks[behind])
    return _put_text(out, at, texts, ends, marks[_END])


@helper
def _put_line(out, at, node, data, marks, texts, ends):  # type: ignore[no-untyped-def]
    """A node's name, its value, its meaning, its problem."""
    at = _put_name(out, at, node, texts, ends)
    form = node.form
    if node.type:
        at = _put(out, _put_text(out, at, texts, ends, marks[_FAINT]), 32)
        at = _put_text(out, at, texts, ends, node.type)
        at = _put_text(out, at, texts, ends, marks[_END])
    if form == _NESTED:
        if node.note:
            at = _put(out, _put_text(out, at, texts, ends, marks[_FAINT]), 32)
            at = _put_text(out, at, texts, ends, node.note)
            at = _put_text(out, at, texts, ends, marks[_END])
    elif form == _BATCH:
        at = _put_text(out, at, texts, ends, marks[_TEXT])
        at = _put_noted(out, at, node.note, _COLON, -1, marks, texts, ends)
    elif form != _NOTHING:
        at = _put_text(out, at, texts, ends, marks[_FAINT])
        at = _put_text(out, at, texts, ends, marks[_COLON])
        at = _put_text(out, at, texts, ends, marks[_END])
        at = _put_text(out, at, texts, ends, marks[_FAINT if form == _NULL or form == _HIDDEN else _NUMBER])
        at = _put_value(out, at, node, data, marks, texts, ends)
        at = _put_text(out, at, texts, ends, marks[_END])
        if node.note:
            at = _put_text(out, at, texts, ends, marks[_TEXT])
            at = _put_noted(out, at, node.note, _OPEN, _SHUT, marks, texts, ends)
    if node.problem:
        at = _put_text(out, at, texts, ends, marks[_PROBLEM])
        at = _put_noted(out, at, node.problem, _ARROW, -1, marks, texts, ends)
    return at


@helper
def _characters(out, start, end):  # type: ignore[no-untyped-def]
    """The characters in a range of UTF-8; its bytes if it was not written."""
    if end > out.shape[0]:
        return end - start
    count = np.int64(0)
    for k in range(start, end):
        count += 1 if out[np.uintp(k)] & 0xC0 != 0x80 else 0
    return count


@helper
def _put_list(out, at, nodes, place, width, data, marks, texts, ends):  # type: ignore[no-untyped-def]
    """`Name: [1, 2, 3]`, behind the place of its line, in as many lines as it takes."""
    start = at
    at = _put_name(out, at, nodes[place], texts, ends)
    begin = _characters(out, start, at) + 3
    at = _put_text(out, at, texts, ends, marks[_FAINT])
    at = _put_text(out, at, texts, ends, marks[_COLON])
    at = _put_text(out, at, texts, ends, marks[_END])
    at = _put_text(out, at, texts, ends, marks[_FAINT])
    at = _put_text(out, _put(out, at, 91), texts, ends, marks[_END])
    used, last = begin, np.int64(nodes[place].value)
    for number in range(1, last + 1):
        node = nodes[place + number]
        # The value is written where it would be in a new line, then measured: a line may end before it.
        start = at
        at = _put_value(out, at, node, data, marks, texts, ends)
        if node.note:
            at = _put_text(out, at, texts, ends, marks[_OPEN])
            at = _put_text(out, at, texts, ends, node.note)
            at = _put_text(out, at, texts, ends, marks[_SHUT])
        size = _characters(out, start, at) + 2
        at = start
        if used + size > _WIDTH and number > 1:
            at = _put_place(out, _put(out, at, 10), node, width, marks, texts, ends)
            at = _put_blanks(out, at, begin)
            used = begin
        elif number > 1:
            at = _put(out, at, 32)
        at = _put_text(out, at, texts, ends, marks[_NUMBER])
        at = _put_value(out, at, node, data, marks, texts, ends)
        at = _put_text(out, at, texts, ends, marks[_END])
        at = _put_text(out, at, texts, ends, marks[_TEXT])
        if node.note:
            at = _put_text(out, at, texts, ends, marks[_OPEN])
            at = _put_text(out, at, texts, ends, node.note)
            at = _put_text(out, at, texts, ends, marks[_SHUT])
        at = _put_text(out, at, texts, ends, marks[_END])
        at = _put_text(out, at, texts, ends, marks[_FAINT])
        at = _put_text(out, _put(out, at, 44 if number < last else 93), texts, ends, marks[_END])
        used += size
    return at


@kernel(TREE, int, NODE, np.uint8, np.int64, np.uint8, np.int64, np.uint8, np.int64)
def write_trees(trees, first, nodes, data, marks, texts, text_ends, out, ends):  # type: ignore[no-untyped-def]
    """Write the lines of trees[first:] until `out` is full (`writers.written`), with an end between two lines.

    The text of number n is texts[text_ends[n]:text_ends[n + 1]], already escaped; values lie in `data`. `marks`: the
    numbers of WORDS, of the margin, and of the escape sequences.
    """
    at = np.int64(0)
    for j in range(first, len(trees)):
        start, width = at, np.int64(trees[j].width)
        place, last = np.int64(trees[j].first), np.int64(trees[j].last)
        while place < last:
            node = nodes[place]
            if at > start:
                at = _put(out, at, 10)
            at = _put_place(out, at, node, width, marks, texts, text_ends)
            if node.form == _LIST:
                at = _put_list(out, at, nodes, place, width, data, marks, texts, text_ends)
                place += np.int64(node.value)
            else:
                at = _put_line(out, at, node, data, marks, texts, text_ends)
            place += 1
        if at > len(out):
            ends[j] = at - start
            return j
        ends[j] = at
    return len(trees)
