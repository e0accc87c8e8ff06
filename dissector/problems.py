"""Where malformed messages are malformed: the columns `problem` and `problem_at` of exchanges.

The programs of a report read little and stop at the instruction that a bad field was folded into. So the program of the
whole message checks each malformed body once more, without rows, and names the field. Other bodies cost nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, lru_cache
from typing import Annotated, Any, NamedTuple

import numpy as np

from kafkatap.kernels import kernel
from kafkatap.kernels.arrays import taken

from .dtypes import MALFORMED, TRAILING_BYTES
from .exchanges import Bodies, body_of
from .programs.error_paths import PathTemplates, path_templates, write_path
from .programs.machine import ERROR_AT, NO_ROWS, SCRATCH_SIZE, TAPE, run_program
from .programs.program import Programs
from .strings import intern

Array = np.ndarray[Any, Any]


class WholeMessages(NamedTuple):
    """The programs of whole messages, the paths of their fields (`PathTemplates`), and room for a path and a run."""

    code: Annotated[Array, np.int32]
    templates: Annotated[Array, np.uint8]
    starts: Annotated[Array, np.int32]
    path: Annotated[Array, np.uint8]
    no_tape: Annotated[Array, TAPE]
    scratch: Annotated[Array, np.int64]


@kernel(Bodies, WholeMessages, int)
def note_problems(b, whole, count):  # type: ignore[no-untyped-def]
    """Set `problem` and `problem_at` of the exchanges of b.jobs[:count], which are malformed or have trailing bytes.

    The jobs' programs are those of `whole`. The caller has made room for `count` more strings.
    """
    for j in range(count):
        job = b.jobs[j]
        x = b.exchanges[job.frame >> 1]
        problem = np.int64(-1)
        stopped = np.int64(job.error_at)
        if job.status == MALFORMED:
            buf = body_of(b, job).buf
            program = np.int64(job.program)
            run_program(buf, job.at, job.end, job.limit, whole.code, program, whole.no_tape, NO_ROWS, 0, whole.scratch)
            stopped = whole.scratch[ERROR_AT] - job.at
            length = write_path(whole.scratch, whole.templates, whole.starts, whole.path)
            problem = intern(b.strings, whole.path, 0, length)
        before = job.at - job.limit + 4  # the frame's bytes before the body, less those that its size field counts
        if job.frame & 1 == 0:
            x.request_problem = problem
            x.request_problem_at = before + x.request_bytes + stopped
        else:
            x.response_problem = problem
            x.response_problem_at = before + x.response_bytes + stopped
    return count


@lru_cache(4)
def _templates(programs: Programs) -> PathTemplates:
    """Kept, as they take 5 ms and executors make a dissector for each split."""
    return path_templates(programs.fields)


class ProblemFinder:
    """Owns the programs of whole messages, which it loads for the first malformed message."""

    def __init__(self, load: Callable[[], Programs]) -> None:
        self._load = load

    @cached_property
    def programs(self) -> Programs:
        return self._load()

    @property
    def templates(self) -> PathTemplates:
        return _templates(self.programs)

    @cached_property
    def arrays(self) -> WholeMessages:
        templates = self.templates
        return WholeMessages(
            self.programs.code, templates.text, templates.starts, np.zeros(templates.longest, np.uint8),
            np.zeros(0, TAPE), np.zeros(SCRATCH_SIZE, np.int64),
        )  # fmt: skip

    def failed_jobs(self, jobs: Array, programs: Programs) -> Array:
        """Copies of the jobs that are malformed or have trailing bytes, with the programs of whole messages."""
        status = jobs["status"]
        failed = taken(jobs, np.flatnonzero((status == MALFORMED) | (status == TRAILING_BYTES)))
        if len(failed):
            failed["program"] = self.programs.same_as(programs, failed["program"])
        return failed
