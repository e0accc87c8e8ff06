"""`Checkpoint`: what the batches of a stream leave to the next one: open flows, and sums over all captures so far."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from kafkatap.reassembly.dtypes import LISTENER
from kafkatap.reports.batch import FileInfo

from .flow_state import FlowState, History
from .seams import Seam

if TYPE_CHECKING:
    import pyarrow as pa

Array = np.ndarray[Any, Any]


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
class Checkpoint:
    """`connections`: rows of the connections that are open; `counts`: rows of counts, added up; `done`: the captures
    that were read; the other fields are sums over these."""

    packets: int = 0
    splits: int = 0
    listeners: Array = field(default_factory=lambda: np.zeros(0, LISTENER))
    topic_names: dict[bytes, bytes] = field(default_factory=dict)
    flows: dict[bytes, OpenFlow] = field(default_factory=dict)
    files: list[FileInfo] = field(default_factory=list)
    ledger: dict[str, dict[str, int]] = field(default_factory=dict)
    first: int | None = None
    last: int | None = None
    not_captured: int = 0
    connections: pa.Table | None = None
    counts: pa.Table | None = None
    done: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """Bytes of the packets in it."""
        return sum(flow.seam.size for flow in self.flows.values())
