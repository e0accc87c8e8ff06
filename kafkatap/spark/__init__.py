"""Captures as tables on Spark: `kafkatap.spark` needs the extra `kafkatap[spark]` and Java 17 or later.

    from kafkatap.spark import exchanges
    exchanges(spark, "captures/*.pcap").groupBy("api_name").count().show()

exchanges, results, connections, records, files, ledger    the tables as DataFrames
reports                                                    the reports of `kafkatap report`
read_captures                                              several tables of the same captures, read once
register                                                   the data source "pcap": packets, as a batch or a stream

The parts:

frames      the functions above
captures    `Captures`: surveyed, planned, proved; its tables
tasks, rows what executors do; a decoded split as rows
survey      the first pass over a split: its flows, and the packets that others need
plan        which split stands for which packets
decode      the second pass over a split: its rows, and what proves them
split_engine, handover, seams  the engine over a split; what is known of a connection; packets on their way
parts       parts of connections put together
summing     counts added up by Spark
job, job_result, command, stages  `kafkatap spark`
publish, partitions, folders, locks, report_files  tables as folders of Parquet, whole or not at all
source      the data source "pcap"
java        the Java that Spark runs on, and what to do where there is none
session     Spark sessions as this package wants them: `open_session`
executors   what is asked of executors before work: `require_package`
package     what makes up the package, and by what two copies are told apart
pack        `python -m kafkatap.spark.pack`: one archive for executors that have nothing of it
failures    `explain`: a Spark error in a few lines
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .captures import Captures, DamagedCaptureError
    from .frames import connections, exchanges, files, ledger, read_captures, records, reports, results
    from .job import run_job
    from .source import register

_OF = {
    **dict.fromkeys(
        ("connections", "exchanges", "files", "ledger", "read_captures", "records", "reports", "results"), "frames"
    ),
    "Captures": "captures",
    "DamagedCaptureError": "captures",
    "run_job": "job",
    "register": "source",
}
__all__ = [
    "Captures", "DamagedCaptureError", "connections", "exchanges", "files", "ledger", "read_captures", "records",
    "register", "reports", "results", "run_job",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _OF:
        return getattr(import_module(f".{_OF[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
