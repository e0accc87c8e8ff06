"""Reports as Parquet: one file for each table, with the columns of JSON (`arrow_tables`)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kafkatap.output_file import OutputFiles

from ..arrow_tables import arrow_table
from ..model import ReportTable


def write_parquet(tables: Sequence[ReportTable], folder: Path) -> list[Path]:
    """Write each table to FOLDER/NAME.parquet, and return the paths. OSError if a file cannot be written."""
    import pyarrow.parquet as pq

    with OutputFiles(folder) as files:
        for table in tables:
            pq.write_table(arrow_table(table), files.add(f"{table.name}.parquet"), compression="zstd")
        return files.publish()
