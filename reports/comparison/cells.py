"""Cells: sets of leaves that are compared as one, such as all leaves of a client."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from ..batch import Array
from .leaves import Key, Leaves

#: The parts of keys by which leaves are put together, from the whole to single leaves.
KINDS: tuple[tuple[str, ...], ...] = (
    (), ("api",), ("client",), ("broker",), ("api", "client"), ("api", "broker"), ("client", "broker"),
    ("api", "client", "broker"),
)  # fmt: skip
TOPIC_KINDS: tuple[tuple[str, ...], ...] = (("topic",), ("api", "topic"))
CONNECTION_KINDS: tuple[tuple[str, ...], ...] = ((), ("client",), ("broker",))
#: Cells of one kind that are compared at most: those with the most exchanges.
MOST_CELLS = 1_000


class Cell(NamedTuple):
    """`kind`: the parts of the key that its leaves have in common. `key`: these; None elsewhere. `members`: the numbers
    of its leaves, int64."""

    kind: tuple[str, ...]
    key: Key
    members: Array

    @property
    def name(self) -> tuple[tuple[str, ...], Key]:
        return self.kind, self.key


def key_of(key: Key, kind: tuple[str, ...]) -> Key:
    """The part of a key that a kind of cells has."""
    return Key(**{part: getattr(key, part) for part in kind})


def cells_of(leaves: Leaves, kinds: Iterable[tuple[str, ...]], weight: Array) -> list[Cell]:
    """The cells of some kinds; `weight`: the exchanges of each leaf. A single broker makes no cells."""
    one_broker = len({key.broker for key in leaves.keys}) <= 1
    found: list[Cell] = []
    for kind in kinds:
        if "broker" in kind and one_broker:
            continue
        groups: dict[Key, list[int]] = {}
        for number, key in enumerate(leaves.keys):
            groups.setdefault(key_of(key, kind), []).append(number)
        cells = [Cell(kind, key, np.array(members, np.int64)) for key, members in groups.items()]
        cells.sort(key=lambda cell: -float(weight[cell.members].sum()))
        found += cells[:MOST_CELLS]
    return found


class Within:
    """Finds the cells inside a cell along a part of the key."""

    def __init__(self, cells: Sequence[Cell]) -> None:
        self.cells = cells
        self._of_kind: dict[tuple[str, ...], list[Cell]] = {}
        for cell in cells:
            self._of_kind.setdefault(cell.kind, []).append(cell)
        self._inside: dict[tuple[tuple[str, ...], tuple[str, ...]], dict[Key, list[Cell]]] = {}

    def along(self, cell: Cell, part: str) -> list[Cell]:
        """The cells that a cell consists of by one more part of the key; none if that part is not compared."""
        kind = tuple(p for p in ("api", "client", "broker", "topic") if p in cell.kind or p == part)
        if (cell.kind, kind) not in self._inside:
            found: dict[Key, list[Cell]] = {}
            for other in self._of_kind.get(kind, ()):
                found.setdefault(key_of(other.key, cell.kind), []).append(other)
            self._inside[cell.kind, kind] = found
        return self._inside[cell.kind, kind].get(cell.key, [])
