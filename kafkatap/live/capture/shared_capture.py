"""`SharedCapture`: the packets of interfaces, shared out to several engines by connection (`fanout`)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np

from ...engine.assembly import Assembled, Assembly
from . import capture_filter
from .afpacket_ring import Ring, check_capability
from .fanout import Fanout
from .interfaces import find
from .packet_source import GATHER, Capture

Array = np.ndarray[Any, Any]


#: The full part of a buffer up to which packets gather for longer than GATHER, and how many times that at most.
_NEARLY_EMPTY, _LONGEST = 0.05, 4


class _Part(Capture):
    """The packets of one engine. `seen`: the full part of its buffer when it was read last."""

    seen = 0.0
    back = "up; with --jobs not if it is made anew"

    def parts(self, assembly: Assembly) -> Iterator[Assembled]:
        self.seen = self.backlog
        yield from super().parts(assembly)


class SharedCapture(Capture):
    """`shares`: the packets of each engine. `whole`: all packets once more, for those who record them."""

    def __init__(self, shares: Sequence[_Part], whole: Capture | None) -> None:
        self.shares = tuple(shares)
        self._whole = whole
        super().__init__([tap for each in shares for tap in each.taps])

    def wait(self, seconds: float) -> None:
        """As of `Capture`. Packets gather for longer while the buffers are nearly empty: each engine has its rounds."""
        every = (*self.shares, *self._others())
        self.wait_for(every, seconds)
        for _ in range(min(len(self.shares), _LONGEST) - 1):
            if max(each.backlog for each in every) > _NEARLY_EMPTY:
                return
            time.sleep(GATHER)

    def _others(self) -> tuple[Capture, ...]:
        return () if self._whole is None else (self._whole,)

    def recorded(self) -> Iterator[tuple[Array, Array, int]]:
        """All packets that are there now, as of `blocks`."""
        return chain.from_iterable(each.blocks() for each in self._others())

    @property
    def recorded_from(self) -> Capture:
        return self if self._whole is None else self._whole

    @property
    def names(self) -> tuple[str, ...]:
        return self.shares[0].names

    @property
    def links(self) -> dict[int, str]:
        return self.shares[0].links

    @property
    def backlog(self) -> float:
        """As of the last round: an engine may read its buffer now."""
        return max(*(each.seen for each in self.shares), *(each.backlog for each in self._others()))

    def stop(self) -> None:
        super().stop()
        for each in self._others():
            each.stop()

    def close(self) -> None:
        super().close()
        for each in self._others():
            each.close()


def open_shared_capture(
    names: Sequence[str],
    expression: str | None,
    size: int,
    jobs: int,
    *,
    is_recorded: bool = False,
    promiscuous: bool = False,
    ready: Callable[[], None] = lambda: None,
    notify: Callable[[str], None] = lambda text: None,
) -> SharedCapture:
    """As `open_capture`, for so many engines. `is_recorded`: someone reads all packets."""
    chosen = [find(name) for name in dict.fromkeys(names)]
    programs = [capture_filter.program_for(expression, each.link_type, each.name) for each in chosen]
    check_capability()
    ready()
    size //= len(chosen) * (jobs + is_recorded)
    shares: list[list[Ring]] = [[] for _ in range(jobs)]
    whole: list[Ring] = []
    try:
        for interface, program in zip(chosen, programs, strict=True):
            group = Fanout()
            for share in shares:
                share.append(Ring(interface, program, size, promiscuous, group))
            if is_recorded:
                whole.append(Ring(interface, program, size, promiscuous))
        for ring in chain.from_iterable(shares):
            ring.begin()
    except BaseException:
        for ring in (*chain.from_iterable(shares), *whole):
            ring.close()
        raise
    # What happens to interfaces is said once.
    parts = [_Part(share, notify if number == 0 else lambda text: None) for number, share in enumerate(shares)]
    return SharedCapture(parts, Capture(whole) if whole else None)
