"""Packets of several interfaces as one sequence, in time order as far as they have arrived."""

from __future__ import annotations

import select
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from kafkatap.reassembly.assembler import Assembler

from ...captures.merge import Blocks, Merger, Pending, Place, places
from ...engine.assembly import Assembled, Assembly
from . import capture_filter, interfaces
from .interfaces import ANY, Interface, find, present

Array = np.ndarray[Any, Any]

#: Seconds in which packets gather, because each round has a fixed cost.
GATHER = 0.05
#: The full part of the buffer from which on packets are read at once.
LITTLE = 0.02
#: Seconds between two looks for an interface that is down or gone.
LOOK_AGAIN = 1.0


class Tap(Protocol):
    """One interface: an `afpacket_ring.Ring` or a `scapy_socket.CaptureSocket`."""

    interface: Interface
    buffer: Array
    packets: Array

    def fileno(self) -> int: ...
    @property
    def ready(self) -> bool: ...
    @property
    def backlog(self) -> float: ...
    @property
    def assemble(self) -> Callable[[Assembler], Iterator[int]] | None: ...
    def scan(self, number: int) -> int: ...
    def release(self) -> None: ...
    def counters(self) -> tuple[int, int]: ...
    def stop(self) -> None: ...
    def unread(self) -> int: ...
    def error(self) -> str | None: ...
    def revive(self) -> bool: ...
    def close(self) -> None: ...


class _TapPackets:
    """What a tap has captured, as a source of `captures.merge`. It is always open."""

    def __init__(self, tap: Tap, order: int) -> None:
        self.tap = tap
        self.pending = Pending(order)
        self._position = 0

    @property
    def first_place(self) -> Place:
        return self.pending.first

    def open(self) -> bool:
        return True

    def fill(self) -> bool:
        return len(self.pending) > 0

    def scan(self) -> None:
        """Have the packets pending that are there now. All earlier ones were taken."""
        count, self._position = self.tap.scan(1), 0
        if count:
            self.pending.add(self.tap.packets["ts"][:count])

    def take(self, count: int) -> Array:
        """Remove and return the rows of the next packets."""
        first, self._position = self._position, self._position + count
        return self.tap.packets[first : self._position]


