"""The wanted packets of several captures in time order, as `captures.merge` sorts them."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence

from ..captures.capture_reader import FileReport
from ..captures.merge import CUT_DELAY_NS
from .wanted_packets import CapturePass, WantedPacket

#: A packet with what it is sorted by: its time, but never less than that of a packet before in its capture; the place
#: of its capture; its place in the capture.
_Keyed = tuple[int, int, int, WantedPacket]


def merged_packets(passes: Sequence[tuple[FileReport, CapturePass]]) -> Iterator[WantedPacket]:
    """Yield the wanted packets of all captures. Captures are open only while their turn has come."""
    if len(passes) == 1:
        yield from passes[0][1].packets()
        return
    there = [(report, order, one) for order, (report, one) in enumerate(passes) if report.first is not None]
    there.sort(key=lambda entry: (entry[0].first or 0, entry[1]))
    for group in _overlapping(there):
        for *_, packet in heapq.merge(*(_keyed(order, one) for _, order, one in group)):
            yield packet


_Entry = tuple[FileReport, int, CapturePass]


def _overlapping(captures: Iterable[_Entry]) -> Iterator[list[_Entry]]:
    """Group captures whose times overlap, in order."""
    group: list[_Entry] = []
    latest = 0
    for entry in captures:
        report = entry[0]
        if group and (report.first or 0) > latest + CUT_DELAY_NS:
            yield group
            group = []
        group.append(entry)
        latest = max(latest, report.last or 0) if len(group) > 1 else report.last or 0
    if group:
        yield group


def _keyed(order: int, one: CapturePass) -> Iterator[_Keyed]:
    latest = -(1 << 63)
    for place, packet in enumerate(one.packets()):
        latest = max(latest, packet.ts + one.delay)
        yield latest, order, place, packet
