"""A capture file as the source of several engines: its packets are shared out by the program that the kernel runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from kafkatap.engine.engine import Engine
from kafkatap.live.capture.fanout import program
from kafkatap.live.joined_engine import JoinedEngine, Member
from kafkatap.reassembly.link_types import ETHERNET
from tests.support import bpf

from .support import FileSource


def owner(packet: bytes, link_type: int, engines: int) -> int:
    """The engine that gets a packet."""
    network, protocol = 14, int.from_bytes(packet[12:14], "big")
    if link_type != ETHERNET:
        network, protocol = 0, 0x86DD if packet[0] >> 4 == 6 else 0x0800
    return bpf.run(program(), packet, network, protocol) % engines


class _Share(FileSource):
    """The packets of one engine."""

    def __init__(self, path: str, number: int, engines: int) -> None:
        super().__init__(path)
        self._number, self._engines = number, engines

    def blocks(self) -> Iterator[tuple[Any, Any, int]]:
        for buffer, packets, count in super().blocks():
            spans = zip(
                packets["at"].tolist(), packets["captured"].tolist(), packets["link_type"].tolist(), strict=True
            )
            found = [owner(buffer[at : at + size].tobytes(), link, self._engines) for at, size, link in spans]
            mine = packets[np.array(found) == self._number]
            self.taken += len(mine) - count
            if len(mine):
                yield buffer, mine, len(mine)


class SharedFile(FileSource):
    """As of `monitor.SharedSource`."""

    def __init__(self, path: str, engines: int) -> None:
        super().__init__(path)
        self.shares = [_Share(path, number, engines) for number in range(engines)]

    @property
    def over(self) -> bool:
        return all(each.over for each in self.shares)

    def wait(self, seconds: float) -> None:
        super().wait(seconds)
        for each in self.shares:
            each.now = self.now

    def counters(self) -> tuple[int, int]:
        return sum(each.taken for each in self.shares), 0

    def recorded(self) -> Iterator[tuple[Any, Any, int]]:
        return self.blocks()

    def stop(self) -> None:
        for each in (super(), *self.shares):
            each.stop()

    def close(self) -> None:
        for each in (super(), *self.shares):
            each.close()


def joined(engines: int, **options: Any) -> Engine:
    """So many engines as one."""
    return JoinedEngine([Member(**options) for _ in range(engines)])
