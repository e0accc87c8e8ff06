"""`Checkpoint`: what the batches of a stream leave to the next one.

Its size grows with the open flows and with the keys of counts, not with the captures that were read: connections that
are open have one row each, all others and all counts are added up.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from kafkatap.reassembly.dtypes import LISTENER
from kafkatap.reassembly.fragments import SavedDatagram

from ..captures.capture_points import CLOSE_NS, SLACK_NS, ReadPoint
from .flow_state import FlowState, History
from .seams import Seam
from .split_counts import SplitCounts

Array = np.ndarray[Any, Any]
#: Spans that are kept of each open flow.
_SPANS = 16


class FlowSpan(NamedTuple):
    """When a flow has packets in a capture, and when that capture has packets, ns since the epoch. `point`: where it
    was made."""

    first: int
    last: int
    file_first: int
    file_last: int
    point: int = 0


@dataclass(slots=True)
class OpenFlow:
    """A flow that is open between two batches: `seam`, decoded from `history`, leads to `state`.

    Packets are numbered over the whole input. `is_closed`: the connection was closed, but packets may still come.
    `earlier`: the key of the connection before it on the same flow, if packets may still come for that one, too.
    `progress`: how far each point saw it (`Assembler.progress_of`), if it was captured at several. `waiting`: packets
    after `state` that are not decoded before those of the other points have come. `is_authenticating`: its latest
    message was of SASL.
    """

    seam: Seam
    history: History | None
    state: FlowState
    is_closed: bool
    earlier: int | None = None
    progress: Array | None = None
    waiting: Seam | None = None
    is_authenticating: bool = False

    @property
    def seams(self) -> list[Seam]:
        """All packets that are kept."""
        return [self.seam] if self.waiting is None else [self.seam, self.waiting]

    @property
    def connections(self) -> set[int]:
        """The keys of its connections that did not end."""
        return {self.state.history.facts.key, *(() if self.earlier is None else (self.earlier,))}


@dataclass(slots=True)
class Sums:
    """Sums over the captures of a stream, for its report.

    `first`, `last`: times of packets. `counts`: of all exchanges and of the connections that ended, with the rows of
    those that are open.
    """

    ledger: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    first: int | None = None
    last: int | None = None
    not_captured: int = 0
    counts: SplitCounts | None = None


@dataclass(slots=True)
class Checkpoint:
    """`packets`: how many were read. `spans`: when each open flow had packets. `points`: where captures were made.
    `captures`: (first packet, packets, identity) of earlier captures in which rows to come can begin. `unnamed`: ids of
    topics of which rows were written without a name. `datagrams`: those that wait for fragments. `amid_sasl`: flows
    that ended amid SASL: what comes first of them can be the rest of a token. `twins`: as of `ReadOptions`, of open
    connections."""

    packets: int = 0
    listeners: Array = field(default_factory=lambda: np.zeros(0, LISTENER))
    topic_names: dict[bytes, bytes] = field(default_factory=dict)
    flows: dict[bytes, OpenFlow] = field(default_factory=dict)
    spans: dict[bytes, tuple[FlowSpan, ...]] = field(default_factory=dict)
    points: tuple[ReadPoint, ...] = ()
    captures: tuple[tuple[int, int, int], ...] = ()
    datagrams: tuple[SavedDatagram, ...] = ()
    unnamed: frozenset[bytes] = frozenset()
    amid_sasl: frozenset[bytes] = frozenset()
    sums: Sums = field(default_factory=Sums)
    twins: Mapping[int, int] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """Bytes of the packets in it."""
        return sum(seam.size for flow in self.flows.values() for seam in flow.seams)


def added_spans(spans: Iterable[FlowSpan]) -> tuple[FlowSpan, ...]:
    """The latest spans of a flow, in order. Those of one point are joined if nothing of it can come between them."""
    found: list[FlowSpan] = []
    latest: dict[int, int] = {}  # by point, the place of its latest span
    for span in sorted(spans):
        place = latest.get(span.point)
        before = None if place is None else found[place]
        if place is not None and before is not None and span.file_first <= before.file_last + SLACK_NS:
            found[place] = FlowSpan(
                before.first, max(before.last, span.last), min(before.file_first, span.file_first),
                max(before.file_last, span.file_last), span.point,
            )  # fmt: skip
        else:
            latest[span.point] = len(found)
            found.append(span)
    return tuple(sorted(found, key=lambda span: span.last)[-_SPANS:])


def is_at_several_points(seen: FlowSpan, spans: Iterable[FlowSpan]) -> bool:
    """Whether a flow was captured at several points: captures that overlap in time have packets of it at about the same
    time. `seen`: in one more capture."""
    for span in spans:
        early, late = sorted((seen, span), key=lambda one: one.file_first)
        is_close = max(seen.first, span.first) - min(seen.last, span.last) < CLOSE_NS
        if is_close and early.file_last > late.file_first + SLACK_NS:
            return True
    return False


def late_since(seen: Mapping[bytes, FlowSpan], before: Mapping[bytes, Sequence[FlowSpan]]) -> int | None:
    """Whether a capture came too late: later packets of one of its flows were read already, at no other point.

    `seen`: the flows of the capture; `before`: when they had packets in earlier batches. Returns the time up to which
    such flows were read, or None.
    """
    latest = None
    for key in seen.keys() & before.keys():
        read = max(span.last for span in before[key])
        if seen[key].first + SLACK_NS < read and not is_at_several_points(seen[key], before[key]):
            latest = read if latest is None else max(latest, read)
    return latest


def read_until(points: Sequence[ReadPoint], most: int | None = None) -> int | None:
    """The time up to which the captures of all points were read that more are awaited of; None if none is behind.

    A point is awaited as long as it is behind the others by no more than `most` ns. None: by no more than twice the
    longest time that the latest captures of a point took.
    """
    latest = max((point.last for point in points), default=0)
    if most is None:
        most = 2 * max((point.last - point.first for point in points), default=0)
    first = min((point.last for point in points if latest - point.last <= most), default=latest)
    return first if first < latest else None


def still_needed(
    captures: Iterable[tuple[int, int, int]], flows: Iterable[OpenFlow]
) -> tuple[tuple[int, int, int], ...]:
    """The captures in which connections of open flows, or packets that are kept of them, begin."""
    known = sorted(capture for capture in captures if capture[1])
    if not known:
        return ()
    packets = [np.zeros(0, np.int64)]
    for flow in flows:
        packets += [*(seam.packets["number"] for seam in flow.seams), np.array([flow.state.history.connection])]
    places = np.searchsorted(np.array([first for first, _, _ in known]), np.concatenate(packets), "right") - 1
    return tuple(known[place] for place in np.unique(np.maximum(places, 0)).tolist())
