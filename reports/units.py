"""Format numbers, times and texts for people, and escape texts from the wire for a terminal."""

from __future__ import annotations

import time
import unicodedata
from collections.abc import Iterable
from typing import Any

SECOND = 1_000_000_000


#: Units of durations below 100 s, the shortest last: the name, its ns, and from where on the next longer one is used.
_UNITS = (("s", SECOND, 100), ("ms", 1_000_000, 1000), ("µs", 1000, 1000))


def duration(ns: int) -> str:
    """Three digits and a unit: `812 ns`, `14.2 µs`, `3.39 ms`, `1.05 s`, `3m 24s`, `2h 05m`."""
    if ns < 0:
        return "-" + duration(-ns)
    if ns < 1000:
        return f"{ns} ns" if ns else "0"
    unit, size, most = _UNITS[0 if ns >= SECOND else 1 if ns >= 1_000_000 else 2]
    value = ns / size
    if value < 9.995:
        return f"{value:.2f} {unit}"
    if value < 99.95:
        return f"{value:.1f} {unit}"
    if round(value) < most:
        return f"{value:.0f} {unit}"
    if size < SECOND:
        return f"1.00 {_UNITS[0 if size > 1000 else 1][0]}"
    seconds = round(value)
    if seconds < 3600:
        return f"{seconds // 60}m {seconds % 60:02d}s"
    if seconds < 86400:
        return f"{seconds // 3600}h {seconds // 60 % 60:02d}m"
    return f"{seconds // 86400}d {seconds // 3600 % 24:02d}h"


def step(ns: int) -> str:
    """The exact length of an interval: `5 s`, `2 h`, `1.5 s`, `1 ns`."""
    for unit, size in (("h", 3600 * SECOND), ("min", 60 * SECOND), ("s", SECOND), ("ms", 1_000_000), ("µs", 1000)):
        if ns % size == 0:
            return f"{ns // size} {unit}"
        if ns > size and size <= SECOND:
            return f"{ns / size:.9f}".rstrip("0") + f" {unit}"
    return f"{ns} ns"


def size(n: int) -> str:
    """`17 B`, `1.5 KiB`, `75.3 MiB`."""
    if n < 1000:
        return f"{n} B"
    value = n / 1024
    unit = "KiB"
    for bigger in ("MiB", "GiB", "TiB"):
        if value < 999.5:
            break
        value, unit = value / 1024, bigger
    return f"{value:.0f} {unit}" if value >= 99.95 else f"{value:.1f} {unit}"


def joined(values: tuple[Any, ...]) -> str:
    """Join texts or numbers, as in `Ethernet, raw IP`; versions of APIs, as in `Fetch 4, 11-12; Metadata 9`; or pairs,
    as in `client=billing; topic=orders`."""
    return ("; " if any(isinstance(v, tuple) for v in values) else ", ").join(map(_joinable, values))


def _joinable(value: Any) -> str:
    if not isinstance(value, tuple):
        return str(value)
    name, of = value
    return f"{name} {', '.join(ranges(of))}" if isinstance(of, tuple) else f"{name}={of}"


def ranges(numbers: Iterable[int]) -> list[str]:
    """Ascending numbers as ranges: `4`, `11-12`."""
    runs: list[list[int]] = []
    for n in numbers:
        if runs and n == runs[-1][1] + 1:
            runs[-1][1] = n
        else:
            runs.append([n, n])
    return [str(a) if a == b else f"{a}-{b}" for a, b in runs]


def share(part: float) -> str:
    """`27.9 %`, `100 %`, `<0.1 %`."""
    if part <= 0:
        return "0 %"
    if part < 0.001:
        return "<0.1 %"
    if 0.999 <= part < 1:
        return ">99.9 %" if part > 0.9995 else "99.9 %"
    return f"{100 * part:.0f} %" if part == 1 else f"{100 * part:.1f} %"


def clock(ns: int, utc: bool, digits: int = 3, date: bool = False) -> str:
    """`15:10:39.392`, or with `date` `2026-11-21 15:10:39.392`. Seconds are cut to `digits`, not rounded."""
    seconds, rest = divmod(ns, SECOND)
    parts = time.gmtime(seconds) if utc else time.localtime(seconds)
    text = time.strftime("%Y-%m-%d %H:%M:%S" if date else "%H:%M:%S", parts)
    return f"{text}.{rest:09d}"[: len(text) + 1 + digits] if digits else text


def zone(ns: int, utc: bool) -> str:
    """The name of the time zone that `clock` shows."""
    return "UTC" if utc else time.strftime("%Z", time.localtime(ns // SECOND))


def iso(ns: int) -> str:
    """ISO 8601 in UTC with nanoseconds: `2026-11-21T15:10:39.392450000Z`."""
    seconds, rest = divmod(ns, SECOND)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{rest:09d}Z"


#: Unicode categories that are escaped: control characters (Cc), formats that reorder or hide text (Cf), surrogates
#: (Cs), private use (Co), unassigned (Cn), line and paragraph separators (Zl, Zp).
_HIDDEN = frozenset(("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"))


def safe(text: str) -> str:
    """Escape text from the wire for a terminal or a line of plain text."""
    if text.isascii() and text.isprintable():
        return text.replace("\\", "\\\\") if "\\" in text else text
    return text.translate(_ESCAPES)


def _escaped(c: str) -> str:
    if c == "\\":
        return "\\\\"
    if unicodedata.category(c) in _HIDDEN or (c.isspace() and c != " "):
        n = ord(c)
        return f"\\x{n:02x}" if n < 256 else f"\\u{n:04x}" if n < 65536 else f"\\U{n:08x}"
    return c


class _Escapes(dict[int, str]):
    """What each character of a text becomes, by its number. Some are kept."""

    def __missing__(self, number: int) -> str:
        made = _escaped(chr(number))
        if len(self) < 4096:
            self[number] = made
        return made


_ESCAPES = _Escapes()
#: Characters that no shell treats specially.
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789@%+=:,./_-")


def shell_word(text: str, also: str = "") -> str:
    """A text as one word of a shell, quoted if it has other characters than plain ones and those in `also`."""
    if text and _PLAIN.issuperset(text.translate({ord(c): None for c in also})):
        return text
    return "'" + text.replace("'", "'\"'\"'") + "'"


def cells(text: str) -> int:
    """The width of a text on a terminal, in columns."""
    if text.isascii():
        return len(text)
    return sum(
        0
        if unicodedata.combining(c) or unicodedata.category(c) == "Me"
        else 1 + (unicodedata.east_asian_width(c) in "WF")
        for c in text
    )


def cut(text: str, width: int) -> str:
    """Cut a text to at most `width` columns. A cut text ends with an ellipsis."""
    if cells(text) <= width:
        return text
    kept, used = [], 1
    for c in text:
        used += cells(c)
        if used > width:
            break
        kept.append(c)
    return "".join(kept) + "…"
