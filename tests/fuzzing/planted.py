"""Targets with planted faults: what the harness must find. See `test_harness.py`."""

from __future__ import annotations

import ctypes
import random
import time

from .target import MEMORY, Target


def _some_bytes(chance: random.Random) -> bytes:
    return chance.randbytes(chance.choice((3, 30, 300)))


def _raises(data: bytes) -> None:
    if 7 in data:
        raise ZeroDivisionError(f"one of {len(data)}")


def _crashes(data: bytes) -> None:
    if b"\x07" in data:
        ctypes.string_at(0)


def _hangs(data: bytes) -> None:
    if 7 in data:
        time.sleep(1_000)


def _dawdles(data: bytes) -> None:
    end = time.process_time() + 0.05
    while 7 in data and time.process_time() < end:
        pass


def _grows(data: bytes) -> None:
    if 7 in data:
        assert len(b"x" * (MEMORY + (32 << 20))) > len(data)


TARGETS = {
    name: Target(name, _some_bytes, check, seconds)
    for name, check, seconds in (
        ("sound", len, 1.0), ("raises", _raises, 1.0), ("crashes", _crashes, 1.0), ("hangs", _hangs, 1.0),
        ("dawdles", _dawdles, 0.01), ("grows", _grows, 10.0),
    )
}  # fmt: skip
