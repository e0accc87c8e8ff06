"""The line on requests without a response."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from .. import units
from ..batch import Context, endpoint
from ..counting import tally
from ..counting.counts import ReportCounts
from ..counting.rollup import api_label, group_columns, value_columns
from ..finding_words import counted, listed, sentence
from ..findings import ERROR, NOTE, WARNING, Finding, Party
from ..parties import client_parties, client_text
from .unanswered import Cut, OnItsWay, RequestLimit, Unanswered

_PACKETS = 10
#: What limits the size of requests.
_LIMIT = "socket.request.max.bytes"
_LIMIT_REMEDY = (
    f"Raise `{_LIMIT}` of the broker above the largest request, or lower `batch.size` and `max.request.size` of the "
    "client (librdkafka: `message.max.bytes`)."
)
_LOG_REMEDY = "Read the logs of the brokers at that time: they say why a broker closed connections, or that it stopped."
_PATH_REMEDY = (
    "Find what drops the packets of these connections: a firewall, a full table of NAT, a small MTU, or a host that "
    "stopped."
)


def unanswered_finding(
    counts: ReportCounts, context: Context, known: Unanswered | None = None, unknown: Sequence[str] = ()
) -> Finding | None:
    """Requests without a response, by API, and the client that has most of them. `known`: what else is. `unknown`:
    versions that the broker may not know."""
    columns = group_columns(counts.groups, tally.GROUP_KEY)
    values = value_columns(counts.groups, tally.GROUP_VALUES)
    apis: Counter[int] = Counter()
    clients: Counter[str | None] = Counter()
    for key, client, n in zip(
        columns["api_key"].tolist(), columns["client_id"].tolist(), values["unanswered"].tolist(), strict=True
    ):
        if n:
            apis[key] += n
            clients[context.text(client)] += n
    on_their_way = known.on_their_way if known is not None else ()
    if not apis:
        return _never_came(on_their_way, context) if on_their_way else None
    total = sum(apis.values())
    by_api = listed(
        [f"{api_label(key)} {n:,}" for key, n in sorted(apis.items(), key=lambda item: (-item[1], item[0]))]
    )
    people = sorted(clients.items(), key=lambda item: (-item[1], str(item[0])))
    client, most = people[0]
    whose = f"{'' if total == 1 else 'all ' if most == total else f'{most:,} '}by {client_text(client)}"
    # Connections with lost responses were closed, too.
    closed, refused = (
        int(np.minimum(values[f"{end}_closed"], values["unanswered"]).sum()) for end in ("client", "broker")
    )
    cut, limit = (known.cut, known.limit) if known is not None else ((), None)
    ends = [_closed(end, n, total) for end, n in (("broker", refused), ("client", closed))]
    text = sentence([
        f"{counted(total, 'request has', 'requests have')} no response: {by_api}", whose,
        _cut_words(total, cut), _acknowledged_words(total, known), ", ".join(filter(None, ends)),
        _never_came_words(on_their_way) if on_their_way else None,
        f"the broker may not know {listed(unknown)}" if unknown else None,
        _limit_words(limit), _silent_words(known),
    ])  # fmt: skip
    return Finding(
        "unanswered", NOTE if closed == total else ERROR if 2 * refused >= total else WARNING, "unanswered", text,
        begin=None if known is None else known.first,
        numbers={
            "unanswered": total, "closed_by_client": closed, "closed_by_broker": refused, "clients": len(clients),
            **({} if not on_their_way else {"on_their_way": len(on_their_way)}),
            **({} if known is None else {"never_acknowledged": known.lost, "acknowledged": known.acknowledged}),
            **{f"cut_by_{each.end}": each.requests for each in cut},
            **({} if limit is None else {"smallest_cut_bytes": limit.cut_bytes,
                                         "largest_answered_bytes": limit.answered_bytes}),
        },
        packets=() if known is None or known.packet <= 0 else (known.packet,),
        parties=tuple(p for client, _ in people for p in client_parties(client)),
        setting="" if limit is None else _LIMIT, remedy=_remedy(total, refused, known),
        options=(("filter", "outcome == unanswered"),), command="show",
    )  # fmt: skip


def _silent_words(known: Unanswered | None) -> str | None:
    """An API that a broker never answers."""
    if known is None or known.silent is None:
        return None
    broker, api, requests, others = known.silent
    return (
        f"broker {broker} answered none of {counted(requests, f'{api_label(api)} request')} that waited long, but "
        f"{counted(others, 'other request')} of the same hosts"
    )


def _never_came_words(found: Sequence[OnItsWay]) -> str:
    """`2 requests in flight at the end were sent again for up to 4.20 s, never acknowledged: they did not arrive`."""
    longest = units.duration(max(one.until - one.since for one in found))
    if len(found) == 1:
        return f"1 request in flight at the end was sent again for {longest}, never acknowledged: it did not arrive"
    many = f"{len(found):,} requests in flight at the end were sent again for up to {longest}"
    return f"{many}, never acknowledged: they did not arrive"


def _never_came(found: Sequence[OnItsWay], context: Context) -> Finding:
    """A line on requests in flight that did not arrive, where no others are without a response."""
    people = Counter(context.text(one.client_id) for one in found)
    brokers = Counter(endpoint(context.address(one.broker_ip), one.broker_port) for one in found)
    apis = Counter(api_label(one.api_key) for one in found)
    by_api = listed([f"{api} {n:,}" for api, n in sorted(apis.items(), key=lambda item: (-item[1], item[0]))])
    whose, ends = (listed(list(names)) for names in ([client_text(client) for client, _ in people.most_common()],
                                                     [name for name, _ in brokers.most_common()]))  # fmt: skip
    text = sentence([_never_came_words(found), f"{by_api} of {whose} to {ends}"])
    return Finding(
        "unanswered", WARNING, "unanswered", text, begin=found[0].since, end=max(one.until for one in found),
        numbers={"unanswered": 0, "on_their_way": len(found), "clients": len(people)},
        packets=tuple(one.packet for one in found[:_PACKETS] if one.packet > 0),
        parties=(*(p for client, _ in people.most_common() for p in client_parties(client)),
                 *(Party("broker", name) for name, _ in brokers.most_common())),
        remedy=_PATH_REMEDY, options=(("filter", "outcome == in_flight"),), command="show",
    )  # fmt: skip


def _remedy(total: int, refused: int, known: Unanswered | None) -> str:
    """What to do, if most of the requests had one fate. `refused`: those whose connection the broker closed."""
    if known is not None and known.limit is not None:
        return _LIMIT_REMEDY
    if known is not None and known.lost is not None and 2 * known.lost >= total:
        return _PATH_REMEDY
    return _LOG_REMEDY if 2 * refused >= total else ""


def _cut_words(total: int, cut: Sequence[Cut]) -> str | None:
    """How much of the requests came that were not whole when their connection was closed."""
    n = sum(each.requests for each in cut)
    if not n:
        return None
    which = "it never" if total == 1 else "none" if n == total else f"{n:,} never"
    ends = (
        f"the {each.end} closed {f'{each.requests:,} ' if len(cut) > 1 else ''}after {units.size(each.came_bytes)} of "
        f"{units.size(each.announced_bytes)}"
        for each in cut
    )
    return f"{which} arrived whole: {', '.join(ends)}"


def _limit_words(limit: RequestLimit | None) -> str | None:
    """A limit of the broker on the size of requests."""
    if limit is None:
        return None
    return (
        f"broker {limit.broker} closed {'instead of an answer to' if limit.is_whole else 'in the middle of'} "
        f"{limit.requests:,} requests of {units.size(limit.cut_bytes)} "
        f"or more, and answered none above {units.size(limit.answered_bytes)}: they may be larger than it allows"
    )


def _closed(end: str, n: int, total: int) -> str | None:
    """Whose connection one end closed instead."""
    which = "" if total == 1 else " of all" if n == total else f" of {n:,}"
    return f"the {end} closed the connection{which}" if n else None


def _acknowledged_words(total: int, known: Unanswered | None) -> str | None:
    """Whether the requests arrived: what the TCP of the broker's host acknowledged."""
    if known is None or known.lost is None or known.acknowledged is None or not known.lost + known.acknowledged:
        return None
    if known.acknowledged == total:
        return "it reached the broker's host" if total == 1 else "all reached the broker's host"
    if known.lost == total:
        return "sent again, never acknowledged" if total == 1 else "all sent again, never acknowledged"
    lost = f"{known.lost:,} sent again, never acknowledged" if known.lost else None
    delivered = f"{known.acknowledged:,} reached the broker's host" if known.acknowledged else None
    return sentence([lost, delivered])
