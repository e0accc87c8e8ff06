"""`Seam`: packets of flows that one split sends to another, with their bytes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from kafkatap.kernels.arrays import as_bytes, copied, taken
from kafkatap.reassembly.dtypes import PACKET

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Seam:
    """PACKET rows (n,), numbered over the whole input, and the bytes that they refer to.

    `times`: by which they are sorted among packets of other captures (`captures.merge.sort_times`), int64 (n,).
    """

    packets: Array
    data: Array  # uint8
    times: Array

    @property
    def size(self) -> int:
        """Bytes in memory."""
        return int(self.packets.nbytes + self.times.nbytes + self.data.nbytes)

    def dump(self) -> bytes:
        """A compressed copy as bytes; `load` reads it."""
        import pyarrow as pa

        whole = self.packets.tobytes() + self.times.tobytes() + self.data.tobytes()
        sizes = len(self.packets).to_bytes(8, "little") + len(whole).to_bytes(8, "little")
        return sizes + bytes(pa.compress(whole, "zstd", asbytes=True))

    @classmethod
    def load(cls, dumped: bytes) -> Seam:
        import pyarrow as pa

        count, size = (int.from_bytes(dumped[at : at + 8], "little") for at in (0, 8))
        whole = pa.decompress(dumped[16:], size, "zstd", asbytes=True) if size else b""
        packets = np.frombuffer(whole, PACKET, count).copy()
        times = np.frombuffer(whole, np.int64, count, packets.nbytes).copy()
        data = np.frombuffer(whole, np.uint8, offset=packets.nbytes + times.nbytes)
        return cls(packets, data.copy() if len(data) else np.zeros(1, np.uint8), times)


class SeamPackets:
    """The packets of a seam, read as those of a capture are."""

    def __init__(self, seam: Seam) -> None:
        self.buffer, self.packets = seam.data, seam.packets
        self.position = 0
        self.count = len(seam.packets)

    @property
    def bytes_read(self) -> int:
        """Bytes read so far."""
        return len(self.buffer)

    def fill(self) -> bool:
        return self.position < self.count

    def close(self) -> None:
        pass


def cut_out(buffer: Array, packets: Array, times: Array) -> Seam:
    """A seam of PACKET rows whose bytes are in `buffer`. `times`: as of `Seam`."""
    parts = [buffer[at : at + length] for at, length in zip(packets["at"], packets["captured"], strict=True)]
    rows = copied(packets)
    ends = np.cumsum(rows["captured"], dtype=np.int64)
    rows["at"] = ends - rows["captured"]
    return Seam(rows, np.concatenate(parts) if parts else np.zeros(0, np.uint8), times)


def followed_by(seam: Seam, later: Seam) -> Seam:
    """One seam of two, whose packets stay in this order."""
    rows = copied(later.packets)
    rows["at"] += len(seam.data)
    packets = np.concatenate((as_bytes(seam.packets), as_bytes(rows))).view(PACKET)
    times = np.maximum.accumulate(np.concatenate((seam.times, later.times)))
    return Seam(packets, np.concatenate((seam.data, later.data)), times)


def part_of(seam: Seam, first: int, end: int) -> Seam:
    """Packets [first:end] of a seam, and no more bytes than they need."""
    packets = copied(seam.packets[first:end])
    if not len(packets):
        return joined(())
    low = int(packets["at"].min())
    high = int((packets["at"] + packets["captured"]).max())
    packets["at"] -= low
    return Seam(packets, seam.data[low:high].copy(), seam.times[first:end].copy())


def joined(seams: Iterable[Seam], *, by_time: bool = False) -> Seam:
    """One seam of several: in order of packet numbers, or as captures that overlap are merged (`captures.merge`)."""
    rows, data, times, at = [], [], [], 0
    for seam in seams:
        packets = copied(seam.packets)
        packets["at"] += at
        at += len(seam.data)
        rows.append(as_bytes(packets))
        data.append(seam.data)
        times.append(seam.times)
    if not rows:
        return Seam(np.zeros(0, PACKET), np.zeros(1, np.uint8), np.zeros(0, np.int64))
    packets, sorted_by = np.concatenate(rows).view(PACKET), np.concatenate(times)
    numbers = packets["number"]
    order = np.lexsort((numbers, sorted_by)) if by_time else np.argsort(numbers, kind="stable")
    return Seam(taken(packets, order), np.concatenate(data), np.maximum.accumulate(sorted_by[order]))
