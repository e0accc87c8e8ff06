"""`kafkatap completion`: the completion script of a shell."""

from __future__ import annotations

import argparse

from ..command_parser import build_parser
from ..exit_codes import DONE

#: Metavars of options and arguments whose values are files, and folders.
FILES = ("CAPTURE", "CAPTURES", "FILE", "FILE_OR_DIR", "KEYFILE", "PATH")
FOLDERS = ("DIR",)


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
            if action.metavar in FILES:
                action.complete = shtab.FILE
            elif action.metavar in FOLDERS:
                action.complete = shtab.DIRECTORY
    return str(shtab.complete(parser, shell=shell))
