"""Several processes make the report that one makes, wherever the captures are cut."""

from __future__ import annotations

import argparse
import io
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from kafkatap.commands.report import jobs
from kafkatap.engine.engine import engine_for
from kafkatap.engine.selection import EVERYTHING, Selection
from kafkatap.reports.batch import Context
from kafkatap.reports.build import build_report
from kafkatap.reports.counting.counts import ReportCounts
from kafkatap.reports.literals import read_moment
from kafkatap.reports.rendering.json_report import write_json
from kafkatap.run import Run
from kafkatap.shards.shard_run import OneEngineNeeded, count_with_shards
from kafkatap.shards.workers import Interrupted, WorkerEnded, Workers
from kafkatap.splits.executor import HERE, InProcess, Place
from kafkatap.splits.run_options import RunOptions
from kafkatap.usable_cores import usable_cores
from tests.cli.running import environment, kafkatap
from tests.splits.join_support import packets_at_random, rotate
from tests.splits.join_talks import ONE_ENGINE, TALKS, lone_requests
from tests.splits.local_report import CapturedTwice, count_with_jobs
from tests.support import copies
from tests.support.captures import PcapRecords, pcap_bytes, read_bytes, read_capture
from tests.support.sweeps import seeds
from tests.support.tcp import encode

SAMPLES = ("apache-4.3", "apache-2.8", "apache-0.10.2", "apache-0.8.2", "live-4.3", "live-4.4")


def as_json(counts: ReportCounts, context: Context, by: str) -> str:
    text = io.StringIO()
    write_json(build_report(counts, context, by=by, curves=True), text, "0")
    return text.getvalue()


def one_process(paths: Sequence[Path | str], selection: Selection, by: str) -> str:
    engine = engine_for(selection, all_results=by == "topic", tables=False)
    run, counts = (
        Run([str(path) for path in paths], engine),
        ReportCounts(by_topic=by == "topic", by_connection=by == "connection"),
    )
    for batch in selection.apply(run.batches(), engine):
        counts.add(batch)
    return as_json(counts, run.context(), by)


def several(
    paths: Sequence[Path | str], processes: int, size: int, selection: Selection = EVERYTHING, by: str = "api"
) -> str:
    reading = RunOptions(by_topic=by == "topic", by_connection=by == "connection", selection=selection)
    found = count_with_jobs([str(path) for path in paths], processes, reading, split_size=size)
    return as_json(found.counts, found.context, by)


def in_shards(
    paths: Sequence[Path | str], shards: int, selection: Selection = EVERYTHING, by: str = "api"
) -> str:  # fmt: skip
    """As `several`, by engines that share connections."""
    reading = RunOptions(by_topic=by == "topic", by_connection=by == "connection", selection=selection)
    found = count_with_shards([str(path) for path in paths], shards, reading)
    return as_json(found.counts, found.context, by)


