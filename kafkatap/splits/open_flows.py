"""The open flows at the end of a split, each with the last packets from which its state can be restored.

Most flows need a few packets. The digests of their states decide how many.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ..engine.read_options import ReadOptions
from .checkpoint import OpenFlow
from .decode import SplitRun
from .flow_state import History
from .seams import Seam, SeamPackets, joined, part_of
from .split_engine import SplitEngine

#: The number of last packets that is tried first, and by which it grows until it is enough.
FIRST, GROWTH = 16, 4
#: TLS records that a packet has at most, as a rule.
_RECORDS = 4


def open_flows(run: SplitRun, packets: Mapping[bytes, Seam]) -> dict[bytes, OpenFlow]:
    """The flows that are open at the end of a run. `packets`: all packets that the run had of each."""
    left = {key: packets[key] for key in run.open_flows if key in packets}
    # The copies that another point has of packets of earlier captures change nothing.
    found = _enough(run, {key: seam for key, seam in run.left.items() if key in run.progress and key in left})
    left = {key: seam for key, seam in left.items() if key not in found}
    most = FIRST
    while any(len(seam.packets) > most for seam in left.values()):
        last = {k: run.without_tokens(k, _last(s, most), s) for k, s in left.items() if len(s.packets) > most}
        found.update(_enough(run, last))
        left = {key: seam for key, seam in left.items() if key not in found}
        most *= GROWTH
    histories = run.task.histories
    for key, seam in left.items():
        found[key] = _open_flow(run, key, run.without_tokens(key, seam, seam), histories.get(key))
    return found


def _open_flow(run: SplitRun, key: bytes, seam: Seam, history: History | None) -> OpenFlow:
    state, is_closed, earlier = run.open_flows[key]
    is_authenticating = run.is_authenticating(key, state.history)
    progress, waiting = run.progress.get(key), run.waiting.get(key)
    return OpenFlow(seam, history, state, is_closed, earlier, progress, waiting, is_authenticating)


def _last(seam: Seam, count: int) -> Seam:
    return part_of(seam, len(seam.packets) - count, len(seam.packets))


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
    if tried.keys() & run.progress.keys():
        engine.assembler.expect_points(run.task.point_count)
    whole = joined(tried.values(), by_time=True)
    engine.prime(SeamPackets(whole))
    states = engine.states(tried).by_flow()
    return {
        key: _open_flow(run, key, tried[key], histories[key])
        for key, state in states.items()
        if state.is_same(run.open_flows[key][0])
    }
