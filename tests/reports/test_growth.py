"""What a report does grows with the capture, and not faster: calls of functions are counted, not seconds."""

from __future__ import annotations

import cProfile
import pstats
import subprocess
import sys
from pathlib import Path

import pytest
import zstandard

from kafkatap.__main__ import main
from tests.cli.running import ROOT

#: A copy more may cost this much more than one before: some numbers have more digits, and tables more rows to sort.
_LINEAR = 1.25


def _calls(capture: Path, *words: str) -> int:
    """How many functions a report on a capture calls."""
    profile = cProfile.Profile()
    profile.runcall(main, ["report", *words, str(capture)])
    return int(pstats.Stats(profile).total_calls)  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def captures(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two, four and eight copies of a sample, each in one capture."""
    folder = tmp_path_factory.mktemp("copies")
    one, found = folder / "one.pcap", []
    with (ROOT / "samples" / "apache-4.3.pcap.zst").open("rb") as file:
        one.write_bytes(zstandard.ZstdDecompressor().stream_reader(file).read())
    for copies in (2, 4, 8):
        found.append(folder / f"{copies}.pcap")
        command = [sys.executable, "benchmarks/join_copies.py", str(one), str(copies), str(found[-1])]
        subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=60)
    return found


@pytest.mark.parametrize("words", [(), ("--sections", "all")])
def test_each_copy_costs_what_the_one_before_did(
    words: tuple[str, ...], captures: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    _calls(captures[0], *words)  # imports and caches
    two, four, eight = (_calls(capture, *words) for capture in captures)
    capsys.readouterr()
    assert (eight - four) / 4 <= _LINEAR * (four - two) / 2
