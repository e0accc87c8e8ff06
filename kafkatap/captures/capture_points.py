"""`CapturePoints`: which captures were made at the same place.

A capture point is a sequence of captures that do not overlap in time, such as the files of a rotation. Captures that
overlap by more than SLACK_NS were made at different points.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import takewhile
from typing import NamedTuple

#: Time stamps step back within one file too. Captures overlap only where they do so by more than this.
SLACK_NS = 1_000_000
#: The clocks of points differ by less than this.
CLOSE_NS = 1_000_000_000


class ReadPoint(NamedTuple):
    """A point after some captures: the path of its latest one, and the times of its latest packets, ns since the epoch.

    `first`: of the captures that were read together with the latest one."""

    path: str
    first: int
    last: int


class CapturePoints:
    """Assigns points, numbered from 0, to captures in the order of their first packets. `known`: those of captures
    that were read before."""

    def __init__(self, known: Iterable[ReadPoint] = ()) -> None:
        #: by point: the last time and the path of its latest capture
        self._latest: list[tuple[int | None, str]] = [(point.last, point.path) for point in known]

    def __len__(self) -> int:
        return len(self._latest)

    def begin(self, path: str, first: int) -> int:
        """Return the point of the next capture. `first`: the time of its first packet, ns since the epoch.

        The last times of all captures before must be known. Of several points that the capture may continue, it is the
        one with the most similar path.
        """
        over = [
            point for point, (last, _) in enumerate(self._latest) if last is not None and last <= first + SLACK_NS
        ]  # fmt: skip
        if over:
            point = max(over, key=lambda p: (_equal_characters(path, self._latest[p][1]), -p))
        else:
            point = len(self._latest)
            self._latest.append((None, path))
        self._latest[point] = None, path
        return point

    def end(self, point: int, last: int | None) -> None:
        """Note the last time of the latest capture of a point. None: it is not known, and may overlap all others."""
        self._latest[point] = last, self._latest[point][1]


def _equal_characters(one: str, other: str) -> int:
    """How many characters both begin with."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
