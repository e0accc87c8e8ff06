"""Where the captures of a run were made: the capture point of each packet, and how far each point was read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..captures.capture_points import CLOSE_NS, CapturePoints, ReadPoint
from ..captures.pack_reader import FileRead
from .checkpoint import read_until

Array = np.ndarray[Any, Any]
#: The capture point of the packets from a number on.
POINT_RANGE = np.dtype([("packet", "i8"), ("point", "i4")])
#: So many flows of the first captures stay open, although their connections were closed, until the next ones show
#: whether these were made at another point.
MOST_WAITING = 10_000


@dataclass(frozen=True, slots=True)
class RunPoints:
    """`ranges`: POINT_RANGE of the files, in order. `of_file`: the point of each file. `read`: all points so far.
    `is_first`: no captures were read before."""

    ranges: Array = field(default_factory=lambda: np.zeros(0, POINT_RANGE))
    of_file: dict[int, int] = field(default_factory=dict)
    read: tuple[ReadPoint, ...] = ()
    is_first: bool = False

    def closed_until(self, flows: int) -> int | None:
        """Connections that were closed later than this may have packets at points that are behind. None: none may.
        `flows`: how many the captures have."""
        if self.is_first and len(self.read) == 1 and flows <= MOST_WAITING:
            return self.read[0].first
        return read_until(self.read)

    @property
    def merged_until(self) -> int | None:
        """Packets after this time wait for those of points that are a bit behind. None: none wait."""
        return read_until(self.read, CLOSE_NS)


def note_points(packets: Array, ranges: Array) -> None:
    """Note in PACKET rows where they were captured. `ranges`: POINT_RANGE; packets before all of them stay as they
    are."""
    places = np.searchsorted(ranges["packet"], packets["number"], "right") - 1
    is_known = places >= 0
    packets["point"][is_known] = ranges["point"][places[is_known]]


def points_of_run(files: Iterable[tuple[int, int, FileRead]], known: Sequence[ReadPoint] = ()) -> RunPoints:
    """The points of files. `files`: in order, the number of each part of a file, the packets before it, and its
    report. `known`: the points of captures that were read before."""
    parts = list(files)
    spans: dict[int, tuple[int, int]] = {}
    for number, _, read in parts:
        first, last = read.report.first or 0, read.report.last or 0
        low, high = spans.get(number, (first, last))
        spans[number] = min(low, first), max(high, last)
    points, of_file, rows, found = CapturePoints(known), dict[int, int](), [], dict(enumerate(known))
    batch: dict[int, int] = {}  # by point, its first time in these files
    for number, base, read in parts:
        if number not in of_file:
            point = of_file[number] = points.begin(read.report.path, read.head_time or 0)
            first, last = spans[number]
            points.end(point, last)
            batch[point] = min(batch.get(point, first), first)
            before = found[point].last if point in found else last
            found[point] = ReadPoint(read.report.path, batch[point], max(before, last))
        rows.append((base + 1, of_file[number]))
    return RunPoints(
        np.array(rows, POINT_RANGE), of_file, tuple(found[point] for point in sorted(found)), not known
    )  # fmt: skip
