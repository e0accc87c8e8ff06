"""Reports as Parquet: one file for each table, with the columns of JSON (`Column.arrow_type`)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kafkatap.output_file import OutputFiles
from kafkatap.replaceable import PARQUET_KEY

from ..model import ReportTable


def write_parquet(tables: Sequence[ReportTable], folder: Path, overwrite: bool = False) -> list[Path]:
    """Write each table to FOLDER/NAME.parquet, and return the paths. OSError if a file cannot be written. `overwrite`:
    as of `OutputFile`."""
    import pyarrow.parquet as pq

    with OutputFiles(folder, overwrite=overwrite) as files:
        for table in tables:
            made = table.to_arrow()
            marked = made.replace_schema_metadata({**(made.schema.metadata or {}), PARQUET_KEY: ""})
            pq.write_table(marked, files.add(f"{table.name}.parquet"), compression="zstd")
        return files.publish()
