"""What is known of requests without a response: since when, whether they arrived, and whether they were too large."""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

import numpy as np

from kafkatap.dissector.dtypes import CLOSED_BY, CLOSED_BY_BROKER, IN_FLIGHT, UNANSWERED, WAITS
from kafkatap.kernels.arrays import distinct_values, groups_of, is_among

from .. import units
from ..batch import Array, endpoint
from ..counting import tally
from ..counting.rollup import group_columns, value_columns
from ..section_parts.section import SectionInput
from .event_answers import ANSWERS
from .event_counts import LINKS, WAIT

#: So long nobody waits for an answer of a broker that works, and so many requests that had none are no chance.
_SILENT_NS, _LEAST_SILENT = 5 * units.SECOND, 3
#: TCP sends a segment again several times within it, unless it arrives.
_LONG_NS = units.SECOND
#: Requests that the close of their connection cuts may be chance, if they are fewer.
_LEAST = 2
#: The same of whole ones: a broker reads the size alone and closes, while the rest is on its way. Nobody sets a limit
#: below so many bytes.
_LEAST_WHOLE, _LEAST_BYTES = 3, 4096


class Cut(NamedTuple):
    """Requests that had not come whole when an end (client or broker) closed the connection: how many, what came of
    them, and what they announced, with their size fields."""

    end: str
    requests: int
    came_bytes: int
    announced_bytes: int


class RequestLimit(NamedTuple):
    """A broker closes connections in the middle of requests, or (`is_whole`) after each of them: how many, the size of
    the smallest, and of the largest request that it answered."""

    broker: str
    requests: int
    cut_bytes: int
    answered_bytes: int
    is_whole: bool = False


class OnItsWay(NamedTuple):
    """A request that was sent again and again until the capture ended, and not acknowledged: `client_id`, `broker_ip`,
    `broker_port` are numbers of the context; `since`, `until`: ns, when it was sent first and last."""

    api_key: int
    client_id: int
    broker_ip: int
    broker_port: int
    since: int
    until: int
    packet: int


class SilentApi(NamedTuple):
    """An API that a broker never answered, though it answered `others` of other APIs: `requests` that waited long."""

    broker: str
    api_key: int
    requests: int
    others: int


class Unanswered(NamedTuple):
    """`first`: when the first one was sent, ns since the epoch. `packet`: that one's. `lost`: how many were sent again,
    and never acknowledged. `acknowledged`: how many were. Of the others neither is known; None: of all, under a
    selection. `cut`: those that never came whole. `limit`: of the broker that cut most of them. `on_their_way`: those
    that were in flight when the capture ended, by outcome, but sent again for so long that they did not arrive.
    `silent`: an API of one broker that has most of them."""

    first: int
    packet: int
    lost: int | None
    acknowledged: int | None
    cut: tuple[Cut, ...] = ()
    limit: RequestLimit | None = None
    on_their_way: tuple[OnItsWay, ...] = ()
    silent: SilentApi | None = None


def unanswered_requests(given: SectionInput) -> Unanswered | None:
    """What the section `events` notes of them; None without any, or if there were too many events to keep."""
    waits = WAIT.among(given.events("events"))
    silent = waits[waits["answered"] < 0]
    chosen = silent[silent["outcome"] == UNANSWERED]
    if given.sections.dropped.get("events"):
        return None
    on_their_way = _on_their_way(given, silent) if given.selected is None else ()
    if not len(chosen):
        if not on_their_way:
            return None
        return Unanswered(on_their_way[0].since, on_their_way[0].packet, 0, 0, on_their_way=on_their_way)
    # Which requests arrived shows only with those that came after them: not under a selection.
    lost, acknowledged = _arrived(given, silent) if given.selected is None else (None, None)
    begin = int(chosen["time"][0]), int(chosen["packet"][0])
    limit = _limit(given.learned_by("events"), chosen)
    silent_api = _silent_api(given, chosen) if given.selected is None else None
    return Unanswered(*begin, lost, acknowledged, _cut(chosen), limit, on_their_way, silent_api)


def _silent_api(given: SectionInput, chosen: Array) -> SilentApi | None:
    """The API of a broker with most requests that waited long, none of which it ever answered. It answered others of
    the same hosts after each."""
    keys, values = given.keys(LINKS.name)["connection"].tolist(), given.values(LINKS.name)
    columns = (values[name].tolist() for name in ("closed_at", "unacknowledged_bytes"))
    ends = dict(zip(keys, zip(*columns, strict=True), strict=True))
    last, found = given.context.last or 0, []
    until = np.array([  # a request that TCP did not deliver was not refused
        asked if on_way else closed if closed > 0 else last
        for asked, (closed, on_way) in (
            (asked, ends.get(connection, (-1, 1)))
            for asked, connection in zip(chosen["asked"].tolist(), chosen["connection"].tolist(), strict=True)
        )
    ], np.int64)  # fmt: skip
    is_long = (chosen["asked"] > 0) & (until - chosen["asked"] >= _SILENT_NS)
    waited = chosen[is_long & ~is_among(chosen["api_key"], WAITS) & (chosen["cut_bytes"] <= 0)]
    if len(waited) < _LEAST_SILENT:
        return None
    groups, counts = given.counts.groups, value_columns(given.counts.groups, tally.GROUP_VALUES)
    of = group_columns(groups, tally.GROUP_KEY)
    for (ip, port, api), at in groups_of(
        *(waited[name].astype(np.int64) for name in ("broker_ip", "broker_port", "api_key"))
    ):
        mine = (of["broker_ip"] == ip) & (of["broker_port"] == port) & (counts["answered"] > 0)
        others = mine & is_among(of["client_ip"], waited["client_ip"][at]) & (of["api_key"] != api)
        if (mine & (of["api_key"] == api)).any() or not others.any() or len(at) < _LEAST_SILENT:
            continue
        is_after = counts["last"][others].max() > waited["asked"][at].max()
        if not is_after or len(distinct_values(waited["connection"][at])) < _LEAST:
            continue
        broker = endpoint(given.context.address(ip), port)
        found.append(SilentApi(broker, api, len(at), int(counts["answered"][others].sum())))
    return min(found, key=lambda one: (-one.requests, one.broker, one.api_key), default=None)


