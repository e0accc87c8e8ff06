"""The command line of kafkatap: commands, options and their help. Nothing heavy is imported to show them."""

from __future__ import annotations

import argparse
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafkatap.dissector.overlay import Definitions

SECOND = 1_000_000_000

EXIT_CODES = """\
exit codes:
  0    done
  1    done, but something was damaged or lost, or no Kafka was found
  2    wrong call, or nothing readable
  130  interrupted (what was read until then is reported)
"""

_REPORT_EXAMPLES = (
    """\
examples:
  kafkatap report capture.pcap
  kafkatap report --by client --api Fetch,Produce broker1.pcapng
  kafkatap report --from +30s --to +60s --client 'billing-*' ring/*.pcap.gz
  tcpdump -w - port 9092 | kafkatap report -
  kafkatap report --json capture.pcap | jq '.reports.errors'

"""
    + EXIT_CODES
)

_EXAMPLES = (
    """\
examples:
  kafkatap report capture.pcap          latency, throttling, errors, clients, timeline
  kafkatap report --help                all options of the report
  kafkatap completion bash              completion for this shell

"""
    + EXIT_CODES
)


@dataclass(frozen=True, slots=True)
class When:
    """A moment asked for: ns since the epoch, or (`relative`) ns after the capture's first packet."""

    ns: int
    relative: bool
    text: str = field(default="", compare=False)  # as it was written


_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ns|us|µs|ms|s|m|min|h|d)?")
_UNITS = {
    "ns": 1, "us": 1000, "µs": 1000, "ms": 1_000_000, "s": SECOND, "m": 60 * SECOND, "min": 60 * SECOND,
    "h": 3600 * SECOND, "d": 86400 * SECOND,
}  # fmt: skip


def parse_duration(text: str) -> int:
    """`500ms`, `10s`, `1.5m`, `2h`; a bare number is seconds. Nanoseconds, above zero."""
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no duration (such as 500ms, 10s, 5m, 1h)")
    from decimal import Decimal

    ns = int(Decimal(match[1]) * _UNITS[match[2] or "s"])
    if ns <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no duration above zero")
    return ns


def parse_when(text: str) -> When:
    """`+10s` (after the first packet), seconds since the epoch, or ISO 8601 (local time unless it names a zone)."""
    stripped = text.strip()
    if stripped.startswith("+"):
        return When(0 if stripped in ("+0", "+0s") else parse_duration(stripped[1:]), True, text)
    if re.fullmatch(r"\d+(\.\d+)?", stripped):
        from decimal import Decimal

        return When(int(Decimal(stripped) * SECOND), False, text)
    from datetime import UTC, datetime, timedelta

    # datetime holds microseconds; the digits after them are added by hand.
    whole, fraction, zone = _split_iso(stripped)
    try:
        moment = datetime.fromisoformat(whole + zone)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no time (such as 2026-11-21T15:10:39.5, 1795236239.5, or +10s after the first packet)"
        ) from None
    since = moment.astimezone(UTC) - datetime(1970, 1, 1, tzinfo=UTC)
    ns = since // timedelta(seconds=1) * SECOND + int(fraction.ljust(9, "0")[:9] or 0)
    return When(ns, False, text)


def _split_iso(text: str) -> tuple[str, str, str]:
    match = re.fullmatch(r"(.*?:\d\d)[.,](\d+)(.*)", text)
    return (match[1], match[2], match[3]) if match else (text, "", "")


def parse_apis(text: str) -> list[str]:
    """A comma-separated list of API names and keys, as written."""
    names = [part.strip() for part in text.split(",")]
    if not all(names):
        raise argparse.ArgumentTypeError(f"{text!r} is no list of APIs (such as Fetch,Produce or 0,1)")
    return names


def api_keys(names: list[str]) -> frozenset[int]:
    """The keys of APIs given by name (in any case) or number; ValueError names the unknown one and those like it."""
    from kafkatap.dissector.catalog import api_names

    by_name = {name.lower(): key for key, name in api_names().items()}
    keys = set()
    for name in names:
        plain = name.replace("_", "").replace("-", "").lower()
        if re.fullmatch(r"\d{1,5}", name) and int(name) < 32768:
            keys.add(int(name))
        elif plain in by_name:
            keys.add(by_name[plain])
        else:
            from difflib import get_close_matches

            near = [api_names()[by_name[n]] for n in get_close_matches(plain, by_name, 3)]
            raise ValueError(f"no API is called {name!r}" + (f"; did you mean {' or '.join(near)}?" if near else ""))
    return frozenset(keys)


def add_definitions(group: argparse._ArgumentGroup) -> None:
    """The option --definitions, for every command that decodes or names messages (see `chosen_definitions`)."""
    group.add_argument(
        "--definitions", metavar="DIR",
        help="read a newer Kafka: a folder of its own message definitions (.json), laid over the built-in ones",
    )  # fmt: skip


def chosen_definitions(options: argparse.Namespace) -> Definitions | None:
    """What --definitions names, read and checked, the names of its APIs learned; to be called before `api_keys`.

    OSError or ValueError where there is nothing usable.
    """
    from kafkatap.dissector.catalog import forget_names

    forget_names()  # of an earlier call in this process
    if options.definitions is None:
        return None
    from kafkatap.dissector.overlay import open_definitions

    return open_definitions(options.definitions)


