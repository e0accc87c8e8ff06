"""The first pass of an extraction: exchanges, connections, and which packet carries which bytes of a stream.

It reads captures as a report does. Of each exchange it keeps EXCHANGE_PLACE, 104 bytes; of each segment with new
payload 28 bytes; of each selected exchange the whole row, for comments and for the check of the extracted capture.
Offsets count from the first byte after the SYN (or from the first byte captured), as `reassembly` counts them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kafkatap.dissector.dtypes import ERROR_COUNT, EXCHANGE
from kafkatap.dissector.framing.connections import PROTOCOL_KAFKA
from kafkatap.kernels.arrays import taken
from kafkatap.reassembly.dtypes import CHUNK_DATA, CHUNK_START
from kafkatap.reports.batch import Batch, Context, error_counts

from ..engine.assembly import Assembled
from ..engine.engine import Engine
from ..engine.read_options import ReadOptions
from ..engine.selection import EVERYTHING, Selection
from ..engine.tls.record_tables import DECRYPTED
from ..run import Run, Watch, never
from ..selected_messages.node_names import NodeNames
from .topic_naming import NAMING_APIS, TopicNaming

Array = np.ndarray[Any, Any]

#: Of an exchange what the neighbourhood of others needs. Times and packets as in EXCHANGE.
EXCHANGE_PLACE = np.dtype([
    ("number", "i8"),
    ("request_first", "i8"),
    ("request_last", "i8"),
    ("response_first", "i8"),
    ("response_last", "i8"),
    ("request_packet_first", "i8"),
    ("request_packet_last", "i8"),
    ("response_packet_first", "i8"),
    ("response_packet_last", "i8"),
    ("hol_wait_ns", "i8"),
    ("connection_key", "i8"),
    ("throttle_time_ms", "i4"),
    ("connection", "i4"),  # number in `ExchangeIndex.connections`
    ("api_key", "i2"),
    ("outcome", "u1"),
])  # fmt: skip
#: A TCP connection. `ends`: addresses and ports, as the first KEY_BYTES of a FLOW.
CONNECTION_PLACE = np.dtype([
    ("key", "i8"),
    ("first", "i8"),  # time of its first packet, ns
    ("last", "i8"),
    ("base_seq", "i8", 2),  # sequence number of offset 0, by direction
    ("client", "i1"),  # direction of the client; -1: not known
    ("is_kafka", "?"),
    ("is_decrypted", "?"),
    ("client_random", "V32"),  # of its TLS; zeros: unknown
    ("ends", "V40"),
])  # fmt: skip
#: A segment that brought new bytes. `stream`: 2 * connection + direction.
SEGMENT_PLACE = np.dtype([("offset", "i8"), ("packet", "i8"), ("length", "i4"), ("stream", "i4"), ("ts", "i8")])


@dataclass
class ExchangeIndex:
    """What the first pass found.

    `places` (EXCHANGE_PLACE) are ordered by connection, then by number. `is_selected`: bool, one for each. `rows`:
    EXCHANGE of the selected ones, `errors`: their ERROR_COUNTs. `segments` (SEGMENT_PLACE) are ordered by stream and
    offset. `naming`: by topic id, the numbers of exchanges that may have named it. `one_naming`: one that did.
    `topic_ids`: those of the selected exchanges.
    """

    run: Run
    context: Context
    places: Array
    is_selected: Array
    rows: Array
    errors: Array
    connections: Array
    segments: Array
    naming: dict[bytes, Array]
    one_naming: TopicNaming
    topic_ids: set[bytes]
    node_names: dict[int, str]

    def __repr__(self) -> str:
        return f"<ExchangeIndex of {len(self.rows):,} selected of {len(self.places):,} exchanges>"

    def naming_exchanges(self, topic_ids: Iterable[bytes]) -> Array:
        """The numbers of exchanges that name topics, ascending."""
        numbers = [self.naming[name] for name in topic_ids if name in self.naming]
        return np.unique(np.concatenate(numbers)) if numbers else np.zeros(0, np.int64)

    @property
    def selected_connections(self) -> Array:
        """The numbers of connections with a selected exchange, ascending."""
        return np.unique(self.places["connection"][self.is_selected])


@dataclass
class ConnectionPlaces:
    """Collects connections from the parts that reassembly makes."""

    numbers: Array = field(default_factory=lambda: np.zeros(1024, np.int32))  # by row of reassembly's table
    begun: list[Array] = field(default_factory=list)
    ended: list[tuple[Array, Array, Array, Array]] = field(default_factory=list)
    decrypted: dict[int, bytes] = field(default_factory=dict)  # client randoms of connections that were decrypted
    count: int = 0

    def add(self, part: Assembled) -> None:
        """See a part before the engine decrypts and dissects it."""
        if len(self.numbers) < part.connections:
            self.numbers = np.concatenate((self.numbers, np.zeros(2 * part.connections, np.int32)))
        if len(part.started):
            self._begin(part)

    def _begin(self, part: Assembled) -> None:
        starts = part.chunks[part.chunks["kind"] == CHUNK_START]
        rows = np.zeros(len(starts), CONNECTION_PLACE)
        rows["key"], rows["first"] = starts["length"], starts["ts"]
        flows = np.ascontiguousarray(part.started_flows)
        rows["ends"] = flows.view(np.uint8).reshape(len(flows), -1)[:, :40].copy().view("V40").reshape(-1)
        self.numbers[starts["connection"]] = np.arange(self.count, self.count + len(starts))
        self.count += len(starts)
        self.begun.append(rows)

    def end(self, part: Assembled, engine: Engine) -> None:
        """See the connections that end with a part, before the engine forgets them."""
        known = engine.dissector.connections[part.ended]
        directions = part.ended_directions["base_seq"].reshape(-1, 2).copy()
        kinds = np.stack([known["client"], known["protocol"] == PROTOCOL_KAFKA], axis=1).astype(np.int8)
        self.ended.append((self.numbers[part.ended].copy(), part.ended_rows["last"].copy(), directions, kinds))
        for number, connection in zip(self.numbers[part.ended].tolist(), part.ended.tolist(), strict=True):
            tracked = engine.tls.tracked.get(connection)
            if tracked is not None and tracked.mode == DECRYPTED:
                self.decrypted[number] = tracked.facts.client_random

    def connections(self) -> Array:
        """CONNECTION_PLACE of all connections, by number."""
        rows = np.concatenate(self.begun) if self.begun else np.zeros(0, CONNECTION_PLACE)
        for numbers, last, base, kinds in self.ended:
            rows["last"][numbers], rows["base_seq"][numbers] = last, base
            rows["client"][numbers], rows["is_kafka"][numbers] = kinds[:, 0], kinds[:, 1]
        for number, client_random in self.decrypted.items():
            rows["is_decrypted"][number], rows["client_random"][number] = True, client_random
        return rows


@dataclass
class _Streams(ConnectionPlaces):
    """Collects the segments of connections, too."""

    segments: list[Array] = field(default_factory=list)
    sequence: list[Array] = field(default_factory=list)

    def add(self, part: Assembled) -> None:
        super().add(part)
        chunks = part.chunks
        data = np.flatnonzero(chunks["kind"] == CHUNK_DATA)
        if len(data):
            rows = np.zeros(len(data), SEGMENT_PLACE)
            rows["stream"] = 2 * self.numbers[chunks["connection"][data]] + chunks["direction"][data]
            rows["packet"], rows["length"] = chunks["packet"][data], chunks["length"][data]
            rows["ts"] = chunks["ts"][data]
            self.segments.append(rows)
            self.sequence.append(chunks["seq"][data].copy())

    def placed(self, connections: Array) -> Array:
        """All segments with their offsets, in order of streams and offsets."""
        if not self.segments:
            return np.zeros(0, SEGMENT_PLACE)
        rows, seq = np.concatenate(self.segments), np.concatenate(self.sequence).astype(np.int64)
        self.segments, self.sequence = [], []
        order = np.argsort(rows["stream"], kind="stable")
        rows, seq = rows[order], seq[order]
        is_first = np.ones(len(rows), bool)
        is_first[1:] = rows["stream"][1:] != rows["stream"][:-1]
        base = connections["base_seq"].reshape(-1)[rows["stream"][is_first]]
        steps = np.zeros(len(rows), np.int64)
        steps[1:] = (seq[1:] - seq[:-1]) & 0xFFFFFFFF
        steps[is_first] = (seq[is_first] - base) & 0xFFFFFFFF
        sums = np.cumsum(steps)
        starts = np.flatnonzero(is_first)
        before = sums[starts] - steps[starts]
        rows["offset"] = sums - np.repeat(before, np.diff(np.append(starts, len(rows))))
        return rows


class WatchedEngine(Engine):
    """An engine whose parts `places` sees first."""

    places: ConnectionPlaces

    def dissect(self, part: Assembled) -> Iterator[Batch]:
        self.places.add(part)
        return super().dissect(part)

    def _end(self, part: Assembled) -> None:
        self.places.end(part, self)
        super()._end(part)


#: Columns that an exchange has in common with itself in another copy of its packets.
_IDENTITY = ("request_first", "response_first", "client_port", "broker_port", "correlation_id", "api_key")


class SameExchanges:
    """Selects the exchanges that are in rows of another copy of the packets (EXCHANGE), whose keys may differ."""

    engine_options = EVERYTHING.engine_options

    def __init__(self, rows: Array) -> None:
        self._rows = set(rows[list(_IDENTITY)].tolist())

    def apply(self, batches: Iterable[Batch], _: Engine) -> Iterator[Batch]:
        """The selected exchanges of a run's batches, with all their rows."""
        for batch in batches:
            rows = batch.exchanges[list(_IDENTITY)].tolist()
            mask = np.fromiter((row in self._rows for row in rows), bool, len(rows))
            if mask.any():
                yield batch.picked(mask)


