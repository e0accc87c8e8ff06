"""What one batch of a stream leaves to the next: open flows, and sums over all that came before.

Of an open flow as many of its last packets are kept as it takes to come to its state again: the digests say whether
they do. Most flows need a few.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from kafkatap.kernels.arrays import copied
from kafkatap.reassembly.dtypes import LISTENER
from kafkatap.reports.batch import FileInfo

from .decode import SplitRun, State
from .handover import History
from .seams import Seam, joined
from .split_engine import SplitEngine

if TYPE_CHECKING:
    import pyarrow as pa

Array = np.ndarray[Any, Any]
#: Last packets of a flow that are tried, before all of them.
TRIED = (16, 64, 256, 1_024)


@dataclass(slots=True)
class CarriedFlow:
    """An open flow: packets (numbered over the whole input) after which it is in the state of `digest`, where its
    connection is resumed with `history`. `closed`: it is over but for what may still be under way."""

    seam: Seam
    history: History | None
    now: State
    closed: bool


@dataclass(slots=True)
class Carry:
    """All that is known after some batches. `connections`: parts of the connections that are open; `counts`: rows of
    counts, added up; the rest are sums."""

    packets: int = 0
    splits: int = 0
    listeners: Array = field(default_factory=lambda: np.zeros(0, LISTENER))
    topic_names: dict[bytes, bytes] = field(default_factory=dict)
    flows: dict[bytes, CarriedFlow] = field(default_factory=dict)
    files: list[FileInfo] = field(default_factory=list)
    ledger: dict[str, dict[str, int]] = field(default_factory=dict)
    first: int | None = None
    last: int | None = None
    not_captured: int = 0
    connections: pa.Table | None = None
    counts: pa.Table | None = None
    done: tuple[str, ...] = ()  # captures that were read

    @property
    def size(self) -> int:
        """Bytes of packets in it."""
        return sum(flow.seam.size for flow in self.flows.values())


def carried_flows(run: SplitRun, packets: Mapping[bytes, Seam]) -> dict[bytes, CarriedFlow]:
    """The flows that are open at the end of a run; `packets` are all that it had of them."""
    found: dict[bytes, CarriedFlow] = {}
    left = {key: packets[key] for key in run.left if key in packets}
    for most in TRIED:
        found.update(_enough(run, {k: _last(s, most) for k, s in left.items() if len(s.packets) > most}))
        left = {key: seam for key, seam in left.items() if key not in found}
    for key, seam in left.items():
        state, closed = run.left[key]
        found[key] = CarriedFlow(seam, run.task.histories.get(key), state, closed)
    return found


def _last(seam: Seam, count: int) -> Seam:
    packets = copied(seam.packets[-count:])
    first = int(packets["at"].min())
    end = int((packets["at"] + packets["captured"]).max())
    packets["at"] -= first
    return Seam(packets, seam.data[first:end].copy())


def _enough(run: SplitRun, tried: Mapping[bytes, Seam]) -> dict[bytes, CarriedFlow]:
    """Those of these flows that come to their state by these packets alone."""
    if not tried:
        return {}
    histories = {key: run.left[key][0][1] for key in tried}
    engine = SplitEngine(0, histories, ports=run.ports, definitions=run.definitions, apis=frozenset())
    whole = joined(tried.values())
    engine.prime(whole.data, whole.packets, len(whole.packets))
    states = engine.states(list(tried))
    return {
        key: CarriedFlow(tried[key], histories[key], run.left[key][0], run.left[key][1])
        for key, state in states.items()
        if state[0] == run.left[key][0][0] and state[1].connection == run.left[key][0][1].connection
    }
