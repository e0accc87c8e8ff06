"""Packs: small captures of one series that are read one after the other, as one split.

A series has the files whose names differ only in digits: those of a rotation. They are in one folder, or in folders
that are named after dates and differ only in digits, too. Nothing of a file is read to pack it, so the order of a
series is a guess (`pack_splits`): by the numbers in its names. `PackReader` shows whether the guess was right. If not,
`repack` makes packs in order of the times that it read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations, groupby
from typing import Any

import numpy as np

from .capture_points import SLACK_NS
from .splits import Split

#: Splits that are read as one: a part of a file, or whole files.
Pack = tuple[Split, ...]
Array = np.ndarray[Any, Any]

#: The bounds of a split size that nobody chose, and how many splits a core has then.
SMALLEST, LARGEST, SPLITS_A_CORE = 64 << 20, 1 << 30, 4
_UNKNOWN_CORES = 16
#: To open a file takes as long as to read this many bytes.
_OPENING = 128 << 10
#: A guess of how much longer a compressed capture is than its file.
_EXPANSION = 3
_COMPRESSED = (".gz", ".zst")
_DIGITS = re.compile(r"\d+")
_DATE = re.compile(r"20\d\d\D?[01]\d")
#: The part of a split that is enough for a pack at the end of a folder.
_ENOUGH = 0.5
#: At most so many numbers of a name can tell one series from another.
_NUMBERS = 6


@dataclass(frozen=True, slots=True)
class TimedFile:
    """A file that was read: the time of its first packet and the latest of all, None if it has no packets."""

    split: Split
    first: int | None
    last: int | None


def choose_split_size(total: int, cores: int | None) -> int:
    """The split size for files of `total` bytes on so many cores (None: unknown): a few splits for each core."""
    return min(max(-(-total // (SPLITS_A_CORE * (cores or _UNKNOWN_CORES))), SMALLEST), LARGEST)


def pack_splits(splits: Iterable[Split], size: int) -> list[Pack]:
    """Packs of at most `size` bytes. Parts of files, and larger files, are packs of one split. 0: pack nothing."""
    packs: list[Pack] = []
    series: dict[str, list[Split]] = {}
    for split in splits:
        if size <= 0 or split.head or _weight(split) > size:
            packs.append((split,))
        else:
            series.setdefault(_series(split.path), []).append(split)
    for files in series.values():
        packs += _filled(sorted(files, key=lambda split: (_numbers(split.path), split.path)), size)
    return packs


def repack(files: Iterable[TimedFile], size: int) -> list[Pack]:
    """Packs of at most `size` bytes whose files are in order."""
    series: dict[str, list[TimedFile]] = {}
    packs: list[Pack] = []
    for file in files:
        series.setdefault(_series(file.split.path), []).append(file)
    for some in series.values():
        packs += _filled([file.split for file in some if file.first is None], size)
        for chain in _chains([file for file in some if file.first is not None]):
            packs += _filled([file.split for file in chain], size)
    return packs


def _folder(path: str) -> str:
    return path.rpartition("/")[0]


def _series(path: str) -> str:
    folder = _folder(path)
    if _DATE.search(folder):
        folder = _DIGITS.sub("0", folder)
    return folder + _DIGITS.sub("0", path[len(_folder(path)) :])


def _numbers(path: str) -> tuple[int, ...]:
    return tuple(int(digits) for digits in _DIGITS.findall(path))


def _weight(split: Split) -> int:
    """The bytes of a capture, as far as they can be guessed."""
    return _OPENING + split.size * (_EXPANSION if _is_compressed(split.path) else 1)


def _is_compressed(path: str) -> bool:
    return path.lower().endswith(_COMPRESSED)


def weight_of(pack: Pack) -> int:
    """The bytes of a pack's captures, as far as they can be guessed."""
    return sum(split.length if split.head else _weight(split) for split in pack)


def shared_tasks(weights: Sequence[int], size: int) -> list[range]:
    """Consecutive packs, by number, that one task reads one after the other: at most `size` bytes, or one pack."""
    found: list[range] = []
    first, total = 0, 0
    for number, weight in enumerate(weights):
        if number > first and total + weight > size:
            found.append(range(first, number))
            first, total = number, 0
        total += weight
    return [*found, range(first, len(weights))] if weights else found


def tasks_of(path: str, size: int, split_size: int) -> float:
    """How many tasks read a capture of `size` bytes: less than 1 if it is packed with others."""
    tasks = _weight(Split(path, size=size)) / split_size if split_size > 0 else 1.0
    return min(tasks, 1.0) if _is_compressed(path) or split_size <= 0 else tasks


def _filled(splits: Iterable[Split], size: int) -> list[Pack]:
    """Packs of consecutive splits. A pack that is large enough ends with its folder: the next one may be another
    series."""
    packs: list[Pack] = []
    pack: list[Split] = []
    room = size
    for split in splits:
        weight = _weight(split)
        is_full = room < size * (1 - _ENOUGH) and _folder(split.path) != _folder(pack[-1].path)
        if pack and (weight > room or is_full):
            packs.append(tuple(pack))
            pack, room = [], size
        pack.append(split)
        room -= weight
    return [*packs, tuple(pack)] if pack else packs


def _chains(files: Sequence[TimedFile]) -> list[list[TimedFile]]:
    """Chains of files, each in order. Which numbers of the names tell the chains apart is found by trying."""
    if not files:
        return []
    numbers = np.array([_numbers(file.split.path) for file in files], object).reshape(len(files), -1)
    columns = [np.unique(column, return_inverse=True)[1] for column in numbers.T]
    distinct = [int(column.max()) for column in columns]
    varying = sorted((c for c in range(len(columns)) if distinct[c]), key=lambda c: distinct[c])[:_NUMBERS]
    times = np.array([(file.first, file.last, file.split.file) for file in files], np.int64)
    best: tuple[int, Array, Array] | None = None
    for count in range(len(varying) + 1):
        for chosen in combinations(varying, count):
            found = _grouped([columns[c] for c in chosen], times)
            if found is not None and (best is None or found[0] < best[0]):
                best = found
    if best is None:
        return [[file] for file in files]
    _, order, groups = best
    rows = zip(order.tolist(), groups.tolist(), strict=True)
    return [[files[i] for i, _ in chain] for _, chain in groupby(rows, key=lambda row: row[1])]


def _grouped(columns: Sequence[Array], times: Array) -> tuple[int, Array, Array] | None:
    """(how many groups, the files in order of group and time, the group of each) if the files of all groups are in
    order. A group has equal values in all columns."""
    first, last, number = times.T
    order = np.lexsort((number, first, *columns))
    is_new = np.ones(len(order), bool)
    is_new[1:] = False
    for column in columns:
        is_new[1:] |= np.diff(column[order]) != 0
    if np.any(~is_new[1:] & (last[order][:-1] > first[order][1:] + SLACK_NS)):
        return None
    groups = np.cumsum(is_new)
    return int(groups[-1]), order, groups
