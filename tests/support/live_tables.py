"""The tables that `kafkatap live --parquet` wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq


def read_tables(folder: Path, name: str) -> Any:
    """All rows of a table, of all its files."""
    files = sorted((folder / name).rglob("*.parquet"))
    return pa.concat_tables([pq.read_table(file, partitioning=None) for file in files])
