"""Twins: one TCP connection that is seen under two addresses, before and behind NAT, or as both legs of a proxy.

Two connections are twins by their sequence numbers, which NAT keeps: those of both first bytes, or that of a sampled
request (`dissector.framing.samples`). Small numbers show nothing: tools that make captures begin with the same. The
legs of a proxy have other numbers. They are twins by their samples: the same messages in both directions, each of which
passes one leg and then the other. A request comes on the outer leg first, which is nearer to the client, and its
response on the inner one.

Where some connections show a proxy, further ones between the same ends need one message only.

All else is silent. Health checks and many equal clients have equal messages too. So more than MOST_ALIKE connections
with one message are no candidates, and legs of a proxy need messages that not all brokers answer alike. The work is
linear in the number of connections.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from kafkatap.dissector.framing.samples import IS_OWN, SAMPLES, TIME_BITS

from .connection_words import P_FOREIGN

Array = np.ndarray[Any, Any]

#: A message passes both legs within this, ns.
HOP_NS = 1_000_000_000
#: Samples of a proxy's legs that have to agree.
_LEAST = 4
#: The part of the messages of a proxy's legs that has to pass within HOP_NS: it may stand still for longer.
_NESTED = 0.75
#: A known proxy may hold a new connection back for so long.
_HELD_NS = 60_000_000_000
#: Connections that have one message, or the same sequence numbers.
MOST_ALIKE = 8
#: Sequence numbers below this are small.
_SMALL = 1 << 24
#: The end of a broker; and with the client's address, what is behind a proxy.
_BROKER = ("broker_ip", "broker_port")
_BEHIND = (*_BROKER, "client_ip")
#: Times of samples are known modulo this, ns.
_TURN = 1 << TIME_BITS
#: The columns of connections by which twins are found.
SAMPLE_COLUMNS = (
    *(f"{message}_sample_{n}" for message in ("request", "response") for n in range(SAMPLES)), "sample_sequence",
)  # fmt: skip
COLUMNS = (
    "connection", "client_ip", "client_port", "broker_ip", "broker_port", "proxy_port", "first", "last", "first_packet",
    "client_sequence", "broker_sequence", *SAMPLE_COLUMNS,
)  # fmt: skip


class Twins(NamedTuple):
    """n connections that are others once more. `outer`, `inner`: their rows, and those of the connections nearest to
    the broker, int64 (n,). `is_nat`: bool (n,), False: a proxy is between. `hop_ns`: half of what messages take from
    one leg to the other and back, median of the samples, int64 (n,)."""

    outer: Array
    inner: Array
    is_nat: Array
    hop_ns: Array

    def __len__(self) -> int:
        return len(self.outer)


def may_be_twins(rows: Any) -> Array:
    """Whether connections (CONNECTION_ROW, or `Rows` of counts) may be seen twice: both ends sent something, and they
    may be Kafka: bool (n,)."""
    known: Array = (rows["client_sequence"] != 0) & (rows["broker_sequence"] != 0) & (rows["protocol"] != P_FOREIGN)
    return known


def find_twins(rows: Mapping[str, Array] | Array) -> Twins:
    """The twins among connections, by COLUMNS, each an array (rows,)."""
    one, other = _candidates(rows)
    request, response = (_samples(rows, message) for message in ("request", "response"))
    numbers = [rows[f"{end}_sequence"] for end in ("client", "broker")]  # 0: no packet of that end
    is_same = np.logical_and.reduce([(n[one] == n[other]) & (n[one] > _SMALL) for n in numbers])
    sequence = rows["sample_sequence"]
    is_same |= (sequence[one] == sequence[other]) & (sequence[one] % _TURN > _SMALL)
    agree = _agree(request[one], request[other]) & _agree(response[one], response[other])
    there, back = _between(request[one], request[other]), _between(response[other], response[one])
    count, trip = agree.sum(axis=1), np.where(agree, there + back, 0)
    is_outer = _is_first(rows, one, other)
    turns = np.sign(trip).sum(axis=1)  # how many samples came on one first, less those that came on the other
    is_outer = np.where(turns != 0, turns > 0, is_outer)
    sign = np.where(is_outer, 1, -1)[:, None]
    is_hop = [(sign * way >= 0) & (sign * way <= HOP_NS) for way in (there, back)]
    nested = agree & is_hop[0] & is_hop[1]
    is_nested = (nested.sum(axis=1) >= _NESTED * count) & (turns != 0)
    differ = (~agree & ((request[one] != 0) | (request[other] != 0))).sum(axis=1)
    is_alike = 2 * differ <= count  # packets of one may be missing
    own = (nested & (request[one] & IS_OWN != 0)).sum(axis=1)
    is_nat = is_same & is_alike & (~agree | (abs(there) <= HOP_NS) & (abs(back) <= HOP_NS)).all(axis=1)
    is_proxy = is_nested & (own >= _LEAST) & is_alike & ~is_nat
    outer, inner = np.where(is_outer, one, other), np.where(is_outer, other, one)
    chosen = _is_apart(rows, one, other) & (is_nat | (is_proxy & _may_be_proxied(rows, outer, inner)))
    hop = _middle(np.abs(trip) // 2, np.where(is_proxy[:, None], nested, agree))
    hop = np.where(count > 0, hop, np.abs(rows["first"][one] - rows["first"][other]))
    columns = [column[chosen] for column in (outer, inner, is_nat, hop)]
    short = _short_ones(rows, request, response, Twins(*columns))
    return _innermost(*(np.concatenate((one, other)) for one, other in zip(columns, short, strict=True)))


def twin_keys(rows: Mapping[str, Array] | Array) -> dict[int, int]:
    """The key of the connection nearest to the broker, by that of each connection that is the same once more."""
    found = find_twins(rows)
    keys = rows["connection"]
    return dict(zip(keys[found.outer].tolist(), keys[found.inner].tolist(), strict=True))


def note_twins(rows: Array) -> None:
    """Write the column `twin_of` of CONNECTION_ROWs: all connections of a run, or those that are known together."""
    places = np.flatnonzero(may_be_twins(rows))
    found = find_twins({name: rows[name][places] for name in COLUMNS})
    rows["twin_of"][places[found.outer]] = rows["connection"][places[found.inner]]


def _samples(rows: Mapping[str, Array] | Array, message: str) -> Array:
    return np.stack([rows[f"{message}_sample_{n}"] for n in range(SAMPLES)], axis=1)


def _candidates(rows: Mapping[str, Array] | Array) -> tuple[Array, Array]:
    """Pairs of connections that have something in common, each once."""
    both = (rows["client_sequence"] != 0) & (rows["broker_sequence"] != 0)
    sequences = np.where(both, ((rows["client_sequence"] - 1) << 31) ^ rows["broker_sequence"], 0)
    keys = [sequences, rows["sample_sequence"]]
    keys += [rows[f"request_sample_{n}"] >> TIME_BITS for n in range(SAMPLES)]
    pairs = np.concatenate([_pairs(key) for key in keys])
    chosen = pairs[np.unique(pairs[:, 0] * np.int64(len(sequences)) + pairs[:, 1], return_index=True)[1]]
    one, other = chosen.T
    is_together = rows["first"][one] <= rows["last"][other] + HOP_NS
    is_together &= rows["first"][other] <= rows["last"][one] + HOP_NS
    return one[is_together], other[is_together]


def _pairs(keys: Array) -> Array:
    """The pairs of rows with the same key, which is not 0, if no more than MOST_ALIKE have it: int64 (n, 2)."""
    order = np.argsort(keys, kind="stable")
    order = order[keys[order] != 0]
    sorted_keys = keys[order]
    starts = np.flatnonzero(np.concatenate(([True], sorted_keys[1:] != sorted_keys[:-1])))
    sizes = np.diff(np.append(starts, len(order)))
    order = order[np.repeat(sizes <= MOST_ALIKE, sizes)] if len(order) else order
    found = [np.zeros((0, 2), np.int64)]
    for apart in range(1, MOST_ALIKE):
        one, other = order[:-apart], order[apart:]
        same = keys[one] == keys[other]
        if not same.any():
            break
        found.append(np.sort(np.stack([one[same], other[same]], axis=1), axis=1))
    return np.concatenate(found)


def _agree(one: Array, other: Array) -> Array:
    """Whether samples are of messages with the same bytes."""
    same: Array = (one != 0) & (one >> TIME_BITS == other >> TIME_BITS)
    return same


def _between(one: Array, other: Array) -> Array:
    """From the time of a sample to that of another one, ns, if that is less than half a turn."""
    found: Array = (other - one + _TURN // 2) % _TURN - _TURN // 2
    return found


def _short_ones(rows: Mapping[str, Array] | Array, request: Array, response: Array, known: Twins) -> Twins:
    """Further legs of the proxies in `known`, which have too few messages to show a proxy on their own, or of which it
    held most back. Each leg behind it belongs to one before it: the first one since with the same messages."""
    legs = list(zip(known.outer[~known.is_nat].tolist(), known.inner[~known.is_nat].tolist(), strict=True))
    if not legs:
        return Twins(*(column[:0] for column in known))
    ends = [list(zip(*(rows[name].tolist() for name in names), strict=True)) for names in (_BROKER, _BEHIND)]
    first, found = rows["first"], []
    for before, behind in sorted({(ends[0][o], ends[1][i]) for o, i in legs}):
        used = [set(known.outer.tolist()), {i for o, i in legs if ends[0][o] == before}]
        sides = [
            np.array([n for n, end in enumerate(of) if end == wanted and n not in mine], np.int64)
            for of, wanted, mine in zip(ends, (before, behind), used, strict=True)
        ]
        outer, inner = (side[np.argsort(first[side], kind="stable")] for side in sides)
        for o in outer.tolist():
            low, high = np.searchsorted(first[inner], (first[o], first[o] + _HELD_NS))
            near = inner[low:high]
            agree = _agree(request[o], request[near]) & _agree(response[o], response[near])
            is_same = (agree | (request[o] == 0) & (request[near] == 0)).all(axis=1) & agree.any(axis=1)
            there, back = _between(request[o], request[near]), _between(response[near], response[o])
            for at in np.flatnonzero(is_same)[:1].tolist():
                hop = _middle(((there + back) // 2)[at : at + 1], agree[at : at + 1])
                found.append((o, int(near[at]), int(hop[0])))
                inner = inner[inner != near[at]]
    columns = np.array(found, np.int64).reshape(-1, 3).T
    return Twins(columns[0], columns[1], np.zeros(len(found), bool), columns[2])


def _is_first(rows: Mapping[str, Array] | Array, one: Array, other: Array) -> Array:
    """Whether the first packet of `one` came before that of `other`."""
    first, packet = rows["first"], rows["first_packet"]
    earlier: Array = (first[one] < first[other]) | ((first[one] == first[other]) & (packet[one] < packet[other]))
    return earlier


def _is_apart(rows: Mapping[str, Array] | Array, one: Array, other: Array) -> Array:
    """Whether an address or a port differs: connections with the same ends came one after the other."""
    names = ("client_ip", "client_port", "broker_ip", "broker_port")
    differ: Array = np.logical_or.reduce([rows[name][one] != rows[name][other] for name in names])
    return differ


def _may_be_proxied(rows: Mapping[str, Array] | Array, outer: Array, inner: Array) -> Array:
    """Whether a proxy may be between: the outer leg does not end at the broker, and the inner leg is not another
    connection of the client, unless the proxy runs on the client's host."""
    differ = (rows["broker_ip"][outer] != rows["broker_ip"][inner]) | (
        rows["broker_port"][outer] != rows["broker_port"][inner]
    )
    # A PROXY header names the client of the outer leg.
    is_other = (rows["client_ip"][outer] != rows["client_ip"][inner]) | (rows["proxy_port"][inner] >= 0)
    may: Array = differ & (is_other | (rows["broker_ip"][outer] == rows["client_ip"][inner]))
    return may


