"""API versions to which a broker never answers, though it answers others."""

from __future__ import annotations

from collections import Counter

from kafkatap.dissector.dtypes import ANSWERED, OUTCOMES, UNANSWERED

from ..counting import tally
from ..counting.counts import ReportCounts
from ..counting.rollup import api_label, group_columns

#: A sentence names at most this many versions and counts the rest.
NAMED = 3
#: ControlledShutdown: a broker that stops, too, leaves it unanswered.
_EXPECTED = 7
_KEY = ("broker_ip", "broker_port", "api_key", "api_version")


def never_answered_warnings(counts: ReportCounts) -> tuple[str, ...]:
    """A sentence on versions of which a broker leaves every request unanswered: it may not know them."""
    c = group_columns(counts.groups, tally.GROUP_KEY)
    values = counts.groups.value_rows()[:, : len(OUTCOMES)]
    answered: Counter[tuple[int, ...]] = Counter()
    unanswered: Counter[tuple[int, ...]] = Counter()
    keys = zip(*(c[name].tolist() for name in _KEY), strict=True)
    for key, row in zip(keys, values.tolist(), strict=True):
        answered[key] += row[ANSWERED]
        answered[key[:2]] += row[ANSWERED]
        unanswered[key] += row[UNANSWERED]
    found: Counter[tuple[int, ...]] = Counter()
    for key, n in unanswered.items():
        if n and key[2] != _EXPECTED and not answered[key] and answered[key[:2]]:
            found[key[2:]] += n
    if not found:
        return ()
    ordered = sorted(found.items(), key=lambda entry: (-entry[1], entry[0]))
    names = [f"{api_label(api)} v{version} ({n:,} request{'' if n == 1 else 's'})" for (api, version), n in ordered]
    if len(names) > NAMED:
        names[NAMED:] = [f"{len(names) - NAMED} more"]
    text = f"{', '.join(names[:-1])} and {names[-1]} were" if len(names) > 1 else f"{names[0]} was"
    rest = "that answered others. Brokers close the connection after a request of a version that they do not know."
    return (f"{text} never answered by a broker {rest}",)