def _placed(exchanges: Array) -> Array:
    rows = np.zeros(len(exchanges), EXCHANGE_PLACE)
    for name in EXCHANGE_PLACE.names or ():
        if name not in ("number", "connection", "connection_key"):
            rows[name] = exchanges[name]
    rows["number"], rows["connection_key"] = exchanges["exchange"], exchanges["connection"]
    return rows


class _Rows:
    """Collects places of all exchanges, and who may have named topics, from batches that pass through."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._known = 0
        self._candidates: list[Array] = []
        self.places: list[Array] = []
        self.naming: dict[bytes, Array] = {}

    def collected(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        for batch in batches:
            self.places.append(_placed(batch.exchanges))
            named = batch.exchanges["exchange"][np.isin(batch.exchanges["api_key"], NAMING_APIS)]
            if len(named):
                self._candidates.append(named.copy())
                self._note_names()
            yield batch
        self._note_names()

    def _note_names(self) -> None:
        names = self._engine.topic_names
        if len(names) == self._known or not self._candidates:
            return
        candidates = np.concatenate(self._candidates)
        for number in list(names)[self._known :]:
            self.naming[self._engine.dissector.string(number)] = candidates
        self._known = len(names)
        self._candidates = []


def index_exchanges(
    captures: Sequence[str],
    selection: Selection | SameExchanges,
    read: ReadOptions,
    watch: Watch = never,
) -> ExchangeIndex:
    """Read the captures once."""
    needed = selection.engine_options
    nodes = NodeNames(read.definitions)
    one_naming = TopicNaming()
    engine = WatchedEngine(read, all_results=True, inspectors=[*needed.inspectors, nodes, one_naming], apis=needed.apis)
    engine.places = streams = _Streams()
    run = Run(captures, engine, watch)
    collected = _Rows(engine)
    rows, errors, topic_ids = [np.zeros(0, EXCHANGE)], [np.zeros(0, ERROR_COUNT)], set[int]()
    for batch in selection.apply(collected.collected(run.batches()), engine):
        rows.append(batch.exchanges.copy())
        errors.append(error_counts(batch.results))
        topic_ids |= unnamed_ids(batch)
    connections = streams.connections()
    engine.dissector.return_memory()  # the index stays until the end, beside other runs
    selected = np.concatenate(rows)
    places = _ordered(collected.places, connections)
    return ExchangeIndex(
        run=run,
        context=run.context(),
        places=places,
        is_selected=np.isin(places["number"], selected["exchange"]),
        rows=taken(selected, np.argsort(selected["exchange"], kind="stable")),
        errors=np.concatenate(errors),
        connections=connections,
        segments=streams.placed(connections),
        naming=collected.naming,
        one_naming=one_naming,
        topic_ids={engine.dissector.string(number) for number in topic_ids},
        node_names=nodes.names,
    )


def unnamed_ids(batch: Batch) -> set[int]:
    """The numbers of topic ids that come without a name."""
    found: set[int] = set()
    for rows in (batch.results, batch.topics):
        if rows is not None:
            found |= set(np.unique(rows["topic_id"][(rows["topic_id"] >= 0) & (rows["topic"] < 0)]).tolist())
    return found


def _ordered(parts: list[Array], connections: Array) -> Array:
    """Places in order of connections and numbers, with the numbers of their connections."""
    places = np.concatenate(parts) if parts else np.zeros(0, EXCHANGE_PLACE)
    if len(places):
        by_key = np.argsort(connections["key"], kind="stable")
        found = np.searchsorted(connections["key"][by_key], places["connection_key"])
        places["connection"] = by_key[found]
    return places[np.lexsort((places["number"], places["connection"]))]
