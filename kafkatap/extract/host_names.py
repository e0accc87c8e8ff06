"""Names of addresses for Wireshark: those of --hosts or of the capture, brokers by their advertised host and node id,
clients by their client id.

Only names that are valid host names are used, and only where there is no doubt: an advertised host belongs to an
address if it is that address, or if one node alone advertises its port and one address alone is connected to on that
port.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from ipaddress import ip_address
from typing import NamedTuple

from kafkatap.reports.batch import Array, Context
from kafkatap.reports.connection_words import P_KAFKA

#: Node ids in the name of an address at which several brokers listen.
MOST_NODES = 8
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_HOST = re.compile(rf"{_LABEL}(?:\.{_LABEL})*\.?", re.ASCII)


def is_host_name(text: str) -> bool:
    """Whether a text is a host name (RFC 1123), and no address."""
    return len(text) <= 253 and _HOST.fullmatch(text) is not None and not text.rstrip(".").rpartition(".")[2].isdigit()


class HostNames(NamedTuple):
    """Names by address. `derived`: from the traffic, for Wireshark. `known`: those that files or captures have, or
    else that brokers advertise (`advertised`): an extract may be without the Metadata that says so."""

    derived: dict[str, list[str]]
    known: dict[str, list[str]]
    advertised: dict[str, list[str]]

    def added_to(self, context: Context) -> Context:
        """A context in which addresses without another name have these, as in reports."""
        from kafkatap.reports.hosts.host_entry import METADATA, PCAPNG, host_entry
        from kafkatap.reports.hosts.host_table import HostTable

        entries = [
            host_entry(address, ", ".join(names), layer=layer)
            for layer, found in ((METADATA, self.advertised), (PCAPNG, self.known))
            for address, names in found.items()
        ]
        return context._replace(hosts=(context.hosts or HostTable()).with_learned(entries)) if entries else context


def host_names(context: Context, keys: Array, nodes: Mapping[int, str]) -> HostNames:
    """Names for the connections with these keys. `nodes`: "host:port" or "host" by node id."""
    rows = context.connections
    rows = rows[(rows["protocol"] == P_KAFKA)]
    brokers: dict[str, set[int]] = {}
    for number, port in set(zip(rows["broker_ip"].tolist(), rows["broker_port"].tolist(), strict=True)):
        address = context.address(number)
        if address is not None and _is_address(address):
            brokers.setdefault(address, set()).add(port)
    names, hosts = _broker_names(brokers, nodes)
    for address, client in _clients(context, rows).items():
        if address not in brokers:
            names[address] = [client]
    copied = set(keys.tolist())
    there = set()
    for row in rows[[key in copied for key in rows["connection"].tolist()]]:
        there |= {context.address(int(row["client_ip"])), context.address(int(row["broker_ip"]))}
    here = sorted(address for address in there if address is not None and _is_address(address))
    derived = {address: names[address] for address in here if names.get(address)}
    captured = _captured_names(context)
    known: dict[str, list[str]] = {}
    for address in here:
        own = _own_name(context, address)
        found = (captured.get(address) or hosts.get(address)) if own is None else [own]
        if found:
            known[address] = found
    return HostNames(derived, known, {address: hosts[address] for address in here if hosts.get(address)})


def _captured_names(context: Context) -> dict[str, list[str]]:
    """The names that blocks of the captures have for an address."""
    found: dict[str, list[str]] = {}
    for address, name in dict.fromkeys(pair for file in context.files for pair in file.names):
        if is_host_name(name):
            found.setdefault(address, []).append(name)
    return found


def _own_name(context: Context, address: str) -> str | None:
    """The name that a file has for an address in the whole time of the captures, if it is one."""
    if context.hosts is None:
        return None
    found = context.hosts.within(address, context.first or 0, context.last or 0)
    return found[0].name if len(found) == 1 and is_host_name(found[0].name) else None


def _broker_names(
    brokers: Mapping[str, set[int]], nodes: Mapping[int, str]
) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """The names of brokers by address, and the hosts among them."""
    found: dict[str, list[int]] = {}
    hosts: dict[str, list[str]] = {}
    ports = [int(place.rpartition(":")[2]) for place in nodes.values() if place.rpartition(":")[2].isdigit()]
    for node, place in sorted(nodes.items()):
        host, _, port = place.rpartition(":") if place.rpartition(":")[2].isdigit() else (place, "", "")
        host = host.strip("[]")
        if _is_address(host):
            address = str(ip_address(host))
            if address in brokers:
                found.setdefault(address, []).append(node)
        elif port and ports.count(int(port)) == 1:
            at = [address for address, listens in brokers.items() if int(port) in listens]
            if len(at) == 1:
                found.setdefault(at[0], []).append(node)
                if is_host_name(host):
                    hosts.setdefault(at[0], []).append(host)
    names = {}
    for address, numbers in found.items():
        shown = "-".join(map(str, numbers[:MOST_NODES]))
        by_node = f"broker{'s' if len(numbers) > 1 else ''}-{shown}"
        names[address] = [name for name in (by_node, *hosts.get(address, ())) if is_host_name(name)]
    return names, hosts


def _clients(context: Context, rows: Array) -> dict[str, str]:
    """The client id of each address from which only one came, if it is a host name."""
    found: dict[str, set[str | None]] = {}
    for number, client in set(zip(rows["client_ip"].tolist(), rows["client_id"].tolist(), strict=True)):
        address = context.address(number)
        if address is not None and _is_address(address):
            found.setdefault(address, set()).add(context.text(client))
    single = {address: next(iter(names)) for address, names in found.items() if len(names) == 1}
    return {address: name for address, name in single.items() if name is not None and is_host_name(name)}


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True
