"""API versions after which a broker closes the connection, though it answers others."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from kafkatap.kernels.arrays import dict_rows

from ..counting import tally
from ..counting.counts import ReportCounts
from ..counting.rollup import api_label, group_columns, value_columns

#: A sentence names at most this many versions and counts the rest.
NAMED = 3
#: ControlledShutdown: a broker that stops, too, does not answer it.
_EXPECTED = 7
_KEY = ("broker_ip", "broker_port", "api_key", "api_version")


def never_answered(counts: ReportCounts, everything: ReportCounts | None) -> list[tuple[str, int]]:
    """The versions to which a broker answers by closing the connection, and goes on answering other requests: it may
    not know them. `("Produce v2", 28)`, those of most requests first. A request that is in flight, or that its client
    gave up, shows nothing. Nor does a version of which a request was cut: that broker did not wait for its end.

    `everything`: counts of all exchanges, of which `counts` may be a selection; None: nothing is known of others."""
    if everything is None:
        return []
    unknown, closed = _unknown(everything), Counter[tuple[int, int]]()
    for key, v in _rows(counts):
        if key in unknown and v["broker_closed"]:
            closed[key[2], key[3]] += v["broker_closed"]
    ordered = sorted(closed.items(), key=lambda entry: (-entry[1], entry[0]))
    return [(f"{api_label(api)} v{version}", n) for (api, version), n in ordered]


def _rows(counts: ReportCounts) -> Iterator[tuple[tuple[int, ...], dict[str, int]]]:
    """The key (_KEY) and the values of each group."""
    c = group_columns(counts.groups, tally.GROUP_KEY)
    keys = zip(*(c[name].tolist() for name in _KEY), strict=True)
    return zip(keys, dict_rows(value_columns(counts.groups, tally.GROUP_VALUES)), strict=True)


def _unknown(counts: ReportCounts) -> set[tuple[int, ...]]:
    """The keys of such versions."""
    known: set[tuple[int, ...]] = set()
    latest: dict[tuple[int, ...], int] = defaultdict(int)  # the latest request to a broker whose API it answers
    last: dict[tuple[int, ...], int] = defaultdict(int)
    for key, v in _rows(counts):
        if v["answered"]:
            latest[key[:2]] = max(latest[key[:2]], v["last"])
        if v["answered"] or v["cut"]:
            known.add(key)
        elif v["broker_closed"] and key[2] != _EXPECTED:
            last[key] = max(last[key], v["last"])
    return {key for key, at in last.items() if key not in known and latest[key[:2]] > at}


def never_answered_warnings(versions: Sequence[tuple[str, int]]) -> tuple[str, ...]:
    """A sentence on these versions."""
    names = [f"{version} ({n:,} request{'' if n == 1 else 's'})" for version, n in versions]
    if not names:
        return ()
    if len(names) > NAMED:
        names[NAMED:] = [f"{len(names) - NAMED} more"]
    text = f"{', '.join(names[:-1])} and {names[-1]} were" if len(names) > 1 else f"{names[0]} was"
    rest = "that answered others. Brokers close the connection after a request of a version that they do not know."
    return (f"{text} never answered by a broker {rest}",)
