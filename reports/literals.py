"""Read values in options and filter expressions: numbers with units, times, texts.

This module imports nothing heavy, because the command line reads its options with it.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

SECOND = 1_000_000_000

DURATIONS = {
    "ns": 1, "us": 1_000, "µs": 1_000, "ms": 1_000_000, "s": SECOND, "m": 60 * SECOND, "min": 60 * SECOND,
    "h": 3600 * SECOND, "d": 86400 * SECOND,
}  # fmt: skip
SIZES = {
    "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30,
    "tib": 1 << 40,
}  # fmt: skip
_NUMBER = re.compile(r"([+-]?)(?:0[xX]([0-9A-Fa-f_]+)|([0-9][0-9_]*(?:\.[0-9_]+)?))\s*(.*)")
_DURATION = re.compile(r"(?:(\d+(?:\.\d+)?)\s*(ns|us|µs|ms|s|min|m|h|d)?)", re.ASCII)
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?", re.ASCII)
_LEAST_SPLIT = 4096
_ESCAPE = re.compile(r"\\(x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|[ntr\\\"'])")
_CONTROLS = {"n": "\n", "t": "\t", "r": "\r"}


def read_number(text: str) -> tuple[Decimal, str]:
    """The number and its unit: `1_000`, `0x2F`, `-1`, `1.5ms`, `1.5 ms`. ValueError for anything else."""
    match = _NUMBER.fullmatch(text)
    if match is None:
        raise ValueError(f"{text} is not a number")
    sign, hexadecimal, decimal, unit = match.groups()
    value = Decimal(int(hexadecimal.replace("_", "") or "0", 16)) if hexadecimal else Decimal(decimal.replace("_", ""))
    return (-value if sign == "-" else value), unit


def read_duration(text: str) -> int:
    """`500ms`, `10 s`, `1.5m`, `3m 24s` in nanoseconds. A bare number is seconds. ValueError for anything else."""
    parts = [(m[1], m[2], m.end()) for m in _DURATION.finditer(text)]
    whole = _DURATION.sub("", text)
    if not parts or whole.strip() or (len(parts) > 1 and not all(unit for _, unit, _ in parts)):
        raise ValueError(f"{text!r} is not a duration (such as 500ms, 10s, 5m, 1h)")
    return int(sum(Decimal(number) * DURATIONS[unit or "s"] for number, unit, _ in parts))


def read_size(text: str) -> int:
    """`67108864`, `64m`, `512 k`, `1.5GiB` in bytes. Units are powers of 1024, as in Spark. ValueError for anything
    else."""
    match = _SIZE.fullmatch(text.strip().lower())
    if match is None:
        raise ValueError(f"{text!r} is not a size (such as 64m, 512k, 1g)")
    return int(Decimal(match[1]) * 1024 ** " kmgt".index(match[2] or " "))


def read_split_size(text: str) -> int:
    """As `read_size`, for splits: 0, or at least _LEAST_SPLIT, as each is a task. ValueError for anything else."""
    try:
        size = read_size(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a size (such as 64m, 512k, 1g, or 0)") from None
    if 0 < size < _LEAST_SPLIT:
        raise ValueError(f"{text!r} is less than 4k, the smallest split (0 keeps files whole)")
    return size


def exact(value: Decimal) -> int | float:
    """The value as an int if it is whole, or else as a float."""
    return int(value) if value == value.to_integral_value() else float(value)


def undo_escapes(text: str) -> str:
    r"""Resolve \n \t \r \\ \" \' \xHH \uHHHH; a backslash before anything else stays."""

    def resolved(match: re.Match[str]) -> str:
        code = match[1]
        return chr(int(code[1:], 16)) if code[0] in "xu" and len(code) > 1 else _CONTROLS.get(code, code)

    return _ESCAPE.sub(resolved, text)


@dataclass(frozen=True, slots=True)
class Moment:
    """A time in an option or expression. `ns` counts from the epoch, from the first packet (`after_first`), or from
    midnight on the day of the first packet (`of_day`). `offset`: seconds east of UTC, or None for local time."""

    ns: int
    after_first: bool = False
    of_day: bool = False
    offset: int | None = None
    text: str = field(default="", compare=False)

    @property
    def is_absolute(self) -> bool:
        """Whether it is the same time for every capture."""
        return not (self.after_first or self.of_day)

    def at(self, first: int) -> int:
        """Nanoseconds since the epoch. `first`: the time of the capture's first packet."""
        if self.after_first:
            return first + self.ns
        return _midnight(first, self.offset, self.ns) if self.of_day else self.ns


_CLOCK = re.compile(r"(\d{1,2}):(\d\d)(?::(\d\d))?", re.ASCII)
_FRACTION = re.compile(r"(.*?:\d\d)[.,](\d+)", re.ASCII)
_ZONE = re.compile(r"(.*\d)\s*(Z|[A-Za-z]{3,5}|[+-]\d\d(?::?\d\d)?)", re.ASCII)


