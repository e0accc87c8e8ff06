"""What is counted of packets: the category of each, and the tunnels that they came through."""

from __future__ import annotations

from kafkatap.kernels.decorator import record_dtype

#: The categories of packets. Every packet is counted in exactly one. A packet in a tunnel counts as what it holds, and
#: so do the fragments of a complete datagram.
TCP, NOT_IP, NOT_TCP, FRAGMENT, EVICTED_FRAGMENT, SHORT, BAD_HEADER, UNKNOWN_LINK = range(8)
CATEGORIES = (
    "tcp",
    "not_ip",
    "not_tcp",
    "fragment",
    "evicted_fragment",
    "headers_not_captured",
    "bad_header",
    "unknown_link_type",
)
#: Of a fragment whose datagram is not complete: it is counted later.
WAITING = -1

#: The tunnels that are counted. A packet counts for the outermost one.
NO_TUNNEL, IN_VXLAN, IN_GENEVE, IN_GRE, IN_ERSPAN, IN_IP, IN_ETHERIP, IN_MPLS = range(8)
TUNNELS = ("none", "vxlan", "geneve", "gre", "erspan", "ip_in_ip", "ethernet_in_ip", "mpls")

#: One row: what is counted of packets, and how far the last run of `read_segments` came. `read`, `first` and `last` are
#: of the packets that `one_pass` read since the caller reset them. `captured`, `empty`: the captured bytes of all that
#: it read, and how many had none; with shards, of those of this engine. `shards`, `shard`: how many engines share the
#: connections, and the number of this one; 0 and 0 if it has all.
PACKETS_STATE = record_dtype(
    ("packets", "i8", len(CATEGORIES)),  # by category
    ("tunnels", "i8", len(TUNNELS)),  # packets by tunnel
    ("payload_bytes", "i8"),
    ("segments", "i8"),  # of the last run
    ("stopped", "i8"),  # why the last run stopped: ASSEMBLED, or a full table
    ("read", "i8"),
    ("first", "i8"),  # the earliest and the latest time, ns
    ("last", "i8"),
    ("captured", "i8"),
    ("empty", "i8"),
    ("shards", "i8"),
    ("shard", "i8"),
)
