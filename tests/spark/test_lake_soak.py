"""Whatever jobs, kills, damage, copies, growth, forgetting and compaction do to a lake: in the end its tables are those
of one process over all captures. `verify` is silent then, and at no planted fault."""

from __future__ import annotations

import gzip
import multiprocessing
import os
import random
import shutil
import signal
from collections import Counter
from collections.abc import Callable, Sequence
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable, write_deltalake

from kafkatap.parquet.partitions import to_microseconds
from kafkatap.spark.job import run_job
from kafkatap.spark.neighbours import SharedConnections
from kafkatap.spark.output.compaction import compact
from kafkatap.spark.output.delta import active_files, is_delta, read_table
from kafkatap.spark.output.run_tables import file_infos
from kafkatap.spark.verifying import forget, named_captures, verify
from kafkatap.splits.run_options import RunOptions
from tests.splits.join_support import compared, differences, local, published
from tests.support.captures import PcapRecords

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kafkatap.reports.batch import FileInfo

#: Runs that a lake can go back to, less those of a few ticks.
NEAR = 16
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["kafkatap.spark.job", "kafkatap.spark.verifying", "kafkatap.spark.output.delta"])


def job(paths: Sequence[str], out: str, death: int | None = None, **how: Any) -> None:
    """A job in a process of its own, which is killed before a commit, counted from 0; None: it ends."""

    def watch(stage: str, done: int, total: int, *_: Any) -> None:
        if (stage, done) == ("publish", death):
            os.kill(os.getpid(), signal.SIGKILL)

    try:
        run_job(None, paths, out, watch=watch, **how)
    except SharedConnections:
        raise SystemExit(4) from None


