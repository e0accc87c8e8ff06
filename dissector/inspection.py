"""Inspectors: they see each message while its bytes are there.

The bytes of a frame lie in the block that it came with, and are gone after a drain. An inspector sees every message of
the drain once, before its exchange is finished, and copies the bytes that it keeps.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np

from kafkatap.kernels.arrays import taken

from .dtypes import MAX_FRAME
from .programs.program import Programs

Array = np.ndarray[Any, Any]


class Frames(NamedTuple):
    """The messages of one drain, in the order of their frames.

    `jobs` (JOB), one a message: `frame` is slot * 2 + direction (0 request, 1 response). `at`:`end` are the captured
    bytes of the body, behind a request's client_id or a response's correlation_id; `limit` is the end that the frame's
    size declares. `program` is one of `programs`. It is -1 for bodies without a layout, for orphan responses, and for
    bare SASL tokens, whose body is the token.

    `rows` (EXCHANGE) and `links` (LINK), by slot: the exchanges as far as they are known. Of a request everything is
    known, of a response everything but its durations. `buffers` (uint8): block, held bytes, pool; a job's `source` is
    an index of it. `marks` (uint64), by slot: bits for inspectors to set, 0 at first; finished exchanges carry them.
    """

    jobs: Array
    programs: Programs
    rows: Array
    links: Array
    buffers: tuple[Array, Array, Array]
    marks: Array

    def bytes_of(self, job: Any, most: int = MAX_FRAME + 4) -> bytes:
        """The captured bytes of the frame of a job, from its size field on: `most` at most."""
        size = self.rows[("request_bytes", "response_bytes")[job["frame"] & 1]][job["frame"] >> 1]
        start = int(job["limit"]) - int(size) - 4
        return self.buffers[int(job["source"])][start : min(int(job["end"]), start + most)].tobytes()

    def decode(self, programs: Programs, numbers: Array | None = None) -> tuple[Array, Array]:
        """Decode messages once more, by programs of another profile: copies of their jobs, and the tape.

        `numbers` are the messages (int64); by default those that have a program. A job without a program has no rows.
        """
        program = programs.same_as(self.programs, self.jobs["program"])
        if numbers is None:
            numbers = np.flatnonzero(program >= 0)
        jobs = taken(self.jobs, numbers)
        jobs["program"] = program[numbers]
        from .programs.tape import decode_jobs  # reports need no tape of their own

        return jobs, decode_jobs(programs, jobs, self.buffers)


class Inspector(Protocol):
    """Sees each drain's messages. The arrays belong to the dissector; an inspector keeps none of them."""

    def look(self, frames: Frames) -> None: ...
