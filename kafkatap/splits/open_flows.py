"""The open flows at the end of a split, each with the last packets from which its state can be restored.

Most flows need a few packets. The digests of their states decide how many.
"""

from __future__ import annotations

from collections.abc import Mapping

from kafkatap.kernels.arrays import copied

from .checkpoint import OpenFlow
from .decode import SplitRun
from .seams import Seam, SeamPackets, joined
from .split_engine import SplitEngine

#: The number of last packets that is tried first, and by which it grows until it is enough.
FIRST, GROWTH = 16, 4


def open_flows(run: SplitRun, packets: Mapping[bytes, Seam]) -> dict[bytes, OpenFlow]:
    """The flows that are open at the end of a run. `packets`: all packets that the run had of each."""
    found: dict[bytes, OpenFlow] = {}
    left = {key: packets[key] for key in run.open_flows if key in packets}
    most = FIRST
    while any(len(seam.packets) > most for seam in left.values()):
        found.update(_enough(run, {k: _last(s, most) for k, s in left.items() if len(s.packets) > most}))
        left = {key: seam for key, seam in left.items() if key not in found}
        most *= GROWTH
    histories = run.task.histories
    for key, seam in left.items():
        state, closed = run.open_flows[key]
        found[key] = OpenFlow(seam, histories.get(key), state, closed)
    return found


def _last(seam: Seam, count: int) -> Seam:
    packets = copied(seam.packets[-count:])
    first = int(packets["at"].min())
    end = int((packets["at"] + packets["captured"]).max())
    packets["at"] -= first
    return Seam(packets, seam.data[first:end].copy())


def _enough(run: SplitRun, tried: Mapping[bytes, Seam]) -> dict[bytes, OpenFlow]:
    """The flows that reach their state from these packets alone."""
    if not tried:
        return {}
    histories = {key: run.open_flows[key][0].history for key in tried}
    key_log = run.engine.key_log
    engine = SplitEngine(histories, ports=run.ports, definitions=run.definitions, apis=frozenset(), key_log=key_log)
    whole = joined(tried.values())
    engine.prime(SeamPackets(whole))
    states = engine.states(tried).by_flow()
    return {
        key: OpenFlow(tried[key], histories[key], run.open_flows[key][0], run.open_flows[key][1])
        for key, state in states.items()
        if state.is_same(run.open_flows[key][0])
    }
