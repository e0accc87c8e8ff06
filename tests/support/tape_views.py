"""Views of the tape that tests compare: rows by role, the elements around them, a body as nested dicts."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from kafkatap.dissector.programs.fields import K_COUNT, K_ELEMENT, K_STRUCT, K_TAG, FieldInfo, FieldTable
from kafkatap.dissector.programs.program import Programs

Array = np.ndarray[Any, Any]


def rows_with_role(programs: Programs, tape: Array, role: int) -> Array:
    """Numbers of the rows (int64) whose field has this role, element rows of arrays not among them."""
    return np.flatnonzero(programs.roles[tape["field"]] == role)


def enclosing(tape: Array, rows: Array, field: int) -> Array:
    """For each of the rows the number of the row of `field` that it lies in, at whatever depth; -1 where there is none.

    `field` is the id of an array's elements.
    """
    at = tape["parent"][rows].astype(np.int64)
    while True:
        further = (at >= 0) & (tape["field"][at] != field)
        if not further.any():
            return at
        at[further] = tape["parent"][at[further]]


def text(buffer: Array, offset: int, length: int) -> str | None:
    """The string of a row; bytes that are not UTF-8 are kept as surrogates."""
    return None if length < 0 else buffer[offset : offset + length].tobytes().decode("utf-8", "surrogateescape")


def tree(programs: Programs, tape: Array, buffers: Sequence[Array], job: Any) -> dict[str, Any]:
    """One message as nested dicts, by the rows of one job of the EVERYTHING profile, as far as it was decoded.

    Values are as `reference.decode_message` gives them: int, bool, float, str, bytes, None, list, dict; tags that the
    schema does not know under `TAGS` of their struct as a list of (tag, bytes), the header's under `HEADER_TAGS`. Of
    other profiles' rows a tree of what is there is made.
    """
    first = int(job["tape_first"])
    buffer = buffers[int(job["source"])]
    root: dict[str, Any] = {}
    inside: dict[int, dict[str, Any]] = {-1: root}
    for number, row in enumerate(tape[first : first + int(job["tape_count"])], first):
        info = programs.fields[int(row["field"])]
        value, length = int(row["value"]), int(row["length"])
        place = inside.get(int(row["parent"]), root)
        for name in info.inner[:-1]:
            below = place.get(name)
            if below is None:
                below = place[name] = {}
            place = below
        name = info.inner[-1]
        if info.kind == K_COUNT:
            place[name] = None if length < 0 else []
        elif info.kind == K_STRUCT:
            place[name] = None if length < 0 else {}
        elif info.kind == K_TAG:
            place.setdefault(name, []).append(_tag(buffer[value : value + length].tobytes()))
        elif info.kind == K_ELEMENT:
            inside[number] = {}
            _append(place, name, inside[number])
        elif length < 0:
            _put(programs.fields, info, place, None)
        elif length and value + length > int(job["end"]):
            continue  # records whose size is known but not all of their bytes
        else:
            _put(programs.fields, info, place, _value(info, buffer, value, length))
    return root


def _append(place: dict[str, Any], name: str, value: Any) -> None:
    known = place.get(name)
    if isinstance(known, list):
        known.append(value)
    else:
        place[name] = [value]


def _put(table: FieldTable, info: FieldInfo, place: dict[str, Any], value: Any) -> None:
    """A plain value: of the field itself, or one element of an array of them."""
    follows = info.id + 1 < len(table) and table[info.id + 1].kind == K_COUNT
    if follows:
        _append(place, info.inner[-1], value)
    else:
        place[info.inner[-1]] = value


def _value(info: FieldInfo, buffer: Array, value: int, length: int) -> Any:
    if info.type == "string":
        return text(buffer, value, length)
    if info.type in ("bytes", "records", "uuid"):
        return buffer[value : value + length].tobytes()
    if info.type == "bool":
        return value != 0
    if info.type == "float64":
        return struct.unpack(">d", value.to_bytes(8, "big", signed=True))[0]
    return value


def _tag(raw: bytes) -> tuple[int, bytes]:
    """A tag's number and content, from the bytes of both and of the size between them."""
    number, at = _varint(raw, 0)
    size, at = _varint(raw, at)
    return number, raw[at : at + size]


def _varint(raw: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while raw[at] >= 0x80:
        value |= (raw[at] & 0x7F) << shift
        shift += 7
        at += 1
    return value | raw[at] << shift, at + 1
