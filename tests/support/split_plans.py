"""Splits and packs of files that are named in any order."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kafkatap.captures.packs import Pack, pack_splits
from kafkatap.captures.splits import Split, plan_splits
from kafkatap.captures.storage import File, size_of


def planned_splits(paths: Sequence[str | Path], size: int) -> list[Split]:
    """`plan_splits` of files in this order."""
    return plan_splits([File(str(path), size_of(str(path)), 0) for path in paths], size)


def planned_packs(paths: Sequence[str | Path], size: int) -> list[Pack]:
    """`pack_splits` of files in this order."""
    return pack_splits(planned_splits(paths, size), size)
