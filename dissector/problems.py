"""Where malformed messages are malformed: the columns `problem` and `problem_at` of exchanges.

The programs of a report read little and stop at the instruction that a bad field was folded into. So the program of the
whole message checks each malformed body once more, without rows, and names the field. Other bodies cost nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np

from kafkatap.kernels import kernel
from kafkatap.kernels.arrays import taken

from .dtypes import EXCHANGE, MALFORMED, TRAILING_BYTES
from .framing.buffers import intern
from .framing.connections import STRING
from .programs.error_paths import PathTemplates, path_templates, write_path
from .programs.machine import ERROR_AT, JOB, NO_ROWS, SCRATCH_SIZE, TAPE, run_program
from .programs.program import Programs

Array = np.ndarray[Any, Any]


@kernel(
    np.int32, JOB, int, np.uint8, np.uint8, np.uint8, TAPE, np.uint8, np.int32, np.uint8, EXCHANGE, STRING, np.uint8,
    np.int32, np.int64, np.int64,
)  # fmt: skip
def note_problems(  # type: ignore[no-untyped-def]
    code, jobs, count, block, held, pool, no_tape, templates, starts, path, exchanges, strings, text, buckets,
    string_state, scratch,
):  # fmt: skip
    """Set `problem` and `problem_at` of the exchanges of jobs[:count], which are malformed or have trailing bytes.

    `path` has room for the longest path. The caller ensures that there is room for `count` more strings.
    """
    for j in range(count):
        job = jobs[j]
        x = exchanges[job.frame >> 1]
        problem = np.int64(-1)
        stopped = np.int64(job.error_at)
        if job.status == MALFORMED:
            source = np.int64(job.source)
            buf = block if source == 0 else (held if source == 1 else pool)
            run_program(
                buf, job.at, job.end, job.limit, code, np.int64(job.program), no_tape, NO_ROWS, job.frame, scratch
            )
            stopped = scratch[ERROR_AT] - job.at
            length = write_path(scratch, templates, starts, path)
            problem = intern(path, 0, length, strings, text, buckets, string_state)
        before = job.at - job.limit + 4  # the frame's bytes before the body, less the size that its size field holds
        if job.frame & 1 == 0:
            x.request_problem = problem
            x.request_problem_at = before + x.request_bytes + stopped
        else:
            x.response_problem = problem
            x.response_problem_at = before + x.response_bytes + stopped
    return count


class WholeMessages:
    """The programs of whole messages and the paths of their fields. They are loaded when a message is malformed."""

    def __init__(self, load: Callable[[], Programs]) -> None:
        self._load = load
        self.no_tape = np.zeros(0, TAPE)
        self.scratch = np.zeros(SCRATCH_SIZE, np.int64)

    @cached_property
    def programs(self) -> Programs:
        return self._load()

    @cached_property
    def templates(self) -> PathTemplates:
        return path_templates(self.programs.fields)

    def failed_jobs(self, jobs: Array, programs: Programs) -> Array:
        """Copies of the jobs that are malformed or have trailing bytes, with the programs of whole messages."""
        status = jobs["status"]
        failed = np.flatnonzero((status == MALFORMED) | (status == TRAILING_BYTES))
        if not len(failed):
            return np.zeros(0, JOB)
        chosen = taken(jobs, failed)
        chosen["program"] = self.programs.same_as(programs, chosen["program"])
        return chosen
