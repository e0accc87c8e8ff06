"""Reports as Parquet: one file for each table, with the columns of JSON (`arrow_tables`)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..arrow_tables import arrow_table
from ..model import ReportTable


def write_parquet(tables: Sequence[ReportTable], folder: Path) -> list[Path]:
    """Write each table to FOLDER/NAME.parquet, and return the paths. OSError if a file cannot be written."""
    import pyarrow.parquet as pq

    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for table in tables:
        path = folder / f"{table.name}.parquet"
        pq.write_table(arrow_table(table), path, compression="zstd")
        written.append(path)
    return written
