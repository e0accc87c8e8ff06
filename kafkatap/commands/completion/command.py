"""`kafkatap completion`: the completion script of a shell."""

from __future__ import annotations

import argparse

from ..command_parser import build_parser
from ..exit_codes import DONE

#: Metavars of options and arguments whose values are files, and folders.
FILES = ("CAPTURE", "CAPTURES", "FILE", "KEYFILE", "PATH")
FOLDERS = ("DIR",)


def run(options: argparse.Namespace) -> int:
    """Print the script; return the exit code."""
    print(completion_script(options.shell), flush=True)
    return DONE


def completion_script(shell: str) -> str:
    """The completion script of a shell (bash, zsh or fish), by shtab."""
    import shtab

    parser, fixed = build_parser(), _fixed_values()
    for command in parser._subparsers._group_actions[0].choices.values():  # type: ignore[union-attr]
        for action in command._actions:
            if action.metavar in FILES:
                action.complete = shtab.FILE
            elif action.metavar in FOLDERS:
                action.complete = shtab.DIRECTORY
            elif action.choices is None and action.dest in fixed:
                action.choices = fixed[action.dest]
    return str(shtab.complete(parser, shell=shell))


def _fixed_values() -> dict[str, list[str]]:
    """The values of options that no capture changes."""
    from kafkatap.dissector.kafka.releases import RELEASES
    from kafkatap.dissector.layouts.catalog import built_in_names
    from kafkatap.reports.rendering.sorting import sortable_columns
    from kafkatap.reports.section_parts.registry import section_names

    apis = sorted(built_in_names().values())
    return {
        "sections": [*section_names(), "all", "help"], "api": apis, "apis": apis, "release": list(RELEASES),
        "sort": sortable_columns(),
    }  # fmt: skip
