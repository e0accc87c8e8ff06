"""Captures through a monitor that writes Parquet."""

from __future__ import annotations

from pathlib import Path

from kafkatap.engine.engine import Engine
from kafkatap.live.export.parquet_files import ParquetLog
from kafkatap.live.governor import Governor
from kafkatap.live.memory_limits import MemoryLimits
from kafkatap.live.monitor import Monitor

from .support import FileSource


def log(path: Path, parquet: ParquetLog, limits: MemoryLimits | None = None, all_results: bool = True) -> Engine:
    """A capture through a monitor with this log, as if it came now."""
    source = FileSource(str(path))
    engine = Engine(all_results=all_results, measures=True)
    governor = Governor(None, all_results)
    monitor = Monitor(source, engine, sinks=[parquet], limits=limits, clock=source.clock, governor=governor)

    def over() -> bool:  # the capture comes faster than in reality: it waits for the disk here
        parquet.settle()
        return source.over

    monitor.run(over)
    return engine
