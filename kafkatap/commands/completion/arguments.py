"""The options of `kafkatap completion`."""

from __future__ import annotations

import argparse

DESCRIPTION = (
    "Print a completion script, for example: kafkatap completion bash > "
    "~/.local/share/bash-completion/completions/kafkatap"
)
EXAMPLES = None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options to the command's parser."""
    parser.add_argument("shell", choices=("bash", "zsh", "fish"), help="your shell")
