"""The tape of many bodies, and the tape of one body as Python lists."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from kafkatap.kernels.arrays import grown

from ..dtypes import OK, TRAILING_BYTES
from .machine import JOB, ROWS, SCRATCH_SIZE, TAPE, decode_frames
from .program import Programs

if TYPE_CHECKING:
    from .error_paths import PathTemplates

Array = np.ndarray[Any, Any]


def decode_jobs(programs: Programs, jobs: Array, buffers: Sequence[Array], tape: Array | None = None) -> Array:
    """Decode all jobs (JOB) from their buffers (block, held, pool; uint8); return the rows of the tape (TAPE).

    The rows are written to `tape`, or to a larger array where it is too small.
    """
    block, held, pool = [*buffers, *[np.zeros(0, np.uint8)] * 3][:3]
    room = np.zeros(1024, TAPE) if tape is None else tape
    scratch = np.zeros(SCRATCH_SIZE, np.int64)
    decoded = 0
    while True:
        decoded = decode_frames(programs.code, jobs, len(jobs), decoded, block, held, pool, room, scratch)
        rows = int(scratch[ROWS])
        if decoded == len(jobs):
            return room[:rows]
        room = grown(room)


def as_array(data: bytes | bytearray | memoryview) -> Array:
    """`data` as an array (uint8) for kernels. They want one that can be written, so others are copied."""
    can_be_written = isinstance(data, memoryview) and not data.readonly
    return np.frombuffer(data if can_be_written else bytearray(data), np.uint8)


class DecodedBody(NamedTuple):
    """The body at data[first:captured] of a frame that ends at `limit`: its status, and columns of its tape.

    Behind the last row there is a row of no field (-1). `problem` says where and why decoding failed, else "".
    """

    first: int
    captured: int
    limit: int
    status: int
    problem: str
    values: list[int]
    lengths: list[int]
    fields: list[int]
    stops: list[int]  # places in the data


class BodyReader:
    """Decodes one body at a time. `programs` are those of the EVERYTHING profile."""

    def __init__(self, programs: Programs) -> None:
        self.programs = programs
        self._jobs = np.zeros(1, JOB)
        self._status = self._jobs["status"]
        self._room = np.zeros(4096, TAPE)  # a larger one is not kept
        self._scratch = np.zeros(SCRATCH_SIZE, np.int64)
        self._none = np.zeros(0, np.uint8)

    @cached_property
    def _templates(self) -> PathTemplates:
        from .error_paths import path_templates

        return path_templates(self.programs.fields)

    def read(self, buffer: Array, program: int, first: int, captured: int, limit: int) -> DecodedBody:
        """Decode the body at buffer[first:captured] of a frame that ends at `limit`."""
        none, scratch, room = self._none, self._scratch, self._room
        while True:
            self._jobs[0] = (first, captured, limit, 0, 0, 0, 0, program, 0, 0, 0, 0)
            scratch[:] = 0
            if decode_frames(self.programs.code, self._jobs, 1, 0, buffer, none, none, room, scratch):
                break
            room = np.zeros(4 * len(room), TAPE)
        rows = room[: int(scratch[ROWS])]
        fields, stops = rows["field"].tolist(), rows["stop"] + first
        fields.append(-1)
        status = int(self._status[0])
        problem = "" if status in (OK, TRAILING_BYTES) else self._problem(status)
        return DecodedBody(
            first, captured, limit, status, problem,
            rows["value"].tolist(), rows["length"].tolist(), fields, stops.tolist(),
        )  # fmt: skip

    def _problem(self, status: int) -> str:
        """Where and why the last run failed."""
        from .error_paths import error_text  # decoding alone needs neither the texts nor the layouts

        return error_text(status, self._scratch, self._templates)
