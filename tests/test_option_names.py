"""An option means the same in every command that has it."""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterator

import pytest

from kafkatap.commands.command_parser import COMMANDS, Command, build_parser

#: Options that were renamed, and the commands that had them.
OLD_NAMES = {
    "--top": ("report", "doctor", "upgrade-check", "compare", "spark", "live"),
    "--upgrade-to": ("report", "spark", "live"),
    "--write-parquet": ("live",),
    "--for": ("keys",),
    "--out": ("keys", "spark"),
    "--only": ("extcap",),
}


def parsers() -> dict[str, argparse.ArgumentParser]:
    """The parser of each command."""
    actions = build_parser()._actions
    found = next(action.choices for action in actions if isinstance(action, argparse._SubParsersAction))
    assert set(found) == set(COMMANDS)
    return dict(found)


def options() -> Iterator[tuple[str, argparse.Action]]:
    """Every option with its command."""
    for name, parser in parsers().items():
        for action in parser._actions:
            if action.option_strings and action.option_strings[0] not in ("-h", "--help"):
                yield name, action


def meaning(action: argparse.Action) -> tuple[object, ...]:
    """What has to be the same in all commands."""
    return (
        tuple(action.option_strings), action.dest, type(action).__name__, action.type, action.nargs, action.const,
        None if action.dest == "output" else action.metavar,  # FILE, or DIR for tables
    )  # fmt: skip


def test_an_option_has_one_meaning() -> None:
    found: dict[str, dict[tuple[object, ...], list[str]]] = defaultdict(lambda: defaultdict(list))
    for command, action in options():
        for name in action.option_strings:
            found[name][meaning(action)].append(command)
    several = {name for name, meanings in found.items() if len(meanings) > 1}
    assert several == {"--after"}  # live: how long a recording goes on; compare: the side that --before is beside
    assert len(found["--client"][next(iter(found["--client"]))]) > 5


def test_a_destination_has_one_option() -> None:
    found = defaultdict(set)
    for _, action in options():
        found[action.dest].add(action.option_strings[-1])
    assert {dest: names for dest, names in found.items() if len(names) > 1} == {
        "progress": {"--progress", "--no-progress"}, "comments": {"--comments", "--no-comments"},
    }  # fmt: skip


def test_every_option_says_what_it_does() -> None:
    for command, action in options():
        assert action.help, (command, action.option_strings)


def test_every_command_with_a_selection_has_all_of_it() -> None:
    for command, parser in parsers().items():
        names = {name for action in parser._actions for name in action.option_strings}
        if "--filter" not in names:
            continue
        assert command == "extcap" or set(getattr(parser, "often", ())) <= names
        assert names >= {"-f", "--client", "--connection", "--topic", "--broker", "--api", "--group"}
        assert names >= {"--port", "--definitions", "--keylog"}
        assert command in ("live", "extcap") or names >= {"--from", "--to", "--utc", "--max-names"}


@pytest.mark.parametrize("name", OLD_NAMES)
def test_an_old_name_is_refused(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    for command in OLD_NAMES[name]:
        with pytest.raises(SystemExit) as end:
            build_parser().parse_args([command, name, "4.0", "x.pcap"])
        assert end.value.code == 2, command
        assert name in capsys.readouterr().err


def test_short_help_fits_a_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for command, parser in parsers().items():
        assert isinstance(parser, Command)
        shown = parser.format_short_help().splitlines()
        if not parser.often:
            assert shown == parser.format_help().splitlines()
            continue
        assert len(shown) <= 45, command
        assert len(parser.often) <= 10
        assert shown[-1].startswith(f"kafkatap {command} --help: all ")
        assert sum(line.startswith("  kafkatap ") for line in shown) == 2, command


def test_names_are_not_abbreviated(capsys: pytest.CaptureFixture[str]) -> None:
    """`--top` would be `--topic`, and a report of another topic."""
    with pytest.raises(SystemExit):
        build_parser().parse_args(["report", "--top", "4", "x.pcap"])
    assert "there is no option --top" in capsys.readouterr().err
