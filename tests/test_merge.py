"""Time order: whatever plugs into the merger, its packets come in the order that the rules say."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from types import SimpleNamespace
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kafkatap.captures.merge import CUT_DELAY_NS, Blocks, Merger, Pending, Place, places
from kafkatap.live.capture.packet_source import Capture
from kafkatap.reassembly.dtypes import PACKET

#: Steps between packets, ns: also back, and around CUT_DELAY_NS.
STEPS = st.one_of(st.integers(-20, 20), st.sampled_from([-CUT_DELAY_NS, CUT_DELAY_NS, CUT_DELAY_NS + 1]))
TIMES = st.lists(STEPS, min_size=1, max_size=12).map(lambda steps: list(accumulate(steps)))


def in_order(sources: Sequence[Sequence[int]], cut: Sequence[bool] = ()) -> list[tuple[int, int]]:
    """(source, number in it) of all packets, by the rules."""
    keyed = []
    for order, times in enumerate(sources):
        delay = CUT_DELAY_NS if cut and cut[order] else 0
        keyed += [(time + delay, order, n) for n, time in enumerate(accumulate(times, max))]
    return [(order, n) for _, order, n in sorted(keyed)]


class Listed:
    """A source that reads so many packets at once. Each second time that it is asked it has none, if it `pauses`."""

    def __init__(self, order: int, times: list[int], is_cut: bool, at_once: int, pauses: bool = False) -> None:
        self.first_place: Place = times[0], order
        self.pending = Pending(order, is_cut)
        self.left, self.at_once = times, at_once
        self.is_open, self.number = False, 0
        self.pauses, self.is_pausing = pauses, False

    def open(self) -> bool:
        self.is_open = True
        return True

    def fill(self) -> bool:
        assert self.is_open
        if not self.pending and self.left:
            self.is_pausing = self.pauses and not self.is_pausing
            if self.is_pausing:
                return False
            self.pending.add(np.array(self.left[: self.at_once], np.int64))
            self.left = self.left[self.at_once :]
        return len(self.pending) > 0


def merged(sources: Sequence[Listed]) -> list[tuple[int, int]]:
    merger = Merger[Listed]()
    for source in sources:
        merger.add(source)
    found = []
    while merger.is_waiting or merger.opened:
        part = merger.next_part(lambda ready: [one for one in merger.opened if one.left and one not in ready])
        numbered = []
        for source, times in part:
            numbered += [(source.pending.order, source.number + n) for n in range(len(times))]
            source.number += len(times)
        found += [numbered[place] for place in places(part)] if part else []
        merger.opened[:] = [source for source in merger.opened if source.left or source.pending]
    return found


@given(
    times=st.lists(TIMES, min_size=1, max_size=4), cut=st.lists(st.booleans(), min_size=4, max_size=4),
    at_once=st.integers(1, 13), pauses=st.booleans(),
)  # fmt: skip
def test_the_order_is_that_of_the_rules(
    times: list[list[int]], cut: list[bool], at_once: int, pauses: bool
) -> None:  # fmt: skip
    """Also with sources that have nothing now, if they are waited for."""
    sources = [Listed(n, one, cut[n], at_once, pauses) for n, one in enumerate(times)]
    assert merged(sources) == in_order(times, cut)


class FakeTap:
    """An interface whose packets have been captured: byte `n` of each is its number."""

    def __init__(self, name: str, times: Sequence[int], room: int) -> None:
        self.interface: Any = SimpleNamespace(name=name, link_type=1)
        self.buffer = np.zeros(room * len(times) + 1, np.uint8)
        self.packets = np.zeros(len(times), PACKET)
        self.packets["ts"], self.packets["captured"] = times, 2
        # A ring begins again at its start, and has unused bytes between packets.
        self.packets["at"] = np.roll(np.arange(len(times)) * room, len(times) // 2)
        for n, at in enumerate(self.packets["at"]):
            self.buffer[at : at + 2] = n, ord(name)
        self._left = len(times)

    def scan(self, number: int) -> int:
        found, self._left = self._left, 0
        return found

    def release(self) -> None:
        self.buffer[:] = 0xAA


@given(times=st.lists(TIMES, min_size=2, max_size=3), room=st.sampled_from([2, 9, 5_000]))
def test_packets_of_interfaces_are_in_that_order(times: list[list[int]], room: int) -> None:
    taps: Any = [FakeTap(name, one, room) for name, one in zip("abc", times, strict=False)]
    found, numbers = [], []
    for buffer, packets, count in Capture(taps).blocks():
        for packet in packets[:count]:
            n, name = buffer[packet["at"] : packet["at"] + 2]
            found.append(("abc".index(chr(name)), int(n)))
        numbers += packets["number"][:count].tolist()
    assert found == in_order(times)
    assert numbers == list(range(1, len(found) + 1))


def test_unused_bytes_between_packets_are_not_copied() -> None:
    """Blocks of a ring may be nearly empty: a joined block has room for the packets, not for the rings."""
    taps = [FakeTap(name, [1, 2, 3], 1 << 20) for name in "ab"]
    buffer, packets = Blocks(1).join([(tap.buffer, tap.packets) for tap in taps], np.arange(6))
    assert len(buffer) == 12
    assert [bytes(buffer[at : at + 2]) for at in packets["at"]] == [
        bytes((n, ord(name))) for name in "ab" for n in range(3)
    ]
