"""The options of `kafkatap help`."""

from __future__ import annotations

import argparse

DESCRIPTION = (
    "Show the help of a command, the page for programs and agents, what the kinds of findings mean, or one of them."
)
EXAMPLES = """\
examples:
  kafkatap help report       all options of a command
  kafkatap help agents       for programs and agents: which command first, and how to keep output small
  kafkatap help findings     what each kind of finding means
  kafkatap help nagle        one kind: what it looks like in packets, and what to change

"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options to the command's parser."""
    parser.add_argument("topic", nargs="?", metavar="COMMAND|agents|findings|FINDING", help="what to explain (default: "
                        "all commands)")  # fmt: skip
