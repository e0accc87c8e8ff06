"""API versions after which a broker closes the connection, though it answers others."""

from __future__ import annotations

from collections import Counter, defaultdict

from ..counting import tally
from ..counting.counts import ReportCounts
from ..counting.rollup import api_label, group_columns, value_columns

#: A sentence names at most this many versions and counts the rest.
NAMED = 3
#: ControlledShutdown: a broker that stops, too, does not answer it.
_EXPECTED = 7
_KEY = ("broker_ip", "broker_port", "api_key", "api_version")


def never_answered(counts: ReportCounts) -> list[tuple[str, int]]:
    """The versions to which a broker answers by closing the connection, and goes on answering other requests: it may
    not know them. `("Produce v2", 28)`, those of most requests first. A request that is in flight, or that its client
    gave up, shows nothing."""
    c = group_columns(counts.groups, tally.GROUP_KEY)
    v = {name: column.tolist() for name, column in value_columns(counts.groups, tally.GROUP_VALUES).items()}
    answered: set[tuple[int, ...]] = set()
    latest: dict[tuple[int, ...], int] = defaultdict(int)  # the latest request to a broker whose API it answers
    closed: Counter[tuple[int, ...]] = Counter()
    last: dict[tuple[int, ...], int] = defaultdict(int)
    keys = list(zip(*(c[name].tolist() for name in _KEY), strict=True))
    for key, n, at, unanswered in zip(keys, v["answered"], v["last"], v["broker_closed"], strict=True):
        if n:
            answered.add(key)
            latest[key[:2]] = max(latest[key[:2]], at)
        if unanswered and key[2] != _EXPECTED:
            closed[key] += unanswered
            last[key] = max(last[key], at)
    found: Counter[tuple[int, ...]] = Counter()
    for key, n in closed.items():
        if key not in answered and latest[key[:2]] > last[key]:
            found[key[2:]] += n
    ordered = sorted(found.items(), key=lambda entry: (-entry[1], entry[0]))
    return [(f"{api_label(api)} v{version}", n) for (api, version), n in ordered]


def never_answered_warnings(counts: ReportCounts) -> tuple[str, ...]:
    """A sentence on these versions."""
    names = [f"{version} ({n:,} request{'' if n == 1 else 's'})" for version, n in never_answered(counts)]
    if not names:
        return ()
    if len(names) > NAMED:
        names[NAMED:] = [f"{len(names) - NAMED} more"]
    text = f"{', '.join(names[:-1])} and {names[-1]} were" if len(names) > 1 else f"{names[0]} was"
    rest = "that answered others. Brokers close the connection after a request of a version that they do not know."
    return (f"{text} never answered by a broker {rest}",)
