"""Parse values of options: times, durations, APIs, brokers, ports. This module imports nothing heavy."""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafkatap.dissector.layouts.overlay import Definitions

    from ..limits import Limits


#: The most processes of --jobs.
MOST_JOBS = 1024
#: The size of a frame is a signed 32-bit number. Larger sizes of --max-frame change nothing.
LARGEST_FRAME = (1 << 31) - 1
#: The largest number of --max-connections, --max-waiting and --max-names.
LARGEST_LIMIT = 1_000_000_000


def parse_duration(text: str) -> int:
    """`500ms`, `10 s`, `1.5m`, `3m 24s`; a bare number is seconds. Nanoseconds, above zero."""
    from kafkatap.reports.literals import read_duration

    try:
        ns = read_duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if ns <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration above zero")
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
    from ..engine import open_definitions

    return open_definitions(options.definitions)


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

        return usable_cores()
    if not text.strip().isdecimal() or not 1 <= int(text) <= MOST_JOBS:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of processes (1 to {MOST_JOBS}, or auto)")
    return int(text)


def parse_split_size(text: str) -> int:
    """As `parse_size`, or 0."""
    try:
        return 0 if text.strip() == "0" else parse_size(text)
    except argparse.ArgumentTypeError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size (such as 64m, 512k, 1g, or 0)") from None


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
    from ..limits import Limits

    return Limits(**chosen)


def parse_port(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 65536:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port number (1 to 65535)")
    return int(text)


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
