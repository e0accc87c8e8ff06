"""The parser of the command line: `COMMANDS`, each with its options."""

from __future__ import annotations

import argparse
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
            near = get_close_matches(name, self._option_string_actions, 2, 0.7)
            self.error(f"there is no option {name}" + (f"; did you mean {' or '.join(near)}?" if near else ""))
        return found, unknown


class _Version(argparse.Action):
    """Looks the version up only when it is printed."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        print(f"kafkatap {own_version()}")
        parser.exit()


def build_parser(only: str | None = None) -> argparse.ArgumentParser:
    """The parser of `kafkatap`. After parsing, `command` is one of COMMANDS, or None.

    `only`: the command that will be parsed; the others get no options then.
    """
    parser = argparse.ArgumentParser(
        prog="kafkatap",
        description="Report latency, throttling, error codes and clients of Kafka traffic, from packet captures.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands", parser_class=Command)
    for name, line in COMMANDS.items():
        if only in (None, name):
            arguments = import_module(f".{name}.arguments", __package__)
            arguments.add_arguments(commands.add_parser(
                name, help=line, description=arguments.DESCRIPTION, epilog=arguments.EXAMPLES,
                formatter_class=argparse.RawDescriptionHelpFormatter,
            ))  # fmt: skip
        else:
            commands.add_parser(name, help=line)
    return parser
