"""`HostEntry`: one span of time in which an address, or a network, has a name."""

from __future__ import annotations

from collections.abc import Mapping
from socket import AF_INET, inet_pton
from types import MappingProxyType
from typing import NamedTuple

#: Where a span without a start begins, and one without an end ends.
ALWAYS_FROM, ALWAYS_TO = -(2**63), 2**63 - 1
#: Where names come from, the best first: files, what brokers say of themselves, blocks of pcapng.
FILE, METADATA, PCAPNG = range(3)
#: Kinds of entries: one with the address for itself; a pod with that of its node; an interface, or services behind a
#: load balancer, whose address may be that of a node or pod.
OWN, SHARED, INTERFACE = range(3)
#: Longer names are cut.
LONGEST_NAME = 253
#: Labels with the zone of a host, the best first: of CSV, Kubernetes, AWS.
ZONE_LABELS = (
    "zone", "topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone", "availability-zone", "az", "rack",
)  # fmt: skip
_NO_LABELS: Mapping[str, str] = MappingProxyType({})


class HostEntry(NamedTuple):
    """`bits`, `length`: the first bits of a network as a number, and how many; `version`: 4 or 6. From `start` to
    before `end`, ns since the epoch. `origin`: file and line, for messages."""

    version: int
    length: int
    bits: int
    name: str
    start: int = ALWAYS_FROM
    end: int = ALWAYS_TO
    labels: Mapping[str, str] = _NO_LABELS
    origin: str = ""
    kind: int = OWN
    layer: int = FILE

    def __reduce__(self) -> tuple[type[HostEntry], tuple[object, ...]]:
        return HostEntry, (*self[:6], dict(self.labels), *self[7:])

    @property
    def zone(self) -> str | None:
        """Its zone, if a label names one."""
        return next((self.labels[label] for label in ZONE_LABELS if self.labels.get(label)), None)

    @property
    def network(self) -> str:
        """Its address or network as text."""
        from ipaddress import IPv4Network, IPv6Network

        bits = 32 if self.version == 4 else 128
        found = (IPv4Network if self.version == 4 else IPv6Network)((self.bits << bits - self.length, self.length))
        return str(found.network_address) if self.length == bits else str(found)


def host_entry(
    address: str,
    name: str,
    start: int | None = None,
    end: int | None = None,
    labels: Mapping[str, str] = _NO_LABELS,
    origin: str = "",
    kind: int = OWN,
    layer: int = FILE,
) -> HostEntry:
    """An entry of an address or network as text. ValueError if it is none, if there is no name, or if it ends before it
    begins."""
    version, length, bits = _network_of(address.strip().partition("%")[0])
    clean = name.encode("utf-8", "replace").decode().strip()[:LONGEST_NAME]
    if not clean:
        raise ValueError(f"{address} has no name")
    begin = ALWAYS_FROM if start is None else max(ALWAYS_FROM, min(start, ALWAYS_TO - 1))
    over = ALWAYS_TO if end is None else min(end, ALWAYS_TO)
    if over <= begin:
        raise ValueError(f"{clean} ends before it begins")
    return HostEntry(version, length, bits, clean, begin, over, labels, origin, kind, layer)


def _network_of(text: str) -> tuple[int, int, int]:
    """Version, length and first bits of an address or network."""
    try:
        return 4, 32, int.from_bytes(inet_pton(AF_INET, text))  # most are so, and `ipaddress` takes ten times as long
    except (OSError, ValueError):
        pass
    from ipaddress import ip_interface

    try:
        network = ip_interface(text).network
    except ValueError:
        raise ValueError(f"{text[:80]!r} is no address or network") from None
    if network.version == 6 and network.prefixlen == 128 and network.network_address.ipv4_mapped is not None:
        network = ip_interface(network.network_address.ipv4_mapped).network
    bits = int(network.network_address) >> network.max_prefixlen - network.prefixlen
    return network.version, network.prefixlen, bits
