"""An MTU black hole: packets of the full size never arrive, and small ones do."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

import numpy as np

from ..connection_words import H_COMPLETE, P_KAFKA
from ..finding_words import listed
from ..findings import ERROR, Finding
from ..section_parts.counted import CONNECTION, CONNECTIONS, PAIR, Counted, Rows, counted, largest, least, total
from ..section_parts.section import SectionInput
from .parties import broker_party, client_parties, client_words
from .signature import Signature, spanning
from .stretches import Connection, stretches_of

#: A lost packet is repaired by its first or second copy. Three copies that are lost too take 1.4 s on Linux.
_LEAST = 3
#: A segment of the full size: the MSS of the connection, less TCP options.
_FULL = 0.9
_OPTIONS = 12
#: The MSS of Ethernet, if the handshake does not say.
_MSS = 1_460
#: A connection begins with a few small messages (ApiVersions, SASL, Metadata), and is stuck at the first large one:
#: what was acknowledged until then is less than so many segments.
_BEFORE = 8
_PACKETS = 10


def _stuck_at(is_broker: int, end: str, other: str) -> Counted:
    """Connections on which an end sends packets of the full size in vain, to which only the first few got through."""
    again, stuck = f"{end}_retransmitted_packets", f"{end}_unacknowledged_bytes"

    def segment(x: Rows) -> Any:
        sizes = (x.made(f"{side}_mss") for side in (end, other))
        return np.minimum(*(np.where(size > 0, size, _MSS) for size in sizes)).astype(np.int64) - _OPTIONS

    def passed(x: Rows) -> Any:
        return x.made(f"{end}_bytes") - x.made(stuck)

    def is_full(x: Rows) -> Any:
        full = _FULL * segment(x)
        is_own = (x.made(f"{end}_retransmitted_bytes") >= full * x.made(again)) & (x.made(stuck) >= full)
        return is_own & (passed(x) > 0) & (passed(x) < _BEFORE * segment(x))

    def is_known(x: Rows) -> Any:
        return (x.made(again) >= _LEAST) & (x.protocol == P_KAFKA) & (x.handshake == H_COMPLETE)

    return counted(
        "advice.stuck", CONNECTION | PAIR, (is_known, is_full), of=CONNECTIONS, more={"is_broker": is_broker},
        newest="last", connections=total(1), retransmissions=total(again), stuck_bytes=total(stuck),
        lasts_ns=total(lambda x: x.last - x.first), segment_bytes=largest(segment),
        first=least("first"), last=largest("last"), packet=least("first_packet"),
    )  # fmt: skip


_STUCK = (_stuck_at(0, "client", "broker"), _stuck_at(1, "broker", "client"))
_NUMBERS = ("connections", "retransmissions", "segment_bytes", "stuck_bytes", "lasts_ns")


def _findings(given: SectionInput) -> list[Finding]:
    """One for each client and direction."""
    rows = [row for row in given.rows(_STUCK[0].name) if row["connection"] != -1]
    connections, _ = stretches_of(given, {(row["client_ip"], row["broker_ip"]) for row in rows})
    found: dict[tuple[int, ...], list[dict[str, int]]] = defaultdict(list)
    for row in rows:
        one = connections.get(row["connection"])
        if one is not None and _is_first_large(row, one):
            found[row["client_id"], row["client_ip"], row["is_broker"]].append(row)
    return [_finding(given, mine) for mine in found.values()]


def _is_first_large(row: dict[str, int], one: Connection) -> bool:
    """Whether a large message may be the first one of its connection, and not what came after a pause: a device on the
    path may have forgotten the connection meanwhile."""
    has_paused = any(stretch.answered for stretch in one.stretches[:-1]) and not one.stretches[-1].answered
    has_passed = max(stretch.largest_request for stretch in one.stretches) >= row["segment_bytes"]
    return not has_paused and (row["is_broker"] > 0 or not has_passed)


def _finding(given: SectionInput, rows: list[dict[str, int]]) -> Finding:
    client = rows[0]["client_id"], rows[0]["client_ip"]
    who, lost = client_words(given.context, *client), Counter[tuple[int, int]]()
    for row in rows:
        lost[row["broker_ip"], row["broker_port"]] += row["lasts_ns"]
    brokers = [broker_party(given.context, *end) for end, _ in lost.most_common()]
    at = listed([broker.name for broker in brokers], 1)
    path = f"from {at} to {who}" if rows[0]["is_broker"] else f"from {who} to {at}"
    numbers = {name: sum(row[name] for row in rows) for name in _NUMBERS}
    many = "1 connection is" if len(rows) == 1 else f"{len(rows):,} connections are"
    numbers["segment_bytes"] = max(row["segment_bytes"] for row in rows)
    text = (
        f"packets of the full size do not arrive {path}: {many} stuck at segments of "
        f"{numbers['segment_bytes']:,} bytes, sent again {numbers['retransmissions']:,} times, while smaller ones pass"
    )
    return BLACK_HOLE.found(
        given, spanning(rows), text, numbers["lasts_ns"], numbers, (("sections", "connections"),), ERROR,
        packets=tuple(sorted(row["packet"] for row in rows)[:_PACKETS]),
        parties=(*client_parties(given.context, *client), *brokers),
    )  # fmt: skip


BLACK_HOLE = Signature(
    "mtu_black_hole",
    "packets of the full size never arrive (MTU or MSS black hole)",
    "Small messages pass. A segment of the full size (MSS) is sent again and again, and never acknowledged.",
    "MTU, TCP MSS clamping, net.ipv4.tcp_mtu_probing",
    "Set the MTU of the hosts or of the tunnel between them to what the path carries, reduce the MSS there "
    "(`iptables -t mangle ... -j TCPMSS --clamp-mss-to-pmtu`), let ICMP type 3 code 4 (IPv6: Packet Too Big) through, "
    "or set `net.ipv4.tcp_mtu_probing=1` on both ends.",
    f"{_LEAST} retransmissions in one direction, all of {_FULL:.0%} of the MSS or more, are not acknowledged when the "
    f"connection ends, less than {_BEFORE} such segments were acknowledged before, and there was no pause. Needs the "
    "handshake, and a capture on the sender's side. Time lost: that of the connections.",
    _findings,
    counts=_STUCK,
    label="path broken",
)
