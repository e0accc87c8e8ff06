"""What a lake remembers of its runs: none with other options replaces rows by accident."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kafkatap.captures.storage import File
from kafkatap.engine.limits import Limits
from kafkatap.engine.read_options import ReadOptions
from kafkatap.engine.selection import Selection
from kafkatap.engine.tls.key_log import KeyLog
from kafkatap.reports.literals import read_moment
from kafkatap.spark.lake_options import NAME, OtherOptions, check_options, remember, row_options
from kafkatap.spark.stream import StreamOptions, start_stream
from kafkatap.splits.run_options import RunOptions
from tests.cli.running import ROOT, kafkatap

from .rows import run, seen

USUAL = RunOptions()
FETCHES = RunOptions(selection=Selection.of(apis=["Fetch"]))
WITH_KEYS = RunOptions(ReadOptions(key_log=KeyLog()))
CAPTURES = [File("capture-1", 1, 0), File("capture-2", 1, 0)]


def during(start: str | None = None, end: str | None = None) -> RunOptions:
    times = [None if text is None else read_moment(text, True) for text in (start, end)]
    return RunOptions(selection=Selection.of(start=times[0], end=times[1]))


@pytest.fixture
def lake(tmp_path: Path) -> str:
    """Rows of two captures in hours 4 to 6, made with the usual options."""
    out = str(tmp_path / "lake")
    run(out, {1: [0, 1], 2: [1, 2]})
    return out


@pytest.mark.parametrize(
    "options",
    [
        FETCHES,
        RunOptions(selection=Selection.of(filter="error")),
        RunOptions(ReadOptions(limits=Limits(names=10))),
        RunOptions(ReadOptions(max_frame=1 << 20)),
        RunOptions(ReadOptions(ports=(9_092,))),
    ],
)
def test_other_options_are_refused_before_anything_changes(lake: str, options: RunOptions) -> None:
    before = seen(lake)
    remember(lake, USUAL)
    with pytest.raises(OtherOptions, match=r"replace 4 exchanges of 2 captures .* --replace") as refused:
        check_options(lake, options, CAPTURES)
    assert "\n" not in str(refused.value)
    assert seen(lake) == before
    check_options(lake, options, CAPTURES, replace=True)
    remember(lake, options)
    check_options(lake, options, CAPTURES)
    with pytest.raises(OtherOptions):
        check_options(lake, USUAL, CAPTURES)


def test_other_captures_with_other_options_would_be_rows_of_two_kinds(lake: str) -> None:
    with pytest.raises(OtherOptions, match="rows of both kinds"):
        check_options(lake, FETCHES, [File("capture-9", 1, 0)])


def test_a_time_window_is_not_remembered_and_removes_nothing(lake: str) -> None:
    """Hourly jobs have another one each. One that leaves out rows of a capture that is there is refused."""
    assert row_options(during("2026-11-21 04:00:00")) == {}
    day = str(seen_day(lake))
    check_options(lake, during(f"{day} 04:00:00", f"{day} 07:00:00"), CAPTURES)
    check_options(lake, during(f"{day} 05:00:00"), [File("capture-2", 1, 0), File("capture-9", 1, 0)])
    with pytest.raises(OtherOptions, match=r"has 1 exchanges of these captures that are outside"):
        check_options(lake, during(f"{day} 05:00:00"), CAPTURES)
    with pytest.raises(OtherOptions, match="may be outside"):
        check_options(lake, during("+1s"), CAPTURES)
    check_options(lake, during("+1s"), [File("capture-9", 1, 0)])


def seen_day(lake: str) -> Any:
    from kafkatap.spark.output.delta import read_table

    return read_table(lake, "exchanges", ["request_first"])["request_first"][0].as_py().date()


def test_a_key_log_may_come_and_not_go(lake: str) -> None:
    check_options(lake, WITH_KEYS, CAPTURES)
    remember(lake, WITH_KEYS)
    with pytest.raises(OtherOptions, match="--keylog"):
        check_options(lake, USUAL, CAPTURES)


def test_a_new_folder_takes_any_options(tmp_path: Path) -> None:
    check_options(str(tmp_path), FETCHES, CAPTURES)
    remember(str(tmp_path), FETCHES)
    assert json.loads((tmp_path / NAME).read_text()) == {"format": 1, "options": {"": "--api Fetch"}}


def test_a_damaged_file_is_no_answer(lake: str) -> None:
    for text, words in (("{", "is damaged"), ('{"format": 99, "options": {}}', "later version")):
        Path(lake, NAME).write_text(text)
        with pytest.raises(OSError, match=words):
            check_options(lake, USUAL, CAPTURES)


def test_a_stream_with_other_options_does_not_start(lake: str, tmp_path: Path) -> None:
    options = StreamOptions(lake, str(tmp_path / "checkpoint"), reading=FETCHES)
    with pytest.raises(OtherOptions):
        start_stream(None, [str(tmp_path)], options)  # type: ignore[arg-type] # refused before it is used


def test_the_command_refuses_before_spark_starts(lake: str) -> None:
    done = kafkatap("spark", ROOT / "samples" / "apache-0.8.2.pcap.zst", "-o", lake, "--client", "java*")
    assert done.code == 2
    (line,) = done.err.splitlines()
    assert "its rows were made without filters and limits, and this run is with --client java*" in line
