"""Where and why a run of the machine failed: the path of the field, and a sentence.

A failed run leaves the field, the numbers of the array elements around it, and the reason in `scratch`. No row of the
tape is needed, so a body can be checked for its error without memory for its rows. The program has to be one of the
EVERYTHING profile: programs that read less fold unwanted fields into the next instruction.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from kafkatap.kernels.decorator import helper

from ..dtypes import INCOMPLETE, MOST_ROWS, TOO_LARGE
from .fields import TAGS, FieldTable
from .machine import (
    ERROR_AMOUNT,
    ERROR_AT,
    ERROR_DETAIL,
    ERROR_FIELD,
    ERROR_LEFT,
    ERROR_LEVEL,
    ERROR_REASON,
    INDEX,
    LEVEL,
    MAX_DEPTH,
    STACK,
)

Array = np.ndarray[Any, Any]

#: The byte of a template that an array index replaces.
_INDEX_MARK = 0
#: Decimal digits of the largest index, and the brackets around it.
_INDEX_SIZE = 12

#: Sentences by reason (`machine.E_SHORT` ...); {kind} is "left" or "captured".
_REASONS = (
    "{amount} bytes expected, {left} {kind}",
    "a varint that does not fit into 32 bits",
    "a length of {amount}",
    "{amount} elements of at least {detail} bytes, {left} bytes left",
    "tag {detail} of {amount} bytes, {left} left",
    "{amount} bytes left over in the tag",
)


@dataclass(frozen=True, slots=True)
class PathTemplates:
    """Paths of fields by id, in `text` (uint8) from `starts[id]` to `starts[id + 1]` (int32): "Topics[\\0].Name".

    `longest` is the size of the longest path, indices included.
    """

    text: Array
    starts: Array
    longest: int


def path_templates(table: FieldTable) -> PathTemplates:
    """The templates of all fields of a table."""
    texts = [_template(table, number).encode() for number in range(len(table))]
    starts = np.zeros(len(texts) + 1, np.int32)
    np.cumsum([len(text) for text in texts], out=starts[1:])
    longest = max(map(len, texts), default=0) + _INDEX_SIZE * MAX_DEPTH
    return PathTemplates(np.frombuffer(bytearray(b"".join(texts) or b"\0"), np.uint8), starts, longest)


def _template(table: FieldTable, number: int) -> str:
    info = table[number]
    names = [*info.inner[:-1], "tags" if info.inner[-1] == TAGS else info.inner[-1]]
    path, element = ".".join(names), info.element
    while element >= 0:
        around = table[element]
        path = f"{'.'.join(around.inner)}[{chr(_INDEX_MARK)}].{path}"
        element = around.element
    return path


@helper
def _write_index(into, at, value):  # type: ignore[no-untyped-def]
    """Write a number in decimal digits to into[at:]; return the place behind it."""
    power = np.int64(1)
    while power * 10 <= value:
        power *= 10
    while power > 0:
        into[at] = 48 + value // power % 10
        at += 1
        power //= 10
    return at


@helper
def _array_level(scratch, level):  # type: ignore[no-untyped-def]
    """The first level of the stack from `level` on that is an array, or one beyond the top."""
    while level <= scratch[ERROR_LEVEL] and scratch[level + INDEX] < 0:
        level += LEVEL
    return level


@helper
def write_path(scratch, text, starts, into):  # type: ignore[no-untyped-def]
    """Write the path of the field that a run failed at ("Topics[3].Name") to `into`; return its length."""
    field = scratch[ERROR_FIELD]
    at = np.int64(0)
    if field < 0:
        return at
    level = np.int64(STACK)
    for k in range(np.int64(starts[field]), np.int64(starts[field + 1])):
        if text[k] != _INDEX_MARK:
            into[at] = text[k]
            at += 1
            continue
        level = _array_level(scratch, level)
        at = _write_index(into, at, scratch[level + INDEX])
        level += LEVEL
    level = _array_level(scratch, level)
    if level <= scratch[ERROR_LEVEL]:  # an element of an array of plain values
        into[at] = 91
        at = _write_index(into, at + 1, scratch[level + INDEX])
        into[at] = 93
        at += 1
    return at


def error_path(scratch: Array, templates: PathTemplates) -> str:
    """The path of the field that the last run failed at."""
    into = np.zeros(templates.longest, np.uint8)
    length = write_path(scratch, templates.text, templates.starts, into)
    return into[:length].tobytes().decode()


def error_text(status: int, scratch: Array, templates: PathTemplates) -> str:
    """A failed run in words: "malformed at byte 37, Topics[3].Name: a length of -5"."""
    if status == TOO_LARGE:
        place = f"byte {scratch[ERROR_AT]}, {error_path(scratch, templates)}"
        return f"not read behind {place}: of a message no more than {MOST_ROWS:,} fields are read"
    word, kind = ("cut short", "captured") if status == INCOMPLETE else ("malformed", "left")
    reason = _REASONS[int(scratch[ERROR_REASON])].format(
        amount=scratch[ERROR_AMOUNT], detail=scratch[ERROR_DETAIL], left=scratch[ERROR_LEFT], kind=kind
    )
    return f"{word} at byte {scratch[ERROR_AT]}, {error_path(scratch, templates)}: {reason}"
