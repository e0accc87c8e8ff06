"""An MTU black hole: packets of the full size never arrive, and small ones do."""

from __future__ import annotations

import numpy as np

from kafkatap.kernels.arrays import taken

from ..batch import H_COMPLETE, P_KAFKA, Array
from ..counting.count_table import MAX, MIN, SUM
from ..findings import ERROR, Finding
from ..questions.count_forms import ADDRESS, NUMBER, OTHER, TEXT, CountForm
from ..questions.section import SectionInput
from ..questions.section_counts import Tally
from .parties import broker_party, client_option, client_parties, client_words
from .signature import Signature
from .sums import rows_of

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

_FORM = CountForm(
    "advice.stuck",
    {"client_id": TEXT, "client_ip": ADDRESS, "broker_ip": ADDRESS, "broker_port": NUMBER, "is_broker": NUMBER},
    {"connections": SUM, "retransmissions": SUM, "stuck_bytes": SUM, "lasts_ns": SUM, "segment_bytes": MAX,
     "passed_bytes": SUM, "first": MIN, "last": MAX, "packet": MIN},
    {"client_id": OTHER, "client_ip": -1, "broker_ip": -1, "broker_port": -1, "is_broker": -1},
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


def _findings(given: SectionInput) -> list[Finding]:
    context = given.context
    made = []
    for row in rows_of(given, _FORM):
        who = client_words(context, row["client_id"], row["client_ip"])
        broker = broker_party(context, row["broker_ip"], row["broker_port"])
        path = f"from {broker.name} to {who}" if row["is_broker"] else f"from {who} to {broker.name}"
        many = "1 connection is" if row["connections"] == 1 else f"{row['connections']:,} connections are"
        text = (
            f"packets of the full size do not arrive {path}: {many} stuck at segments of {row['segment_bytes']:,} "
            f"bytes, sent again {row['retransmissions']:,} times, while smaller ones pass"
        )
        made.append(Finding(
            BLACK_HOLE.id, ERROR, BLACK_HOLE.label, text, row["lasts_ns"], row["first"], row["last"],
            {name: row[name] for name in _NUMBERS}, (row["packet"],),
            (*client_parties(context, row["client_id"], row["client_ip"]), broker), BLACK_HOLE.setting,
            BLACK_HOLE.remedy, (("sections", "connections"), *client_option(context, row["client_id"])),
        ))  # fmt: skip
    return made


BLACK_HOLE = Signature(
    "mtu_black_hole",
    "packets of the full size never arrive (MTU or MSS black hole)",
    "The handshake and small messages pass. Then a segment of the full size (the MSS) is sent again and again by the "
    "timer, and never acknowledged: the path carries less than the MTU of the hosts, and ICMP messages that say so do "
    "not come back.",
    "MTU, TCP MSS clamping, net.ipv4.tcp_mtu_probing",
    "Set the MTU of the hosts or of the tunnel between them to what the path carries, reduce the MSS there "
    "(`iptables -t mangle ... -j TCPMSS --clamp-mss-to-pmtu`), let ICMP type 3 code 4 (IPv6: Packet Too Big) through, "
    "or set `net.ipv4.tcp_mtu_probing=1` on both ends.",
    f"{_LEAST} retransmissions or more in one direction, all of them of {_FULL:.0%} of the MSS or more: what was lost "
    "by chance is repaired by its first copies. Their bytes are not acknowledged when the connection ends, and what "
    f"was acknowledged before is less than {_BEFORE} such segments, so the large ones never passed. It needs the "
    "handshake, and a capture on the sender's side of the hole. Time lost is that of the connections.",
    _findings,
    (_FORM,),
    read_connections=_read_connections,
    label="path broken",
)
