"""Parse values of options: times, durations, APIs, brokers, ports. This module imports nothing heavy."""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kafkatap.dissector.layouts.overlay import Definitions
    from kafkatap.reports.hosts.host_table import HostTable

    from ..engine.limits import Limits
    from ..engine.read_options import ReadOptions
    from ..engine.tls.key_log import KeyLog


#: The most processes of --jobs: one reader cannot keep more busy.
MOST_JOBS = 64
#: The size of a frame is a signed 32-bit number. Larger sizes of --max-frame change nothing.
LARGEST_FRAME = (1 << 31) - 1
#: The largest number of --max-connections, --max-waiting and --max-names.
LARGEST_LIMIT = 1_000_000_000
#: The most windows of --window.
MOST_WINDOWS = 100_000
#: Options of single sections of the report, and their sections.
SECTION_OPTIONS = {
    "quota": "throttle", "window": "throttle", "zones": "zones", "release": "upgrade", "late": "timeouts",
    "request_log": "broker-times",
}  # fmt: skip

#: Rows of a table of `report` as text, unless -n says otherwise.
TEXT_ROWS = 12
#: The same of a report without chosen sections, which fits two screens.
BRIEF_ROWS = 6


def parse_duration(text: str) -> int:
    """`500ms`, `10 s`, `1.5m`, `3m 24s`; a bare number is seconds. Nanoseconds, above zero."""
    ns = parse_pause(text)
    if ns <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration above zero")
    return ns


def parse_pause(text: str) -> int:
    """A duration, or 0 for none. Nanoseconds."""
    from kafkatap.reports.literals import read_duration

    try:
        return read_duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def parse_lateness(text: str) -> int:
    """A duration of a second or more: shorter waits are not noted."""
    ns = parse_duration(text)
    if ns < 1_000_000_000:
        raise argparse.ArgumentTypeError(f"{text!r} is less than 1s")
    return ns