def check(
    paths: Sequence[Path | str], splits: Sequence[int] = (2, 3), selection: Selection = EVERYTHING, by: str = "api",
    one_engine: str = "",
) -> None:  # fmt: skip
    """Compare both, with so many splits and shards. No more processes for splits than three: each costs its start.
    `one_engine`: why shards cannot read it."""
    wanted = one_process(paths, selection, by)
    total = sum(os.path.getsize(path) for path in paths)
    condition = selection.condition()
    if condition is not None and condition.names_topics:
        one_engine = "topics are selected"
    for count in splits:
        if one_engine:
            with pytest.raises(OneEngineNeeded, match=one_engine):
                in_shards(paths, count, selection, by)
        else:
            assert in_shards(paths, count, selection, by).splitlines() == wanted.splitlines()
        assert several(paths, min(count, 3), -(-total // count), selection, by).splitlines() == wanted.splitlines()


def unpacked(samples: Path, name: str, folder: Path) -> Path:
    path = folder / f"{name}.pcap"
    path.write_bytes(read_bytes(samples / f"{name}.pcap.zst"))
    return path


@pytest.mark.parametrize("name", SAMPLES)
def test_samples(samples: Path, tmp_path: Path, name: str) -> None:
    path = unpacked(samples, name, tmp_path)
    check([path], (2, 3, 7))
    with suppress(CapturedTwice):  # in a recording, times may step back where a file ends
        check(rotate(path, tmp_path / "rotated", packets_at_random(path, 3, 2), 2))


def test_a_pcapng(samples: Path) -> None:
    check([samples / "apache-4.3-two-interfaces.pcapng"], (2, 3, 5))


@pytest.mark.parametrize("name", TALKS)
def test_traffic_that_is_hard_to_cut(tmp_path: Path, name: str) -> None:
    path = tmp_path / "talk.pcap"
    path.write_bytes(pcap_bytes(encode(TALKS[name]()), nanoseconds=True))
    check([path], (2, 3, 6), one_engine="single requests" if name == ONE_ENGINE else "")


def test_lone_requests_to_a_broker_that_others_show(tmp_path: Path) -> None:
    path = tmp_path / "talk.pcap"
    path.write_bytes(pcap_bytes(encode(lone_requests()), nanoseconds=True))
    with pytest.raises(OneEngineNeeded, match="single requests"):
        in_shards([path], 6)
    wanted = one_process([path], EVERYTHING, "api")
    for count in (2, 3, 6):
        assert several([path], 2, -(-path.stat().st_size // count)).splitlines() == wanted.splitlines()


@pytest.mark.parametrize("seed", seeds(3, 1))
def test_lost_packets(samples: Path, tmp_path: Path, seed: int) -> None:
    records = PcapRecords(unpacked(samples, SAMPLES[seed], tmp_path))
    data, _ = records.drop(0.02, burst=1 + seed, seed=seed)
    path = tmp_path / "lossy.pcap"
    path.write_bytes(data)
    check([path], (2, 3))


@pytest.mark.parametrize("by", ["client", "broker", "connection", "version", "topic"])
def test_breakdowns(samples: Path, tmp_path: Path, by: str) -> None:
    check([unpacked(samples, "apache-4.3", tmp_path)], (3,), by=by)


@pytest.mark.parametrize(
    "options",
    [
        {"filter": "broker_time > 1ms and api != Fetch"},
        {"topics": ("*",)},
        {"apis": ("Produce", "Fetch"), "clients": ("*a*",)},
        {"start": "+1s", "end": "+3s"},
    ],
)
def test_selections(samples: Path, tmp_path: Path, options: dict[str, Any]) -> None:
    times = {name: read_moment(options[name]) for name in ("start", "end") if name in options}
    check([unpacked(samples, "apache-4.3", tmp_path)], (3,), Selection.of(**{**options, **times}))


def test_files_of_one_time(samples: Path, tmp_path: Path) -> None:
    """Packets that two captures hold are counted, and connections captured at both ends are refused."""
    records = PcapRecords(unpacked(samples, "apache-2.8", tmp_path))
    half = len(records) // 2
    first, second = tmp_path / "one.pcap", tmp_path / "two.pcap"
    first.write_bytes(records.slice(0, half))
    second.write_bytes(records.slice(half - 200, len(records)))
    with pytest.raises(CapturedTwice, match="captured at both ends"):
        several([first, second], 2, 1 << 20)
    with pytest.raises(OneEngineNeeded, match="several places"):
        in_shards([first, second], 2)
    other = unpacked(samples, "apache-4.3", tmp_path)
    check([first, other], (2,))


@pytest.mark.parametrize("delay_ns", [20_000, 5_000_000])
def test_packets_captured_twice(delay_ns: int, samples: Path, tmp_path: Path) -> None:
    """Copies that lie behind the start of a split are found there, too."""
    packets = read_capture(samples / "apache-4.3.pcap.zst").packets
    path = tmp_path / "twice.pcap"
    path.write_bytes(pcap_bytes(copies.twice(packets, delay_ns), nanoseconds=True))
    found = several([path], 3, -(-path.stat().st_size // 3))
    assert found.splitlines() == one_process([path], EVERYTHING, "api").splitlines()
    assert found == in_shards([path], 3)
    assert f'"duplicates": {len(packets)}' in found


def test_a_damaged_file(samples: Path, tmp_path: Path) -> None:
    path = unpacked(samples, "apache-2.8", tmp_path)
    data = bytearray(path.read_bytes())
    start = PcapRecords(bytes(data)).starts[-400]
    data[start + 8 : start + 12] = b"\xff\xff\xff\x7f"
    path.write_bytes(data)
    found, wanted = several([path], 3, len(data) // 3), one_process([path], EVERYTHING, "api")
    assert in_shards([path], 3) == wanted
    # Of the bytes behind the damage, a block more or less was read.
    assert re.sub(r'"bytes": \d+', "", found) == re.sub(r'"bytes": \d+', "", wanted)
    path.write_bytes(data[: start - 7])
    check([path], (2,))


@pytest.mark.parametrize("seed", seeds(4, 2))
def test_anywhere(samples: Path, tmp_path: Path, seed: int) -> None:
    path = unpacked(samples, random.Random(seed).choice(SAMPLES), tmp_path)
    size = random.Random(seed).randrange(20_000, path.stat().st_size)
    assert several([path], 2, size) == one_process([path], EVERYTHING, "api")


# ---------------------------------------------------------------- processes


class Twice:
    name = "twice"

    def __call__(self, mine: Any, place: Place = HERE) -> Any:
        place.progress(1)
        if mine == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if mine == "fail":
            raise OSError("no such disk")
        return 2 * mine


def test_executors_give_results_in_the_order_of_inputs() -> None:
    done: list[int] = []
    with Workers(3, lambda units: bool(done.append(units))) as workers:
        for executor in (workers, InProcess()):
            assert executor.run(Twice(), range(20)) == [2 * n for n in range(20)]
            assert executor.run(Twice(), []) == []
            assert executor.run(Twice(), ["a"]) == ["aa"]
    assert done[-1] == 21


def test_workers_that_end_or_fail() -> None:
    with Workers(2) as workers, pytest.raises(WorkerEnded, match="memory ran out"):
        workers.run(Twice(), [1, "die", 2, 3])
    with Workers(2) as workers, pytest.raises(OSError, match="no such disk"):
        workers.run(Twice(), [1, "fail", 2, 3])
    with Workers(2, lambda units: True) as workers, pytest.raises(Interrupted):
        workers.run(Twice(), [1, 2, 3])


def children_of(process: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[1]) == process and fields[0] != "Z":
                found.append(int(entry.name))
    return found


def is_running(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def until(condition: Any, seconds: float = 20) -> Any:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := condition():
            return found
        time.sleep(0.01)
    raise AssertionError("it did not happen in time")


SLEEPER = """
import time
from kafkatap.shards.workers import Workers
def sleep(mine, place):
    time.sleep(60)
with Workers(2) as workers:
    workers.run(sleep, [1, 2])
"""


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", SLEEPER], env=environment(), stderr=subprocess.PIPE) as process:
        yield process
        process.kill()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_no_worker_outlives_its_parent(sleeper: subprocess.Popen[bytes], number: int) -> None:
    workers = until(lambda: len(found := children_of(sleeper.pid)) == 2 and found)
    sleeper.send_signal(number)
    sleeper.wait(20)
    until(lambda: not any(map(is_running, workers)))


# ---------------------------------------------------------------- the command


def test_the_option(samples: Path, tmp_path: Path) -> None:
    path = unpacked(samples, "apache-4.3", tmp_path)
    one = kafkatap("report", "--json", path)
    assert one.code == 0
    for number in ("1", "2", "auto"):
        assert kafkatap("report", "--json", "--jobs", number, path).out == one.out
    both = [path, unpacked(samples, "apache-2.8", tmp_path)]
    assert kafkatap("report", "--jobs", "2", *both).out == kafkatap("report", *both).out
    for wrong in ("0", "-1", "many", "1.5", "100000"):
        refused = kafkatap("report", "--jobs", wrong, path)
        assert refused.code == 2
        assert "is not a number of processes" in refused.err


def test_inputs_of_one_process(samples: Path, tmp_path: Path) -> None:
    path = unpacked(samples, "apache-4.3", tmp_path)
    found = kafkatap("report", "--json", "--jobs", "2", "-", path, stdin=path.read_bytes())
    assert found.code == 0
    assert "standard input can be read only once; save it to a file first" in found.err


def test_pipes_and_compressed_captures(samples: Path, tmp_path: Path) -> None:
    path, packed = unpacked(samples, "apache-4.3", tmp_path), samples / "apache-4.3.pcap.zst"
    for name, data in (("-", path.read_bytes()), ("-", packed.read_bytes()), (packed, None)):
        one, three = (kafkatap("report", "--json", "--jobs", jobs, name, stdin=data) for jobs in ("1", "3"))
        assert (three.code, three.out, three.err) == (0, one.out, one.err)


def test_no_packets(samples: Path, tmp_path: Path) -> None:
    path = unpacked(samples, "apache-4.3", tmp_path)
    empty = tmp_path / "empty.pcap"
    empty.write_bytes(path.read_bytes()[:24])
    check([empty], (2,))
    check([empty, path], (2,))
    second = tmp_path / "again.pcap"
    second.write_bytes(empty.read_bytes())
    one, two = kafkatap("report", empty, second), kafkatap("report", "--jobs", "2", empty, second)
    assert (two.code, two.out, two.err) == (one.code, one.out, one.err)


def test_files_that_cannot_be_read(samples: Path, tmp_path: Path) -> None:
    text = tmp_path / "notes.pcap"
    text.write_text("no capture at all" * 10)
    path = unpacked(samples, "apache-4.3", tmp_path)
    for files in ([text, path], [tmp_path / "none.pcap", path]):
        one, two = kafkatap("report", *files), kafkatap("report", "--jobs", "2", *files)
        assert (two.code, two.out, two.err) == (one.code, one.out, one.err)


def test_large_captures_use_the_cores_by_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "large.pcap"
    path.write_bytes(pcap_bytes(encode(TALKS["pipelined"]())))
    os.truncate(path, jobs.LARGE + 1)  # a file with a hole takes no room
    options = argparse.Namespace(jobs=None, captures=[str(path)], parquet=None, verbose=0, follow=False)
    for cores, wanted in ((1, 1), (2, 1), (3, 3), (16, 16)):
        monkeypatch.setattr(jobs, "usable_cores", lambda cores=cores: cores)
        assert jobs.choose_jobs(options) == wanted
    options.jobs = 1
    assert jobs.choose_jobs(options) == 1
    os.truncate(path, jobs.LARGE)
    options.jobs = None
    assert jobs.choose_jobs(options) == 1
    options.jobs = 5
    assert jobs.choose_jobs(options) == 5


def test_cores_of_a_container(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    quota = tmp_path / "cpu.max"
    monkeypatch.setattr("kafkatap.usable_cores._QUOTA", str(quota))
    monkeypatch.setattr("os.sched_getaffinity", lambda process: set(range(8)))
    for text, cores in (("max 100000", 8), ("250000 100000", 2), ("50000 100000", 1), ("1600000 100000", 8)):
        quota.write_text(f"{text}\n")
        assert usable_cores() == cores
