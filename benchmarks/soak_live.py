"""Run the monitor of `kafkatap live` over endless packets and watch its memory; print a table.

    python benchmarks/soak_live.py CAPTURE.pcap [--packets 100000000] [--names 1000]

The capture's packets come from memory, round after round. Each round has other addresses, so other connections, and
later times. Every `--names` rounds the client id `--client` changes too. The monitor is complete but for the packet
ring (bench_live.py covers that). The table has a row for each tenth of the packets: packets, connections so far and
open, known strings, resident memory, packets a second.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from kafkatap.captures.capture_reader import CaptureReader
from kafkatap.engine.assembly import Assembled, Assembly
from kafkatap.engine.engine import Engine
from kafkatap.live.governor import Governor
from kafkatap.live.monitor import Monitor
from kafkatap.live.process_memory import keep_flat

Array = np.ndarray[Any, Any]
SECOND = 1_000_000_000
IPV4_SOURCE = 14 + 12


class Again:
    """Repeats a capture with Ethernet and IPv4 without end. `clock` is the time of its packets."""

    names: tuple[str, ...] = ("memory",)

    def __init__(self, path: Path, packets: int, rate: int, client: bytes, rounds_a_name: int) -> None:
        reader = CaptureReader(str(path), 1 << 20)
        self._blocks = []
        while reader.fill():
            self._blocks.append((reader.buffer.copy(), reader.packets[reader.position : reader.count].copy()))
            reader.position = reader.count
        reader.close()
        first = int(self._blocks[0][1]["ts"][0])
        count = sum(len(rows) for _, rows in self._blocks)
        span = max(int(rows["ts"].max()) for _, rows in self._blocks) - first
        for _, rows in self._blocks:  # as fast as `rate` says
            rows["ts"] = first + ((rows["ts"] - first) * (count / rate * SECOND / span)).astype(np.int64)
        self._span = count * SECOND // rate + 1_000_000
        self._wanted, self._round, self._taken = packets, 0, 0
        self._place = 0
        self._client, self._rounds_a_name = client, rounds_a_name
        self._named = [_places(buffer, client) for buffer, _ in self._blocks]
        self._original = [_addresses(buffer, rows) for buffer, rows in self._blocks]
        self.now = int(self._blocks[0][1]["ts"][0])
        for _, rows in self._blocks:
            rows["number"] = 0

    @property
    def over(self) -> bool:
        return self._taken >= self._wanted

    def clock(self) -> int:
        return self.now

    backlog, has_more = 0.0, True

    def wait(self, seconds: float) -> None: ...

    def parts(self, assembly: Assembly) -> Iterator[Assembled]:
        for buffer, packets, count in self.blocks():
            yield from assembly.feed(buffer, packets, 0, count)

    def blocks(self) -> Iterator[tuple[Array, Array, int]]:
        buffer, rows = self._blocks[self._place]
        if self._round:
            rows["ts"] += self._span
            places, original = self._original[self._place]
            shifted = (original + self._round) & 0xFFFFFF
            for byte in range(3):
                buffer[places + 1 + byte] = (shifted >> (8 * (2 - byte))).astype(np.uint8)
            if self._named[self._place].size:
                name = f"{self._round // self._rounds_a_name:0{len(self._client)}d}".encode()[-len(self._client) :]
                at = self._named[self._place]
                for byte, value in enumerate(name):
                    buffer[at + byte] = value
        self.now = int(rows["ts"].max())
        rows["number"] = np.arange(self._taken + 1, self._taken + 1 + len(rows))
        self._taken += len(rows)
        self._place += 1
        if self._place == len(self._blocks):
            self._place = 0
            self._round += 1
        yield buffer, rows, len(rows)

    def counters(self) -> tuple[int, int]:
        return self._taken, 0

    def stop(self) -> None: ...
    def unread(self) -> int:
        return 0

    def close(self) -> None: ...


def _addresses(buffer: Array, rows: Array) -> tuple[Array, Array]:
    """The places of IPv4 addresses in the packets, and their lower three bytes."""
    at = rows["at"][(buffer[rows["at"] + 12] == 8) & (buffer[rows["at"] + 13] == 0)]
    places = np.concatenate((at + IPV4_SOURCE, at + IPV4_SOURCE + 4))
    value = sum(buffer[places + 1 + byte].astype(np.int64) << (8 * (2 - byte)) for byte in range(3))
    return places, np.asarray(value)


def _places(buffer: Array, text: bytes) -> Array:
    """The places of a text in a buffer."""
    data, found, at = buffer.tobytes(), [], 0
    while text and (at := data.find(text, at)) >= 0:
        found.append(at)
        at += len(text)
    return np.array(found, np.int64)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("capture", type=Path)
    parser.add_argument("--packets", type=int, default=100_000_000)
    parser.add_argument("--rate", type=int, default=200_000, help="packets a second, by their own times")
    parser.add_argument("--client", default="", help="a client id of the capture that is to change")
    parser.add_argument("--names", type=int, default=1000, metavar="ROUNDS", help="rounds until it changes")
    options = parser.parse_args()
    keep_flat()
    source = Again(options.capture, options.packets, options.rate, options.client.encode(), options.names)
    monitor = Monitor(source, Engine(all_results=True), governor=Governor(None), clock=source.clock)
    print("| packets | connections | open | strings | addresses | memory | packets a second |")
    print("|---:|---:|---:|---:|---:|---:|---:|")
    started = last = time.perf_counter()
    shown = 0
    rows = options.packets // 10
    while not source.over:
        monitor.step()
        if monitor.engine.packets - shown >= rows:
            now = time.perf_counter()
            rate = (monitor.engine.packets - shown) / (now - last)
            shown, last = monitor.engine.packets, now
            engine = monitor.engine
            serials = int(engine.assembler.connections["serial"].max())
            print(
                f"| {shown:,} | {serials:,} | {monitor.status.connections:,} | {len(engine.strings):,} "
                f"| {len(engine.addresses):,} | {monitor.status.memory >> 20} MiB | {rate:,.0f} |",
                flush=True,
            )
    monitor.finish()
    print(f"\n{time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()
