"""The tables `files` and `ledger` of a run, with the capture of each row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from kafkatap.reports.batch import Context, FileInfo
from kafkatap.reports.tables import files_table, ledger_table

from .writing import with_capture

if TYPE_CHECKING:
    import pyarrow as pa


def files_rows(files: Sequence[FileInfo]) -> pa.Table:
    """The rows of these files."""
    import numpy as np

    return with_capture(files_table(Context(files=files)), np.array([f.capture for f in files], np.int64))


def ledger_rows(ledgers: Mapping[int, Mapping[str, Mapping[str, int]]]) -> pa.Table:
    """The rows of ledgers by capture. Their sum is the ledger of the run."""
    import numpy as np
    import pyarrow as pa

    tables = []
    for capture, ledger in ledgers.items():
        rows = ledger_table(Context(ledger=ledger))
        tables.append(with_capture(rows, np.full(rows.num_rows, capture, np.int64)))
    return pa.concat_tables(tables or [with_capture(ledger_table(Context()), np.zeros(0, np.int64))])
