"""`compact`: join the small files of Delta tables, sort their rows, and delete files that no table refers to any
more."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .clustering import KEYS, cluster
from .delta import active_files, is_delta, mend_table, naming_table, open_table
from .delta_schema import LAKE_TABLES, changed_fields
from .folders import Folder
from .publication import new_run

if TYPE_CHECKING:
    from deltalake import DeltaTable

#: Files are joined up to this size.
TARGET_SIZE = 128 << 20
#: Files without a table are deleted when they are this old: readers and runs may still use younger ones.
RETENTION_HOURS = 168


@dataclass(frozen=True, slots=True)
class Compacted:
    """What became of a table. `before`, `after`: its files; `deleted`: files that were deleted."""

    table: str
    before: int
    after: int
    deleted: int


def compact(out: str, retention_hours: int = RETENTION_HOURS) -> Iterator[Compacted]:
    """Compact each Delta table below `out`. Runs may go on meanwhile.

    FileNotFoundError if there is no table; OSError if the store cannot be changed or if another run was faster.
    """
    tables = [table for table in LAKE_TABLES if is_delta(out, table)]
    if not tables:
        raise FileNotFoundError(f"{out}: there are no Delta tables")
    for table in tables:  # before anything changes
        open_table(out, table)
    run = new_run()
    for table in tables:
        with naming_table(out, table):
            delta = mend_table(out, table, run)
            before = len(delta.file_uris())
            if table in KEYS and _is_of_this_schema(out, table, delta):
                cluster(out, table, delta, TARGET_SIZE)
            else:
                with rights_of(out, table, delta):
                    delta.optimize.compact(target_size=TARGET_SIZE)
            delta = open_table(out, table)
            # A full vacuum also finds what failed attempts of tasks left.
            deleted = delta.vacuum(
                retention_hours, dry_run=False, enforce_retention_duration=retention_hours >= RETENTION_HOURS, full=True
            )
            yield Compacted(table, before, len(delta.file_uris()), len(deleted))


def _is_of_this_schema(out: str, table: str, delta: DeltaTable) -> bool:
    """Whether columns of a table have the types and meanings that this version knows."""
    try:
        changed_fields(out, table, delta)
    except OSError:
        return False
    return True


@contextmanager
def rights_of(out: str, table: str, delta: DeltaTable) -> Iterator[Folder]:
    """Files that deltalake makes in this block are private if one of the table is. Yields the folder of all tables."""
    folder = Folder(out).like([f"{table}/{file.path}" for file in active_files(delta)])
    if not folder.is_private:
        yield folder
        return
    mask = os.umask(0o077)
    try:
        yield folder
    finally:
        os.umask(mask)
