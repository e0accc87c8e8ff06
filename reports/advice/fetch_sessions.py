"""Fetch requests that name all their partitions each time, because no fetch session goes on (KIP-227)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np

from kafkatap.dissector.dtypes import ANSWERED

from .. import units
from ..finding_words import counted as many
from ..finding_words import listed
from ..findings import NOTE, Finding
from ..section_parts.counted import CONNECTION, PAIR, SPAN, Rows, counted, total
from ..section_parts.gathered import Gathered
from ..section_parts.section import SectionInput
from .parties import broker_party, client_parties, client_words
from .signature import Signature, spanning

#: Of a connection. One begins with such a request, and after an error has another one; 20 are 10 s of a reader that
#: waits for data.
_LEAST = 20
#: Of its requests.
_SHARE = 0.5
#: On average of a request. A session saves a reader of one partition nothing.
_PARTITIONS = 2
#: The epoch of a request that asks for a session. Those without sessions have -1.
_NEW = 0


def _asks(x: Rows) -> Any:
    """Whether a request asks for a session, and was answered without an error."""
    is_answered = (x.outcome == ANSWERED) & (x.top("fetched", "error_code") == 0)
    return (x.session_epoch == _NEW) & is_answered & (_given(x) >= 0)


def _given(x: Rows) -> Any:
    """The session of the response, 0: none."""
    return x.top("fetched", "session_id")


def _partitions(gathered: Gathered) -> Any:
    """How many partitions each request names: int64."""
    return np.bincount(gathered.facts("fetch partition").exchange, minlength=len(gathered))


_ASKED = counted(
    "advice.fetch-sessions", CONNECTION | PAIR, lambda x: x.session_epoch >= 0, of=("fetch",), newest="last",
    beside=("fetched", "fetch partition"),
    fetches=total(1), asked=total(_asks), refused=total(lambda x: _asks(x) & (_given(x) == 0)),
    bytes=total(lambda x: x.request_bytes * _asks(x)), partitions=total(lambda x: x.each(_partitions) * _asks(x)),
    **SPAN,
)  # fmt: skip


def _findings(given: SectionInput) -> Iterator[Finding]:
    """One for each broker that gives no sessions, and each client that keeps none."""
    context, of_brokers = given.context, defaultdict[tuple[int, int, bool], list[dict[str, int]]](list)
    for row in given.rows(_ASKED.name):
        if row["connection"] != -1 and row["asked"] >= max(_LEAST, _SHARE * row["fetches"]):
            is_refused = row["refused"] >= _SHARE * row["asked"]
            if not is_refused or row["partitions"] >= _PARTITIONS * row["asked"]:
                of_brokers[row["broker_ip"], row["broker_port"], is_refused].append(row)
    for (ip, port, is_refused), rows in of_brokers.items():
        sums = {name: sum(row[name] for row in rows) for name in ("fetches", "asked", "refused", "bytes", "partitions")}
        clients = list(dict.fromkeys((row["client_id"], row["client_ip"]) for row in rows))
        names, broker = listed([client_words(context, *client) for client in clients]), broker_party(context, ip, port)
        if is_refused:
            why = (
                f"broker {broker.name} gives no fetch session to {names}: {sums['refused']:,} of {sums['fetches']:,} "
                f"Fetch requests asked for one in vain, and name {sums['partitions'] / sums['asked']:,.0f} partitions "
                "each"
            )
        else:
            why = (
                f"{names} open{'s' if len(clients) == 1 else ''} a new fetch session at broker {broker.name} in "
                f"{sums['asked']:,} of {sums['fetches']:,} Fetch requests, and keep{'s' if len(clients) == 1 else ''} "
                "none: each pushes one of another reader out of the broker's cache"
            )
        text = f"{why} ({units.size(sums['bytes'])}, {many(len(rows), 'connection')})"
        numbers = {**sums, "connections": len(rows), "clients": len(clients), "is_refused": is_refused}
        people = dict.fromkeys(party for client in clients for party in client_parties(context, *client))
        yield FETCH_SESSIONS.found(
            given, {name: spanning(rows)[name] for name in ("first", "last", "packet")}, text, 0, numbers,
            (("sections", "topics"),), NOTE, parties=(*people, broker),
        )  # fmt: skip


FETCH_SESSIONS = Signature(
    "fetch_sessions",
    "readers name all their partitions in each Fetch",
    "Each Fetch asks for a new fetch session (epoch 0), and gets none (id 0), or one that the next request does not "
    "use. So requests and responses have all partitions, not those that changed.",
    "max.incremental.fetch.session.cache.slots",
    "Raise `max.incremental.fetch.session.cache.slots` (1,000) of the broker above its readers and followers, one slot "
    "each. If the client keeps no session, upgrade it, or let it ask for none (epoch -1).",
    f"{_LEAST} such requests of a connection, and {_SHARE:.0%} of all that it sends; if the broker gives no session, "
    f"of {_PARTITIONS} partitions on average. Clients without sessions (epoch -1) do not count. A note: it costs "
    "bytes, and time of the broker. Time lost: unknown.",
    _findings,
    counts=(_ASKED,),
    on_request=True,
)
