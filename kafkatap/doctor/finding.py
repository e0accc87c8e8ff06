"""A finding, and the words of its numbers."""

from __future__ import annotations

from typing import NamedTuple

from kafkatap.reports import units

ERROR, WARNING, NOTE = "error", "warning", "note"
#: The worst first.
SEVERITIES = (ERROR, WARNING, NOTE)


class Finding(NamedTuple):
    """One thing that is wrong with captures. `check`: the name of the check that found it (`checks.CHECKS`).

    `severity`: an error makes reports wrong or empty; a warning takes something from them; a note only explains.
    `what` in a sentence, `evidence` in numbers, `effect` on reports, `remedy`: what to do about it. Texts from captures
    are unescaped.
    """

    check: str
    severity: str
    what: str
    evidence: str
    effect: str
    remedy: str


def counted(n: int, one: str, many: str = "") -> str:
    """`1 packet`, `2,000 packets`."""
    return f"{n:,} {one if n == 1 else many or one + 's'}"


def some(texts: list[str], most: int = 5) -> str:
    """The first of some texts: `a, b and 3 more`."""
    rest = len(texts) - most
    return ", ".join(texts[:most]) + (f" and {rest:,} more" if rest > 0 else "")


def share(part: float, whole: float) -> str:
    """`27.9 %`; `0 %` of nothing."""
    return units.share(part / whole if whole else 0.0)
