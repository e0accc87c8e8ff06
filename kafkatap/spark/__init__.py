"""Captures as tables on Spark. `kafkatap.spark` needs the extra `kafkatap[spark]` and Java 17 or later.

    from kafkatap.spark import exchanges
    exchanges(spark, "captures/*.pcap").groupBy("api_name").count().show()

exchanges, results, connections, records, files, ledger    the tables as DataFrames
reports                                                    the reports of `kafkatap report`
exchanges_once                                             the exchanges of a lake, each once
read_captures                                              several tables of the same captures, surveyed once
register                                                   the data source "kafkatap": the tables for SQL

`kafkatap.splits` has the work on one split and the plan for all of them. Rooms, each of which imports only those above
it:

cluster/   sessions, Java, executors; `checked`, `explain`, `interruptible`
output/    the rows of a split; tables as files, published all at once
./         executor (runs tasks of splits on a session), captures (the driver), job and stream (`kafkatap spark`),
           stream_batch and stream_state (one batch, and what it leaves), frames (the functions above), source,
           source_options, source_stream and row_stream (the data source), catalog (`--table`), arrivals and
           arrival_source (batches of captures), arrival_log (which captures were read), pack (an archive
           for executors), versions and neighbours (what a run must not replace), verifying and balance (`lake`)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .captures import Captures, DamagedCaptureError
    from .frames import connections, exchanges, exchanges_once, files, ledger, read_captures, records, reports, results
    from .job import run_job
    from .source import register

#: The modules of the names that are not of `frames`.
_OF = {"Captures": "captures", "DamagedCaptureError": "captures", "register": "source", "run_job": "job"}
__all__ = [
    "Captures", "DamagedCaptureError", "connections", "exchanges", "exchanges_once", "files", "ledger", "read_captures",
    "records", "register", "reports", "results", "run_job",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(import_module(f".{_OF.get(name, 'frames')}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
