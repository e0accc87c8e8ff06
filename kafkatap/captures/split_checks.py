"""Check that the splits of a file fit together, and add up what they report.

Packets and bytes of a file are the sums over its splits. Its damage is that of the first damaged split; later splits do
not count (`void`), because a capture is not read beyond damage. Drop counts are cumulative for each interface, so the
last one counts (`dropped`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import groupby
from typing import Any, cast

from .splits import Split

#: A split, where it begins, and where it ends (None: see `SplitReader`).
Bounds = tuple[Split, int | None, int | None]


def misplaced(bounds: Iterable[Bounds]) -> list[tuple[Split, int]]:
    """In each file, the first split that did not begin where the one before it ended, and where it begins.

    `bounds`: of all splits, in order. Call it again after these splits were read again.
    """
    wrong = []
    for _, group in _by_file(bounds):
        expected: int | None = None
        for split, begins, ends in group:
            if expected is not None and begins != expected:
                wrong.append((split, expected))
                break
            if ends is None:
                break
            expected = ends
    return wrong


def void(bounds: Iterable[Bounds]) -> list[Split]:
    """The splits beyond the damage or the end of their file, once none are `misplaced`."""
    beyond = []
    for _, group in _by_file(bounds):
        over = False
        for split, _, ends in group:
            if over:
                beyond.append(split)
            over = over or ends is None
    return beyond


def misinformed(interfaces: Iterable[tuple[Split, bytes]]) -> list[Split]:
    """The splits that lacked interface descriptions before them, corrected, to be read again.

    `interfaces`: all splits in order, each with its `interfaces_read`. Call it again after these splits were read
    again.
    """
    wrong = []
    for _, group in _by_file(interfaces):
        known = b""
        for split, more in group:
            if split.interfaces != known:
                wrong.append(replace(split, interfaces=known))
            known += more
    return wrong


def dropped(drops: Iterable[dict[int, int]]) -> int | None:
    """Dropped packets of one file, from the counts of its splits in order. None if no split has a count."""
    last: dict[int, int] = {}
    for counts in drops:
        last.update(counts)
    return sum(last.values()) if last else None


def _by_file(rows: Iterable[tuple[Any, ...]]) -> Iterator[tuple[int, Iterator[tuple[Any, ...]]]]:
    return groupby(rows, key=lambda row: cast(int, row[0].file))
