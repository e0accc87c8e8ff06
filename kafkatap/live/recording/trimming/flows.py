"""The tables of connections, and how bytes become filler."""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np

from kafkatap.kernels.decorator import helper, record_dtype
from kafkatap.reassembly.flows import hash_flow
from kafkatap.reassembly.pcap import LONGEST_PACKET
from kafkatap.reassembly.trail import TRAIL

Array = np.ndarray[Any, Any]

#: A connection. `used`: when it was last seen, by packets (0: no connection). `client`: the direction in which requests
#: were seen, -1: neither; for certain if it was `opened` by a SYN, and `first` is where its first request begins.
#: `auth`: NO_SASL, … `is_bare`: tokens come without a header. `version`: of the latest request with a token.
KNOWN_FLOW = record_dtype(
    ("a_high", "i8"), ("a_low", "i8"), ("b_high", "i8"), ("b_low", "i8"), ("ports", "i8"), ("used", "i8"),
    ("client", "i8"), ("opened", "i8"), ("first", "i8"), ("auth", "i8"), ("is_bare", "i8"), ("version", "i8"),
    ("encrypted", "i8"),
)  # fmt: skip
#: A direction of it. `next`: the sequence number up to which requests are followed; no token lies between `clean` and
#: that. Of the frame there: `pos` bytes of it are behind, and with `decided` `left` bytes come; what its header says
#: (`bytes`: its size); its token begins at `token` (-1: it has none), behind a length of varying size if `varies`, and
#: becomes `filler`. `begun`: requests that followed each other since it is known where they begin; `named`: the length
#: of the client id in the latest. Of a broker, tokens may lie before `secret`, if `has_secret`.
KNOWN_SIDE = record_dtype(
    ("mode", "i8"), ("next", "i8"), ("clean", "i8"), ("pos", "i8"), ("left", "i8"), ("decided", "i8"),
    ("bytes", "i8"), ("api", "i8"), ("version", "i8"), ("name", "i8"), ("token", "i8"), ("varies", "i8"),
    ("filler", "i8"), ("begun", "i8"), ("named", "i8"), ("has_secret", "i8"), ("secret", "i8"),
)  # fmt: skip
#: Bytes of a block that became filler; their originals are at `saved`.
HIDDEN = record_dtype(("at", "i8"), ("end", "i8"), ("saved", "i8"))
HIDING_STATE = record_dtype(("seed", "i8"), ("clock", "i8"), ("hidden", "i8"), ("saved", "i8"))

#: What is known of where requests begin: nothing; where they do; where they may, so nothing is kept yet.
LOST, FOLLOWED, GUESSED = range(3)
#: Of a connection: no SASL now; a SaslHandshake came; tokens are exchanged.
NO_SASL, AGREED, TOKENS = range(3)
HANDSHAKE, AUTHENTICATE, FLEXIBLE = 17, 36, 2
#: Bytes of a request up to the client id: size, API, version, correlation id, length of the client id.
HEAD, SIZE = 14, 4
ZERO, NO_TOKEN_BEGINS_SO = 0, 0xFF
WRAP, FAR = 0xFFFFFFFF, 1 << 30
#: Connections that are known, in buckets of so many. More of them are forgotten, and their packets cut for a while.
MOST_FLOWS, WAYS = 1 << 17, 4
#: Rows of HIDDEN that one packet may need, and how many there are.
MOST_HIDDEN, HIDDEN_ROWS = LONGEST_PACKET // 2, LONGEST_PACKET
SAVED_BYTES = 4 * LONGEST_PACKET


class HidingTables(NamedTuple):
    """The tables of `hide_tokens`."""

    state: Annotated[Array, HIDING_STATE]
    flows: Annotated[Array, KNOWN_FLOW]
    sides: Annotated[Array, KNOWN_SIDE]
    trail: Annotated[Array, TRAIL]
    hidden: Annotated[Array, HIDDEN]
    saved: Annotated[Array, np.uint8]


@helper
def hide(t, buf, begin, end, filler):  # type: ignore[no-untyped-def]
    """Make buf[begin:end] filler. The caller has checked that there is room."""
    s = t.state[0]
    if begin >= end:
        return
    row = t.hidden[s.hidden]
    row.at = begin
    row.end = end
    row.saved = s.saved
    saved = np.int64(s.saved)
    for k in range(begin, end):
        t.saved[saved] = buf[k]
        saved += 1
        buf[k] = filler
    s.saved = saved
    s.hidden += 1


@helper
def begin_frame(side):  # type: ignore[no-untyped-def]
    side.pos = 0
    side.left = 0
    side.decided = 0
    side.bytes = 0
    side.api = 0
    side.version = 0
    side.name = 0
    side.token = -1
    side.varies = 0


@helper
def follow_from(side, mode, seq):  # type: ignore[no-untyped-def]
    """A request begins at a sequence number."""
    begin_frame(side)
    side.mode = mode
    side.next = seq & WRAP
    side.clean = seq & WRAP
    side.begun = 0
    side.named = 0


@helper
def note_secret(other, ack):  # type: ignore[no-untyped-def]
    """What a client has read so far may be tokens. `other`: the broker's direction."""
    other.has_secret = 1
    other.secret = ack


@helper
def flow_of(ends, t):  # type: ignore[no-untyped-def]
    """Return the row of a connection. A new one takes the place of the one in its bucket that was silent longest."""
    s = t.state[0]
    s.clock += 1
    first = (hash_flow(ends, s.seed) % (t.flows.shape[0] // WAYS)) * WAYS
    ports = (ends.a_port << 16) | ends.b_port
    oldest = np.int64(first)
    for number in range(first, first + WAYS):
        flow = t.flows[number]
        if (
            flow.used > 0
            and flow.a_low == ends.a_low
            and flow.b_low == ends.b_low
            and flow.ports == ports
            and flow.a_high == ends.a_high
            and flow.b_high == ends.b_high
        ):
            flow.used = s.clock
            return np.int64(number)
        if flow.used < t.flows[oldest].used:
            oldest = np.int64(number)
    flow = t.flows[oldest]
    flow.a_high = ends.a_high
    flow.a_low = ends.a_low
    flow.b_high = ends.b_high
    flow.b_low = ends.b_low
    flow.ports = ports
    flow.used = s.clock
    forget(t, oldest)
    return oldest


@helper
def forget(t, number):  # type: ignore[no-untyped-def]
    """A connection begins, or ends: nothing is known of it."""
    flow = t.flows[number]
    flow.client = -1
    flow.opened = 0
    flow.auth = NO_SASL
    flow.is_bare = 0
    flow.version = 0
    flow.encrypted = 0
    for k in range(2 * number, 2 * number + 2):
        side = t.sides[k]
        follow_from(side, LOST, np.int64(0))
        side.has_secret = 0
