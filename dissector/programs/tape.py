"""Views of the tape: rows by role for what counts, a tree of one message for a person."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .fields import HEADER_TAGS, K_COUNT, K_ELEMENT, K_STRUCT, K_TAG, TAGS, FieldInfo, FieldTable
from .machine import JOB, ROWS, SCRATCH_SIZE, TAPE, decode_frames
from .program import Programs

Array = np.ndarray[Any, Any]


def decode_jobs(programs: Programs, jobs: Array, buffers: Sequence[Array], tape: Array | None = None) -> Array:
    """Run all jobs (JOB) over their buffers (block, held, pool; uint8); return the tape (TAPE), its rows alone.

    `tape` is the room to begin with; it grows as needed.
    """
    block, held, pool = [*buffers, *[np.zeros(0, np.uint8)] * 3][:3]
    room = np.zeros(1024, TAPE) if tape is None else tape
    scratch = np.zeros(SCRATCH_SIZE, np.int64)
    done = 0
    while True:
        done = decode_frames(programs.code, jobs, len(jobs), done, block, held, pool, room, scratch)
        rows = int(scratch[ROWS])
        if done == len(jobs):
            return room[:rows]
        bigger = np.zeros(2 * len(room) + 64, TAPE)
        bigger[:rows] = room[:rows]
        room = bigger


def as_array(data: bytes) -> Array:
    """A copy of bytes (uint8) that kernels take."""
    return np.frombuffer(bytearray(data), np.uint8)


@dataclass(slots=True)
class Rows:
    """Columns of the tape of one body; behind them there is a row of no field (-1)."""

    values: list[int]
    lengths: list[int]
    fields: list[int]
    stops: list[int]  # in the frame


class BodyReader:
    """Runs the machine over one body at a time, for who walks its rows in Python. The EVERYTHING profile's programs."""

    def __init__(self, programs: Programs) -> None:
        self.programs = programs
        self._jobs = np.zeros(1, JOB)
        self._status = self._jobs["status"]
        self._room = np.zeros(4096, TAPE)
        self._scratch = np.zeros(SCRATCH_SIZE, np.int64)
        self._none = np.zeros(0, np.uint8)

    def read(self, buffer: Array, program: int, at: int, captured: int, limit: int) -> tuple[Rows, int]:
        """The rows of the body at buffer[at:captured] in a frame that ends at `limit`, and its status."""
        none, scratch = self._none, self._scratch
        while True:
            self._jobs[0] = (at, captured, limit, 0, 0, 0, 0, program, 0, 0, 0, 0)
            scratch[:] = 0
            if decode_frames(self.programs.code, self._jobs, 1, 0, buffer, none, none, self._room, scratch):
                break
            self._room = np.zeros(4 * len(self._room), TAPE)
        rows = self._room[: int(scratch[ROWS])]
        fields, stops = rows["field"].tolist(), rows["stop"] + at
        fields.append(-1)
        return Rows(rows["value"].tolist(), rows["length"].tolist(), fields, stops.tolist()), int(self._status[0])


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


def error_path(programs: Programs, tape: Array, job: Any) -> str:
    """Where decoding stopped ("Topics[3].Partitions[0].Records"), by a job's rows of EVERYTHING; "" if nowhere."""
    if int(job["error_field"]) < 0:
        return ""
    info = programs.fields[int(job["error_field"])]
    first = int(job["tape_first"])
    rows = tape[first : first + int(job["tape_count"])]
    chain = [info]
    while chain[0].element >= 0:
        chain.insert(0, programs.fields[chain[0].element])
    words: list[str] = []
    for place, step in enumerate(chain):
        words.append(".".join(step.inner))
        if place < len(chain) - 1:
            found = np.flatnonzero(rows["field"] == step.id)
            words[-1] += f"[{rows['value'][found[-1]]}]" if len(found) else "[]"
    return ".".join(words)


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


__all__ = [
    "HEADER_TAGS",
    "TAGS",
    "BodyReader",
    "Rows",
    "as_array",
    "decode_jobs",
    "enclosing",
    "error_path",
    "rows_with_role",
    "text",
    "tree",
]
