"""The open flows at the end of a split, each with the last packets from which its state can be restored.

Most flows need a few packets. The digests of their states decide how many.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from kafkatap.kernels.arrays import copied

from ..engine.read_options import ReadOptions
from .checkpoint import OpenFlow
from .decode import SplitRun
from .flow_state import History
from .seams import Seam, SeamPackets, joined
from .split_engine import SplitEngine

#: The number of last packets that is tried first, and by which it grows until it is enough.
FIRST, GROWTH = 16, 4
#: TLS records that a packet has at most, as a rule.
_RECORDS = 4


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
    return Seam(packets, seam.data[first:end].copy(), seam.times[-count:].copy())


def _before(history: History, packets: int) -> History:
    """A history with the TLS records that were there so many packets before, about."""
    first, second = (max(0, count - _RECORDS * packets) for count in history.tls_records)
    return replace(history, tls_records=(first, second))


def _enough(run: SplitRun, tried: Mapping[bytes, Seam]) -> dict[bytes, OpenFlow]:
    """The flows that reach their state from these packets alone."""
    if not tried:
        return {}
    histories = {key: _before(run.open_flows[key][0].history, len(seam.packets)) for key, seam in tried.items()}
    key_log = run.engine.key_log
    read = ReadOptions(run.read.ports, run.read.definitions, key_log=key_log)
    is_measured = run.engine.assembler.is_measured
    engine = SplitEngine(histories, read=read, apis=frozenset(), measures=is_measured)
    whole = joined(tried.values(), by_time=True)
    engine.prime(SeamPackets(whole))
    states = engine.states(tried).by_flow()
    return {
        key: OpenFlow(tried[key], histories[key], run.open_flows[key][0], run.open_flows[key][1])
        for key, state in states.items()
        if state.is_same(run.open_flows[key][0])
    }
