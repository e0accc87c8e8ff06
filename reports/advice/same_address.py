"""Nodes of a cluster that advertise one address: clients of one of them reach the other."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np

from ..batch import endpoint
from ..counting.count_forms import NUMBER, TEXT
from ..finding_words import counted as many
from ..findings import Finding, Party
from ..section_parts.counted import BROKER, Rows, counted, largest, least, total
from ..section_parts.section import SectionInput
from .parties import broker_party
from .signature import Signature, spanning

_OF = ("metadata broker",)


def _share(x: Rows) -> Any:
    """Whether another node of the same answer has the address, too. An answer lists each node once."""
    exchange, address = x.facts.exchange, x.host.astype(np.int64) << 16 | x.port & 0xFFFF
    order = np.lexsort((address, exchange))
    is_next = (np.diff(exchange[order]) == 0) & (np.diff(address[order]) == 0)
    found = np.zeros(len(order), bool)
    found[order[:-1]] = is_next
    found[order[1:]] |= is_next
    return found & (x.host >= 0) & (x.port > 0)


_SHARED = counted(
    "advice.same-address", BROKER | {"host": TEXT, "port": NUMBER, "node": NUMBER}, _share, of=_OF,
    responses=total(1), first=least("response_first"), last=largest("response_last"),
    packet=least("response_packet_last"),
)  # fmt: skip
_LAST = counted("advice.latest-addresses", BROKER, of=_OF, last=largest("response_last"))


def _findings(given: SectionInput) -> Iterator[Finding]:
    """One for each address."""
    context = given.context
    latest = {(row["broker_ip"], row["broker_port"]): row["last"] for row in given.rows(_LAST.name)}
    found: dict[str, list[dict[str, int]]] = defaultdict(list)
    for row in given.rows(_SHARED.name):
        is_still = row["last"] == latest.get((row["broker_ip"], row["broker_port"]))
        host = context.text(row["host"])
        if row["node"] >= 0 and host is not None and is_still:
            found[endpoint(host, row["port"])].append(row)
    for address, rows in found.items():
        nodes = sorted({row["node"] for row in rows})
        tellers = list(dict.fromkeys(broker_party(context, row["broker_ip"], row["broker_port"]) for row in rows))
        responses = max(row["responses"] for row in rows)
        text = (
            f"nodes {', '.join(map(str, nodes[:-1]))} and {nodes[-1]} advertise the same address, {address}, in "
            f"{many(responses, 'Metadata answer')} of {tellers[0].name}: what clients send to one of them, another one "
            "gets"
        )
        row = spanning(rows)
        yield SAME_ADDRESS.found(
            given, {name: row[name] for name in ("first", "last", "packet")}, text, 0,
            {"nodes": len(nodes), "responses": responses, "tellers": len(tellers)},
            (("filter", "api == Metadata"),), command="show",
            parties=tuple(dict.fromkeys((Party("broker", address), *tellers))),
        )  # fmt: skip


SAME_ADDRESS = Signature(
    "same_address",
    "several nodes of a cluster advertise one address",
    "A Metadata answer has two nodes with the same host and port.",
    "advertised.listeners",
    "Give each broker its own `advertised.listeners`: a configuration that was copied from another broker has that "
    "one's address, and so have several behind one load balancer.",
    "one answer, unless a later one of the same broker has it no more: after a broker came back with another node id, "
    "ZooKeeper keeps the old one for some seconds.",
    _findings,
    counts=(_SHARED, _LAST),
    label="misdirected",
)
