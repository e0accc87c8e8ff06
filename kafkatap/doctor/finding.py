"""Findings about captures, and the words of their numbers."""

from __future__ import annotations

from functools import partial

from kafkatap.reports import units
from kafkatap.reports.finding_words import listed
from kafkatap.reports.findings import Finding
from kafkatap.reports.model import Scalar

#: The first of some texts: `a, b and 3 more`.
some = partial(listed, most=5)


def finding(
    check: str, severity: str, what: str, evidence: str, effect: str, remedy: str, /, **numbers: Scalar
) -> Finding:
    """A finding of the check `check` (`checks.CHECKS`), which is its id: `what` in a sentence, `evidence` in words,
    `effect` on reports, `remedy`: what to do about it; `numbers` that it rests on. Texts from captures are unescaped.
    """
    return Finding(check, severity, check, what, numbers=numbers, remedy=remedy, evidence=evidence, effect=effect)


def share(part: float, whole: float) -> str:
    """`27.9 %`; `0 %` of nothing."""
    return units.share(part / whole if whole else 0.0)