def _middle(values: Array, chosen: Array) -> Array:
    """The median of the chosen values of each row, int64 (rows,); 0 if there are none."""
    count = chosen.sum(axis=1)
    ordered = np.sort(np.where(chosen, values, np.iinfo(np.int64).max), axis=1)
    middle = ordered[np.arange(len(values)), np.maximum(count - 1, 0) // 2]
    return np.where(count > 0, middle, 0)


def _innermost(outer: Array, inner: Array, is_nat: Array, hop: Array) -> Twins:
    """Each outer connection once, with the connection nearest to the broker. One with several that are not twins of
    each other is none."""
    behind: dict[int, dict[int, tuple[bool, int]]] = {}
    for o, i, nat, ns in zip(outer.tolist(), inner.tolist(), is_nat.tolist(), hop.tolist(), strict=True):
        behind.setdefault(o, {})[i] = nat, ns
    found = []
    for o, others in behind.items():
        ends = [i for i in others if i not in behind]
        if len(ends) == 1:
            found.append((o, ends[0], *others[ends[0]]))
    if not found:
        none = np.zeros(0, np.int64)
        return Twins(none, none, none.astype(bool), none)
    columns = [np.array(column) for column in zip(*sorted(found), strict=True)]
    return Twins(columns[0], columns[1], columns[2].astype(bool), columns[3])
