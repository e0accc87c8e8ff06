"""Findings about captures, and the words of their numbers."""

from __future__ import annotations

from kafkatap.reports import units
from kafkatap.reports.findings import Finding
from kafkatap.reports.model import Scalar


def finding(
    check: str, severity: str, what: str, evidence: str, effect: str, remedy: str, /, **numbers: Scalar
) -> Finding:
    """A finding of the check `check` (`checks.CHECKS`), which is its id: `what` in a sentence, `evidence` in words,
    `effect` on reports, `remedy`: what to do about it; `numbers` that it rests on. Texts from captures are unescaped.
    """
    return Finding(check, severity, check, what, numbers=numbers, remedy=remedy, evidence=evidence, effect=effect)


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
