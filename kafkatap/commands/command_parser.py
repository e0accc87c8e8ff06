"""Parse the command line: `COMMANDS`, each with its options."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Iterable, Sequence
from copy import copy
from importlib import import_module
from typing import Any, NoReturn

from ..installation import own_version
from .exit_codes import WRONG
from .shared_options import EXIT_CODES

#: Every command and its line in `kafkatap --help`. Its module or folder is beside this module.
COMMANDS = {
    "report": "report latency, throttling, error codes, clients and a timeline",
    "show": "list every message in time order, or print it whole",
    "records": "list the records that were produced and fetched",
    "doctor": "say how good captures are, and how to capture better; exit code 3 if there are problems",
    "extract": "copy the packets of selected exchanges to a pcapng with comments, for Wireshark",
    "compare": "compare two captures, before and after a change: what got worse, and how sure that is",
    "upgrade-check": "list clients that a newer release of Kafka refuses; exit code 3 if there are any",
    "live": "watch network interfaces: a screen, log lines, metrics, recordings",
    "collect": "fetch a minute of packets from many hosts where live keeps them, and report on them as one",
    "keys": "take TLS secrets out of a running broker or Java client, without a restart",
    "spark": "write tables and reports of many captures with a Spark job",
    "lake": "check, prune and compact the tables that spark wrote; exit code 3 if something is wrong",
    "extcap": "be a capture interface of Wireshark",
    "apis": "list the APIs, versions and releases of Kafka's protocol",
    "errors": "list Kafka's error codes: what they mean, and which APIs of a capture had them",
    "completion": "print the completion script for a shell",
    "help": "explain a command or a kind of finding; help agents: the page for programs and agents",
}

#: Names of captures, where a command should be.
_CAPTURES = re.compile(r"\.(pcap|pcapng|cap)(\.gz|\.zst)?\d*$|^-$|[*?]")

_EXAMPLES = (
    """\
examples:
  kafkatap report capture.pcap          latency, throttling, error codes, clients, timeline
  kafkatap report --html x.html x.pcap  also as a page for a browser, with every section and charts
  kafkatap show capture.pcap            every request and response, one on a line
  kafkatap records capture.pcap         every record that was produced or fetched
  kafkatap live -i eth0                 the same while packets arrive, on a broker's host
  kafkatap spark captures/ -o DIR       tables and reports of terabytes of captures, on a cluster
  kafkatap doctor capture.pcap          what is wrong with the capture, and a better capture command
  kafkatap compare a.pcap b.pcap        before and after a change: what got worse
  kafkatap extract x.pcap -f 'latency > 1s' -o slow.pcapng   packets of slow exchanges, for Wireshark
  kafkatap upgrade-check capture.pcap   clients that break at Kafka 4.0
  kafkatap apis                         the APIs and versions of Kafka, and the releases that support them
  kafkatap errors 6                     what an error code means
  kafkatap report --help                all options of the report
  kafkatap completion bash              completion script for a shell
  kafkatap help agents                  for programs and agents: the first commands, with little output