def cut_in(records: PcapRecords, folder: Path, count: int) -> list[Path]:
    """A capture as hourly files. Connections go on across them."""
    paths = [folder / f"hour-{n:02d}.pcap" for n in range(count)]
    for n, path in enumerate(paths):
        path.write_bytes(records.slice(len(records) * n // count, len(records) * (n + 1) // count))
    return paths


class Lake:
    """A lake to which things happen. `hours`: files of one series. `spark` None: all jobs run without Spark.
    `is_near`: nothing happens to hours that are so far back that their state is gone. `done`: what happened."""

    def __init__(self, spark: SparkSession | None, samples: Path, folder: Path, hours: int, seed: int) -> None:
        self.spark, self.folder, self.random = spark, folder, random.Random(seed)
        self.out = str(folder / "out")
        self.records = seed % 3 == 1
        source = folder / "source"
        source.mkdir(parents=True)
        self.hours = cut_in(PcapRecords(samples / "apache-4.3.pcap.zst"), source, hours)
        self.whole = [path.read_bytes() for path in self.hours]
        self.next = 0  # hours from here on have not come
        self.missing = set[int]()  # hours before it that are not in the lake
        self.poor = set[int]()  # hours of which not the whole is there
        self.is_cut = self.is_open = False  # a run was cut, was killed, or captures were forgotten
        self.done: Counter[str] = Counter()

    # ------------------------------------------------------------ jobs

    def how(self, **how: Any) -> dict[str, Any]:
        return {"options": RunOptions(records=self.records), **how}

    def run(self, *paths: Path, **how: Any) -> bool:
        """Whether a run over captures is carried out. If not, nothing changes."""
        self.done["jobs"] += 1
        try:
            result = run_job(self.spark, list(map(str, paths)), self.out, **self.how(**how))
        except SharedConnections:
            self.done["refused"] += 1
            return False
        if any("go on in captures that another run read" in note for note in result.notes):
            self.is_cut = True
        self.is_open = False
        return True

    def begin(self, *paths: Path, **how: Any) -> ForkServerProcess:
        process = PROCESSES.Process(target=job, args=(list(map(str, paths)), self.out), kwargs=self.how(**how))
        process.start()
        self.done["jobs"] += 1
        return process

    # ------------------------------------------------------------ what happens

    def near(self) -> list[int]:
        """The latest hours that are there."""
        return [n for n in range(max(0, self.next - NEAR), self.next) if n not in self.missing]

    def arrive(self) -> list[Path]:
        """The next hours. Some come later."""
        count = min(self.random.choice((1, 1, 2, 3, 4)), len(self.hours) - self.next)
        come = [*range(self.next, self.next + count)]
        self.next += count
        late = {n for n in come if self.random.random() < 0.2} if self.next < len(self.hours) else set()
        self.missing |= late
        return [self.hours[n] for n in come if n not in late]

    def arrived(self) -> None:
        paths = self.arrive()
        if paths:
            self.run(*paths)

    def late(self) -> None:
        """Hours that had not come."""
        if self.missing:
            come = self.random.sample(sorted(self.missing), self.random.randrange(1, len(self.missing) + 1))
            if self.run(*(self.hours[n] for n in come)):
                self.missing -= set(come)

    def growing(self) -> None:
        """A capture that is read before it is complete."""
        if self.next == len(self.hours):
            return
        number, self.next = self.next, self.next + 1
        path = self.hours[number]
        records = PcapRecords(path)
        path.write_bytes(records.slice(0, self.random.randrange(1, len(records))))
        self.run(path)
        path.write_bytes(self.whole[number])
        self.poor.add(number)

    def again(self) -> None:
        """Some hours once more, or the whole of poor ones."""
        if not (near := self.near()):
            return
        near = [n for n in near if n in self.poor] or near
        chosen = self.random.sample(near, min(len(near), self.random.randrange(1, 4)))
        if self.run(*(self.hours[n] for n in chosen), replace_rows=self.random.random() < 0.5):
            self.poor -= set(chosen)

    def copied(self) -> None:
        """A copy of an hour, compressed or not."""
        if near := self.near():
            number = self.random.choice(near)
            copy = self.folder / f"copy-{len(self.done)}-{number}.pcap"
            data = self.whole[number]
            if self.random.random() < 0.5:
                copy, data = copy.with_suffix(".pcap.gz"), gzip.compress(data)
            copy.write_bytes(data)
            if self.run(copy):
                self.poor.discard(number)

    def damaged(self) -> None:
        """A damaged copy of an hour: `verify` sees it, unless a whole one is there."""
        if not (near := [*self.near(), *self.missing]):
            return
        number, replace_rows = self.random.choice(near), self.random.random() < 0.3
        data = bytearray(self.whole[number])
        at = self.random.randrange(len(data) // 3, len(data) // 2)
        if self.random.random() < 0.5:
            data[at : at + len(data) // 4] = bytes(len(data) // 4)
        else:
            del data[at:]
        copy = self.folder / f"damaged-{self.random.random()}.pcap"
        copy.write_bytes(data)
        if self.run(copy, replace_rows=replace_rows) and any(info.path == str(copy) for info in self.files):
            self.missing.discard(number)
            self.poor.add(number)
            assert "damage" in {finding.kind for finding in verify(self.out)}

    def killed(self) -> None:
        """A job that is killed, at any time or before one of its commits."""
        if not (paths := self.arrive()):
            return
        death = self.random.choice((None, *range(8)))
        process = self.begin(*paths, death=death)
        if death is None:
            process.join(self.random.uniform(0.1, 2))
            process.kill()
        process.join()
        self.done["killed"] += process.exitcode == -signal.SIGKILL
        self.is_open = True
        self.missing |= {n for n in range(self.next) if self.hours[n] in paths}  # perhaps; `late` reads it (again)

    def together(self) -> None:
        """Two jobs at once; perhaps one is killed."""
        if not self.next:
            return
        first, second = self.arrive(), self.arrive()
        if second and self.random.random() < 0.3:
            first = [*first, self.random.choice(second)]
        second = second or [self.hours[n] for n in self.near()[-1:]]
        if not (first and second):
            self.missing |= {n for n in range(self.next) if self.hours[n] in (*first, *second)}
            return
        processes = [self.begin(*first), self.begin(*second)]
        if self.random.random() < 0.2:
            processes[0].join(self.random.uniform(0.1, 2))
            processes[0].kill()
        for process, paths in zip(processes, (first, second), strict=True):
            process.join()
            assert process.exitcode in (0, 4, -signal.SIGKILL)
            if process.exitcode:
                self.done["killed"] += process.exitcode < 0
                self.is_open |= process.exitcode < 0
                self.missing |= {n for n in range(self.next) if self.hours[n] in paths}
        self.done["together"] += 1

    def forgotten(self) -> None:
        """An hour is removed, and read again later."""
        if near := self.near():
            number = self.random.choice(near)
            (capture,) = named_captures(self.out, [str(self.identities[number])])
            forget(self.out, [capture.capture])
            self.missing.add(number)
            self.poor.discard(number)
            self.is_open = True
            self.done["forgotten"] += 1

    def compacted(self) -> None:
        if is_delta(self.out, "files"):
            before = list(verify(self.out))
            list(compact(self.out))
            assert list(verify(self.out)) == before
            self.done["compacted"] += 1

    def everything(self) -> None:
        assert self.run(*self.hours[: self.next], replace_rows=True)
        self.missing, self.poor, self.is_cut = set(), set(), False

    # ------------------------------------------------------------ checks

    @property
    def files(self) -> list[FileInfo]:
        return file_infos(read_table(self.out, "files")) if is_delta(self.out, "files") else []

    @property
    def identities(self) -> list[int]:
        from kafkatap.captures.identity import capture_head

        return [capture_head(str(path)).identity for path in self.hours]

    def check(self) -> None:
        """The tables are those of one process over the files of the lake."""
        captures = {info.capture for info in self.files}
        wanted = {n for n in range(self.next) if n not in self.missing}
        assert wanted <= {n for n, capture in enumerate(self.identities) if capture in captures}
        has_grown = any(info.path.endswith(".pcap") and info.bytes != os.stat(info.path).st_size for info in self.files)
        if not captures or self.is_open or self.is_cut or has_grown:
            return
        self.done["checked"] += 1
        assert [found for found in verify(self.out) if found.kind not in ("damage", "gap")] == []
        paths = sorted(info.path for info in self.files)
        rows = {name: to_microseconds(table) for name, table in local(paths, records=self.records).items()}
        lines = differences(compared(published(self.out, rows)), compared(rows))
        assert not lines, "\n".join(lines)


HAPPENS = (
    Lake.arrived, Lake.arrived, Lake.arrived, Lake.late, Lake.growing, Lake.again, Lake.copied, Lake.damaged,
    Lake.killed, Lake.killed, Lake.together, Lake.forgotten, Lake.compacted,
)  # fmt: skip


def soak(lake: Lake) -> None:
    """Let things happen until all hours are there."""
    while lake.next < len(lake.hours):
        lake.random.choice(HAPPENS)(lake)
        lake.check()
        if min(lake.missing | lake.poor, default=lake.next) < lake.next - NEAR:
            finish(lake)
    finish(lake)


def finish(lake: Lake) -> None:
    """Read what is missing, and the whole of what is poor."""
    if lake.is_cut:
        lake.everything()
    elif rest := sorted(lake.missing | lake.poor):
        assert lake.run(*(lake.hours[n] for n in rest))
        lake.missing, lake.poor = set(), set()
    lake.check()


@pytest.mark.parametrize(
    ("hours", "seed", "has_spark"),
    [
        (6, 1, False),
        *(pytest.param(6, n, True, marks=pytest.mark.long) for n in range(1, 10)),
        *(pytest.param(72, n, n < 3, marks=pytest.mark.long) for n in range(1, 9)),
    ],
)
def test_a_lake_balances_in_the_end(
    request: pytest.FixtureRequest, samples: Path, tmp_path: Path, hours: int, seed: int, has_spark: bool
) -> None:
    lake = Lake(request.getfixturevalue("spark") if has_spark else None, samples, tmp_path, hours, seed)
    soak(lake)
    assert {finding.kind for finding in verify(lake.out)} <= {"gap"}
    print(hours, "hours, seed", seed, dict(lake.done))


def _changed(table: str, hour: str, **values: str) -> Callable[[str], None]:
    """Changes rows of an hour."""

    def change(out: str) -> None:
        DeltaTable(f"{out}/{table}").update(updates=values, predicate=f"capture = {_capture(out, hour)}")

    return change


def _capture(out: str, hour: str) -> int:
    (info,) = named_captures(out, [hour])
    return info.capture


def _doubled(table: str) -> Callable[[str], None]:
    def double(out: str) -> None:
        capture = _capture(out, "hour-02.pcap")
        rows = DeltaTable(f"{out}/{table}").to_pyarrow_table(filters=[("capture", "=", capture)])
        write_deltalake(f"{out}/{table}", rows, mode="append")

    return double


def _removed(table: str) -> Callable[[str], None]:
    def remove(out: str) -> None:
        DeltaTable(f"{out}/{table}").delete(f"capture = {_capture(out, 'hour-02.pcap')}")

    return remove


def _without_file(table: str) -> Callable[[str], None]:
    def remove(out: str) -> None:
        (Path(out) / table / active_files(DeltaTable(f"{out}/{table}"))[0].path).unlink()

    return remove


def _rolled_back(table: str) -> Callable[[str], None]:
    def roll_back(out: str) -> None:
        table_ = DeltaTable(f"{out}/{table}")
        table_.restore(table_.version() - 1)

    return roll_back


TABLES_OF_LAKE = (
    "exchanges", "results", "connections", "files", "ledger", "rollup", "rollup_errors", "rollup_connections",
    "section_counts", "records",
)  # fmt: skip
FAULTS: dict[str, Callable[[str], None]] = {
    **{f"a file of {table} is gone": _without_file(table) for table in TABLES_OF_LAKE},
    # Without its last records a lake is like one whose last run was without --records.
    **{f"{table} rolled back": _rolled_back(table) for table in TABLES_OF_LAKE if table != "records"},
    **{f"rows of {table} doubled": _doubled(table) for table in TABLES_OF_LAKE[:-1]},
    **{f"rows of {table} removed": _removed(table) for table in TABLES_OF_LAKE[:-1]},
    "packets of connections added": _changed("connections", "hour-02.pcap", packets="packets + 1"),
    "connections that end earlier": _changed("connections", "hour-02.pcap", connection_last="connection_first"),
    "connections of no capture": _changed("connections", "hour-02.pcap", capture="capture + 1"),
    "exchanges of no capture": _changed("exchanges", "hour-02.pcap", capture="capture + 1"),
    "other outcomes": _changed("exchanges", "hour-02.pcap", outcome="'unanswered'"),
    "packets of a file": _changed("files", "hour-02.pcap", packets="packets + 1"),
    "another identity of a file": _changed("files", "hour-02.pcap", capture="capture + 1"),
    "counts of a ledger": _changed("ledger", "hour-02.pcap", count="count + 1"),
}


@pytest.fixture(scope="module")
def finished(samples: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The lake of six hours, each read by a run of its own."""
    lake = Lake(None, samples, tmp_path_factory.mktemp("finished"), 6, 1)
    for hour in lake.hours:
        lake.run(hour)
    lake.next = len(lake.hours)
    lake.check()
    return lake.out


@pytest.mark.parametrize("fault", FAULTS)
def test_planted_faults(finished: str, tmp_path: Path, fault: str) -> None:
    out = str(tmp_path / "out")
    shutil.copytree(finished, out)
    FAULTS[fault](out)
    if fault == "a file of files is gone":
        with pytest.raises(FileNotFoundError, match="is gone"):
            list(verify(out))
    else:
        assert {finding.kind for finding in verify(out)} - {"gap"}
