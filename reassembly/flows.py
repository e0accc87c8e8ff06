"""The table of flows: which number a 4-tuple has, and which connection uses it now.

`buckets` is an open-addressed hash table of flow numbers plus one (0: empty). Its size is a power of two, and at least
half of it is empty.
"""

from __future__ import annotations

from collections import namedtuple
from typing import Annotated, Any, NamedTuple

import numpy as np

from kafkatap.kernels import kernel
from kafkatap.kernels.arrays import as_bytes, taken, untouched
from kafkatap.kernels.decorator import helper, inlined, record_dtype
from kafkatap.kernels.hashing import add_to_key, finish_key, hash_start, mix, mix64, new_seed, spread, start_key

from .dtypes import FLOW

Array = np.ndarray[Any, Any]

#: The ends of a flow, as scalars (int64); fields as in FLOW.
Ends = namedtuple("Ends", "a_high a_low b_high b_low a_port b_port")
#: One row: how many flows there are, and the seed of their hashes.
FLOWS_STATE = record_dtype(("count", "i8"), ("seed", "i8"))
#: One place of a small table of recent packets: the IPv4 addresses of source and target, and their ports below
#: 2 * flow + direction + 1 (0: an empty place).
RECENT_FLOW = record_dtype(("addresses", "i8"), ("ports", "i8"))
RECENT = 4096
#: Bytes of a FLOW record that identify the flow: the addresses and ports of its ends.
KEY_BYTES = 40


class FlowArrays(NamedTuple):
    """The arrays of a `FlowTable`, as one argument of a kernel."""

    state: Annotated[Array, FLOWS_STATE]
    rows: Annotated[Array, FLOW]
    buckets: Annotated[Array, np.int32]
    recent: Annotated[Array, RECENT_FLOW]


@helper
def hash_flow(ends, seed):  # type: ignore[no-untyped-def]
    """Return a hash of a 4-tuple, 30 bits."""
    h = mix(hash_start(seed), ends.a_low, seed)
    h = mix(h, ends.b_low, seed)
    if ends.a_high != 0 or ends.b_high != 0 or ends.a_low >> 32 != 0xFFFF or ends.b_low >> 32 != 0xFFFF:  # not IPv4
        h = mix(mix(h, ends.a_low >> 32, seed), ends.b_low >> 32, seed)
        h = mix64(mix64(h, ends.a_high, seed), ends.b_high, seed)
    return spread(mix(h, (ends.a_port << 16) | ends.b_port, seed))


@helper
def flows_full(t):  # type: ignore[no-untyped-def]
    """Return whether the table has to grow before another flow is added."""
    count = t.state[0].count
    return count * 2 >= t.buckets.shape[0] or count >= t.rows.shape[0]


@helper
def flow_number(ends, t):  # type: ignore[no-untyped-def]
    """Return the number of a 4-tuple. A new one is added; the caller has checked `flows_full`."""
    state = t.state[0]
    mask = t.buckets.shape[0] - 1
    at = hash_flow(ends, state.seed) & mask
    while True:
        number = np.int64(t.buckets[at]) - 1
        if number < 0:
            break
        flow = t.rows[number]
        if (
            flow.a_low == ends.a_low
            and flow.b_low == ends.b_low
            and flow.a_port == ends.a_port
            and flow.b_port == ends.b_port
            and flow.a_high == ends.a_high
            and flow.b_high == ends.b_high
        ):
            return number
        at = (at + 1) & mask
    number = np.int64(state.count)
    state.count = number + 1
    t.buckets[at] = number + 1
    flow = t.rows[number]
    flow.a_high = ends.a_high
    flow.a_low = ends.a_low
    flow.b_high = ends.b_high
    flow.b_low = ends.b_low
    flow.a_port = ends.a_port
    flow.b_port = ends.b_port
    flow.connection = -1
    return number


