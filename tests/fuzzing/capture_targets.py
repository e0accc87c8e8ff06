"""Captures through reassembly, framing and correlation.

No input raises an error: a report says what is damaged. The rows do not depend on the size of blocks, packets make the
same chunks in one pass as through all tables, the ledger adds up, and the header of every request and response that a
row names is in the bytes of a stream.
"""

from __future__ import annotations

import os
import random
import struct
import tempfile
import zlib
from collections.abc import Callable
from functools import cache
from pathlib import Path

from kafkatap.kernels.decorator import kernel_mode
from tests.ways.reports import Whole, compared, differences, in_shards, made, one_engine, splits_of
from tests.wire.harness import Decoded, assert_same, decode_files
from tests.wire.two_paths import Streams, assert_same_streams

from . import capture_inputs
from .capture_inputs import unpacked
from .target import Target

_BLOCK_SIZES = (1, 13, 100, 999, 5_000)


@cache
def scratch_folder() -> Path:
    """A folder of this process for inputs that are read as files; in memory, if there is such a place."""
    memory = "/dev/shm" if os.path.isdir("/dev/shm") else None
    folder = tempfile.TemporaryDirectory(prefix="kafkatap-fuzz-", dir=memory)
    _kept.append(folder)  # until the process ends
    return Path(folder.name)


_kept: list[tempfile.TemporaryDirectory[str]] = []


def check_capture(data: bytes) -> None:
    """Check all invariants of a capture."""
    chance = random.Random(zlib.crc32(data))
    path = scratch_folder() / "capture"
    path.write_bytes(data)
    seen = decode_files([path])
    small = chance.choice(_BLOCK_SIZES[2:] if kernel_mode() == "python" else _BLOCK_SIZES)
    assert_same(decode_files([path], block_size=small), seen, f"blocks of {small} bytes")
    streams, _ = assert_same_streams(path, chance.choice((1 << 20, small)), chance.choice((0, 0, 1, 5)))
    assert_in_the_bytes(seen, streams)


def assert_in_the_bytes(seen: Decoded, streams: Streams) -> None:
    """Assert that the header of each request and response that rows name is in the bytes of a stream."""
    sent = b"|".join(
        b"".join(chunk[-1] for chunk in chunks if chunk[1] == direction)
        for chunks in streams.chunks.values()
        for direction in (0, 1)
    )
    for row in seen.exchanges:
        if row["request_first"] >= 0 and row["outcome"] != "orphan_response":
            head = struct.pack(">hhi", row["api_key"], row["api_version"], row["correlation_id"])
            assert head in sent, f"no such request was sent: {row}"
        if row["outcome"] in ("answered", "orphan_response"):
            assert struct.pack(">i", row["correlation_id"]) in sent, f"no such response was sent: {row}"


def check_splits(data: bytes) -> None:
    """A capture that several engines share, or that is read in splits, has the report of one engine."""
    path = scratch_folder() / "capture.pcap"
    path.write_bytes(data)
    by = ("api", "client", "topic", "broker")[zlib.crc32(data) % 4]
    wanted = one_engine([path], by=by)
    _assert_same(in_shards([path], 3, by=by), wanted, "3 engines")
    keys = [row["connection"] for row in decode_files([path]).connections]
    if len(set(keys)) < len(keys):
        return  # connections that begin with the same packet, captured twice: splits take them for one
    for count in (2, 5):
        captures = splits_of([path], count)
        report = captures.report(by)
        if captures.notes:
            return  # connections captured at both ends: splits put their packets in order otherwise
        _assert_same(made(report), wanted, f"{count} splits")


def _assert_same(found: Whole, wanted: Whole, what: str) -> None:
    lines = differences(compared(found), compared(wanted))
    assert not lines, f"{what}: {' '.join(lines)}"


def check_several(data: bytes) -> None:
    """Several captures, which may overlap, have the same rows whatever the size of blocks."""
    paths = []
    for number, part in enumerate(unpacked(data)):
        paths.append(scratch_folder() / f"capture-{number}")
        paths[-1].write_bytes(part)
    if paths:
        seen = decode_files(paths)
        small = random.Random(zlib.crc32(data)).choice(_BLOCK_SIZES[1:])
        assert_same(decode_files(paths, block_size=small), seen, f"blocks of {small} bytes")


def _target(name: str, make: Callable[[random.Random], bytes]) -> Target:
    return Target(name, make, check_capture, seconds=1.0)


CAPTURE_TARGETS = (
    _target("captures", capture_inputs.damaged_file),
    _target("layers", capture_inputs.damaged_headers),
    _target("streams", capture_inputs.hostile_segments),
    _target("framing", capture_inputs.damaged_frames),
    Target("several", capture_inputs.several_captures, check_several, seconds=1.0),
    Target("splits", capture_inputs.undamaged_file, check_splits, seconds=2.0),
)
