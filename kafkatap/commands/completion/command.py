"""`kafkatap completion`: the completion script of a shell."""

from __future__ import annotations

import argparse

from ..command_parser import build_parser
from ..exit_codes import DONE


def run(options: argparse.Namespace) -> int:
    """Print the script; return the exit code."""
    print(completion_script(options.shell), flush=True)
    return DONE


def completion_script(shell: str) -> str:
    """The completion script of a shell (bash, zsh or fish), by shtab."""
    import shtab

    parser = build_parser()
    for command in parser._subparsers._group_actions[0].choices.values():  # type: ignore[union-attr]
        for action in command._actions:
            if action.dest in ("captures", "archive", "log", "write_pcap", "definitions"):
                action.complete = shtab.FILE
            elif action.dest in ("csv", "plots", "parquet", "out", "write_parquet"):
                action.complete = shtab.DIRECTORY
    return str(shtab.complete(parser, shell=shell))
