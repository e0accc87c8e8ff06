"""Values of the options that limit memory, which no run could use as they are."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from kafkatap.commands.command_parser import parse
from kafkatap.commands.values import LARGEST_FRAME, LARGEST_LIMIT

from .running import kafkatap

NUMBERS = ("--max-connections", "--max-waiting", "--max-names")


@pytest.mark.parametrize("command", ["report", "show", "records"])
@pytest.mark.parametrize("option", NUMBERS)
@pytest.mark.parametrize("value", ["0", "1k", "1.5", str(LARGEST_LIMIT + 1), "9" * 5_000])
def test_numbers_out_of_range_are_refused(
    command: str, option: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        parse([command, option, value, "x.pcap"])
    assert ended.value.code == 2
    assert f"argument {option}: " in capsys.readouterr().err


def test_no_frame_is_larger_than_the_largest() -> None:
    assert parse(["report", "--max-frame", "99999999999g", "x.pcap"]).max_frame == LARGEST_FRAME


def test_the_largest_limits_and_a_small_one(samples: Path) -> None:
    """Rows that --max-names added up are of no version, and no reason to load definitions."""
    capture = samples / "live-4.4.pcap.zst"
    plain = json.loads(kafkatap("report", "--json", capture).out)
    largest = [word for option in NUMBERS for word in (option, str(LARGEST_LIMIT))]
    done = kafkatap("report", "--json", "--max-frame", "99999999999g", *largest, capture)
    # Suggested commands keep the options, as they may change the answer.
    kept, times = re.subn(r" --max-[a-z]+ [0-9]+g?", "", done.out)
    assert times > 4
    assert (done.code, json.loads(kept)) == (0, plain)
    few = json.loads(kafkatap("report", "--json", "--max-names", "1", capture).out)
    assert few["capture"]["requests"] == plain["capture"]["requests"]
    assert few["reports"]["not_decoded"] == []
    assert [text for text in few["warnings"] if "--definitions" in text] == []
