"""What the machine's tests share: programs of each profile, jobs over byte strings, the machine's answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from kafkatap.dissector.layouts.catalog import load_messages
from kafkatap.dissector.layouts.schema import MessageLayout
from kafkatap.dissector.programs.compiler import compile_programs
from kafkatap.dissector.programs.machine import JOB
from kafkatap.dissector.programs.profiles import PROFILES
from kafkatap.dissector.programs.program import Programs
from kafkatap.dissector.programs.tape import decode_jobs

Array = np.ndarray[Any, Any]
MESSAGES = load_messages()
#: Every (message, version).
ALL = [(message, version) for _, message in sorted(MESSAGES.items()) for version in message.versions]


@cache
def programs(name: str = "everything") -> Programs:
    return compile_programs(MESSAGES, PROFILES[name])


@dataclass(frozen=True, slots=True)
class Body:
    """One body to decode; `missing` bytes of its frame were not captured."""

    message: MessageLayout
    version: int
    data: bytes
    missing: int = 0


@dataclass(frozen=True, slots=True)
class Run:
    programs: Programs
    jobs: Array
    tape: Array
    buffer: Array

    def rows(self, number: int) -> Array:
        job = self.jobs[number]
        return self.tape[job["tape_first"] : job["tape_first"] + job["tape_count"]]


def run(bodies: Sequence[Body], profile: str = "everything", slack: bytes = b"", tape: Array | None = None) -> Run:
    """Decode bodies that lie one behind the other, `slack` before, between and after them."""
    compiled = programs(profile)
    jobs = np.zeros(len(bodies), JOB)
    parts, at = [slack], len(slack)
    for number, body in enumerate(bodies):
        job = jobs[number]
        job["at"], job["end"] = at, at + len(body.data)
        job["limit"] = at + len(body.data) + body.missing
        job["program"] = compiled.find(body.message.api_key, body.version, body.message.direction)
        job["frame"] = number
        parts += [body.data, slack]
        at += len(body.data) + len(slack)
    buffer = np.frombuffer(b"".join(parts), np.uint8).copy()
    rows = decode_jobs(compiled, jobs, (buffer,), tape)
    return Run(compiled, jobs, rows, buffer)
