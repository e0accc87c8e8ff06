"""The command line: what it takes, what it refuses, and that its help is light."""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kafkatap.commands.command_parser import build_parser
from kafkatap.commands.completion.command import completion_script
from kafkatap.commands.values import parse_duration, parse_when
from kafkatap.engine.selection import api_keys
from kafkatap.reports.literals import Moment, read_moment
from tests.cli.running import kafkatap

SECOND = 1_000_000_000


def test_defaults() -> None:
    args = build_parser().parse_args(["report", "a.pcap", "-"])
    assert args.captures == ["a.pcap", "-"]
    assert (args.by, args.number, args.utc, args.json, args.progress, args.color) == (
        "api",
        None,
        False,
        False,
        True,
        "auto",
    )
    assert (args.start, args.end, args.client, args.api, args.interval, args.csv) == (None,) * 6


def test_all_options() -> None:
    line = (
        "report a --by topic --from +10s --to 1795236239.5 --client a --client b* --topic t --broker :9092"
        " --api Fetch,0 --api metadata -n all --utc --json --csv c --plots p --parquet q --interval 250ms --port 19092"
        " --no-progress --color never -vv"
    )
    args = build_parser().parse_args(line.split())
    assert (args.start, args.end) == ("+10s", "1795236239.5")
    assert args.client == ["a", "b*"]
    assert api_keys([name for names in args.api for name in names]) == {0, 1, 3}
    assert (args.interval, args.port, args.verbose, args.progress) == (250_000_000, [19092], 2, False)


@pytest.mark.parametrize(
    "wrong",
    [
        [], ["report"], ["report", "a", "--by", "x"], ["report", "a", "--from", "yesterday"],
        ["report", "a", "--interval", "0s"], ["report", "a", "--port", "70000"], ["report", "a", "-n", "-1"],
        ["report", "a", "--broker", "a:b:c:"], ["report", "a", "--broker", "h:99999"], ["report", "a", "--api", "1,,2"],
        ["completion", "tcsh"],
    ],
)  # fmt: skip
def test_wrong_calls_end_with_2(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    parser = build_parser()
    if not wrong:
        assert parser.parse_args([]).command is None
        return
    with pytest.raises(SystemExit) as end:
        parser.parse_args(wrong)
    assert end.value.code == 2
    assert "--help lists all options" in capsys.readouterr().err


def test_times() -> None:
    assert read_moment("2026-11-21T04:43:59.392450001Z") == Moment(1_795_236_239_392_450_001)
    assert read_moment("2026-11-21 04:43:59.392 UTC") == Moment(1_795_236_239_392_000_000)
    assert read_moment("2026-11-21T05:43:59+01:00") == Moment(1_795_236_239 * SECOND)
    assert read_moment("1795236239.392450001") == Moment(1_795_236_239_392_450_001)
    assert read_moment("+0") == Moment(0, after_first=True)
    assert read_moment("+1.5m") == read_moment("+1m 30s") == Moment(90 * SECOND, after_first=True)
    for wrong in ("24:00", "yesterday", "", "+", "+x", "15:60", "2026-13-01", "15:10 nowhere", "4.3"):
        with pytest.raises(argparse.ArgumentTypeError, match=r"not a time|not a duration"):
            parse_when(wrong)


def test_durations() -> None:
    texts = ("10", "1h", "2ms", "3us", "50 ms", "3m 24s")
    assert [parse_duration(text) for text in texts] == [
        10 * SECOND, 3600 * SECOND, 2_000_000, 3000, 50_000_000, 204 * SECOND,
    ]  # fmt: skip
    for wrong in ("ten", "3m 24", "1 2", "", "5 parsecs"):
        with pytest.raises(argparse.ArgumentTypeError, match="not a duration"):
            parse_duration(wrong)


@pytest.mark.parametrize(
    ("text", "utc", "zone"), [("04:43:59.5", True, "Asia/Tokyo"), ("13:43:59.5", False, "Asia/Tokyo"),
                              ("04:43:59.5 UTC", False, "Asia/Tokyo"), ("13:43:59.5 JST", False, "Asia/Tokyo"),
                              ("13:43:59.5+09:00", True, "Asia/Tokyo"), ("23:43:59.5", False, "America/New_York")],
)  # fmt: skip
def test_a_time_of_day_is_that_on_the_first_packet_s_day(
    text: str, utc: bool, zone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = 1_795_236_239_392_450_001  # 2026-11-21 04:43:59 UTC, in New York still the 20th
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        assert read_moment(text, utc).at(first) == 1_795_236_239_500_000_000
    finally:
        monkeypatch.undo()
        time.tzset()


def test_unknown_apis_are_told_with_those_like_them() -> None:
    with pytest.raises(ValueError, match=r"no API is called 'Fetchh'; did you mean Fetch"):
        api_keys(["Fetchh"])


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(shell: str) -> None:
    script = completion_script(shell)
    assert "no-progress" in script
    assert all(value in script for value in ("rebalances", "OffsetCommit", "total_p99_ns", "0.10.2", "connection"))
    assert "kafkatap" in script


def test_help_is_light() -> None:
    code = (
        "import sys\nfrom kafkatap.commands.command_parser import build_parser\n"
        "try: build_parser().parse_args(['report', '--help'])\nexcept SystemExit: pass\n"
        "heavy = {'numpy', 'numba', 'rich', 'pyarrow', 'pandas', 'matplotlib', 'shtab'} & set(sys.modules)\n"
        "sys.exit(str(heavy) if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "exit codes" in done.stdout


@pytest.mark.parametrize("command", [("report",), ("live", "-i", "lo"), ("spark", "-o", "nowhere")])
def test_an_option_of_a_section_needs_the_section(command: tuple[str, ...], samples: Path) -> None:
    capture = [] if command[0] == "live" else [samples / "live-4.4.pcap.zst"]
    done = kafkatap(*command, "--quota", "20000", *capture)
    assert done.code == 2
    assert "--quota is for the section throttle: add --sections throttle" in done.err


@pytest.mark.parametrize("command", ["report", "show", "live", "spark", "compare", "extract"])
def test_the_short_help_cuts_no_parentheses(command: str) -> None:
    text = kafkatap(command, "-h").out
    for option in re.split(r"\n  (?=-)", text):
        assert option.count("(") == option.count(")"), option
