"""Join copies of a capture into a longer one. Each copy has other addresses and later times.

    python benchmarks/join_copies.py CAPTURE.pcap COPIES OUT.pcap

Copy k adds k to the third byte of every IPv4 address (127.0.0.1 becomes 127.0.k.1), so that it has its own connections.
Its times follow those of the copy before. The source is a classic little-endian pcap with Ethernet. Packets that are
not IPv4 keep their addresses. IPv4 header checksums do not change: readers of captures ignore them.
"""

from __future__ import annotations

import struct
import sys
from pathlib import Path

import numpy as np

MAGICS = (b"\xd4\xc3\xb2\xa1", b"\x4d\x3c\xb2\xa1")
ETHERNET = 1
HEADER = 24


def record_starts(data: bytes) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """The offset of each complete record in the file, int64."""
    length = struct.Struct("<I").unpack_from
    starts = []
    at = HEADER
    while at + 16 <= len(data):
        end = at + 16 + length(data, at + 8)[0]
        if end > len(data):
            break
        starts.append(at)
        at = end
    return np.array(starts, dtype=np.int64)


def join(source: Path, copies: int, target: Path) -> int:
    """Write `copies` copies of `source` to one file; return its size."""
    data = source.read_bytes()
    if data[:4] not in MAGICS or struct.unpack_from("<I", data, 20)[0] & 0xFFFF != ETHERNET:
        raise SystemExit(f"{source}: only classic little-endian pcap files with Ethernet can be joined")
    starts = record_starts(data)
    end = int(starts[-1]) + 16 + struct.unpack_from("<I", data, int(starts[-1]) + 8)[0]
    bytes_ = np.frombuffer(bytearray(data[HEADER:end]), dtype=np.uint8)
    starts -= HEADER
    seconds = np.zeros(len(starts), dtype=np.int64)
    for byte in range(4):
        seconds |= bytes_[starts + byte].astype(np.int64) << (8 * byte)
    span = int(seconds.max() - seconds.min()) + 1
    is_ipv4 = (bytes_[starts + 28] == 8) & (bytes_[starts + 29] == 0)
    third_bytes = np.concatenate([starts[is_ipv4] + 44, starts[is_ipv4] + 48])
    original = bytes_[third_bytes].copy()
    with open(target, "wb") as out:
        out.write(data[:HEADER])
        for copy in range(copies):
            bytes_[third_bytes] = original + np.uint8(copy)
            later = seconds + copy * span
            for byte in range(4):
                bytes_[starts + byte] = (later >> (8 * byte)).astype(np.uint8)
            out.write(bytes_.data)
    return target.stat().st_size


def main(arguments: list[str]) -> int:
    if len(arguments) != 3 or not arguments[1].isdigit():
        print("usage: python benchmarks/join_copies.py CAPTURE.pcap COPIES OUT.pcap", file=sys.stderr)
        return 2
    size = join(Path(arguments[0]), int(arguments[1]), Path(arguments[2]))
    print(f"{arguments[2]}: {size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
