"""An MTU black hole: packets of the full size never arrive, and small ones do."""

from __future__ import annotations

from collections import Counter, defaultdict

import numpy as np

from kafkatap.kernels.arrays import taken

from ..batch import Array
from ..connection_words import H_COMPLETE, P_KAFKA
from ..counting.count_forms import NUMBER, CountForm
from ..counting.count_table import MAX, MIN, SUM
from ..finding_words import listed
from ..findings import ERROR, Finding
from ..section_parts.section import SectionInput
from ..section_parts.section_counts import Tally
from .parties import broker_party, client_option, client_parties, client_words
from .signature import Signature
from .stretches import OTHERS, WHO, Connection, stretches_of

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

_FORM = CountForm(
    "advice.stuck",
    {"connection": NUMBER, **WHO, "is_broker": NUMBER},
    {"connections": SUM, "retransmissions": SUM, "stuck_bytes": SUM, "lasts_ns": SUM, "segment_bytes": MAX,
     "passed_bytes": SUM, "first": MIN, "last": MAX, "packet": MIN},
    {"connection": -1, **OTHERS, "is_broker": -1},
    newest="last",
)  # fmt: skip
_NUMBERS = ("connections", "retransmissions", "segment_bytes", "stuck_bytes", "lasts_ns")


def _read_connections(rows: Array, tally: Tally) -> None:
    is_known = (rows["protocol"] == P_KAFKA) & (rows["handshake"] == H_COMPLETE)
    for number, (end, other) in enumerate((("client", "broker"), ("broker", "client"))):
        again, stuck = rows[f"{end}_retransmitted_packets"], rows[f"{end}_unacknowledged_bytes"]
        at = np.flatnonzero(is_known & (again >= _LEAST) & (stuck > 0))
        if not len(at):
            continue
        some = taken(rows, at)
        mss = [np.where(some[f"{side}_mss"] > 0, some[f"{side}_mss"], _MSS) for side in (end, other)]
        segment = np.minimum(*mss).astype(np.int64) - _OPTIONS
        again, stuck = some[f"{end}_retransmitted_packets"], some[f"{end}_unacknowledged_bytes"]
        passed = some[f"{end}_bytes"] - stuck
        is_full = some[f"{end}_retransmitted_bytes"] >= _FULL * segment * again
        chosen = is_full & (stuck >= _FULL * segment) & (passed > 0) & (passed < _BEFORE * segment)
        some = some[chosen]
        keys = {name: some[name] for name in _FORM.keys if name != "is_broker"} | {"is_broker": number}
        tally.add(_FORM.name, keys, {
            "connections": 1, "retransmissions": again[chosen], "stuck_bytes": stuck[chosen],
            "lasts_ns": some["last"] - some["first"], "segment_bytes": segment[chosen], "passed_bytes": passed[chosen],
            "first": some["first"], "last": some["last"], "packet": some["first_packet"],
        })  # fmt: skip


def _stuck(given: SectionInput) -> dict[tuple[int, int, bool], list[dict[str, int]]]:
    """The connections that are stuck, by client and by who sends."""
    rows = [row for row in given.rows(_FORM.name) if row["connection"] != -1]
    connections, _ = stretches_of(given, {(row["client_ip"], row["broker_ip"]) for row in rows})
    found: dict[tuple[int, int, bool], list[dict[str, int]]] = defaultdict(list)
    for row in rows:
        one = connections.get(row["connection"])
        if one is not None and _is_first_large(row, one):
            found[row["client_id"], row["client_ip"], row["is_broker"] > 0].append(row)
    return found


def _is_first_large(row: dict[str, int], one: Connection) -> bool:
    """Whether a large message may be the first one of its connection, and not what came after a pause: a device on the
    path may have forgotten the connection meanwhile."""
    has_paused = any(stretch.answered for stretch in one.stretches[:-1]) and not one.stretches[-1].answered
    has_passed = max(stretch.largest_request for stretch in one.stretches) >= row["segment_bytes"]
    return not has_paused and (row["is_broker"] > 0 or not has_passed)


def _findings(given: SectionInput) -> list[Finding]:
    context = given.context
    made = []
    for (client_id, client_ip, is_broker), rows in _stuck(given).items():
        who = client_words(context, client_id, client_ip)
        lost = Counter[tuple[int, int]]()
        for row in rows:
            lost[row["broker_ip"], row["broker_port"]] += row["lasts_ns"]
        brokers = [broker_party(context, *end) for end, _ in lost.most_common()]
        at = listed([broker.name for broker in brokers], 1)
        path = f"from {at} to {who}" if is_broker else f"from {who} to {at}"
        many = "1 connection is" if len(rows) == 1 else f"{len(rows):,} connections are"
        sums = {name: sum(row[name] for row in rows) for name in _NUMBERS}
        sums["segment_bytes"] = max(row["segment_bytes"] for row in rows)
        text = (
            f"packets of the full size do not arrive {path}: {many} stuck at segments of {sums['segment_bytes']:,} "
            f"bytes, sent again {sums['retransmissions']:,} times, while smaller ones pass"
        )
        made.append(Finding(
            BLACK_HOLE.id, ERROR, BLACK_HOLE.label, text, sums["lasts_ns"], min(row["first"] for row in rows),
            max(row["last"] for row in rows), sums, tuple(sorted(row["packet"] for row in rows)[:_PACKETS]),
            (*client_parties(context, client_id, client_ip), *brokers), BLACK_HOLE.setting,
            BLACK_HOLE.remedy, (("sections", "connections"), *client_option(context, client_id)),
        ))  # fmt: skip
    return made


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
    (_FORM,),
    read_connections=_read_connections,
    follows=("idle_dropped",),
    label="path broken",
)