def _on_their_way(given: SectionInput, silent: Array) -> tuple[OnItsWay, ...]:
    """In order of time. The last bytes of a connection are those of its last requests."""
    keys, values = given.keys(LINKS.name)["connection"].tolist(), given.values(LINKS.name)
    ends = dict(zip(keys, zip(values["lost_bytes"].tolist(), values["lost_at"].tolist(), strict=True), strict=True))
    after: dict[int, int] = defaultdict(int)
    names = ("connection", "outcome", "request_bytes", "api_key", *OnItsWay._fields[1:4], "asked", "packet")
    found = []
    for connection, outcome, size, *who, asked, packet in reversed(
        list(zip(*(silent[name].tolist() for name in names), strict=True))
    ):
        lost, until = ends.get(connection, (0, 0))
        if outcome == IN_FLIGHT and after[connection] < lost and until - asked >= _LONG_NS:
            api, client, ip, port = who
            found.append(OnItsWay(api, client, ip, port, asked, until, packet))
        after[connection] += size
    return tuple(sorted(found, key=lambda one: (one.since, one.packet)))


def _arrived(given: SectionInput, silent: Array) -> tuple[int, int]:
    """How many were sent again and never acknowledged, and how many came whole and were acknowledged."""
    keys, values = given.keys(LINKS.name)["connection"].tolist(), given.values(LINKS.name)
    columns = (values[name].tolist() for name in ("lost_bytes", "unacknowledged_bytes"))
    ends = dict(zip(keys, zip(*columns, strict=True), strict=True))
    found = {True: 0, False: 0}
    after: dict[int, int] = defaultdict(int)  # bytes of later requests of the connection
    names = ("connection", "outcome", "request_bytes", "cut_bytes")
    for connection, outcome, size, cut in reversed(list(zip(*(silent[name].tolist() for name in names), strict=True))):
        lost, unacknowledged = ends.get(connection, (0, -1))
        behind = after[connection]
        after[connection] += size
        if outcome == UNANSWERED and (behind < lost or (cut <= 0 <= unacknowledged <= behind)):
            found[behind < lost] += 1
    return found[True], found[False]


def _cut(chosen: Array) -> tuple[Cut, ...]:
    """By end, the most first."""
    found = []
    for number, end in enumerate(CLOSED_BY):
        mine = chosen[(chosen["cut_bytes"] > 0) & (chosen["closed_by"] == number)]
        came, rest = int(mine["request_bytes"].sum()), int(mine["cut_bytes"].sum())
        found += [Cut(end, len(mine), came, came + rest)] if len(mine) else []
    return tuple(sorted(found, key=lambda cut: -cut.requests))


def _limit(learned: SectionInput, chosen: Array) -> RequestLimit | None:
    """The limit of the broker that cut most of the chosen requests, or refused them whole."""
    refused, mine = _of_broker(WAIT.among(learned.events("events"))), _of_broker(chosen)
    found = []
    for is_whole in (False, True):
        of_kind, hit = (_refused(rows, is_whole) for rows in (refused, mine))
        ends = set(hit[["broker_ip", "broker_port"]].tolist())
        answered = learned.once(_answered) if ends else {}
        for (ip, port), at in groups_of(of_kind["broker_ip"], of_kind["broker_port"]) if ends else ():
            if (ip, port) in ends and (ip, port) in answered:
                found.append(_limit_of(learned, (ip, port), of_kind[at], is_whole, *answered[ip, port]))
    known = [limit for limit in found if limit is not None]
    return min(known, key=lambda limit: (limit.is_whole, -limit.requests, limit.broker), default=None)


def _refused(rows: Array, is_whole: bool) -> Array:
    is_cut = rows["cut_bytes"] > 0
    found: Array = rows[~is_cut & (rows["request_bytes"] >= _LEAST_BYTES) if is_whole else is_cut]
    return found


def _answered(learned: SectionInput) -> dict[tuple[int, int], tuple[int, int]]:
    """By the address and port of a broker: the size of the largest request that it answered, and its last answer."""
    keys, values = learned.keys(ANSWERS.name), learned.values(ANSWERS.name)
    return {
        (ip, port): (int(values["bytes"][at].max()) + 4, int(values["last"][at].max()))
        for (ip, port), at in groups_of(keys["broker_ip"], keys["broker_port"])
    }


def _limit_of(
    learned: SectionInput, end: tuple[int, int], refused: Array, is_whole: bool, largest: int, last: int
) -> RequestLimit | None:
    """The limit of a broker if all that it refused is larger than all that it answered, and it answered others after it
    refused some."""
    least = _LEAST_WHOLE if is_whole else _LEAST
    if len(distinct_values(refused["connection"]) if is_whole else refused) < least:
        return None
    smallest = int((refused["request_bytes"] + refused["cut_bytes"]).min())
    if smallest <= largest or last <= np.sort(refused["time"])[least - 1]:
        return None
    return RequestLimit(endpoint(learned.context.address(end[0]), end[1]), len(refused), smallest, largest, is_whole)


def _of_broker(waits: Array) -> Array:
    """Those whose connection a broker closed."""
    found: Array = waits[(waits["outcome"] == UNANSWERED) & (waits["closed_by"] == CLOSED_BY_BROKER)]
    return found
