"""`capture_commands`: the commands that would make a better capture of the same brokers, as a shell reads them.

They are built from what the captures show: the brokers' ports, the interface, VLAN tags and tunnels, and the rate.
"""

from __future__ import annotations

import numpy as np

from kafkatap.reports.connection_words import H_NOT_CAPTURED, P_KAFKA, P_TLS
from kafkatap.reports.units import shell_word

from .observed import Array, Observed

#: Ports of brokers that a filter names at most, and the port if none is known.
MOST_PORTS, USUAL_PORT = 8, 9092
#: The least and the largest buffer, MiB, and the seconds of traffic that it holds.
LEAST_MIB, MOST_MIB, SECONDS = 16, 1_024, 2
_TUNNELS = {"vxlan": "udp port 4789", "geneve": "udp port 6081", "gre": "proto gre", "erspan": "proto gre",
            "ip_in_ip": "proto 4", "ethernet_in_ip": "proto 97", "mpls": "mpls"}  # fmt: skip


def capture_commands(seen: Observed) -> tuple[tuple[str, str], ...]:
    """(command, what it is for) each."""
    interface, size, text = shell_word(interface_of(seen)), buffer_mib(seen), shell_word(filter_of(seen))
    return (
        (
            f"tcpdump -i {interface} -s 0 -B {size * 1024} -w kafka.pcap {text}",
            "whole packets, a buffer for bursts, brokers only",
        ),
        (
            f"dumpcap -i {interface} -s 0 -B {size} -b filesize:1000000 -b files:10 -w kafka.pcapng -f {text}",
            "the same as a ring of ten files of 1 GB; it records the packets that it drops",
        ),
    )


def interface_of(seen: Observed) -> str:
    """The interface to capture on: the one that the captures name, `lo` for loopback addresses, or `eth0`."""
    names = [i.name for head in seen.heads.values() for i in head.interfaces if i.name and i.name != "any"]
    rows = seen.context.connections
    rows = rows[np.isin(rows["protocol"], (P_KAFKA, P_TLS))]
    hosts = {str(seen.context.address(ip)) for ip in np.unique(rows["broker_ip"]).tolist()}
    if hosts and all(host.startswith("127.") or host == "::1" for host in hosts):
        return "lo"
    return next((name for name in names if name != "lo"), "eth0")


def filter_of(seen: Observed) -> str:
    """A filter for the brokers' ports, also behind VLAN tags or in tunnels if the captures have such packets."""
    tunnels = seen.context.ledger.get("tunnels", {})
    outer = [_TUNNELS[name] for name, n in tunnels.items() if n and name in _TUNNELS]
    known = broker_ports(seen)
    inner = " or ".join(f"tcp port {port}" for port in known)
    parts = [*dict.fromkeys(outer), inner]
    if seen.packets.vlan:
        parts.append(f"vlan and ({inner})" if len(known) > 1 else f"vlan and {inner}")
    return " or ".join(f"({part})" if " and " in part else part for part in parts)


def broker_ports(seen: Observed) -> list[int]:
    """The ports of brokers, ascending: of Kafka and TLS connections, those with most bytes."""
    rows = seen.context.connections
    for protocol in (P_KAFKA, P_TLS):
        chosen = rows[rows["protocol"] == protocol]
        if len(chosen):
            ports = chosen["broker_port"] if protocol == P_KAFKA else _tls_ports(chosen)
            found, inverse = np.unique(ports, return_inverse=True)
            sizes = np.bincount(inverse, weights=chosen["client_bytes"] + chosen["broker_bytes"])
            return sorted(found[np.argsort(-sizes, kind="stable")][:MOST_PORTS].tolist())
    return [USUAL_PORT]


def _tls_ports(rows: Array) -> Array:
    """The brokers' ports of TLS connections. Without a SYN the ends of a row may be swapped: of its two ports, the one
    with more connections counts, or else the smaller one."""
    both = np.stack([rows["client_port"], rows["broker_port"]], axis=1).astype(np.int64)
    _, inverse, counts = np.unique(both, return_inverse=True, return_counts=True)
    often = counts[inverse.reshape(both.shape)]
    first = (often[:, 0] > often[:, 1]) | ((often[:, 0] == often[:, 1]) & (both[:, 0] < both[:, 1]))
    chosen: Array = np.where(first & (rows["handshake"] == H_NOT_CAPTURED), both[:, 0], both[:, 1])
    return chosen


def buffer_mib(seen: Observed) -> int:
    """The buffer for the busiest seconds, MiB: a power of two, twice as large if packets were lost."""
    lost = any(f.drops for f in seen.context.files) or bool(
        (seen.context.connections["client_gap_bytes"] + seen.context.connections["broker_gap_bytes"]).any()
    )
    wanted = SECONDS * seen.packets.busiest_second * (2 if lost else 1) / 2**20
    size = LEAST_MIB
    while size < min(wanted, MOST_MIB):
        size *= 2
    return max(size, 64) if lost else size
