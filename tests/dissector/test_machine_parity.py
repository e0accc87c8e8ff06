"""The machine decodes as the reference does, every message in every version: whole, cut short, with bytes too many."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from kafkatap.dissector import dtypes as rows
from kafkatap.dissector.programs.fields import HEADER_TAGS, K_TAG, K_VALUE
from kafkatap.dissector.programs.tape import BodyReader
from kafkatap.kernels.decorator import kernel_mode
from tests.dissector.machine_support import ALL, Body, Run, run
from tests.support.messages import emptiest_message, generate_message
from tests.support.reference import UNKNOWN_TAGS, Decoded, Traced, decode_message
from tests.support.sweeps import seeds
from tests.support.tape_views import tree

PLAIN = kernel_mode() == "python"
SEEDS = range(1) if PLAIN else seeds(8)


def _bodies(seed: int) -> list[Body]:
    messages = ALL[seed % 3 :: 3] if PLAIN else ALL
    return [Body(message, version, generate_message(message, version, seed)[0]) for message, version in messages]


def _reference(body: Body, trace: list[Traced]) -> Decoded:
    return decode_message(body.message, body.version, body.data, missing=body.missing, trace=trace)


def _check_ends(done: Run, number: int, trace: list[Traced], name: str) -> None:
    """Each plain value, each null and each unknown tag ends where it does for the reference."""
    rows_of_it = done.rows(number)
    kinds = np.array([info.kind for info in done.programs.fields])[rows_of_it["field"]]
    ends = {end for _, _, end in trace}
    assert set(rows_of_it["stop"][np.isin(kinds, (K_VALUE, K_TAG))].tolist()) <= ends, name


def _machine(done: Run, number: int) -> dict[str, Any]:
    return tree(done.programs, done.tape, (done.buffer,), done.jobs[number])


def _problem(done: Run, number: int) -> str:
    at, end, limit, program = (int(done.jobs[number][name]) for name in ("at", "end", "limit", "program"))
    return BodyReader(done.programs).read(done.buffer, program, at, end, limit).problem


def _wanted_problem(wanted: Decoded, first: int) -> str:
    word = "cut short" if wanted.status == rows.INCOMPLETE else "malformed"
    return f"{word} at byte {first + wanted.offset}, {wanted.path}: {wanted.error}"


def _without_tags(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _without_tags(v) for k, v in value.items() if k not in (UNKNOWN_TAGS, HEADER_TAGS)}
    return [_without_tags(v) for v in value] if isinstance(value, list) else value


def check(bodies: list[Body], slack: bytes = b"") -> None:
    """The machine gives the reference's status, value, problem, and count of nulls for each body."""
    done = run(bodies, slack=slack)
    for number, body in enumerate(bodies):
        job = done.jobs[number]
        name = f"{body.message.name} {body.message.direction} v{body.version} {body.data.hex()}"
        trace: list[Traced] = []
        wanted = _reference(body, trace)
        if wanted.status in (rows.OK, rows.TRAILING_BYTES):
            _check_ends(done, number, trace, name)
        assert rows.STATUSES[job["status"]] == rows.STATUSES[wanted.status], f"{name}: {wanted.error} at {wanted.path}"
        assert job["nulls"] == wanted.nulls, name
        value = _machine(done, number)
        if wanted.status in (rows.OK, rows.TRAILING_BYTES):
            assert value.pop(HEADER_TAGS, []) == wanted.header_tags, name
            assert value == wanted.value, name
        else:
            assert job["error_at"] == wanted.offset, f"{name}: {wanted.error} at {wanted.path}"
            assert _problem(done, number) == _wanted_problem(wanted, int(job["at"])), name
            assert _without_tags(value) == _without_tags(wanted.value), name
        if wanted.status == rows.OK:
            assert job["error_at"] == -1
            assert job["error_field"] == -1
        if wanted.status == rows.TRAILING_BYTES:
            assert job["error_at"] == len(body.data) + body.missing - wanted.trailing


@pytest.mark.parametrize("seed", SEEDS)
def test_whole_messages(seed: int) -> None:
    check(_bodies(seed), slack=b"\xff" * 3)


def test_shortest_messages() -> None:
    check([Body(message, version, emptiest_message(message, version)[0]) for message, version in ALL])


@pytest.mark.parametrize("seed", SEEDS)
def test_one_byte_missing(seed: int) -> None:
    check([Body(b.message, b.version, b.data[:-1]) for b in _bodies(seed) if b.data], slack=b"\0" * 9)


@pytest.mark.parametrize("seed", SEEDS)
def test_one_byte_too_many(seed: int) -> None:
    check([Body(b.message, b.version, b.data + b"\0") for b in _bodies(seed)], slack=b"\xff" * 9)


@pytest.mark.parametrize("seed", SEEDS)
def test_tail_not_captured(seed: int) -> None:
    source = random.Random(seed)
    bodies = []
    for body in _bodies(seed):
        at = source.randrange(len(body.data) + 1)
        bodies.append(Body(body.message, body.version, body.data[:at], len(body.data) - at))
    check(bodies, slack=b"\x01" * 9)


@pytest.mark.parametrize("seed", SEEDS)
def test_bytes_changed(seed: int) -> None:
    source = random.Random(seed)
    bodies = []
    for body in _bodies(seed):
        data = bytearray(body.data)
        for _ in range(source.choice((1, 1, 2, 5))):
            if data:
                data[source.randrange(len(data))] = source.choice((0, 1, 2, 127, 128, 255, source.randrange(256)))
        bodies.append(Body(body.message, body.version, bytes(data), source.choice((0, 0, 1, 50))))
    check(bodies, slack=b"\x80" * 9)


@pytest.mark.parametrize("seed", SEEDS)
def test_random_bytes(seed: int) -> None:
    source = random.Random(seed)
    messages = ALL[::5] if PLAIN else ALL
    small = bytes((0, 0, 0, 0, 1, 1, 2, 3, 255))
    check(
        [
            Body(message, version, bytes(source.choices(small, k=source.randrange(120))), source.choice((0, 0, 9)))
            for message, version in messages
        ],
        slack=b"\xff" * 9,
    )