"""
    + EXIT_CODES
)


def _first_part(text: str) -> str:
    """A help up to its first semicolon outside of parentheses."""
    for found in re.finditer("; ", text):
        before = text[: found.start()]
        if before.count("(") == before.count(")"):
            return before
    return text


class Command(argparse.ArgumentParser):
    """The parser of one command. Names of options are not abbreviated: scripts would break with the next option that
    begins alike. What is wrong with a call is one line, with the names that are near; --help has the usage, of a dozen
    lines.

    `often`: the options that -h shows; none: as --help.
    """

    def __init__(self, often: Sequence[str] = (), **settings: Any) -> None:
        super().__init__(allow_abbrev=False, add_help=False, **settings)
        self.often = often
        self.add_argument("-h", action=_ShortHelp, nargs=0, help="show the options that are used most" if often else
                          argparse.SUPPRESS)  # fmt: skip
        self.add_argument("--help", action="help", help="show all options" if often else "show this help")

    def format_short_help(self) -> str:
        """What the command does, its options that are used most, and two examples."""
        if not self.often:
            return self.format_help()
        named = [action.metavar for action in self._actions if not action.option_strings and action.metavar]
        formatter = self._get_formatter()
        formatter.add_usage(" ".join((self.prog, "[options]", *(f"{name}..." for name in named))), (), ())
        formatter.add_text(str(self.description).partition("\n\n")[0])
        formatter.start_section("options that are used most")
        for name in self.often:
            action = copy(self._option_string_actions[name])
            action.help = _first_part(str(action.help))
            formatter.add_argument(action)
        formatter.end_section()
        formatter.add_text("\n".join(str(self.epilog).split("\n")[:3]))
        count = sum(bool(action.option_strings) and action.help != argparse.SUPPRESS for action in self._actions)
        formatter.add_text(f"{self.prog} --help: all {count} options, more examples, exit codes")
        return formatter.format_help()

    def error(self, message: str) -> NoReturn:
        """Print what is wrong and where the options are listed; end with exit code 2."""
        from ..complaints import complain

        complain(message)
        what = "commands" if self.prog == "kafkatap" else "options"
        self.exit(WRONG, f"{self.prog} --help lists all {what}\n")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        try:
            super()._check_value(action, value)
        except argparse.ArgumentError as error:
            if near := near_words(str(value), map(str, action.choices or ()), 0.6):
                raise argparse.ArgumentError(action, f"invalid choice: {value!r}{near}") from None
            raise error from None

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        if args is not None and self._subparsers is None:  # else the words are a command's
            self._refuse_unknown(args[: args.index("--") if "--" in args else None], "--")
        found, unknown = super().parse_known_args(args, namespace)
        self._refuse_unknown(unknown, "-")
        return found, unknown

    def _refuse_unknown(self, words: Iterable[str], dash: str) -> None:
        """End if one of the words is an option that is not there. argparse would say first what is missing."""
        for name in (word.partition("=")[0] for word in words if word.startswith(dash)):
            if name not in self._option_string_actions:
                there = _OF_TSHARK.get(name, "")
                hint = f"; {there}" if there else near_words(name, self._option_string_actions, 0.75)
                self.error(f"there is no option {name}{hint}")


#: What does the same as options of tshark and tcpdump.
_OF_TSHARK = {
    "-r": "name the capture without it", "-Y": "a filter is -f here", "-R": "a filter is -f here",
    "-w": "kafkatap extract -o FILE writes packets", "-T": "--json prints JSON", "-e": "--json has all fields",
    "-V": "kafkatap show --tree prints all fields", "-c": "-n limits lines", "-x": "kafkatap show -x prints bytes",
    "-z": "statistics are sections: kafkatap report --sections help", "-d": "--port PORT says where Kafka is",
}  # fmt: skip


def near_words(name: str, known: Iterable[str], least: float = 0.7) -> str:
    """The end of a sentence: "; did you mean ...?", or "" if nothing is near."""
    from difflib import get_close_matches

    near = get_close_matches(name, list(known), 2, least)
    return f"; did you mean {' or '.join(near)}?" if near else ""


def _no_command(name: str) -> str:
    """What is wrong with a command line whose first word is no command."""
    if os.path.exists(name) or "/" in name or _CAPTURES.search(name):
        from kafkatap.reports.units import shell_word

        return f"there is no command {name!r}; to report on a capture: kafkatap report {shell_word(name)}"
    return f"there is no command {name!r}{near_words(name, COMMANDS)}"


class _ShortHelp(argparse.Action):
    """-h: what fits a screen."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        assert isinstance(parser, Command)
        parser._print_message(parser.format_short_help(), sys.stdout)
        parser.exit()


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

    def _format_action_invocation(self, action: argparse.Action) -> str:
        """`-f, --filter EXPRESSION`: the value once."""
        whole = super()._format_action_invocation(action)
        if len(action.option_strings) < 2 or action.nargs == 0:
            return whole
        return f"{', '.join(action.option_strings)}{whole[len(whole.split(' ')[0]) :].partition(', ')[0]}"


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
        parser = build_parser()
        if words and not words[0].startswith("-"):
            parser.error(_no_command(words[0]))
        return parser.parse_args(words)
    return parser_of(words[0]).parse_args(words[1:], argparse.Namespace(command=words[0]))


def parser_of(name: str) -> Command:
    """The parser of one command."""
    parser = Command(prog=f"kafkatap {name}", **_texts(name))
    part_of(name, "arguments").add_arguments(parser)
    return parser


def build_parser() -> Command:
    """The parser of the whole command line."""
    parser = Command(
        prog="kafkatap",
        description="Report latency, throttling, error codes and clients of Kafka traffic, from packet captures.",
        epilog=_EXAMPLES,
        formatter_class=HelpText,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands", parser_class=Command)
    for name, line in COMMANDS.items():
        part_of(name, "arguments").add_arguments(commands.add_parser(name, help=line, **_texts(name)))
    return parser


def part_of(name: str, part: str) -> Any:
    """The module with a part of a command: its options (`arguments`) or its run (`command`). A small command is one
    module with both."""
    package = import_module(f".{name.replace('-', '_')}", __package__)
    return import_module(f".{part}", package.__name__) if hasattr(package, "__path__") else package


def _texts(name: str) -> dict[str, Any]:
    """What the parser of a command shows with its help."""
    arguments = part_of(name, "arguments")
    return {
        "description": arguments.DESCRIPTION, "epilog": arguments.EXAMPLES, "formatter_class": HelpText,
        "often": getattr(arguments, "OFTEN", ()),
    }  # fmt: skip
