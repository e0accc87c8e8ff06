"""The first start of a build that nobody has run: its test capture has the values of Linux, or it does nothing else."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from kafkatap.__main__ import main
from kafkatap.commands import first_start
from kafkatap.kernels import platforms

CAPTURE = Path(__file__).resolve().parents[2] / "samples" / "live-4.4.pcap.zst"


def test_the_values_are_those_of_this_build() -> None:
    if os.environ.get("KAFKATAP_UPDATE"):
        first_start.VALUES.write_text(json.dumps(first_start.digests(CAPTURE), indent=1, sort_keys=True) + "\n")
    assert first_start.differences(CAPTURE) == []


@pytest.fixture
def untried(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """This machine as a platform on which nobody has run kafkatap; its cache."""
    here = platforms.here()
    if here is None:
        pytest.skip("needs a library")
    monkeypatch.setattr(platforms, "here", lambda: here._replace(is_tried=False, name="moon"))
    monkeypatch.setattr("sys.platform", "moon")
    monkeypatch.setattr(first_start, "CAPTURE", CAPTURE)
    cache = tmp_path / "cache"
    cache.mkdir(0o700)
    monkeypatch.setenv("KAFKATAP_CACHE", str(cache))
    return cache


def test_a_build_that_is_right_looks_once(untried: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert first_start.problem() is None
    assert [path.name[:17] for path in untried.iterdir()] == ["decodes-as-linux-"]
    monkeypatch.setattr(first_start, "differences", lambda capture: ["section latency"])
    assert first_start.problem() is None


def test_a_build_that_is_wrong_does_nothing(
    untried: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    values = json.loads(first_start.VALUES.read_text()) | {"section latency": "0"}
    wrong = tmp_path / "values.json"
    wrong.write_text(json.dumps(values))
    monkeypatch.setattr(first_start, "VALUES", wrong)
    for _ in range(2):
        assert main(["report", str(CAPTURE)]) == 2
        out, err = capsys.readouterr()
        assert not out
        assert err == (
            "kafkatap: this build for moon, which nobody has run before, decodes its test capture otherwise than on "
            "Linux (section latency): do not use it\n"
        )
