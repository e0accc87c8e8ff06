"""The checks, by name, in the order of reports. Each yields findings about what was seen."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from kafkatap.reports.findings import SEVERITIES, Finding

from . import content_checks, file_checks, stream_checks
from .observed import Observed


class Check(NamedTuple):
    """`name`: of its findings. `question`: what it looks for."""

    name: str
    question: str
    functions: tuple[Callable[[Observed], Iterator[Finding]], ...]


CHECKS = (
    Check("files", "damaged files, and files that are cut short", (file_checks.damage,)),
    Check("content", "no Kafka, or mostly something else", (content_checks.no_kafka, content_checks.other_traffic)),
    Check("link types", "link layers that are not read, invalid headers, IP fragments", (file_checks.link_types,)),
    Check("snap length", "packets that are cut", (file_checks.snap_length,)),
    Check("extracts", "files that kafkatap extract wrote", (file_checks.extracts,)),
    Check("drops", "packets that the capture program dropped", (file_checks.drops,)),
    Check("gaps", "bytes in no packet: lost by the capture or by the network", (stream_checks.gaps,)),
    Check("directions", "connections of which one direction is missing", (stream_checks.directions,)),
    Check("copies", "packets that were captured twice", (file_checks.copies,)),
    Check(
        "clock",
        "steps of the clock, clocks that differ, coarse time stamps",
        (file_checks.clock, file_checks.clocks, file_checks.resolution),
    ),
    Check("order", "packets that are not in time order", (file_checks.order,)),
    Check("encryption", "connections with TLS", (content_checks.encryption,)),
    Check("handshakes", "TLS handshakes that fail, certificates that expire", (content_checks.handshakes,)),
    Check("interfaces", "several interfaces in one capture, the interface 'any'", (file_checks.interfaces,)),
    Check("starts", "connections that began before the capture", (stream_checks.starts,)),
    Check("network", "retransmissions", (stream_checks.network,)),
    Check("place", "captures far from the brokers", (stream_checks.place,)),
    Check("ports", "ports of brokers of which the capture has nothing", (content_checks.listeners,)),
    Check("brokers", "only one broker of a cluster", (content_checks.brokers,)),
    Check("proxies", "clients hidden behind a load balancer", (content_checks.proxies,)),
    Check("length", "captures too short for percentiles", (content_checks.length,)),
)


def find(seen: Observed) -> list[Finding]:
    """All findings: the worst first, and then in the order of the checks."""
    found = [finding for check in CHECKS for function in check.functions for finding in function(seen)]
    return sorted(found, key=lambda finding: SEVERITIES.index(finding.severity))
