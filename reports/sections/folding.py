"""Puts findings under those that they follow from, as of `folds`: they get a `cause`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np

from ..batch import Context, endpoint
from ..counting import tally
from ..counting.counts import ReportCounts
from ..counting.rollup import group_columns
from ..findings import Finding, Party
from ..kinds import kind_of
from .folds import FOLDS, Fold, Kinds, Known, named

#: Findings, each with the section that makes it; "": the report itself.
Found = Sequence[tuple[str, Finding]]


def known_of(counts: ReportCounts, context: Context) -> Known:
    """What causes are judged by."""
    columns = group_columns(counts.groups, tally.GROUP_KEY)
    numbers = counts.groups.value_rows()[:, list(tally.GROUP_VALUES).index("unanswered")]
    found: dict[str, int] = {}
    for g in np.flatnonzero(numbers).tolist():
        name = endpoint(context.address(int(columns["broker_ip"][g])), int(columns["broker_port"][g]))
        found[name] = found.get(name, 0) + int(numbers[g])
    return Known(context, found)


def folded(found: Found, known: Known, folds: Sequence[Fold] = FOLDS) -> list[tuple[str, Finding]]:
    """The findings, with the causes of those that follow from others, and what followed in the lines of causes.

    A cause that is not among them, such as one that the selection left out, is none."""
    originals = [finding for _, finding in found]
    places = {finding.key: n for n, finding in enumerate(originals)}
    causes = [None if finding.cause is None else places.get(finding.cause) for finding in originals]
    free = [n for n, cause in enumerate(causes) if cause is None]
    of_kind: dict[str, list[int]] = defaultdict(list)
    for n in free:
        of_kind[kind_of(originals[n])].append(n)
    lines = [*originals]
    for fold in folds:
        effects = [n for name in fold.effects for n in of_kind.get(name, ()) if causes[n] is None]
        if not effects:
            continue
        if isinstance(fold.causes, Kinds):
            others = [n for n in free if found[n][0] == fold.causes.section and lines[n].id not in fold.causes.without]
        else:
            others = sorted(n for name in fold.causes for n in of_kind.get(name, ()))
        followed: dict[int, list[Finding]] = defaultdict(list)
        for n, cause in _followers(originals, fold, effects, others, known):
            causes[n] = cause
            followed[cause].append(originals[n])
        if fold.told is not None:
            lines = [line if n not in followed else fold.told(line, followed[n], known) for n, line in enumerate(lines)]
    keys = [None if cause is None else lines[cause].key for cause in causes]
    return [
        (section, line if line.cause == key else line._replace(cause=key))
        for (section, _), line, key in zip(found, lines, keys, strict=True)
    ]


def _followers(
    found: Sequence[Finding], fold: Fold, effects: Sequence[int], others: Sequence[int], known: Known
) -> Iterator[tuple[int, int]]:
    """The places of the effects and causes of a row. `others`: those of what may be a cause."""
    on: dict[Party, list[int]] = defaultdict(list)
    for n in others if fold.share else ():
        for party in named(found[n], fold.share):
            on[party].append(n)
    places = {id(found[n]): n for n in others}
    for n in effects:
        mine = others
        if fold.share:
            mine = sorted({other for party in named(found[n], fold.share) for other in on.get(party, ())})
        fitting = (found[other] for other in mine if other != n and fold.when(found[n], found[other]))
        cause = fold.choose(found[n], fitting, known)
        if cause is not None:
            yield n, places[id(cause)]
