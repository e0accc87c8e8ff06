"""Checks of TCP streams: gaps, one direction, connections without a start, retransmissions, the place of capture."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from kafkatap.dissector.dtypes import ORPHAN_RESPONSE, RESPONSE_LOST
from kafkatap.reports import units
from kafkatap.reports.batch import Context, endpoint
from kafkatap.reports.commands import command, with_captures
from kafkatap.reports.connection_words import H_NOT_CAPTURED, P_KAFKA, P_TLS
from kafkatap.reports.counting.connection_counts import is_one_sided
from kafkatap.reports.finding_words import counted
from kafkatap.reports.findings import ERROR, NOTE, WARNING, Finding

from .finding import finding, share, some
from .observed import Observed

Array = np.ndarray[Any, Any]
#: Shares of the payload in gaps, and of connections with one direction, from which on it is an error.
GAPS_BADLY, ONE_SIDED_BADLY = 0.05, 0.5
#: The share of retransmitted payload, and its packets, that are named.
RETRANSMITTED, RETRANSMISSIONS = 0.01, 10
#: A round trip that is worth a place of capture, ns, and the share of it that one end may have at most to be there.
FAR_NS, NEAR_SHARE = 1_000_000, 0.25
_BOTH = ("client", "broker")


def gap_bytes(rows: Array) -> Array:
    """The bytes in gaps of CONNECTION_ROWs."""
    total: Array = rows["client_gap_bytes"] + rows["broker_gap_bytes"]
    return total


def gaps(seen: Observed) -> Iterator[Finding]:
    """Bytes that no packet has."""
    rows = seen.context.connections
    missing = gap_bytes(rows)
    total = int(missing.sum())
    if not total:
        return
    if seen.extracts and len(seen.extracts) == len(seen.heads):
        return  # left out on purpose: the finding on extracts says it
    payload = int((rows["client_bytes"] + rows["broker_bytes"]).sum()) + total
    number = int((rows["client_gaps"] + rows["broker_gaps"]).sum())
    known = seen.streams["acknowledged"]
    acknowledged = int(known[known > 0].sum())
    resent = int(sum(rows[f"{end}_retransmitted_bytes"].sum() for end in _BOTH))
    worst = np.argsort(-missing, kind="stable")[:1].tolist()
    names = [
        f"{ends(seen.context, rows[i])} {units.size(int(missing[i]))}, {_direction(rows[i])}" for i in worst
    ]  # fmt: skip
    lost, orphans = seen.exchanges.outcomes[[RESPONSE_LOST, ORPHAN_RESPONSE]].tolist()
    skipped = seen.context.ledger["payload bytes"].get("skipped", 0)
    late = " or wrote it too late" if any(seen.late_segments.values()) else ""
    yield finding(
        "gaps", ERROR if total >= GAPS_BADLY * payload else WARNING,
        f"{units.size(total)} of {counted(int((missing > 0).sum()), 'connection')} are in no packet ({number:,} gaps)",
        f"{share(total, payload)} of the payload; receivers acknowledged {units.size(acknowledged)} of it, so the "
        f"capture lost that{late}, not the network ({units.size(resent)} retransmitted); most in {some(names)}",
        f"latency of {counted(lost, 'exchange')} unknown, {counted(orphans, 'response')} without request, "
        f"{counted(seen.exchanges.incomplete, 'exchange')} incomplete, {units.size(skipped)} skipped until the next "
        "message",
        "use a larger buffer (-B), a filter on the brokers' ports, and a fast disk",
        gap_bytes=total, gap_share=total / payload, gaps=number, connections=int((missing > 0).sum()),
        acknowledged_bytes=acknowledged, retransmitted_bytes=resent, responses_lost=lost, orphan_responses=orphans,
        incomplete=seen.exchanges.incomplete, skipped_bytes=skipped,
    )  # fmt: skip


def _direction(row: Any) -> str:
    client, broker = int(row["client_gap_bytes"]), int(row["broker_gap_bytes"])
    return "both directions" if client and broker else "from the client" if client else "from the broker"


def ends(context: Context, row: Any) -> str:
    """`10.0.0.7:41234 to 10.0.0.1:9092`."""
    client, broker = (endpoint(context.address(int(row[f"{e}_ip"])), int(row[f"{e}_port"])) for e in _BOTH)
    return f"{client} to {broker}"


def directions(seen: Observed) -> Iterator[Finding]:
    """Connections of which one direction is missing."""
    rows = seen.context.connections
    has_data = rows["client_bytes"] + rows["broker_bytes"] > 0
    mask = is_one_sided(rows)
    count, of = int(mask.sum()), int(has_data.sum())
    if not count:
        return
    only_client = int((mask & (rows["broker_packets"] == 0)).sum())
    sides = []
    if only_client:
        sides.append(f"{only_client:,} with packets to one end only, the supposed broker")
    if count - only_client:
        sides.append(f"{count - only_client:,} with packets from the supposed broker only")
    lost, orphans = seen.exchanges.outcomes[[RESPONSE_LOST, ORPHAN_RESPONSE]].tolist()
    yield finding(
        "directions", ERROR if count >= ONE_SIDED_BADLY * of else WARNING,
        f"{counted(count, 'connection')} captured in one direction only",
        f"{share(count, of)} of the {of:,} with data; {'; '.join(sides)}",
        f"no latency and no error codes for them: {counted(lost, 'request')} without response, "
        f"{counted(orphans, 'response')} without request",
        "the way back takes another interface (asymmetric routing, a bond, a mirror of one direction), or the filter "
        "has 'src' or 'dst': capture both directions with 'tcp port ...'",
        connections=count, connections_share=count / of, to_broker_only=only_client, responses_lost=lost,
        orphan_responses=orphans,
    )  # fmt: skip


def starts(seen: Observed) -> Iterator[Finding]:
    """Kafka connections that were open before the capture."""
    rows = seen.context.connections
    rows = rows[rows["protocol"] == P_KAFKA]
    count = int((rows["handshake"] == H_NOT_CAPTURED).sum())
    if not count:
        return
    yield finding(
        "starts", NOTE, f"{counted(count, 'connection')} began before the capture",
        f"of {len(rows):,} Kafka connections",
        "their window scale, handshake round trip, authentication and often client software are unknown; a first "
        "response may have no request",
        "none is needed; to see them, start to capture before the clients start",
        connections=count, kafka_connections=len(rows),
    )  # fmt: skip


def network(seen: Observed) -> Iterator[Finding]:
    """Retransmissions: the network's losses, which are no fault of the capture. Where segments are late in the capture,
    they only seem to be sent again."""
    if any(seen.late_segments.values()):
        return
    rows = seen.context.connections
    resent = int(sum(rows[f"{end}_retransmitted_bytes"].sum() for end in _BOTH))
    payload = int((rows["client_bytes"] + rows["broker_bytes"]).sum())
    packets = int(sum(rows[f"{end}_retransmitted_packets"].sum() for end in _BOTH))
    if packets < RETRANSMISSIONS or resent < RETRANSMITTED * (payload + resent):
        return
    shows = command(seen.context, None, (("sections", "connections"),))
    yield finding(
        "network", NOTE, f"{counted(packets, 'packet')} retransmitted: the network loses packets, not the capture",
        f"{share(resent, payload + resent)} of the payload", "none: retransmitted bytes count once",
        f"see which connections wait for them: {with_captures(shows, [file.path for file in seen.context.files])}",
        retransmitted_packets=packets, retransmitted_bytes=resent, retransmitted_share=resent / (payload + resent),
    )  # fmt: skip


def place(seen: Observed) -> Iterator[Finding]:
    """Captures far from the brokers."""
    broker, client, count = halves(seen)
    if not count or broker + client < FAR_NS or broker < NEAR_SHARE * (broker + client):
        return
    where = "at the clients' end" if client < NEAR_SHARE * (broker + client) else "between clients and brokers"
    yield finding(
        "place", NOTE, f"captured {where}",
        f"median of {counted(count, 'handshake')}: {units.duration(broker)} to the broker and back, "
        f"{units.duration(client)} to the client and back",
        f"broker times include about {units.duration(broker)} of network round trip",
        "to measure brokers alone, capture on their hosts", handshakes=count, broker_rtt_ns=broker,
        client_rtt_ns=client,
    )  # fmt: skip


def halves(seen: Observed) -> tuple[int, int, int]:
    """The median round trips from the capture point to brokers and to clients, ns, and of how many handshakes."""
    streams = seen.streams
    kafka = np.isin(streams["connection"], seen.context.connections["connection"][_is_kafka(seen.context)])
    known = streams[kafka & (streams["broker_half_ns"] >= 0)]
    if not len(known):
        return 0, 0, 0
    return int(np.median(known["broker_half_ns"])), int(np.median(known["client_half_ns"])), len(known)


def _is_kafka(context: Context) -> Array:
    protocol = context.connections["protocol"]
    found: Array = (protocol == P_KAFKA) | (protocol == P_TLS)
    return found