@inlined
def flow_and_direction(source_high, source, target_high, target, ports, t):  # type: ignore[no-untyped-def]
    """Return 2 * flow + direction of a segment. `ports`: of the source, above that of the target.

    Most packets belong to flows that are in the table of recent ones: it needs one hash step, and no order of the ends.
    """
    is_ipv4 = source_high == 0 and target_high == 0 and source >> 32 == 0xFFFF and target >> 32 == 0xFFFF
    addresses = (source << 32) | (target & 0xFFFFFFFF)
    seed = t.state[0].seed
    recent = t.recent[mix((source ^ target) & 0xFFFFFFFF, ports, seed) & (RECENT - 1)]
    if is_ipv4 and recent.addresses == addresses and recent.ports & 0xFFFFFFFF == ports and recent.ports >> 32 > 0:
        return (recent.ports >> 32) - 1
    swap = source_high > target_high or (source_high == target_high and source > target)
    source_port, target_port = ports >> 16, ports & 0xFFFF
    if source_high == target_high and source == target:
        swap = source_port > target_port
    if swap:
        ends = Ends(target_high, target, source_high, source, target_port, source_port)
    else:
        ends = Ends(source_high, source, target_high, target, source_port, target_port)
    found = 2 * flow_number(ends, t) + (1 if swap else 0)
    if is_ipv4:
        recent.addresses = addresses
        recent.ports = ((found + 1) << 32) | ports
    return found


@kernel(FlowArrays)
def rehash_flows(t):  # type: ignore[no-untyped-def]
    """Enter all flows into zeroed buckets."""
    state = t.state[0]
    mask = t.buckets.shape[0] - 1
    for number in range(state.count):
        flow = t.rows[number]
        ends = Ends(flow.a_high, flow.a_low, flow.b_high, flow.b_low, np.int64(flow.a_port), np.int64(flow.b_port))
        at = hash_flow(ends, state.seed) & mask
        while t.buckets[at] != 0:
            at = (at + 1) & mask
        t.buckets[at] = number + 1
    return 0


@helper
def ends_key(flow):  # type: ignore[no-untyped-def]
    """Return the key of the ends of a flow: 63 bits, the same in every run."""
    key = add_to_key(start_key(flow.a_high), flow.a_low)
    key = add_to_key(add_to_key(key, flow.b_high), flow.b_low)
    return finish_key(add_to_key(key, (np.int64(flow.a_port) << 16) | np.int64(flow.b_port)))


@helper
def connection_key(ends, first, seq):  # type: ignore[no-untyped-def]
    """Return the key of a connection: 63 bits, the same in every run. `ends`: of `ends_key`.

    `first`, `seq`: time and sequence number of its first packet. A SYN with another number begins another connection,
    so two connections of a flow have different keys even if they begin at the same time.
    """
    return finish_key(add_to_key(add_to_key(start_key(ends), first), seq))


class FlowTable:
    """FLOW rows by number, with room for at least `flows` at first.

    `keep`: flows keep their numbers, also those that no connection uses any more.
    """

    def __init__(self, flows: int, keep: bool = False) -> None:
        self._keep = keep
        self._state = np.zeros(1, FLOWS_STATE)
        self._state["seed"] = new_seed()
        flows = 1 << max(flows - 1, 0).bit_length()
        self.rows: Array = np.zeros(flows, FLOW)
        self.buckets: Array = np.zeros(2 * flows, np.int32)
        self._recent: Array = np.zeros(RECENT, RECENT_FLOW)

    def __len__(self) -> int:
        return int(self._state["count"][0])

    @property
    def seed(self) -> int:
        """The seed of the hashes."""
        return int(self._state["seed"][0])

    @property
    def arrays(self) -> FlowArrays:
        return FlowArrays(self._state, self.rows, self.buckets, self._recent)

    def grow(self) -> Array:
        """Drop the flows that no connection uses (unless `keep`), and make room for as many again as there are.

        Returns the new numbers by the old ones: int32, 0 for a dropped flow.
        """
        count = len(self)
        kept = np.arange(count) if self._keep else np.flatnonzero(self.rows["connection"][:count] >= 0)
        rows = untouched(max(len(self.rows), 1 << int(2 * len(kept)).bit_length()), FLOW)
        as_bytes(rows)[: len(kept) * FLOW.itemsize] = as_bytes(taken(self.rows, kept))
        numbers = np.zeros(count, np.int32)
        numbers[kept] = np.arange(len(kept), dtype=np.int32)
        self.rows = rows
        self._state["count"] = len(kept)
        self.buckets = untouched(2 * len(rows), np.int32)
        self._recent = np.zeros(RECENT, RECENT_FLOW)
        rehash_flows(self.arrays)
        return numbers


def flow_keys(flows: Array) -> list[bytes]:
    """Return the bytes that identify each flow: FLOW (n,) -> n times KEY_BYTES bytes."""
    raw = as_bytes(np.ascontiguousarray(flows)).reshape(len(flows), FLOW.itemsize)[:, :KEY_BYTES]
    whole = np.ascontiguousarray(raw).tobytes()
    return [whole[i : i + KEY_BYTES] for i in range(0, len(whole), KEY_BYTES)]
