"""Ways to read a recording. Each returns the report with all sections, as its JSON has it."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import zstandard

from kafkatap.engine.engine import Engine
from kafkatap.live.governor import Governor
from kafkatap.live.monitor import Monitor
from kafkatap.reports.build import build_report
from kafkatap.reports.counting.counts import ReportCounts
from kafkatap.reports.section_parts import section_counts
from kafkatap.reports.section_parts.registry import OVER_FACTS, load_sections, needs_of, section_names
from kafkatap.splits.run_options import RunOptions
from tests.cli.running import kafkatap
from tests.live.shared_source import SharedFile, joined
from tests.live.support import FileSource
from tests.splits.join_support import packets_at_random, rotate
from tests.ways.reports import Whole, compared, made, one_engine, over_splits

Way = Callable[[Sequence[Path], Path], Whole]
ALL = tuple(section_names())
OPTIONS = RunOptions(wanted=ALL)


def command(*arguments: str | Path, stdin: bytes | None = None, sections: str = "all") -> Whole:
    """The report of the command."""
    done = kafkatap("report", "--sections", sections, "--json", *arguments, stdin=stdin)
    assert (done.code, done.err) == (0, "")
    whole: Whole = json.loads(done.out)
    return whole


def usual(paths: Sequence[Path]) -> Whole:
    """As it is: what all other ways are compared with."""
    return command(*paths)


def pipe(paths: Sequence[Path], folder: Path) -> Whole:
    (path,) = paths
    return command("-", stdin=path.read_bytes())


def compressed(paths: Sequence[Path], folder: Path) -> Whole:
    return command(*(_packed(path, folder) for path in paths))


def pipe_of_processes(paths: Sequence[Path], folder: Path) -> Whole:
    """Compressed, too."""
    (path,) = paths
    return command("--jobs", "3", "-", stdin=_packed(path, folder).read_bytes())


def processes(paths: Sequence[Path], folder: Path) -> Whole:
    return command("--jobs", "3", *paths)


def files(paths: Sequence[Path], folder: Path) -> Whole:
    """Cut at any packets, and given in another order."""
    return command(*_in_disorder(_rotated(paths, folder, 6), 3))


def files_of_processes(paths: Sequence[Path], folder: Path) -> Whole:
    """Some of them are compressed."""
    first, *others = _in_disorder(_rotated(paths, folder, 4), 5)
    return command("--jobs", "2", _packed(Path(first), folder), *others)


def blocks(paths: Sequence[Path], folder: Path) -> Whole:
    """Read in small blocks, each of some packets."""
    return one_engine(paths, OPTIONS, block_size=20_000)


def gathered(paths: Sequence[Path], folder: Path) -> Whole:
    """Sections add exchanges up seven at a time, not thousands."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(section_counts, "_EXCHANGES", 7)
        return one_engine(paths, OPTIONS)


def splits(paths: Sequence[Path], folder: Path) -> Whole:
    """As on Spark, in this process. Each flow is handed over from split to split."""
    return over_splits(paths, 5, OPTIONS)


def batches(paths: Sequence[Path], folder: Path) -> Whole:
    """As captures that arrive one after the other. Each batch leaves open flows and sums to the next one."""
    from kafkatap.spark.stream import StreamOptions, finish_stream
    from tests.spark.test_stream import Stream, first_time

    arrived = sorted(_rotated(paths, folder, 4), key=first_time)
    size = sum(path.stat().st_size for path in paths) // 3
    stream = Stream(StreamOptions(str(folder / "out"), str(folder / "checkpoint"), size, OPTIONS))
    for some in (arrived[:1], arrived[1:3], arrived[3:]):
        stream.read(some)
    report = finish_stream(None, stream.options).report
    assert report is not None
    return made(report)


def live(paths: Sequence[Path], folder: Path) -> Whole:
    """As packets that come now, second by second."""
    (path,) = paths
    return _live(FileSource(str(path)), Engine(all_results=True, **needs_of(tuple(OVER_FACTS))._asdict()))


def live_of_engines(paths: Sequence[Path], folder: Path) -> Whole:
    """The same, by two engines."""
    (path,) = paths
    return _live(SharedFile(str(path), 2), joined(2, all_results=True, **needs_of(tuple(OVER_FACTS))._asdict()))


def _live(source: FileSource, engine: Engine) -> Whole:
    monitor = Monitor(source, engine, clock=source.clock, sections=tuple(OVER_FACTS), governor=Governor(None))
    monitor.run(lambda: source.over)
    source.close()
    assert monitor.sections is not None
    return made(
        build_report(ReportCounts(), monitor.context(), sections=tuple(OVER_FACTS), over_facts=monitor.sections)
    )


def _packed(path: Path, folder: Path) -> Path:
    packed = folder / f"{path.name}.zst"
    packed.write_bytes(zstandard.ZstdCompressor().compress(path.read_bytes()))
    return packed


def _rotated(paths: Sequence[Path], folder: Path, count: int) -> list[str]:
    (path,) = paths
    return rotate(path, folder / "rotated", packets_at_random(path, count - 1, 7))


def _in_disorder(paths: list[str], seed: int) -> list[str]:
    return random.Random(seed).sample(paths, len(paths))


_ALL = (
    pipe, compressed, processes, pipe_of_processes, files, files_of_processes, blocks, gathered, splits, batches, live,
    live_of_engines,
)  # fmt: skip
WAYS: dict[str, Way] = {way.__name__: way for way in _ALL}


# ---------------------------------------------------------------- what differs by design

#: Live ends silent connections, and knows no captures; it has tables of the sections over facts alone.
_NOT_LIVE = frozenset(("connections", "slow_connections", "clients", "throttle", "advice", "ledger"))


def comparable(whole: Whole, way: str) -> dict[str, Any]:
    """What this way has as all others have it."""
    found = compared(whole)
    if way not in (live.__name__, live_of_engines.__name__):
        return found
    over_facts = {name for section in load_sections(OVER_FACTS) for name in section.columns}
    return {name: rows for name, rows in found.items() if name in over_facts - _NOT_LIVE}
