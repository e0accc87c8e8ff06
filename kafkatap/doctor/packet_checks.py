"""`PacketChecks`: what the packets of captures show before anything is decoded.

For each capture: lengths, cut packets, the resolution of times, and the order of times. For all: link types, VLAN tags,
interfaces of cooked captures, bytes by second. `add` sees all packets of a run, block by block, as arrays.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kafkatap.reassembly.link_types import ETHERNET, SLL, SLL2

from ..captures.capture_reader import FileReport
from ..captures.merged_captures import MergedPackets
from .clock_steps import ClockStep

Array = np.ndarray[Any, Any]
MS = 1_000_000
#: Resolutions of time stamps that are coarser than those of capture programs, ns; the coarsest first.
COARSE_NS = (1_000 * MS, 100 * MS, 10 * MS, MS)
#: A step back of packet times, ns, of which this many packets later none is back at the old time.
STEP_BACK_NS, STEP_PACKETS = 100 * MS, 16
#: How late a packet may come so that reassembly still puts it in order, ns.
PATIENCE_NS = 50 * MS
#: Seconds of which bytes are counted.
MOST_SECONDS = 1_000_000
_VLAN_TYPES = np.array([0x8100, 0x88A8, 0x9100], np.int64)


class CaptureChecks:
    """What the packets of one capture show. Times in ns.

    `cut`: packets with fewer bytes than on the wire. `longest_kept`: the most captured bytes of a cut packet.
    `coarsest`: the coarsest resolution of COARSE_NS in which all times are whole, or None. `late`: packets with a time
    before that of an earlier one, `latest_ns`: by how much at most. `very_late`: those beyond PATIENCE_NS. `backs`: how
    often the times of a long run of packets (STEP_PACKETS) lie before those ahead of it.
    """

    def __init__(self, report: FileReport) -> None:
        self.report = report
        self.packets = self.cut = self.cut_bytes = self.longest_kept = self.longest = 0
        self.late = self.very_late = self.latest_ns = 0
        self.wire_bytes = self.backs = 0
        self._resolutions = list(COARSE_NS)
        self._latest = -(1 << 62)
        self._distinct: set[int] = set()

    def add(self, rows: Array, point: int) -> list[ClockStep]:
        """Add PACKET rows; return steps back of the clock that they show."""
        times, kept, length = rows["ts"], rows["captured"].astype(np.int64), rows["original"].astype(np.int64)
        self.packets += len(rows)
        is_cut = kept < length
        self.cut += int(is_cut.sum())
        self.cut_bytes += int((length - kept)[is_cut].sum())
        self.longest_kept = max(self.longest_kept, int(kept[is_cut].max(initial=0)))
        self.longest = max(self.longest, int(length.max()))
        self.wire_bytes += int(length.sum())
        self._resolutions = [r for r in self._resolutions if not (times % r).any()]
        if self._resolutions and len(self._distinct) < 3:
            self._distinct.update(times[:1_000].tolist())
        earlier = np.maximum.accumulate(np.append(self._latest, times))[:-1]
        lateness = np.maximum(earlier - times, 0)
        self.late += int((lateness > 0).sum())
        self.very_late += int((lateness > PATIENCE_NS).sum())
        self.latest_ns = max(self.latest_ns, int(lateness.max()))
        self._latest = max(self._latest, int(times.max()))
        found = self._steps_back(rows, point)
        self.backs += len(found)
        return found

    def _steps_back(self, rows: Array, point: int) -> list[ClockStep]:
        times = rows["ts"]
        steps = np.diff(times)
        found = []
        for at in np.flatnonzero(steps <= -STEP_BACK_NS).tolist():
            after, before = int(times[at]), times[at + 1 : at + 1 + STEP_PACKETS]
            if len(before) < STEP_PACKETS or int(before.max()) > after + int(steps[at]) // 2:
                continue
            numbers = rows["number"]
            found.append(
                ClockStep(point, int(steps[at]), int(numbers[at]), int(numbers[at + 1]), int(before[0]), 0)
            )  # fmt: skip
        return found

    @property
    def coarsest(self) -> int | None:
        return self._resolutions[0] if self._resolutions and len(self._distinct) >= 3 else None


class PacketChecks:
    """All packets of a run. `links`: packets by link type. `cooked_interfaces`: packets by the interface number of
    Linux's cooked header v2. `points`: the capture points of each capture, by path."""

    def __init__(self) -> None:
        self.captures: dict[int, CaptureChecks] = {}  # by id of their reports, which they keep
        self.links: dict[int, int] = {}
        self.cooked_interfaces: dict[int, int] = {}
        self.vlan = 0
        self.points: dict[str, int] = {}
        self.steps_back: list[ClockStep] = []
        self._seconds: dict[int, int] = {}

    def add(self, merged: MergedPackets) -> None:
        """Add the packets of a step of a run."""
        for _, report in merged.captures:
            self.captures.setdefault(id(report), CaptureChecks(report))
        if merged.end <= merged.first:
            return
        self.points.update((report.path, point) for point, report in merged.captures)
        rows = merged.packets[merged.first : merged.end]
        by_point = dict(merged.captures)
        points = rows["point"]
        for point in np.unique(points).tolist():
            checks = self.captures[id(by_point[point])]
            self.steps_back += checks.add(rows if len(by_point) == 1 else rows[points == point], point)
        self._add_links(merged.buffer, rows)
        seconds, inverse = np.unique(rows["ts"] // 1_000_000_000, return_inverse=True)
        sizes = np.bincount(inverse, weights=rows["original"])
        for second, size in zip(seconds.tolist(), sizes.tolist(), strict=True):
            if second in self._seconds or len(self._seconds) < MOST_SECONDS:
                self._seconds[second] = self._seconds.get(second, 0) + int(size)

    def _add_links(self, buffer: Array, rows: Array) -> None:
        links, counts = np.unique(rows["link_type"], return_counts=True)
        for link, count in zip(links.tolist(), counts.tolist(), strict=True):
            self.links[link] = self.links.get(link, 0) + count
        kinds = {ETHERNET: (12, 14), SLL: (14, 16), SLL2: (0, 8)}
        for link in links.tolist():
            if link not in kinds:
                continue
            first, length = kinds[link]
            at = rows["at"][(rows["link_type"] == link) & (rows["captured"] >= length)]
            types = (buffer[at + first].astype(np.int64) << 8) | buffer[at + first + 1]
            self.vlan += int(np.isin(types, _VLAN_TYPES).sum())
            if link == SLL2:
                numbers = np.zeros(len(at), np.int64)
                for place in range(4, 8):
                    numbers = (numbers << 8) | buffer[at + place]
                for number, count in zip(*(a.tolist() for a in np.unique(numbers, return_counts=True)), strict=True):
                    if number in self.cooked_interfaces or len(self.cooked_interfaces) < 1_000:
                        self.cooked_interfaces[number] = self.cooked_interfaces.get(number, 0) + count

    @property
    def paths(self) -> dict[int, str]:
        """How a message names each capture point: its file, or the first of its files."""
        found: dict[int, list[str]] = {}
        for path, point in self.points.items():
            found.setdefault(point, []).append(path)
        return {p: names[0] if len(names) == 1 else f"{names[0]} …" for p, names in found.items()}

    @property
    def busiest_second(self) -> int:
        """The bytes on the wire in the busiest second."""
        return max(self._seconds.values(), default=0)
