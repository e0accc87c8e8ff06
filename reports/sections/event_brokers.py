"""Which end of a connection is which broker: one broker may listen on several ports, and has one number.

A node's listeners are in Metadata, FindCoordinator, BrokerRegistration and UpdateMetadata. They name hosts: an address,
or a name of DNS, which belongs to an address if it is the only one of that port. An end that is in none of these is a
broker of its own.
"""

from __future__ import annotations

import numpy as np

from kafkatap.kernels.arrays import distinct_values

from ..batch import Array, Context, endpoint
from ..findings import Party
from ..section_parts.section import SectionInput
from .event_answers import ANSWERS
from .event_counts import CONNECTIONS, NODE_ADDRESSES, NODES

_PORT_BITS = 16


def codes_of(ip: Array, port: Array) -> Array:
    """A number for each end, -1 for none: int64 (n,)."""
    found: Array = np.where((ip >= 0) & (port >= 0), ip.astype(np.int64) << _PORT_BITS | port, -1)
    return found


class Brokers:
    """The brokers of a capture by an index. `nodes`: the node id of each, None if it is unknown. `ends`: the address
    and port (numbers) by which each is named: the one with the most answers."""

    def __init__(self, given: SectionInput) -> None:
        self._context = given.context
        answers, connections = given.keys(ANSWERS.name), given.keys(CONNECTIONS.name)
        many = given.values(ANSWERS.name)["answers"]
        codes = codes_of(answers["broker_ip"], answers["broker_port"])
        others = codes_of(connections["broker_ip"], connections["broker_port"])
        known = distinct_values(np.concatenate((codes, others)))
        self._codes = known[known >= 0]
        counted = np.bincount(np.searchsorted(self._codes, codes[codes >= 0]), weights=many[codes >= 0],
                              minlength=len(self._codes)) if len(self._codes) else np.zeros(0)  # fmt: skip
        node_of = self._listeners(given)
        index: dict[tuple[str, int], int] = {}
        self.nodes: list[int | None] = []
        self.ends: list[tuple[int, int]] = []
        best: list[float] = []
        self._of = np.full(len(self._codes), -1, np.int64)
        for place, code in enumerate(self._codes.tolist()):
            node = node_of.get(code)
            key = ("end", code) if node is None else ("node", node)
            found = index.setdefault(key, len(index))
            if found == len(self.nodes):
                self.nodes.append(node)
                self.ends.append((code >> _PORT_BITS, code & 0xFFFF))
                best.append(counted[place])
            elif counted[place] > best[found]:
                self.ends[found], best[found] = (code >> _PORT_BITS, code & 0xFFFF), counted[place]
            self._of[place] = found
        self.has_answered = np.zeros(len(self.nodes), bool)
        self.has_answered[self._of[counted > 0]] = True
        self._by_node = {node: i for i, node in enumerate(self.nodes) if node is not None}

    def _listeners(self, given: SectionInput) -> dict[int, int]:
        """The node of each end that is known: the latest."""
        context = self._context
        addresses = {text: number for number, text in enumerate(context.addresses)}
        keys, values = given.keys(NODES.name), given.values(NODES.name)
        found: dict[int, int] = {}
        names: dict[int, set[tuple[str, int]]] = {}  # by port: names of hosts that are no addresses
        for row in np.argsort(values["last"], kind="stable").tolist():
            node, port = int(keys["node"][row]), int(keys["port"][row])
            host = context.text(int(keys["host"][row]))
            if node < 0 or host is None:
                continue
            number = addresses.get(host)
            if number is not None:
                found[number << _PORT_BITS | port] = node
            else:
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
            for _, node in hosts:
                code = address_of.get(node, -1) << _PORT_BITS | port
                if code in ends:
                    found[code] = node
                elif len(hosts) == 1 and len(ends) == 1:
                    found[ends[0]] = node

    def __len__(self) -> int:
        return len(self.nodes)

    def of(self, ip: Array, port: Array) -> Array:
        """The index of the broker at each end: int64, -1 for none."""
        if not len(self._codes):
            return np.full(len(ip), -1, np.int64)
        codes = codes_of(ip, port)
        at = np.minimum(np.searchsorted(self._codes, codes), len(self._codes) - 1)
        found: Array = np.where(self._codes[at] == codes, self._of[at], -1)
        return found

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


def node_label(brokers: Brokers, node: int) -> str:
    """The label of a node, which may have no end in the capture."""
    found = brokers.of_node(node)
    return f"broker {node}" if found is None else brokers.label(found)


def clients_text(count: int) -> str:
    return f"{count:,} client{'' if count == 1 else 's'}"


def address_text(context: Context, number: int) -> str:
    return context.address(number) or "?"
