"""Packets of any capture through the trimmer of `live --keep`: whatever they hold, the bytes are as before afterwards,
packets become no longer, and what is kept does not depend on how many packets come at once."""

from __future__ import annotations

import random
import zlib

import numpy as np

from kafkatap.captures.capture_reader import CaptureReader
from kafkatap.live.recording.trimming.packets import PacketTrimmer

from . import capture_inputs
from .capture_targets import scratch_folder
from .target import Target


def check_trimming(data: bytes) -> None:
    """Trim the packets of a capture, block by block and a few at a time."""
    path = scratch_folder() / "trimmed"
    path.write_bytes(data)
    chance = random.Random(zlib.crc32(data))
    heads = chance.choice((None, None, 0, 256))
    whole, parts = PacketTrimmer(heads, blanks=True), PacketTrimmer(heads, blanks=True)
    reader = CaptureReader(str(path))
    while reader.fill():
        rows, before = reader.packets[reader.position : reader.count], reader.buffer.copy()
        kept = _kept(whole, reader, rows)
        few, at = [], 0
        while at < len(rows):
            count = chance.randint(1, 9)
            few += _kept(parts, reader, rows[at : at + count])
            at += count
        assert kept == few
        assert len(kept) == len(rows)
        assert np.array_equal(before, reader.buffer)
        assert all(len(one) <= captured for one, captured in zip(kept, rows["captured"].tolist(), strict=True))
        reader.position = reader.count
    reader.close()


def _kept(trimmer: PacketTrimmer, reader: CaptureReader, rows: np.ndarray) -> list[bytes]:  # type: ignore[type-arg]
    return [
        reader.buffer[row["at"] : row["at"] + row["captured"]].tobytes()
        for made, first, end in trimmer.prepared(reader.buffer, rows, len(rows))
        for row in made[first:end]
    ]


def _any_capture(chance: random.Random) -> bytes:
    makers = (
        capture_inputs.damaged_file, capture_inputs.damaged_headers, capture_inputs.hostile_segments,
        capture_inputs.damaged_frames,
    )  # fmt: skip
    return chance.choice(makers)(chance)


TRIMMING_TARGETS = (Target("trimming", _any_capture, check_trimming),)
