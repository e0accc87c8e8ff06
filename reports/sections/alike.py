"""Findings that are alike are one line."""

from __future__ import annotations

from collections.abc import Sequence

from .. import kinds, units
from ..batch import Context
from ..findings import NOTE, Finding
from ..model import as_number
from .failure_findings import retried_together

#: From how many silences of a broker on they are one line: a pause now and then may have another reason each.
_REPEATS = 3


def repeats_in_one(found: Sequence[tuple[str, Finding]]) -> list[tuple[str, Finding]]:
    """A broker that hangs again and again is one line: the first silence, with the others folded under it."""
    silences: dict[object, list[Finding]] = {}
    for _, finding in found:
        if finding.id in kinds.SILENCES and finding.cause is None:
            silences.setdefault((finding.id, finding.parties[:1]), []).append(finding)
    lines: dict[object, Finding] = {}
    for alike in silences.values():
        if len(alike) >= _REPEATS:
            first, *rest = sorted(alike, key=lambda finding: finding.begin or 0)
            lines[first.key] = _repeated(first, rest)
            lines |= {finding.key: finding._replace(cause=first.key) for finding in rest}
    return [(section, lines.get(finding.key, finding)) for section, finding in found]


def _repeated(first: Finding, rest: Sequence[Finding]) -> Finding:
    """The first of several silences of a broker, with the number, the span and the length of all."""
    every = [int(as_number(finding.numbers["silence_ns"])) for finding in (first, *rest)]
    last = rest[-1]
    until = (last.begin or 0) + every[-1]
    what, _, how = first.text.partition(f" for {units.duration(every[0])}")
    times = f"{len(every):,} times in {units.duration(until - (first.begin or 0))}"
    lengths = f"{units.duration(sorted(every)[len(every) // 2])} each, longest {units.duration(max(every))}"
    return first._replace(
        text=f"{what} {times}, {lengths}{how}", end=last.end,
        time_lost_ns=sum(finding.time_lost_ns for finding in (first, *rest)),
        numbers={**first.numbers, "times": len(every), "longest_silence_ns": max(every), "sum_silence_ns": sum(every)},
        packets=tuple(finding.packets[0] for finding in (first, *rest[:9]) if finding.packets),
    )  # fmt: skip


def retried_in_one(found: Sequence[tuple[str, Finding]], context: Context) -> list[tuple[str, Finding]]:
    """Error codes that clients retried, and that nobody noticed, are one line."""
    causes = {finding.cause for _, finding in found}
    minor = [
        (section, one) for section, one in found
        if one.id == kinds.ERRORS and one.severity == NOTE and one.cause is None and one.key not in causes
        and not one.numbers.get("is_at_close")
    ]  # fmt: skip
    if len(minor) < 2:
        return list(found)
    rest = [each for each in found if each not in minor]
    return [*rest, ("", retried_together([finding for _, finding in minor], context))]
