"""The map of a cluster: which end of a connection is which broker. One broker may listen on several ports, and has one
number.

A node's listeners are in Metadata, DescribeCluster, FindCoordinator, BrokerRegistration and UpdateMetadata. They name
hosts: an address, or a name of DNS, which belongs to an address if it is the only one of that port. An end that is in
none of these is a broker of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from kafkatap.kernels.arrays import distinct_values, is_among

from ..batch import Array, endpoint
from ..connection_words import P_FOREIGN
from ..counting import tally
from ..counting.count_forms import ADDRESS, NUMBER, TEXT
from ..counting.rollup import group_columns, value_columns
from ..findings import Party
from .counted import BROKER, CONNECTIONS, Counted, Rows, counted, ended, largest, least, total
from .section import Section, SectionInput

#: Where listeners of nodes are, and by what nodes speak to their controller.
_LISTENERS = (
    "metadata broker", "described broker", "coordinator", "coordinator of key", "live broker", "live leader",
)  # fmt: skip
_TO_CONTROLLER = ("broker heartbeat", "controlled shutdown", "broker registration")


def _is_listener(x: Rows) -> Any:
    return (x.node >= 0) & (x.port > 0)


NODES = counted(
    "cluster.nodes", {"node": NUMBER, "host": TEXT, "port": NUMBER}, _is_listener, of=_LISTENERS,
    last=largest(ended), first=least(ended),
)  # fmt: skip
#: Ends of brokers that connections were made to.
ENDS = counted(
    "cluster.ends", BROKER, lambda x: (x.protocol != P_FOREIGN) & (x.orientation_known != 0), of=CONNECTIONS,
    connections=total(1),
)  # fmt: skip
NODE_ADDRESSES = counted(
    "cluster.node_addresses", {"node": NUMBER, "address": ADDRESS}, of=_TO_CONTROLLER, more={"address": "client_ip"},
    last=largest("request_first"), first=least("request_first"),
)  # fmt: skip


def _listeners(of: str, node: Callable[[Rows], Any]) -> Counted:
    """Listeners of the nodes that other facts name."""
    where = (lambda x: x.port > 0, lambda x: node(x) >= 0)
    return NODES.also((of,), where, {"node": node}, last=ended, first=ended)


COUNTS = (
    NODES, ENDS, NODE_ADDRESSES,
    _listeners("live broker endpoint", lambda x: x.around("live broker", "node")),
    _listeners("broker listener", lambda x: x.top("broker registration", "node")),
)  # fmt: skip
_PORT_BITS = 16


def codes_of(ip: Array, port: Array) -> Array:
    """A number for each end, -1 for none: int64 (n,)."""
    found: Array = np.where((ip >= 0) & (port >= 0), ip.astype(np.int64) << _PORT_BITS | port, -1)
    return found


def is_literal(listener: str) -> bool:
    """Whether the host of a listener (`host:port`) is an address, not a name."""
    host = listener.rpartition(":")[0].strip("[]")
    return ":" in host or all(part.isdigit() for part in host.split("."))


class Cluster:
    """The brokers of a capture by an index. `nodes`: the node id of each, None if it is unknown. `ends`: the address
    and port (numbers) by which each is named: the one with the most answers."""

    def __init__(self, given: SectionInput) -> None:
        self._context = given.context
        self._codes, counted = _ends(given)
        node_of = self._listeners(given)
        first, best = np.arange(len(self._codes)), np.arange(len(self._codes))  # the end by which each is known
        place_of: dict[int, int] = {}
        named = np.flatnonzero(is_among(self._codes, list(node_of))).tolist()
        for place in named:
            first[place] = place_of.setdefault(node_of[int(self._codes[place])], place)
            if counted[place] > counted[best[first[place]]]:
                best[first[place]] = place
        places, self._of = np.unique(first, return_inverse=True)
        ends = self._codes[best[places]]
        self.ends: list[tuple[int, int]] = list(
            zip((ends >> _PORT_BITS).tolist(), (ends & 0xFFFF).tolist(), strict=True)
        )
        self.nodes: list[int | None] = [None] * len(places)
        for node, place in place_of.items():
            self.nodes[int(self._of[place])] = node
        self.has_answered = np.zeros(len(self.nodes), bool)
        self.has_answered[self._of[counted > 0]] = True
        self._by_node = {node: i for i, node in enumerate(self.nodes) if node is not None}

    def _listeners(self, given: SectionInput) -> dict[int, int]:
        """The node of each end that is known: the latest."""
        context = self._context
        addresses = self._addresses = {text: number for number, text in enumerate(context.addresses)}
        #: Where nodes listen that have no end in the capture: the latest.
        self._listener_of: dict[int, str] = {}
        #: The ends that listen where hosts with names are advertised.
        self._end_of: dict[str, int] = {}
        keys, values = given.keys(NODES.name), given.values(NODES.name)
        found: dict[int, int] = {}
        names: dict[int, set[tuple[str, int]]] = {}  # by port: names of hosts that are no addresses
        for row in np.argsort(values["last"], kind="stable").tolist():
            node, port = int(keys["node"][row]), int(keys["port"][row])
            host = context.text(int(keys["host"][row]))
            if node < 0 or not host:
                continue
            self._listener_of[node] = endpoint(host, port)
            number = addresses.get(host)
            if number is not None:
                found[number << _PORT_BITS | port] = node
            elif not is_literal(endpoint(host, port)):
                names.setdefault(port, set()).add((host, node))
        self._add_names(given, found, names)
        self._add_controlled(given, found)
        return found

    def _add_controlled(self, given: SectionInput, found: dict[int, int]) -> None:
        """Add nodes without a listener so far: the only end of the address from which a node speaks to its controller,
        if no other node does."""
        inner = given.keys(NODE_ADDRESSES.name)
        nodes: dict[int, set[int]] = {}
        for node, address in zip(inner["node"].tolist(), inner["address"].tolist(), strict=True):
            nodes.setdefault(address, set()).add(node)
        named = set(found.values())
        for address, of_address in nodes.items():
            ends = [code for code in self._codes.tolist() if code >> _PORT_BITS == address]
            if len(of_address) == 1 and len(ends) == 1 and ends[0] not in found and not of_address & named:
                found[ends[0]] = next(iter(of_address))

    def _add_names(self, given: SectionInput, found: dict[int, int], names: dict[int, set[tuple[str, int]]]) -> None:
        """Add the ends of hosts with names: by the address from which the node speaks to its controller, or if only one
        address listens on the port."""
        inner = given.keys(NODE_ADDRESSES.name)
        address_of = dict(zip(inner["node"].tolist(), inner["address"].tolist(), strict=True))
        for port, hosts in names.items():
            ends = [code for code in self._codes.tolist() if code & 0xFFFF == port and code not in found]
            for host, node in hosts:
                code = address_of.get(node, -1) << _PORT_BITS | port
                if code not in ends and len(hosts) == 1 and len(ends) == 1:
                    code = ends[0]
                if code in ends:
                    found[code] = node
                    self._end_of[endpoint(host, port)] = code

    def __len__(self) -> int:
        return len(self.nodes)

    @property
    def listed(self) -> int:
        """How many nodes have listeners that the cluster names."""
        return len(self._listener_of)

    def of(self, ip: Array, port: Array) -> Array:
        """The index of the broker at each end: int64, -1 for none."""
        if not len(self._codes):
            return np.full(len(ip), -1, np.int64)
        codes = codes_of(ip, port)
        at = np.minimum(np.searchsorted(self._codes, codes), len(self._codes) - 1)
        found: Array = np.where(self._codes[at] == codes, self._of[at], -1)
        return found

    def host_names(self) -> dict[str, list[str]]:
        """The names of DNS that brokers advertise, by address, of those of which the address is known."""
        found: dict[str, set[str]] = {}
        for listener, code in self._end_of.items():
            address = self._context.address(code >> _PORT_BITS)
            if address is not None:
                found.setdefault(address, set()).add(listener.rpartition(":")[0])
        return {address: sorted(names) for address, names in found.items()}

    def of_node(self, node: int) -> int | None:
        return self._by_node.get(node)

    def name(self, broker: int) -> str:
        """`10.0.0.3:9092`."""
        ip, port = self.ends[broker]
        return endpoint(self._context.address(ip), port)

    def label(self, broker: int) -> str:
        """`broker 3 (10.0.0.3:9092)`."""
        node = self.nodes[broker]
        return f"broker {self.name(broker)}" if node is None else f"broker {node} ({self.name(broker)})"

    def party(self, broker: int) -> Party:
        return Party("broker", self.name(broker))

    def listener_name(self, listener: str) -> str:
        """The name of the broker that listens where it is advertised; what is advertised if it has no end here."""
        code = self._end_of.get(listener)
        if code is None:
            host, _, port = listener.rpartition(":")
            code = self._addresses.get(host.strip("[]"), -1) << _PORT_BITS | int(port)
        found = int(self.of(np.array([code >> _PORT_BITS]), np.array([code & 0xFFFF]))[0])
        return listener if found < 0 else self.name(found)

    def node_name(self, node: int, host: str | None = None) -> str | None:
        """The address and port of a node: of its end, or of the only end at `host`, or as it is advertised."""
        found = self._by_node.get(node)
        if found is None and host is not None:
            there = [i for i, (ip, _) in enumerate(self.ends) if self._context.address(ip) == host]
            found = there[0] if len(there) == 1 and self.nodes[there[0]] is None else None
        return self._listener_of.get(node) if found is None else self.name(found)

    def node_label(self, node: int) -> str:
        """The label of a node, which may have no end in the capture."""
        found = self._by_node.get(node)
        return f"broker {node}" if found is None else self.label(found)

    def node_party(self, node: int) -> Party:
        """The party of a node: by its number if it has no end in the capture. So an event has one name, whenever its
        broker's address is learned."""
        found = self._by_node.get(node)
        return Party("broker", f"{node}") if found is None else self.party(found)


def _ends(given: SectionInput) -> tuple[Array, Array]:
    """The codes of the ends of brokers, ascending, and how many answers each gave."""
    given.counts.finish()
    columns, keys = group_columns(given.counts.groups, tally.GROUP_KEY), given.keys(ENDS.name)
    answered = value_columns(given.counts.groups, tally.GROUP_VALUES)["answered"]
    codes = codes_of(columns["broker_ip"], columns["broker_port"])
    known = distinct_values(np.concatenate((codes, codes_of(keys["broker_ip"], keys["broker_port"]))))
    known = known[known >= 0]
    is_end = codes >= 0
    places = np.searchsorted(known, codes[is_end])
    return known, np.bincount(places, weights=answered[is_end], minlength=len(known))


#: What reads the map, once for all sections that name brokers.
READING = Section("cluster-reading", counts=COUNTS, reads_notable=True)
