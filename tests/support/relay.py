"""A relay on a TUN device that delays packets, drops some, and logs what it dropped, as a program: for samples.

    python -m tests.support.relay CONTROL

CONTROL is a file with a JSON object, which is read again whenever it changes: `delay_ms`, `loss` (the share of TCP
segments with data that are dropped) and `seed`. CONTROL.log has a line for each segment that was dropped: the time in
s, the ports, the sequence number and the bytes. (tests.support.namespaces starts it in a router.)
"""

from __future__ import annotations

import fcntl
import heapq
import json
import os
import random
import select
import struct
import sys
import time
from pathlib import Path
from typing import IO, Any

#: How often the relay looks at its control file, s.
_LOOK = 0.01


def set_relay(control: Path, **settings: Any) -> None:
    """Change the settings of a relay. It reads them within 10 ms."""
    new = control.with_suffix(".new")
    new.write_text(json.dumps(settings))
    new.replace(control)


def dropped(control: Path) -> list[list[float]]:
    """What a relay dropped: time in s, source port, destination port, sequence number, bytes."""
    log = control.with_suffix(".log")
    lines = log.read_text().splitlines() if log.exists() else []
    return [[float(line.split()[0]), *(int(word) for word in line.split()[1:])] for line in lines]


def segment(packet: bytes) -> tuple[int, int, int, int]:
    """The ports, the sequence number and the bytes of data of an IPv4 packet with TCP; 0 bytes of another one."""
    if packet[0] >> 4 != 4 or packet[9] != 6:
        return 0, 0, 0, 0
    at = 4 * (packet[0] & 15)
    length = struct.unpack_from(">H", packet, 2)[0]
    source, destination, number = struct.unpack_from(">HHI", packet, at)
    return source, destination, number, length - at - 4 * (packet[at + 12] >> 4)


class Settings:
    """The settings in a control file, as of its last change."""

    def __init__(self, control: Path) -> None:
        self._control = control
        self._changed = -1
        self.look()

    def look(self) -> None:
        self._looked = time.monotonic()
        changed = self._control.stat().st_mtime_ns
        if changed != self._changed:
            self._changed = changed
            made = json.loads(self._control.read_text())
            self.delay = made["delay_ms"] / 1000
            self.loss = made.get("loss", 0)
            self.random = random.Random(made.get("seed", 1))

    def look_again(self) -> None:
        if time.monotonic() - self._looked > _LOOK:
            self.look()


def is_dropped(packet: bytes, settings: Settings, log: IO[str]) -> bool:
    """Whether the relay drops a packet. Then it logs it."""
    if not settings.loss:
        return False
    ports_and_bytes = segment(packet)
    if ports_and_bytes[3] == 0 or settings.random.random() >= settings.loss:
        return False
    log.write(" ".join([f"{time.time():.6f}", *map(str, ports_and_bytes)]) + "\n")
    return True


def run(control: Path) -> None:
    """Read packets from the TUN device `slow` and write each back later. Runs until it is stopped."""
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    tun_without_header, set_interface = 0x0001 | 0x1000, 0x400454CA
    fcntl.ioctl(device, set_interface, struct.pack("16sH14x", b"slow", tun_without_header))
    settings = Settings(control)
    waiting: list[tuple[float, int, bytes]] = []
    count = 0
    with open(control.with_suffix(".log"), "a", buffering=1) as log:
        while True:
            pause = min(_LOOK, max(0.0, waiting[0][0] - time.monotonic())) if waiting else _LOOK
            is_ready = select.select([device], [], [], pause)[0]
            settings.look_again()
            if is_ready:
                try:
                    packet = os.read(device, 65536)
                except BlockingIOError:
                    continue
                if not is_dropped(packet, settings, log):
                    heapq.heappush(waiting, (time.monotonic() + settings.delay, count, packet))
                    count += 1
            while waiting and waiting[0][0] <= time.monotonic():
                os.write(device, heapq.heappop(waiting)[2])


if __name__ == "__main__":
    run(Path(sys.argv[1]))