def parse_when(text: str) -> str:
    """A time, as text. `literals.read_moment` reads it later, because its zone depends on --utc."""
    from kafkatap.reports.literals import read_moment

    try:
        read_moment(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def parse_apis(text: str) -> list[str]:
    """A comma-separated list of API names and keys."""
    names = [part.strip() for part in text.split(",")]
    if not all(names):
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of APIs (such as Fetch,Produce or 0,1)")
    return names


def chosen_definitions(options: argparse.Namespace) -> Definitions | None:
    """Read and check what --definitions names, and learn the names of its APIs. Call this before making a selection.

    OSError or ValueError where there is nothing usable.
    """
    from kafkatap.dissector.layouts.catalog import forget_names

    forget_names()  # names of an earlier call in this process
    if options.definitions is None:
        return None
    from ..engine.engine import open_definitions

    return open_definitions(options.definitions)


def chosen_key_log(options: argparse.Namespace, is_growing: bool = False) -> KeyLog | None:
    """The key logs that --keylog names, as one; None without it. `is_growing`: they are read again as they grow.

    OSError or ValueError if one is missing, cannot be read, or is no key log.
    """
    if not options.keylog:
        return None
    from ..complaints import complain
    from ..engine.tls.key_log_files import open_key_logs

    key_log = open_key_logs(options.keylog, is_growing)
    for problem in () if is_growing else key_log.problems:
        complain(problem)
    for path in key_log.missing:
        complain(f"{path}: there is no such key log yet; it is awaited")
    return key_log


def chosen_hosts(options: argparse.Namespace) -> HostTable | None:
    """The names of addresses in the files of --hosts; None without it. As of `open_hosts`."""
    if not options.hosts:
        return None
    from ..engine.host_names import open_hosts

    return open_hosts(options.hosts, bool(getattr(options, "utc", False)))


def other_inputs(options: argparse.Namespace) -> list[str]:
    """The files that a command reads beside its captures, of those of these options that it has."""
    import glob

    zones = getattr(options, "zones", None)
    names = [getattr(options, "anonymize_key", None), zones and zones.path]
    for option in ("keylog", "request_log", "definitions", "hosts"):
        for pattern in getattr(options, option, None) or ():
            names += [pattern, *glob.glob(pattern)]
    return [str(name) for name in names if name]


def parse_size(text: str) -> int:
    """`64m`, `512k`, `1.5GiB` in bytes, above 0."""
    from kafkatap.reports.literals import read_size

    try:
        size = read_size(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if size <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size above zero (such as 64m, 512k, 1g)")
    return size


def parse_jobs(text: str) -> int:
    """A number of processes: `4`, or `auto`: one for each usable core."""
    if text.strip().lower() == "auto":
        from ..usable_cores import usable_cores

        return min(usable_cores(), MOST_JOBS)
    if not text.strip().isdecimal() or not 1 <= int(text) <= MOST_JOBS:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of processes (1 to {MOST_JOBS}, or auto)")
    return int(text)


def parse_split_size(text: str) -> int:
    """As `read_split_size`."""
    from kafkatap.reports.literals import read_split_size

    try:
        return read_split_size(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def parse_frame_size(text: str) -> int:
    """A size of at least 64 KiB, because that much of every message is decoded."""
    size = parse_size(text)
    if size < 1 << 16:
        raise argparse.ArgumentTypeError(f"{text!r} is less than 64k, the part of every message that is decoded")
    return min(size, LARGEST_FRAME)


def parse_setting(text: str) -> tuple[str, str]:
    """KEY=VALUE."""
    key, equals, value = text.partition("=")
    if not key.strip() or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not a setting (such as spark.executor.memory=4g)")
    return key.strip(), value.strip()


def parse_count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")
    return int(text)


def parse_number(text: str) -> int:
    """A number of rows or messages, above zero; 0 for `all`."""
    if text.strip().lower() == "all":
        return 0
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above zero, or all")
    return int(text)


def text_rows(options: argparse.Namespace) -> int:
    """The most rows of a table of `report` as text; 0 for all."""
    if options.number is None:
        return BRIEF_ROWS if brief_tables(options) else TEXT_ROWS
    return int(options.number)


def brief_tables(options: argparse.Namespace) -> tuple[str, ...]:
    """The tables of a short report; () if sections or request logs were chosen: then everything is printed."""
    if (options.sections is not None and not getattr(options, "is_all_on_page", False)) or options.request_log:
        return ()
    from kafkatap.reports.rendering.text import BRIEF

    return (*BRIEF, "timeline") if options.interval and not options.follow else BRIEF


def parse_width(text: str) -> int:
    """A number of columns, from 20 to 100,000; 0: no limit."""
    if not text.isdecimal() or len(text) > 6 or not (int(text) == 0 or 20 <= int(text) <= 100_000):
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a number of columns from 20 to 100000, or 0")
    return int(text)


def parse_limit(text: str) -> int:
    """A whole number from 1 to LARGEST_LIMIT."""
    digits = text.lstrip("0") if text.isdecimal() else ""
    if not digits:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above zero")
    if len(digits) > len(str(LARGEST_LIMIT)) or int(digits) > LARGEST_LIMIT:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is more than {LARGEST_LIMIT:,}")
    return int(digits)


def limits_of(options: argparse.Namespace) -> Limits | None:
    """The limits that options set; None without such an option."""
    chosen = {name: getattr(options, f"max_{name}") for name in ("connections", "waiting", "held", "names")}
    chosen = {name: value for name, value in chosen.items() if value is not None}
    if not chosen:
        return None
    from ..engine.limits import Limits

    return Limits(**chosen)


def read_options(options: argparse.Namespace) -> ReadOptions:
    """How captures are decoded, without a key log. As of `chosen_definitions` and `chosen_hosts`."""
    from ..engine.read_options import ReadOptions

    return ReadOptions(
        tuple(options.port or ()), chosen_definitions(options), getattr(options, "max_frame", None),
        limits_of(options), late=getattr(options, "late", None), hosts=chosen_hosts(options),
    )  # fmt: skip


def parse_sections(text: str) -> list[str]:
    """Names of sections of the report, separated by commas."""
    from kafkatap.reports.section_parts.registry import chosen_sections

    if text.strip().lower() == "help":
        return ["help"]
    try:
        chosen = chosen_sections([text])
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if not chosen:
        raise argparse.ArgumentTypeError("name a section, such as clients (help: list them)")
    return chosen


def parse_release(text: str) -> str:
    """A release of Kafka: 4.0, 4.3.1."""
    from kafkatap.dissector.kafka.releases import RELEASES, release_of

    try:
        return release_of(text)
    except KeyError as error:
        known = f"it may be {' or '.join(error.args)}" if error.args else f"known are {', '.join(RELEASES)}"
        raise argparse.ArgumentTypeError(f"unknown Kafka release {text!r}; {known}") from None


def parse_rate(text: str) -> int:
    """Bytes a second: as `parse_size`, with or without `/s`."""
    return parse_size(text.strip().removesuffix("/s"))


def parse_window(text: str) -> tuple[int, int]:
    """`11x1s`: a number of windows, and the whole seconds of one."""
    num, times, size = text.lower().partition("x")
    try:
        ns = parse_duration(size)
    except argparse.ArgumentTypeError:
        ns = 0
    if not times or not num.strip().isdecimal() or not 1 < int(num) <= MOST_WINDOWS or not ns or ns % 1_000_000_000:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of windows and whole seconds (such as 11x1s)")
    return int(num), ns // 1_000_000_000


class Zones(list[tuple[str, str]]):
    """Networks and their zones, and the file that they come from."""

    path = ""


def read_zones(path: str) -> Zones:
    """Networks and their zones from a file: as of `zones_of`."""
    from kafkatap.reports.hosts.host_files import zones_of

    from ..engine.host_names import read_host_file

    try:
        found = Zones((entry.network, entry.name) for entry in zones_of(read_host_file(path)))
    except OSError as error:
        raise argparse.ArgumentTypeError(f"{path}: {error.strerror}") from None
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    found.path = path
    return found


def section_options(options: argparse.Namespace) -> dict[str, Any]:
    """What the user set for single sections, by the names of the options."""
    found = {name: getattr(options, name) for name in SECTION_OPTIONS if getattr(options, name, None) is not None}
    from ..engine.selection import shows_groups

    if shows_groups(options):
        found["group"] = tuple(options.group)
    return found


def check_section_options(options: argparse.Namespace) -> None:
    """Raise ValueError if an option is set whose section is not wanted. --late also decides what is in flight."""
    for name in section_options(options).keys() - {"late", "group"}:
        adds_its_section = name == "request_log" and options.sections is None
        if SECTION_OPTIONS[name] not in (options.sections or ()) and not adds_its_section:
            option, section = name.replace("_", "-"), SECTION_OPTIONS[name]
            raise ValueError(f"--{option} is for the section {section}: add --sections {section}")


def parse_port(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 65536:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port number (1 to 65535)")
    return int(text)


def parse_network(text: str) -> str:
    """An address or a network, as a network: 10.1.7.3/32."""
    from ipaddress import ip_network

    try:
        return str(ip_network(text, strict=False))
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no address and no network (such as 10.1.7.3 or 10.1.0.0/16)"
        ) from None


def parse_broker(text: str) -> str:
    """An address, address:port, [address]:port or :port, unchanged."""
    from kafkatap.reports.addresses import split_broker

    try:
        split_broker(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(
            f"{error} (use a form such as 10.0.0.1, 10.0.0.1:9092, [::1]:9092 or :9092)"
        ) from None
    return text


def parse_connection(text: str) -> str:
    """The client's end of a connection, ADDRESS:PORT, unchanged."""
    from kafkatap.reports.addresses import is_end

    if not is_end(text):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not the address and port of a client (use a form such as 10.0.0.7:40122 or [::1]:40122)"
        )
    return text


def parse_percent(text: str) -> float:
    """`33`, `33%`, `0`."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*%?", text.strip())
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a percentage (such as 33)")
    return float(match[1])


def parse_listen(text: str) -> tuple[str, int]:
    """`:9464`, `9464`, `0.0.0.0:9464`, `[::1]:9464`: (host, port). The default host is 127.0.0.1."""
    match = re.fullmatch(r"(?:(\[[0-9A-Fa-f:.%\w]+\]|[^\[\]:]*):)?(\d{1,5})", text.strip())
    if match is None or int(match[2]) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not an address to listen on (such as :9464 or 0.0.0.0:9464)")
    return (match[1] or "127.0.0.1").strip("[]"), int(match[2])


def parse_collector(text: str) -> str:
    """`http://collector:4318`, with or without a path: the URL for metrics (OTLP over HTTP), or `auto`."""
    from urllib.parse import urlsplit

    if text == "auto":
        return text
    try:
        url = urlsplit(text)
        right = url.scheme in ("http", "https") and url.hostname and (url.port is None or url.port > 0)
    except ValueError:
        right = False
    if not right:
        raise argparse.ArgumentTypeError(f"{text!r} is not a URL of a collector (such as http://localhost:4318)")
    return text if url.path.strip("/") else f"{text.rstrip('/')}/v1/metrics"
