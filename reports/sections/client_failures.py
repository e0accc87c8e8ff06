"""Clients that cannot do their work: most of what they ask for fails, or the same grave error comes again and again."""

from __future__ import annotations

from collections import Counter, defaultdict

from .. import units
from ..batch import Context
from ..counting.counts import ReportCounts
from ..model import ReportTable, Value, as_number
from .error_meanings import MEANINGS
from .failure_findings import Tried, exchanges_by_client, is_usual

#: Requests of an API fail if this share of them does, and a client if these are this share of all its requests. A
#: client that starts has one or two that fail, of many. A client that closes its connection itself fails nowhere.
_OF_API, _OF_CLIENT, _LEAST = 0.5, 0.25, 2
#: So many requests of an API, none of which was answered, as the broker closed the connection: whatever else went well.
_NEVER = 3
#: What a client asks before its first request. One that comes no further fails.
_BEFORE = frozenset(("ApiVersions", "SaslHandshake", "SaslAuthenticate"))
#: Members join again: it is no failure.
_REBALANCE = "REBALANCE_IN_PROGRESS"
#: A code that no retry mends, so often and for so long.
_CODES, _LASTING_NS = 5, 5 * units.SECOND


def failing_clients(errors: ReportTable, counts: ReportCounts, context: Context) -> dict[Value, str]:
    """What fails, by client_id: `Produce 28 of 28 failed`, `NOT_ENOUGH_REPLICAS 26`. `errors`: the table."""
    codes: Counter[tuple[Value, Value]] = Counter()
    grave: dict[tuple[Value, Value], tuple[int, int, int]] = {}
    for row in errors.named_rows():
        client, error, api, count = row["client_id"], row["error"], row["api"], int(as_number(row["count"]))
        if is_usual(error, api):
            continue
        codes[client, api] += count
        if error != _REBALANCE and (not row["retriable"] or str(error) in MEANINGS):
            n, first, last = grave.get((client, error), (0, 2**63, 0))
            times = int(as_number(row["first"])), int(as_number(row["last"]))
            grave[client, error] = n + count, min(first, times[0]), max(last, times[1])
    found = dict[Value, str]()
    for (client, error), (count, first, last) in sorted(grave.items(), key=lambda item: item[1][0]):
        if count >= _CODES and last - first >= _LASTING_NS:
            found[client] = f"{error} {count:,}"
    by_client: dict[Value, dict[str, Tried]] = defaultdict(dict)
    for (client, api), tried in exchanges_by_client(counts, context).items():
        by_client[client][api] = tried
    for client, apis in by_client.items():
        total = sum(tried.answered + tried.unanswered for tried in apis.values())
        is_before = apis.keys() <= _BEFORE
        bad = {}
        for api, tried in apis.items():
            tries = tried.answered + tried.unanswered
            lost = max(tried.unanswered - tried.given_up, 0) + min(tried.failed, codes[client, api])
            if lost and (is_before or lost >= _OF_API * tries):
                bad[api] = lost, tries
        lost = sum(n for n, _ in bad.values())
        never = [n for api, (n, tries) in bad.items() if n == tries and not apis[api].answered and api not in _BEFORE]
        is_much = lost == total or lost >= max(_LEAST, _OF_CLIENT * total) or max(never, default=0) >= _NEVER
        if bad and (is_before or is_much):
            api, (n, tries) = max(bad.items(), key=lambda item: (item[1][0], item[0]))
            found[client] = f"{api} {n:,} of {tries:,} failed"
    return found