class Capture:
    """All captured interfaces. `notify` gets a line when an interface goes down or comes back."""

    #: What an interface that is down or gone has to be, so that packets are captured again.
    back = "back"

    def __init__(self, taps: Sequence[Tap], notify: Callable[[str], None] = lambda text: None) -> None:
        self.taps = tuple(taps)
        self._notify = notify
        self._number = 1
        self._merger = Merger[_TapPackets]()
        self._merger.opened += [_TapPackets(tap, order) for order, tap in enumerate(self.taps)]
        self._blocks = Blocks(1)
        self._lost: list[Tap] = []  # taps whose interface is down or gone
        self._look = 0.0  # when to look for them again

    def wait(self, seconds: float) -> None:
        """Wait until packets arrive, at most so long, and GATHER seconds more."""
        self.wait_for((self,), seconds)

    @staticmethod
    def wait_for(every: Sequence[Capture], seconds: float) -> None:
        """The same for any of several captures."""
        for each in every:
            if each._lost and time.monotonic() >= each._look:
                each._find_lost()
        taps = [tap for each in every for tap in each.taps]
        if not any(tap.ready for tap in taps):
            found = select.select(taps, [], [], seconds)[0]
            for each in every:
                each._note_lost([tap for tap in each.taps if tap in found])
        time.sleep(GATHER)

    def _note_lost(self, found: Sequence[Tap]) -> None:
        """Note which of these taps have an error: their interface is down or gone."""
        for tap in found:
            said = tap.error()
            if said and tap not in self._lost:
                before = tap.interface
                tap.interface = replace(before, name=present(before).name)
                name = _said_name(before, tap.interface)
                self._notify(f"{name}: {said[:1].lower()}{said[1:]}; packets are captured again once it is {self.back}")
                self._lost.append(tap)

    def _find_lost(self) -> None:
        for tap in self._lost[:]:
            before = tap.interface
            if tap.revive():
                self._notify(f"{_said_name(before, tap.interface)} is up again")
                self._lost.remove(tap)
        self._look = time.monotonic() + LOOK_AGAIN

    def parts(self, assembly: Assembly) -> Iterator[Assembled]:
        """What reassembly makes of the packets that are there now. A part's bytes are valid until the next part."""
        tap = self.taps[0]
        if len(self.taps) == 1 and tap.assemble is not None:
            yield from assembly.read(tap.buffer, tap.assemble)
            tap.release()
            return
        for buffer, packets, count in self.blocks():
            yield from assembly.feed(buffer, packets, 0, count)

    def blocks(self) -> Iterator[tuple[Array, Array, int]]:
        """(buffer, PACKET rows, count) of the packets that are there now. The bytes are valid until the next block."""
        if len(self.taps) == 1:
            tap = self.taps[0]
            count = tap.scan(self._number)
            self._number += count
            if count:
                yield tap.buffer, tap.packets, count
            tap.release()
            return
        yield from self._merged()

    def _merged(self) -> Iterator[tuple[Array, Array, int]]:
        """Blocks of the packets of all interfaces, in time order."""
        for source in self._merger.opened:
            source.scan()
        while part := self._merger.next_part():
            blocks = [(source.tap.buffer, source.take(len(times))) for source, times in part]
            buffer, run = blocks[0] if len(blocks) == 1 else self._blocks.join(blocks, places(part))
            run["number"] = np.arange(self._number, self._number + len(run))
            self._number += len(run)
            yield buffer, run, len(run)
        for tap in self.taps:
            tap.release()

    @property
    def names(self) -> tuple[str, ...]:
        """The interfaces, by their present names as far as known: a rename shows when one goes down or comes back."""
        return tuple(tap.interface.name for tap in self.taps)

    @property
    def links(self) -> dict[int, str]:
        """The link types, each with the names of its interfaces."""
        named: dict[int, list[str]] = {}
        for tap in self.taps:
            named.setdefault(tap.interface.link_type, []).append(tap.interface.name)
        return {link_type: ", ".join(names) for link_type, names in named.items()}

    def counters(self) -> tuple[int, int]:
        """Packets that passed the filter, and how many of them the kernel dropped, since the start."""
        both = [tap.counters() for tap in self.taps]
        return sum(seen for seen, _ in both), sum(dropped for _, dropped in both)

    @property
    def backlog(self) -> float:
        """The full part of the fullest buffer, 0 to 1."""
        return max((tap.backlog for tap in self.taps), default=0.0)

    @property
    def has_more(self) -> bool:
        """Whether so many packets wait that a round is worth its cost."""
        return self.backlog >= LITTLE

    @property
    def recorded_from(self) -> Capture:
        """The capture that has all packets."""
        return self

    def stop(self) -> None:
        """Let no more packets in. Those that are there can still be read."""
        for tap in self.taps:
            tap.stop()

    def unread(self) -> int:
        """Packets that passed the filter, were not dropped, and not read through `blocks`."""
        return sum(tap.unread() for tap in self.taps)

    def close(self) -> None:
        for tap in self.taps:
            tap.close()


def _said_name(before: Interface, now: Interface) -> str:
    """The name of an interface in a line, with the one that earlier lines have."""
    return now.name if now.name == before.name else f"{now.name} (formerly {before.name})"


def open_capture(
    names: Sequence[str],
    expression: str | None,
    size: int,
    *,
    promiscuous: bool = False,
    by_scapy: bool = False,
    ready: Callable[[], None] = lambda: None,
    notify: Callable[[str], None] = lambda text: None,
) -> Capture:
    """Capture on these interfaces, with `size` bytes of ring in all. `expression`: None for the default filter.

    `ready` is called after all checks and before the first packet arrives: do slow work there. ValueError for a wrong
    name or filter, PermissionError without CAP_NET_RAW.
    """
    chosen = [find(name) for name in dict.fromkeys(names)] if sys.platform == "linux" else []
    taps: list[Tap] = []
    try:
        if by_scapy or sys.platform != "linux":
            from .scapy_socket import CaptureSocket

            ready()
            every = dict.fromkeys(each for name in names for each in (interfaces.names() if name == ANY else [name]))
            for name in every:
                try:
                    if name in names or sys.platform != "linux" or find(name).up:
                        taps.append(CaptureSocket(name, expression, size // len(every), promiscuous))
                except (OSError, ValueError):
                    if name in names or name in interfaces.names():
                        raise
                    # (It was one of `any`, and disappeared meanwhile.)
        else:
            from .afpacket_ring import Ring, check_capability

            programs = [capture_filter.program_for(expression, each.link_type, each.name) for each in chosen]
            check_capability()
            ready()
            for interface, program in zip(chosen, programs, strict=True):
                taps.append(Ring(interface, program, size // len(chosen), promiscuous))
    except BaseException:
        for tap in taps:
            tap.close()
        raise
    return Capture(taps, notify)
