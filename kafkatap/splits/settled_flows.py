"""`SettledFlows`: leaves out the segments of flows of which a light survey knows enough."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from kafkatap.dissector.framing.connections import PROTOCOL_FOREIGN, PROTOCOL_KAFKA, PROTOCOL_TLS
from kafkatap.kernels import kernel
from kafkatap.kernels.arrays import taken
from kafkatap.kernels.decorator import record_dtype
from kafkatap.reassembly.assembler import Assembler
from kafkatap.reassembly.dtypes import ROW_OPEN, SEGMENT, SYN

Array = np.ndarray[Any, Any]
#: Requests after which a light survey expects no more news of a connection: its client and its user are known then.
_ENOUGH = 8
_EARLIEST = -(2**62)
#: It looks for settled flows after blocks of which at least one in so many segments passed.
_NEWS = 32

#: What is known of a flow. `last`, `last_packet`: time and number of its last packet.
_FLOW = record_dtype(("last", "i8"), ("last_packet", "i8"), ("is_settled", "u1"))


@kernel(SEGMENT, _FLOW, np.int64)
def find_unsettled(segments, flows, found):  # type: ignore[no-untyped-def]
    """Write the places of the segments of flows that are not settled to `found`; return how many. A SYN unsettles its
    flow."""
    count = 0
    for i in range(segments.shape[0]):
        segment = segments[i]
        flow = flows[segment.flow]
        flow.last = max(flow.last, segment.ts)
        flow.last_packet = segment.packet
        if segment.tcp_flags & SYN:
            flow.is_settled = 0
        if flow.is_settled == 0:
            found[count] = i
            count += 1
    return count


class SettledFlows:
    """Passes the segments of flows that are not settled: a `segment_filter` of `assembler`.

    A flow is settled when its head is found, and the history of its connection will most likely stay as it is.
    """

    def __init__(self, assembler: Assembler) -> None:
        self._assembler = assembler
        self._flows = np.zeros(0, _FLOW)  # by number
        self._found = np.zeros(0, np.int64)
        self._has_news = False

    def __call__(self, segments: Array) -> Iterator[Array]:
        known = len(self._assembler.flows)
        if known > len(self._flows):
            more = np.zeros(2 * known - len(self._flows), _FLOW)
            more["last"] = _EARLIEST
            self._flows = np.concatenate((self._flows, more))
        if len(segments) > len(self._found):
            self._found = np.empty(len(segments), np.int64)
        count = find_unsettled(segments, self._flows, self._found)
        self._has_news |= _NEWS * count > len(segments)
        if count == len(segments):
            yield segments
        elif count:
            yield taken(segments, self._found[:count])

    def settle(self, known: Array) -> None:
        """Settle the flows whose connections (of the dissector, `known`) have shown what there is to know."""
        if not self._has_news:
            return
        self._has_news = False
        rows = self._assembler.connections
        known = known[: len(rows)]
        is_known = (known["requests"] >= _ENOUGH) & (known["protocol"] == PROTOCOL_KAFKA)
        is_known &= known["answers_at_once"] >= 0
        is_known |= (known["protocol"] == PROTOCOL_TLS) | (known["protocol"] == PROTOCOL_FOREIGN)
        found = np.flatnonzero(is_known & (known["head"] > 0) & (rows["used"][: len(known)] == ROW_OPEN))
        self._flows["is_settled"][rows["flow"][found]] = 1

    def fill_last(self, rows: Array, flows: Array) -> None:
        """Write the last packet and its time to rows (FLOW_ROW) of flows with these numbers."""
        rows["last"] = np.maximum(rows["last"], self._flows["last"][flows])
        rows["last_packet"] = self._flows["last_packet"][flows]