def _positive(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 0 on")
    return int(text)


def _port(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 65536:
        raise argparse.ArgumentTypeError(f"{text!r} is no port number (1 to 65535)")
    return int(text)


def own_version() -> str:
    from importlib.metadata import PackageNotFoundError, version  # here: 20 ms

    try:
        return version("kafkatap")
    except PackageNotFoundError:
        return "unknown"


class _Version(argparse.Action):
    """Looks the version up only when it is asked for."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        print(f"kafkatap {own_version()}")
        parser.exit()


def build_parser() -> argparse.ArgumentParser:
    """The parser of `kafkatap`. After parsing, `command` is "report", "completion", or None.

    Of `report`: captures [str]; by; start, end (When or None); client, topic, broker [str] or None; api [[str]] or
    None (see `api_keys`); top; utc; json; csv, plots, parquet (str or None); interval (ns or None); port [int] or
    None; progress; color ("auto", "always", "never"); verbose.
    """
    parser = argparse.ArgumentParser(
        prog="kafkatap",
        description="See what Kafka clients and brokers really say to each other, from packet captures.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="show the version and end")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    _add_report(commands.add_parser(
        "report", help="latency, throttling, errors, clients and a timeline of a capture",
        description="Report what the Kafka traffic of one or many captures adds up to.",
        epilog=_REPORT_EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter,
    ))  # fmt: skip
    completion = commands.add_parser(
        "completion", help="print the completion script of a shell",
        description="Print a completion script, for example: kafkatap completion bash > "
        "~/.local/share/bash-completion/completions/kafkatap",
    )  # fmt: skip
    completion.add_argument("shell", choices=("bash", "zsh", "fish"), help="your shell")
    return parser


def _add_report(report: argparse.ArgumentParser) -> None:
    report.add_argument(
        "captures", nargs="+", metavar="CAPTURE",
        help="pcap or pcapng, also .gz and .zst; - for standard input; many are put in the order of their packets",
    )  # fmt: skip
    what = report.add_argument_group("what is reported")
    what.add_argument(
        "--by", choices=("api", "client", "broker", "version", "topic"), default="api",
        help="break the latency down further (default: by API alone)",
    )  # fmt: skip
    what.add_argument("--from", dest="start", type=parse_when, metavar="TIME",
                      help="only what began at TIME or later: ISO 8601, seconds since the epoch, or +10s "
                      "(after the first packet)")  # fmt: skip
    what.add_argument("--to", dest="end", type=parse_when, metavar="TIME", help="only what began before TIME")
    what.add_argument("--client", action="append", metavar="NAME",
                      help="only this client_id or client address; * and ? are wildcards; may be repeated")  # fmt: skip
    what.add_argument("--topic", action="append", metavar="NAME",
                      help="only what was answered on this topic (name or id); wildcards; may be repeated")  # fmt: skip
    what.add_argument("--broker", action="append", metavar="ADDRESS[:PORT]", type=_broker,
                      help="only this broker; :PORT for a port on any address; may be repeated")  # fmt: skip
    what.add_argument("--api", action="append", type=parse_apis, metavar="NAMES",
                      help="only these APIs, by name or key: Fetch,Produce or 0,1; may be repeated")  # fmt: skip
    what.add_argument("--interval", type=parse_duration, metavar="DURATION",
                      help="length of the timeline's intervals: 100ms, 5m (default: what fits a screen)")  # fmt: skip
    what.add_argument("--port", action="append", type=_port, metavar="PORT",
                      help="a hint that brokers listen on PORT; Kafka is found on any port without it")  # fmt: skip
    add_definitions(what)
    how = report.add_argument_group("how it is shown")
    how.add_argument("--top", type=_positive, default=12, metavar="N",
                     help="rows of each table on the terminal; 0 for all (default: 12)")  # fmt: skip
    how.add_argument("--utc", action="store_true", help="show times in UTC instead of local time")
    how.add_argument("--color", choices=("auto", "always", "never"), default="auto",
                     help="colours: on a terminal (auto; NO_COLOR is honoured), always, or never")  # fmt: skip
    how.add_argument("--no-progress", dest="progress", action="store_false", help="no progress bar on standard error")
    how.add_argument("-v", "--verbose", action="count", default=0, help="say more about what is being done")
    also = report.add_argument_group("other forms")
    also.add_argument("--json", action="store_true", help="the whole report as JSON on standard output")
    also.add_argument("--csv", metavar="DIR", help="each report as a CSV file in DIR as well")
    also.add_argument("--plots", metavar="DIR", help="plots as SVG and PNG in DIR as well (needs matplotlib)")
    also.add_argument("--parquet", metavar="DIR", help="the tables behind the reports as Parquet files in DIR as well")


def _broker(text: str) -> str:
    """An address, address:port, [address]:port or :port; kept as written."""
    match = re.fullmatch(r"(?:\[([0-9A-Fa-f:.]+)\]|[^:\[\]]*)(?::(\d+))?|([0-9A-Fa-f:.]+)", text)
    wrong = not text or match is None or (match[2] and not 0 < int(match[2]) < 65536)
    if match is not None and (match[1] or match[3]):
        from ipaddress import AddressValueError, IPv6Address

        try:
            IPv6Address(match[1] or match[3])
        except AddressValueError:
            wrong = True
    if wrong:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no broker (such as 10.0.0.1, 10.0.0.1:9092, [::1]:9092 or :9092)"
        )
    return text


def completion_script(shell: str) -> str:
    """The completion script of a shell (bash, zsh or fish), by shtab."""
    import shtab

    parser = build_parser()
    for command in parser._subparsers._group_actions[0].choices.values():  # type: ignore[union-attr]
        for action in command._actions:
            if action.dest == "captures":
                action.complete = shtab.FILE
            elif action.dest in ("csv", "plots", "parquet", "definitions"):
                action.complete = shtab.DIRECTORY
    return str(shtab.complete(parser, shell=shell))
