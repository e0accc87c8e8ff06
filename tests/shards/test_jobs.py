"""Several engines, and runs over splits, make the report of one engine. Whole recordings are in `tests/ways`."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kafkatap.commands.report import jobs
from kafkatap.engine.selection import Selection
from kafkatap.reports.literals import read_moment
from kafkatap.shards.shard_run import OneEngineNeeded
from kafkatap.splits.run_options import RunOptions
from kafkatap.usable_cores import usable_cores
from tests.cli.running import kafkatap
from tests.splits.join_talks import ONE_ENGINE, TALKS, lone_requests
from tests.support import copies
from tests.support.captures import PcapRecords, pcap_bytes, read_capture, unpacked
from tests.support.sweeps import seeds
from tests.support.tcp import encode
from tests.ways.reports import USUAL, assert_same, in_shards, one_engine, over_splits

#: Splits and shards of a capture. All of them with `--long`: three engines meet what two and seven do.
COUNTS = (3, pytest.param(2, marks=pytest.mark.long), pytest.param(6, marks=pytest.mark.long))


def check(
    paths: Sequence[Path | str], counts: Sequence[int] = (3,), options: RunOptions = USUAL, by: str = "api"
) -> None:  # fmt: skip
    """Compare the report of one engine with those of so many shards, and over so many splits."""
    wanted = one_engine(paths, options, by)
    condition = options.selection.condition()
    for count in counts:
        if condition is not None and condition.names_topics:
            with pytest.raises(OneEngineNeeded, match="topics are selected"):
                in_shards(paths, count, options, by)
        else:
            assert_same(in_shards(paths, count, options, by), wanted)
        assert_same(over_splits(paths, count, options, by), wanted)


def test_a_pcapng(samples: Path) -> None:
    check([samples / "apache-4.3-two-interfaces.pcapng"])


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("name", TALKS)
def test_traffic_that_is_hard_to_cut(tmp_path: Path, name: str, count: int) -> None:
    """In splits; `test_tables.py` has the same of shards, with their rows."""
    path = tmp_path / "talk.pcap"
    path.write_bytes(pcap_bytes(encode(TALKS[name]()), nanoseconds=True))
    assert_same(over_splits([path], count), one_engine([path]))
    if name == ONE_ENGINE:
        with pytest.raises(OneEngineNeeded, match="single requests"):
            in_shards([path], count)


def test_lone_requests_to_a_broker_that_others_show(tmp_path: Path) -> None:
    path = tmp_path / "talk.pcap"
    path.write_bytes(pcap_bytes(encode(lone_requests()), nanoseconds=True))
    with pytest.raises(OneEngineNeeded, match="single requests"):
        in_shards([path], 6)
    wanted = one_engine([path])
    for count in (2, 3, 6):
        assert_same(over_splits([path], count), wanted)


@pytest.mark.parametrize("seed", seeds(3, 1))
def test_lost_packets(samples: Path, tmp_path: Path, seed: int) -> None:
    records = PcapRecords(unpacked(samples, ("apache-4.3", "apache-2.8", "apache-0.10.2")[seed], tmp_path))
    data, _ = records.drop(0.02, burst=1 + seed, seed=seed)
    path = tmp_path / "lossy.pcap"
    path.write_bytes(data)
    check([path])


@pytest.mark.parametrize("by", ["client", "broker", "connection", "version", "topic"])
def test_breakdowns(samples: Path, tmp_path: Path, by: str) -> None:
    check([unpacked(samples, "apache-4.3", tmp_path)], by=by)


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
    selection = Selection.of(**{**options, **times})
    check([unpacked(samples, "apache-4.3", tmp_path)], options=RunOptions(selection=selection))


def test_files_of_one_time(samples: Path, tmp_path: Path) -> None:
    """Shards refuse connections that were captured at both ends."""
    records = PcapRecords(unpacked(samples, "apache-2.8", tmp_path))
    half = len(records) // 2
    first, second = tmp_path / "one.pcap", tmp_path / "two.pcap"
    first.write_bytes(records.slice(0, half))
    second.write_bytes(records.slice(half - 200, len(records)))
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
    check([path])
    assert one_engine([path])["reports"]["files"][0]["duplicates"] == len(packets)


def test_a_damaged_file(samples: Path, tmp_path: Path) -> None:
    path = unpacked(samples, "apache-2.8", tmp_path)
    data = bytearray(path.read_bytes())
    start = PcapRecords(bytes(data)).starts[-400]
    data[start + 8 : start + 12] = b"\xff\xff\xff\x7f"
    path.write_bytes(data)
    found, wanted = over_splits([path], 3), one_engine([path])
    assert_same(in_shards([path], 3), wanted)
    for whole in (found, wanted):  # of the bytes behind the damage, a block more or less was read
        for rows in ([whole["capture"]], whole["reports"]["files"]):
            rows[0].pop("bytes", None)
    assert_same(found, wanted)
    path.write_bytes(data[: start - 7])
    check([path], (2,))


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


def test_no_packets(samples: Path, tmp_path: Path) -> None:
    path = unpacked(samples, "apache-4.3", tmp_path)
    empty = tmp_path / "empty.pcap"
    empty.write_bytes(path.read_bytes()[:24])
    assert_same(in_shards([empty], 2), one_engine([empty]))
    check([empty, path])
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
