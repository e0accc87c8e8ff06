"""Values as they are written: numbers with units, times, texts."""

from __future__ import annotations

import re
from decimal import Decimal

SECOND = 1_000_000_000

DURATIONS = {
    "ns": 1, "us": 1_000, "µs": 1_000, "ms": 1_000_000, "s": SECOND, "m": 60 * SECOND, "min": 60 * SECOND,
    "h": 3600 * SECOND, "d": 86400 * SECOND,
}  # fmt: skip
SIZES = {
    "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30,
    "tib": 1 << 40,
}  # fmt: skip
_NUMBER = re.compile(r"([+-]?)(?:0[xX]([0-9A-Fa-f_]+)|([0-9][0-9_]*(?:\.[0-9_]+)?))(.*)")
_ESCAPE = re.compile(r"\\(x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|[ntr\\\"'])")
_CONTROLS = {"n": "\n", "t": "\t", "r": "\r"}


def read_number(text: str) -> tuple[Decimal, str]:
    """The number and what follows it, its unit: `1_000`, `0x2F`, `-1`, `1.5ms`. ValueError where there is none."""
    match = _NUMBER.fullmatch(text)
    if match is None:
        raise ValueError(f"{text} is no number")
    sign, hexadecimal, decimal, unit = match.groups()
    value = Decimal(int(hexadecimal.replace("_", "") or "0", 16)) if hexadecimal else Decimal(decimal.replace("_", ""))
    return (-value if sign == "-" else value), unit


def exact(value: Decimal) -> int | float:
    """As an int where it is one."""
    return int(value) if value == value.to_integral_value() else float(value)


def undo_escapes(text: str) -> str:
    r"""Resolve \n \t \r \\ \" \' \xHH \uHHHH; a backslash before anything else stays."""

    def resolved(match: re.Match[str]) -> str:
        code = match[1]
        return chr(int(code[1:], 16)) if code[0] in "xu" and len(code) > 1 else _CONTROLS.get(code, code)

    return _ESCAPE.sub(resolved, text)


def read_time(text: str) -> int:
    """ISO 8601 (local time unless it names a zone) as ns since the epoch; ValueError where it is none."""
    from datetime import UTC, datetime, timedelta

    # datetime holds microseconds; the digits after them are added by hand.
    match = re.fullmatch(r"(.*?:\d\d)[.,](\d{1,9})(.*)", text)
    whole, fraction = (match[1] + match[3], match[2]) if match else (text, "")
    since = datetime.fromisoformat(whole).astimezone(UTC) - datetime(1970, 1, 1, tzinfo=UTC)
    return since // timedelta(seconds=1) * SECOND + int(fraction.ljust(9, "0"))
