"""The command line: what it takes, what it refuses, and that its help is light."""

from __future__ import annotations

import argparse
import subprocess
import sys

import pytest

from kafkatap.commands.options import build_parser, completion_script
from kafkatap.commands.values import When, api_keys, parse_duration, parse_when

SECOND = 1_000_000_000


def test_defaults() -> None:
    args = build_parser().parse_args(["report", "a.pcap", "-"])
    assert args.captures == ["a.pcap", "-"]
    assert (args.by, args.top, args.utc, args.json, args.progress, args.color) == (
        "api",
        12,
        False,
        False,
        True,
        "auto",
    )
    assert (args.start, args.end, args.client, args.api, args.interval, args.csv) == (None,) * 6


def test_all_options() -> None:
    line = (
        "report a --by topic --from +10s --to 1795236239.5 --client a --client b* --topic t --broker :9092"
        " --api Fetch,0 --api metadata --top 0 --utc --json --csv c --plots p --parquet q --interval 250ms --port 19092"
        " --no-progress --color never -vv"
    )
    args = build_parser().parse_args(line.split())
    assert args.start == When(10 * SECOND, True)
    assert args.end == When(1_795_236_239_500_000_000, False)
    assert args.client == ["a", "b*"]
    assert api_keys([name for names in args.api for name in names]) == {0, 1, 3}
    assert (args.interval, args.port, args.verbose, args.progress) == (250_000_000, [19092], 2, False)


@pytest.mark.parametrize(
    "wrong",
    [
        [], ["report"], ["report", "a", "--by", "x"], ["report", "a", "--from", "yesterday"],
        ["report", "a", "--interval", "0s"], ["report", "a", "--port", "70000"], ["report", "a", "--top", "-1"],
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
    assert "error:" in capsys.readouterr().err


def test_times() -> None:
    assert parse_when("2026-11-21T04:43:59.392450001Z") == When(1_795_236_239_392_450_001, False)
    assert parse_when("2026-11-21T05:43:59+01:00") == When(1_795_236_239 * SECOND, False)
    assert parse_when("1795236239.392450001") == When(1_795_236_239_392_450_001, False)
    assert parse_when("+0") == When(0, True)
    assert parse_when("+1.5m") == When(90 * SECOND, True)
    assert [parse_duration(t) for t in ("10", "1h", "2ms", "3us")] == [10 * SECOND, 3600 * SECOND, 2_000_000, 3000]
    with pytest.raises(argparse.ArgumentTypeError, match="no duration"):
        parse_duration("ten")


def test_unknown_apis_are_told_with_those_like_them() -> None:
    with pytest.raises(ValueError, match=r"no API is called 'Fetchh'; did you mean Fetch"):
        api_keys(["Fetchh"])


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(shell: str) -> None:
    script = completion_script(shell)
    assert "no-progress" in script
    assert "kafkatap" in script


def test_help_is_light() -> None:
    code = (
        "import sys\nfrom kafkatap.commands.options import build_parser\n"
        "try: build_parser().parse_args(['report', '--help'])\nexcept SystemExit: pass\n"
        "heavy = {'numpy', 'numba', 'rich', 'pyarrow', 'pandas', 'matplotlib', 'shtab'} & set(sys.modules)\n"
        "sys.exit(str(heavy) if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "exit codes" in done.stdout
