"""The benchmark's own parts: joined copies, and the table, without measuring anything worth telling."""

from __future__ import annotations

import itertools
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.captures import pcap_bytes, read_capture, write_capture
from tests.support.tcp import TcpConversation, encode


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    talk = TcpConversation(("127.0.0.1", 40000), ("127.0.0.2", 9092))
    talk.open()
    for _ in range(20):
        talk.client(b"question" * 300)
        talk.server(b"answer" * 300)
    talk.close()
    return write_capture(tmp_path / "small.pcap", pcap_bytes(encode(talk.segments)))


def test_copies_have_their_own_addresses_and_follow_each_other(capture: Path, tmp_path: Path) -> None:
    joined = tmp_path / "joined.pcap"
    command = [sys.executable, "benchmarks/join_copies.py", str(capture), "3", str(joined)]
    subprocess.run(command, cwd=Path(__file__).parents[1], check=True, capture_output=True, timeout=60)
    one, three = read_capture(capture).packets, read_capture(joined).packets
    assert len(three) == 3 * len(one)
    for copy in range(3):
        part = three[copy * len(one) : (copy + 1) * len(one)]
        assert {p.data[26:34] for p in part} == {bytes([127, 0, copy, a, 127, 0, copy, b]) for a, b in ((1, 2), (2, 1))}
        assert [p.data[:26] + p.data[34:] for p in part] == [p.data[:26] + p.data[34:] for p in one]
        assert len({p.time_ns - q.time_ns for p, q in zip(part, one, strict=True)}) == 1
    assert all(a.time_ns <= b.time_ns for a, b in itertools.pairwise(three))


def test_table_names_every_contender(capture: Path) -> None:
    command = [sys.executable, "benchmarks/bench_report.py", str(capture), "--runs", "1", "--kafkatap", "true"]
    command += ["--first", "--parquet", "--jobs", "2"]
    done = subprocess.run(
        command,
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
        env={"PATH": "/usr/bin:/bin", "TSHARK": "no-such-tshark"},
    )
    for options in ("", ", first 50 packets", ", first 50 packets, empty home", " --parquet", " --jobs 2"):
        assert f"| kafkatap report{options} |" in done.stdout
    assert "| plain sequential read |" in done.stdout
    assert "no no-such-tshark here" in done.stderr


def test_each_ratio_has_a_target(capture: Path) -> None:
    command = [sys.executable, "benchmarks/bench_speed.py", str(capture), "--runs", "1", "--copies", "2"]
    done = subprocess.run(
        [*command, "--kafkatap", "true", "--only", "to one process"], cwd=Path(__file__).parents[1],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    assert "| --jobs 2 to one process, large | wall |" in done.stdout
    assert "| --jobs 8 to one process, large | processor |" in done.stdout
    assert done.stdout.count("≤") == 4


def test_show_is_timed_beside_report(samples: Path) -> None:
    command = [sys.executable, "benchmarks/bench_show.py", str(samples / "apache-0.8.2.pcap.zst"), "--runs", "1"]
    done = subprocess.run(
        command, cwd=Path(__file__).parents[1], capture_output=True, text=True, timeout=120, check=True
    )
    names = [line.split(" | ")[0].removeprefix("| ") for line in done.stdout.splitlines() if line.endswith(" |")]
    assert {"report", "show, until the first line", "show, all lines", "records to Parquet"} <= set(names)


def test_the_cost_of_the_plan_is_measured() -> None:
    command = [sys.executable, "benchmarks/plan_cost.py", "--flow-splits", "1000", "--flows", "20"]
    done = subprocess.run(
        command, cwd=Path(__file__).parents[1], capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout.splitlines()[-1].startswith("| 990 | 45 |")


def test_seams_are_measured_and_simulated(capture: Path) -> None:
    command = [sys.executable, "benchmarks/seam_volume.py", str(capture), "--sizes", "64k", "1g"]
    done = subprocess.run(
        command, cwd=Path(__file__).parents[1], capture_output=True, text=True, timeout=120, check=True
    )
    measured, _, simulated = done.stdout.partition("Simulated")
    rows = [line for line in measured.splitlines() if line.startswith("| small.pcap")]
    assert len(rows) == 1
    assert rows[0].split(" | ")[1] == "64k"
    shares = [
        [float(share.strip(" |%")) for share in line.split(" | ")[1:]]
        for line in simulated.splitlines()
        if line.endswith("% |")
    ]
    assert len(shares) == 6
    assert all(large < small <= 100 for small, large in shares)
