"""`Checkpoint`: what the batches of a stream leave to the next one.

Its size grows with the open flows and with the keys of counts, not with the captures that were read: connections that
are open have one row each, all others and all counts are added up.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from kafkatap.reassembly.dtypes import LISTENER

from ..captures.capture_points import SLACK_NS
from .flow_state import FlowState, History
from .seams import Seam

if TYPE_CHECKING:
    from .split_counts import SplitCounts

Array = np.ndarray[Any, Any]
#: (first, last) times of packets, ns since the epoch.
Span = tuple[int, int]
Ledger = Mapping[str, Mapping[str, int]]
#: Spans that are kept of each open flow.
_SPANS = 16


@dataclass(slots=True)
class OpenFlow:
    """A flow that is open between two batches: `seam`, decoded from `history`, leads to `state`.

    Packets are numbered over the whole input. `is_closed`: the connection was closed, but packets may still come.
    """

    seam: Seam
    history: History | None
    state: FlowState
    is_closed: bool


@dataclass(slots=True)
class Sums:
    """Sums over the captures of a stream, for its report.

    `first`, `last`: times of packets. `counts`: of all exchanges and of the connections that ended, with the rows of
    those that are open.
    """

    ledger: Ledger = field(default_factory=dict)
    first: int | None = None
    last: int | None = None
    not_captured: int = 0
    counts: SplitCounts | None = None


@dataclass(slots=True)
class Checkpoint:
    """`packets`: how many were read. `spans`: when each open flow had packets, a span for each batch.
    `captures`: (first packet, packets, identity) of earlier captures in which rows to come can begin. `unnamed`: ids of
    topics of which rows were written without a name."""

    packets: int = 0
    listeners: Array = field(default_factory=lambda: np.zeros(0, LISTENER))
    topic_names: dict[bytes, bytes] = field(default_factory=dict)
    flows: dict[bytes, OpenFlow] = field(default_factory=dict)
    spans: dict[bytes, tuple[Span, ...]] = field(default_factory=dict)
    captures: tuple[tuple[int, int, int], ...] = ()
    unnamed: frozenset[bytes] = frozenset()
    sums: Sums = field(default_factory=Sums)

    @property
    def size(self) -> int:
        """Bytes of the packets in it."""
        return sum(flow.seam.size for flow in self.flows.values())


def added_spans(spans: Iterable[Span]) -> tuple[Span, ...]:
    """The spans of a flow in order; those that overlap are joined, and only the latest are kept."""
    found: list[Span] = []
    for first, last in sorted(spans):
        if found and first <= found[-1][1]:
            found[-1] = found[-1][0], max(last, found[-1][1])
        else:
            found.append((first, last))
    return tuple(found[-_SPANS:])


def late_since(seen: Mapping[bytes, Span], before: Mapping[bytes, Sequence[Span]]) -> int | None:
    """Whether a capture came too late: later packets of one of its flows were read already, and none of the same time.

    `seen`: when each flow of the capture has packets; `before`: when it had packets in earlier batches. Packets of the
    same time mean that the flow was captured at both ends. Returns the time up to which such flows were read, or None.
    """
    latest = None
    for key in seen.keys() & before.keys():
        (first, last), spans = seen[key], before[key]
        read = spans[-1][1]
        if first + SLACK_NS < read and not any(min(b, last) - max(a, first) > SLACK_NS for a, b in spans):
            latest = read if latest is None else max(latest, read)
    return latest


def still_needed(
    captures: Iterable[tuple[int, int, int]], flows: Iterable[OpenFlow]
) -> tuple[tuple[int, int, int], ...]:
    """The captures in which connections of open flows, or packets that are kept of them, begin."""
    known = sorted(capture for capture in captures if capture[1])
    if not known:
        return ()
    packets = [np.zeros(0, np.int64)]
    for flow in flows:
        packets += [flow.seam.packets["number"], np.array([flow.state.history.connection])]
    places = np.searchsorted(np.array([first for first, _, _ in known]), np.concatenate(packets), "right") - 1
    return tuple(known[place] for place in np.unique(np.maximum(places, 0)).tolist())
