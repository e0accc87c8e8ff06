"""--group: the section `groups` shows the group with its lag; other commands select what names the group."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kafkatap.__main__ import main

TABLES = ("groups", "group_lag", "rebalances", "group_members", "group_partitions", "group_errors")


@pytest.fixture
def path(samples: Path) -> str:
    return str(samples / "questions" / "groups.pcap.zst")


def reported(capsys: pytest.CaptureFixture[str], path: str, *words: str) -> dict[str, Any]:
    assert main(["report", "--json", "--sections", "groups", *words, path]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


@pytest.mark.parametrize("words", [("--group", "slow"), ("--filter", "group == slow"), ("-f", "group=='slow'")])
def test_a_group_is_shown_with_its_lag(words: tuple[str, ...], path: str, capsys: pytest.CaptureFixture[str]) -> None:
    whole = reported(capsys, path)["reports"]
    for more in ((), ("--jobs", "2")):
        made = reported(capsys, path, *words, *more)
        for name in TABLES:
            assert made["reports"][name] == [row for row in whole[name] if row["group"] == "slow"], name
        assert made["reports"]["group_partitions"][0]["lag"]
        assert any("--group" in note for note in made["notes"]["groups"])


def test_several_groups(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    made = reported(capsys, path, "--group", "slow", "--group", "billing")
    assert {row["group"] for row in made["reports"]["groups"]} == {"slow", "billing"}


def test_other_commands_select_exchanges_that_name_the_group(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    lines = []
    for words in (("--group", "slow"), ("-f", 'group == "slow"')):
        assert main(["show", *words, path]) == 0
        lines.append(capsys.readouterr().out.splitlines())
    assert lines[0] == lines[1]
    assert len(lines[0]) > 10
    assert main(["report", "--group", "slow", "--sections", "clients,groups", path]) == 0
    assert "--group slow" in capsys.readouterr().out
