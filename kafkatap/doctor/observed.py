"""`read_captures`: one pass over captures that gathers what the checks of `findings` need.

It is a run like that of a report, with three watchers: packets before they are reassembled (`PacketChecks`), TCP
segments (`ClockSteps`), and connections when they end (`StreamFacts`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from kafkatap.dissector.dtypes import INCOMPLETE, OUTCOMES
from kafkatap.dissector.framing.connections import PROTOCOL_KAFKA
from kafkatap.reassembly.assembler import Assembler
from kafkatap.reports.batch import Batch, Context
from kafkatap.reports.counting.counts import ReportCounts

from ..captures.readahead import AHEAD
from ..engine.engine import Engine
from ..engine.read_options import AS_USUAL, ReadOptions
from ..run import Run, Watch, never
from ..selected_messages.node_names import NodeNames
from .capture_heads import Head, read_head
from .clock_steps import ClockStep, ClockSteps
from .packet_checks import PacketChecks

Array = np.ndarray[Any, Any]

#: What StreamFacts keeps of a connection. `broker_half_ns`: from its SYN to the SYN-ACK, -1: unknown; `client_half_ns`:
#: from there to the ACK. `acknowledged`: of the bytes in gaps, those that the receiver acknowledged; -1: unknown.
STREAM = np.dtype([
    ("connection", "i8"), ("broker_half_ns", "i8"), ("client_half_ns", "i8"), ("cut_bytes", "i8"),
    ("acknowledged", "i8"), ("is_kafka", "?"),
])  # fmt: skip
#: Client ids of an address that are counted.
MOST_CLIENTS = 100_000


class Spans(NamedTuple):
    """The packets of exchanges: the first of each request, the last of each response."""

    first: Array
    last: Array


class StreamFacts:
    """STREAM rows of connections that ended. A watcher of the engine."""

    def __init__(self) -> None:
        self._rows: list[Array] = []

    def watch(self, engine: Engine, numbers: Array, rows: Array, directions: Array) -> None:
        """Note connections before they end: their numbers, CONNECTION rows, and two DIRECTION rows for each."""
        known = engine.dissector.connections[numbers]
        made = np.zeros(len(numbers), STREAM)
        made["connection"] = known["key"]
        made["is_kafka"] = known["protocol"] == PROTOCOL_KAFKA
        both = directions.reshape(-1, 2)
        made["cut_bytes"] = both["cut_bytes"].sum(axis=1)
        half = rows["syn_ack_at"] - rows["syn_at"]
        is_known = (rows["syn_at"] != 0) & (rows["syn_ack_at"] != 0) & (rows["handshake_rtt_ns"] >= 0) & (half >= 0)
        made["broker_half_ns"] = np.where(is_known, half, -1)
        made["client_half_ns"] = np.where(is_known, np.maximum(rows["handshake_rtt_ns"] - half, 0), -1)
        beyond = np.maximum(both["next"] - both["acked"], 0)
        acknowledged = np.maximum(both["gap_bytes"] - beyond, 0)
        is_seen = both["packets"][:, ::-1] > 0
        made["acknowledged"] = np.where(
            (is_seen | (both["gap_bytes"] == 0)).all(axis=1), acknowledged.sum(axis=1), -1
        )  # fmt: skip
        self._rows.append(made)

    @property
    def rows(self) -> Array:
        return np.concatenate(self._rows) if self._rows else np.zeros(0, STREAM)


class ExchangeFacts:
    """What the exchanges show. `incomplete`: requests or responses of which bytes were not captured.
    `spans`: see Spans. `clients`: the number of client ids by client address."""

    def __init__(self) -> None:
        self.count = self.incomplete = 0
        self.outcomes = np.zeros(len(OUTCOMES), np.int64)
        self._spans: list[Spans] = []
        self._pairs: set[tuple[int, int]] = set()

    def add(self, batch: Batch) -> None:
        """Add a batch of finished exchanges."""
        rows = batch.exchanges
        self.count += len(rows)
        self.outcomes += np.bincount(rows["outcome"], minlength=len(OUTCOMES))
        lacks = [(rows[f"{m}_status"] == INCOMPLETE) & (rows[f"{m}_cut_bytes"] == 0) for m in ("request", "response")]
        self.incomplete += int((lacks[0] | lacks[1]).sum())
        whole = (rows["request_packet_first"] > 0) & (rows["response_packet_last"] > 0)
        self._spans.append(Spans(rows["request_packet_first"][whole], rows["response_packet_last"][whole]))
        pairs = np.unique(np.stack([rows["client_ip"], rows["client_id"]], axis=1), axis=0).tolist()
        if len(self._pairs) < MOST_CLIENTS:
            self._pairs.update((ip, name) for ip, name in pairs if ip >= 0 and name >= 0)

    def spanning(self, step: ClockStep) -> int:
        """How many exchanges began before a step of the clock and ended after it."""
        return sum(int(((s.first <= step.after) & (s.last >= step.before)).sum()) for s in self._spans)

    @property
    def clients(self) -> dict[int, int]:
        counts: dict[int, int] = {}
        for ip, _ in self._pairs:
            counts[ip] = counts.get(ip, 0) + 1
        return counts


class Observed(NamedTuple):
    """All that the checks read. `heads`: by path. `streams`: STREAM. `nodes`: "host:port" by node id, as Metadata
    responses name brokers. `places`: all their hosts and ports. `steps`: of clocks, those in packet times too where
    nothing else shows a clock. `differences`: of the clocks of capture points, as `ClockSteps.differences`.
    `late_segments`: `ClockSteps.late`."""

    context: Context
    counts: ReportCounts
    heads: dict[str, Head]
    packets: PacketChecks
    streams: Array
    exchanges: ExchangeFacts
    nodes: dict[int, str]
    places: dict[int, set[tuple[str, int]]]
    steps: list[ClockStep]
    differences: list[tuple[int, int, int, int]]
    late_segments: dict[int, int]
    run: Run

    @property
    def extracts(self) -> list[str]:
        """The captures that `kafkatap extract` wrote."""
        return [path for path, head in self.heads.items() if head.is_extract]


def read_captures(
    captures: Sequence[str],
    read: ReadOptions = AS_USUAL,
    watch: Watch = never,
) -> Observed:
    """Read captures once."""
    clocks, packets, streams, exchanges = ClockSteps(), PacketChecks(), StreamFacts(), ExchangeFacts()

    def look(segments: Array) -> Iterator[Array]:
        clocks.add(segments)
        yield segments

    nodes = NodeNames(read.definitions)
    assembler = Assembler(turns=AHEAD, keep_flows=True, segment_filter=look)
    engine = Engine(read, assembler=assembler, inspectors=[nodes])
    engine.watcher = streams.watch
    run = Run(captures, engine, watch=watch)
    run.on_packets = packets.add
    counts = ReportCounts()
    for batch in run.batches():
        counts.add(batch)
        exchanges.add(batch)
    counts.finish()
    steps = clocks.steps(assembler.flows) + [s for s in packets.steps_back if not clocks.is_known(s.point)]
    heads = {path: read_head(path) for path in captures}
    return Observed(
        run.context(), counts, heads, packets, streams.rows, exchanges, dict(nodes.names), nodes.places,
        sorted(steps, key=lambda s: s.before), clocks.differences(), clocks.late, run,
    )  # fmt: skip
