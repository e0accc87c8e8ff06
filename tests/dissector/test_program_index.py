"""The index of programs: the same answer from Python and from the kernels' array, for all keys and versions."""

from __future__ import annotations

import random

import numpy as np
import pytest

from kafkatap.dissector.framing import program_index
from kafkatap.dissector.framing.program_index import framing_index
from kafkatap.dissector.layouts.schema import Field, MessageLayout, Struct, Versions
from kafkatap.dissector.programs.compiler import compile_programs
from kafkatap.dissector.programs.profiles import PROFILES
from kafkatap.dissector.programs.program import DENSE, KEYS, LARGEST, VERSIONS, Programs

EDGES = (0, 1, VERSIONS - 1, VERSIONS, KEYS - 1, KEYS, 10_001, LARGEST)


def layouts(seed: int) -> dict[tuple[int, int], MessageLayout]:
    """Messages of random keys and versions, and of the edges."""
    chance = random.Random(seed)
    keys = {chance.choice(EDGES) if chance.random() < 0.5 else chance.randint(0, LARGEST) for _ in range(12)}
    found = {}
    for key in keys:
        for direction in range(2):
            low = min(chance.choice(EDGES), LARGEST - 2)
            fields = (Field("X", "int32", Versions(low, low + 2)),)
            found[key, direction] = MessageLayout(
                key,
                f"M{key}",
                direction,
                Versions(low, low + chance.randint(0, 2)),
                Versions(0, -1),
                Struct("M", fields),
            )
    return found


@pytest.mark.parametrize("seed", range(20))
def test_kernels_find_what_python_finds(seed: int) -> None:
    messages = layouts(seed)
    programs = compile_programs(messages, PROFILES["everything"])
    index = framing_index(programs.index, programs.others)
    assert len(index) == DENSE + 2 * len(programs.others)
    pairs = {(key, version) for key, _ in messages for version in (*EDGES, *range(3))}
    pairs |= {(message.api_key, version) for message in messages.values() for version in message.versions}
    pairs |= {(-1, 0), (0, -1), (KEYS, -1), (-32_768, -32_768), (65_535, 0)}
    for key, version in pairs:
        for direction in range(2):
            message = messages.get((key, direction))
            found = programs.find(key, version, direction)
            assert (found >= 0) == (message is not None and version in message.versions)
            assert program_index.program_of(index, direction, np.int64(key), np.int64(version)) == found
    known = {key: ((m.versions.low, m.versions.high),) for (key, direction), m in messages.items() if direction == 0}
    assert programs.known_versions == dict(sorted(known.items()))


def test_profiles_of_other_layouts_find_the_same_messages() -> None:
    messages = layouts(3)
    whole = compile_programs(messages, PROFILES["everything"])
    some = compile_programs(dict(list(messages.items())[::3]), PROFILES["nothing"])
    for (key, direction), message in messages.items():
        for version in message.versions:
            program = np.array([whole.find(key, version, direction), -1], np.int32)
            assert some.same_as(whole, program).tolist() == [some.find(key, version, direction), -1]
            assert some.by_program_of(whole)[program].tolist() == [some.find(key, version, direction), -1]
            assert whole.versions(program).tolist() == [version, -1]


def test_programs_of_some_apis() -> None:
    messages = layouts(5)
    whole, head = (compile_programs(messages, PROFILES[name]) for name in ("everything", "head"))
    chosen = frozenset(sorted({key for key, _ in messages})[::2])
    both = whole.only_for(chosen, head)
    for (key, direction), message in messages.items():
        for version in message.versions:
            found, offset = both.find(key, version, direction), 0 if key in chosen else len(whole.code)
            assert found == offset + (whole if key in chosen else head).find(key, version, direction)
    assert isinstance(both, Programs)
