"""Parse the command line: `COMMANDS`, each with its options."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from ..installation import own_version
from .shared_options import EXIT_CODES

#: Every command and its line in `kafkatap --help`. Its folder is beside this module.
COMMANDS = {
    "report": "report latency, throttling, error codes, clients and a timeline",
    "show": "list every message in time order, or print it whole",
    "records": "list the records that were produced and fetched",
    "live": "watch network interfaces: a screen, log lines, metrics, recordings",
    "spark": "write tables and reports of many captures with a Spark job",
    "apis": "list the APIs, versions and releases of Kafka's protocol",
    "completion": "print the completion script for a shell",
}

_EXAMPLES = (
    """\
examples:
  kafkatap report capture.pcap          latency, throttling, error codes, clients, timeline
  kafkatap show capture.pcap            every request and response, one on a line
  kafkatap records capture.pcap         every record that was produced or fetched
  kafkatap live -i eth0                 the same while packets arrive, on a broker's host
  kafkatap spark captures/ --out DIR    tables and reports of terabytes of captures, on a cluster
  kafkatap apis                         the APIs and versions of Kafka, and the releases that support them
  kafkatap report --help                all options of the report
  kafkatap completion bash              completion script for a shell

"""
    + EXIT_CODES
)


class Command(argparse.ArgumentParser):
    """The parser of one command: it reports unknown options itself, with its own usage."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        found, unknown = super().parse_known_args(args, namespace)
        for text in unknown:
            if not text.startswith("-"):
                continue
            from difflib import get_close_matches

            name = text.partition("=")[0]
            near = get_close_matches(name, self._option_string_actions, 2, 0.75)
            self.error(f"there is no option {name}" + (f"; did you mean {' or '.join(near)}?" if near else ""))
        return found, unknown


class _Version(argparse.Action):
    """Looks the version up only when it is printed."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        print(f"kafkatap {own_version()}")
        parser.exit()


class HelpText(argparse.RawDescriptionHelpFormatter):
    """Help as it is written, as wide as the terminal. argparse makes a formatter with every parser, and by itself would
    import shutil for the width: 2 ms."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=_terminal_width() - 2)


def _terminal_width() -> int:
    """As `shutil.get_terminal_size`."""
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns):
        return int(columns)
    try:
        return os.get_terminal_size(1).columns or 80
    except OSError:
        return 80


def parse(words: Sequence[str]) -> argparse.Namespace:
    """The options of a command line; `command` is one of COMMANDS, or None. Only the parser of the named command is
    built."""
    if not words or words[0] not in COMMANDS:
        return build_parser().parse_args(words)
    parser = Command(prog=f"kafkatap {words[0]}", **_texts(words[0]))
    _arguments(words[0]).add_arguments(parser)
    return parser.parse_args(words[1:], argparse.Namespace(command=words[0]))


def build_parser() -> argparse.ArgumentParser:
    """The parser of the whole command line."""
    parser = argparse.ArgumentParser(
        prog="kafkatap",
        description="Report latency, throttling, error codes and clients of Kafka traffic, from packet captures.",
        epilog=_EXAMPLES,
        formatter_class=HelpText,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands", parser_class=Command)
    for name, line in COMMANDS.items():
        _arguments(name).add_arguments(commands.add_parser(name, help=line, **_texts(name)))
    return parser


def _arguments(name: str) -> Any:
    """The module with the options of a command."""
    return import_module(f".{name}.arguments", __package__)


def _texts(name: str) -> dict[str, Any]:
    """What the parser of a command shows with its help."""
    arguments = _arguments(name)
    return {"description": arguments.DESCRIPTION, "epilog": arguments.EXAMPLES, "formatter_class": HelpText}