def read_moment(text: str, utc: bool = False) -> Moment:
    """Read a time in any form that reports print. ValueError for anything else.

    `+10s`                    after the first packet of the capture
    `15:10`, `15:10:39.5`     that time on the day of the first packet
    `2026-11-21 15:10:39.5`   ISO 8601, with a space or a T; a date alone is its midnight
    `1795236239.5`            seconds since the epoch; not `4.3`, which may be a release for another option
    `1795236239500000000`     ns since the epoch, as tables have them

    A zone may follow: `Z`, `UTC`, `+01:00`, or the name of the local zone. Without one the time is local, or with
    `utc` UTC.
    """
    plain = text.strip()
    if plain.startswith("+"):
        return Moment(read_duration(plain[1:]), after_first=True, text=text)
    if re.fullmatch(r"\d{9,}(\.\d+)?", plain, re.ASCII):
        return Moment(_since_epoch(Decimal(plain), text), text=text)
    try:
        return _read_clock(plain, text, utc)
    except (ValueError, OverflowError, OSError):
        raise ValueError(
            f"{text!r} is not a time (such as 15:10:39.5, 2026-11-21 15:10:39.5, 1795236239.5, or +10s after the first "
            "packet)"
        ) from None


def moment_of(value: Any) -> Moment:
    """The same of a text, a number (as its text), or a time of Python, pandas or numpy; the latter's are in UTC."""
    if isinstance(value, str):
        return read_moment(value)
    if hasattr(value, "isoformat"):
        return read_moment(value.isoformat())
    if type(value).__name__ == "datetime64":
        return read_moment(f"{value}Z")
    if isinstance(value, float):
        return read_moment(f"{Decimal(repr(float(value))):f}")
    if hasattr(value, "__index__") and not isinstance(value, bool):
        return read_moment(str(value.__index__()))
    raise ValueError(f"{value!r} is not a time")


#: Beyond these, numbers are neither seconds nor ns since the epoch of a time that packets have.
_MOST_SECONDS, _LEAST_NS = 10**11, 10**17


def _since_epoch(number: Decimal, text: str) -> int:
    """Seconds or ns since the epoch as ns."""
    if _MOST_SECONDS <= number < _LEAST_NS:
        raise ValueError(f"{text!r} is not a time: it is neither seconds nor ns since the epoch")
    return int(number * SECOND if number < _MOST_SECONDS else number)


def _read_clock(plain: str, text: str, utc: bool) -> Moment:
    from datetime import UTC, datetime, timedelta, timezone

    offset = 0 if utc else None
    zone = _ZONE.fullmatch(plain) if ":" in plain or "T" in plain else None
    if zone is not None:
        plain, offset = zone[1], _offset(zone[2], offset)
    # datetime has microseconds only, so the fraction is added separately.
    fraction = _FRACTION.fullmatch(plain)
    plain, digits = (fraction[1], fraction[2]) if fraction else (plain, "")
    rest = int(digits.ljust(9, "0")[:9])
    clock = _CLOCK.fullmatch(plain)
    if clock is not None:
        hours, minutes, seconds = int(clock[1]), int(clock[2]), int(clock[3] or 0)
        if hours > 23 or minutes > 59 or seconds > 59:
            raise ValueError
        ns = (hours * 3600 + minutes * 60 + seconds) * SECOND + rest
        return Moment(ns, of_day=True, offset=offset, text=text)
    moment = datetime.fromisoformat(plain)
    if moment.tzinfo is not None:
        raise ValueError
    if offset is not None:
        moment = moment.replace(tzinfo=timezone(timedelta(seconds=offset)))
    since = moment.astimezone(UTC) - datetime(1970, 1, 1, tzinfo=UTC)
    return Moment(since // timedelta(seconds=1) * SECOND + rest, text=text)


def _offset(zone: str, default: int | None) -> int | None:
    """Seconds east of UTC of a zone, or None for local time."""
    if zone[0] in "+-":
        digits = zone[1:].replace(":", "").ljust(4, "0")
        seconds = int(digits[:2]) * 3600 + int(digits[2:]) * 60
        return -seconds if zone[0] == "-" else seconds
    if zone.upper() in ("Z", "UTC", "GMT"):
        return 0
    if zone in time.tzname:
        return None
    raise ValueError


def _midnight(first: int, offset: int | None, of_day: int) -> int:
    """A time of day on the day of `first`, as ns since the epoch."""
    from datetime import UTC, datetime, timedelta, timezone

    zone = None if offset is None else timezone(timedelta(seconds=offset))
    day = datetime.fromtimestamp(first // SECOND, UTC).astimezone(zone).replace(tzinfo=None)
    seconds, rest = divmod(of_day, SECOND)
    moment = datetime(day.year, day.month, day.day) + timedelta(seconds=seconds)
    aware = moment.astimezone() if zone is None else moment.replace(tzinfo=zone)
    return (aware - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(seconds=1) * SECOND + rest
