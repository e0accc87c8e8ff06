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
from .split_engine import NOTHING, SplitEngine

#: The number of last packets that is tried first, and by which it grows until it is enough.
FIRST, GROWTH = 16, 4
#: TLS records that a packet has at most, as a rule.
_RECORDS = 4


def open_flows(run: SplitRun) -> dict[bytes, OpenFlow]:
    """The flows that are open at the end of a run."""
    merged, histories = run.packets_of_merged_flows(), run.task.histories
    # The copies that another point has of packets of earlier captures change nothing.
    found = _enough(run, {key: seam for key, seam in run.left.items() if key in merged})
    left, most, read = [key for key in run.open_flows if key not in found], FIRST, 0
    last = merged
    while left:
        # Those with fewer packets than were read have no more. What is read is enough for two tries.
        if short := [key for key in left if key not in last or read <= len(last[key].packets) <= most]:
            read = most * GROWTH + 1
            last = {**last, **run.last_packets([key for key in short if key not in merged], read)}
        tried = {}
        for key in (key for key in left if key in last):
            seam = last[key]
            if len(seam.packets) > most:
                tried[key] = run.without_tokens(key, _last(seam, most), seam)
            else:
                found[key] = _open_flow(run, key, run.without_tokens(key, seam, seam), histories.get(key))
        found.update(_enough(run, tried))
        left, most = [key for key in tried if key not in found], most * GROWTH
    return {key: found[key] for key in run.open_flows if key in found}


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
    engine = SplitEngine(histories, read=read, measures=is_measured, **run.decodes)
    if tried.keys() & run.progress.keys():
        engine.assembler.expect_points(run.task.point_count)
    whole = joined(tried.values(), by_time=True)
    engine.prime(SeamPackets(whole), dict.fromkeys(tried, NOTHING))  # as the next run does
    states = engine.states(tried).by_flow()
    return {
        key: _open_flow(run, key, tried[key], histories[key])
        for key, state in states.items()
        if state.is_same(run.open_flows[key][0])
    }
