"""Write the tables of a run as Parquet files."""

from __future__ import annotations

from pathlib import Path

from kafkatap.dissector.dtypes import EXCHANGE, RESULT
from kafkatap.kernels.arrays import joined
from kafkatap.reports import tables
from kafkatap.reports.batch import Batch, Context, as_results, error_counts

from .run import Run


def write_tables(folder: Path, batches: list[Batch], run: Run, context: Context) -> list[Path]:
    """Write exchanges, results, connections, files and ledger to `folder`. Each file is complete or absent."""
    import pyarrow.parquet as pq

    exchanges = joined([b.exchanges for b in batches], EXCHANGE)
    results = joined([b.results for b in batches], RESULT)
    made = {
        "exchanges": tables.exchanges_table(
            exchanges, error_counts(results), joined([as_results(run.engine.topics), results], RESULT), context
        ),
        "results": tables.results_table(results, exchanges, context),
        "connections": tables.connections_table(context.connections, context),
        "files": tables.files_table(context),
        "ledger": tables.ledger_table(context),
    }
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, table in made.items():
        path = folder / f"{name}.parquet"
        part = folder / f".{name}.parquet.part"
        pq.write_table(table, part, compression="zstd")
        part.replace(path)
        written.append(path)
    return written
