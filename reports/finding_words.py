"""Words that findings of several kinds use: names, counts, lists, and the options of their commands."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from . import units

if TYPE_CHECKING:
    from .batch import Context

#: Names in one line at most; the rest is counted.
NAMED = 3
#: What lasts for this share of the capture is there all along: when it began says nothing.
ALL_ALONG = 0.9


def api_value(label: str) -> str:
    """What options and filters call an API: `Fetch`, or `999` for an API without a name."""
    return label.rpartition(" ")[2]


def counted(n: int, one: str, many: str | None = None) -> str:
    """`1 packet`, `2,000 packets`."""
    return f"{n:,} {one if n == 1 else many or one + 's'}"


def how_long(begin: int, end: int, context: Context) -> str:
    """`for 15.9 s`, or `all along`: nearly as long as the capture."""
    first, last = context.first, context.last
    is_whole = first is not None and last is not None and end - begin >= ALL_ALONG * (last - first)
    return "all along" if is_whole else f"for {units.duration(end - begin)}"


def others_too(n: int, one: str = "other client", many: str | None = None) -> list[str]:
    """`3 other clients too`, as a part of a sentence."""
    return [f"{counted(n, one, many)} too"] if n > 0 else []


def listed(names: Sequence[str], most: int = NAMED) -> str:
    """The first names, and the number of the rest: `a, b, c and 2 more`."""
    return ", ".join(names[:most]) + and_more(len(names) - most)


def and_more(left: int) -> str:
    """The end of a list that leaves some out: ` and 2 more`; "" if it has all."""
    return f" and {left:,} more" if left > 0 else ""


def sentence(parts: Iterable[str | None]) -> str:
    """The parts that are there, as one text."""
    return "; ".join(part for part in parts if part)
