"""Single messages, in order of time: the second of two passes over captures (`survey` is the first), or the only one.

A message is copied while its bytes are there, and told once everything before it in time was told. A response waits for
the end of the same drain, which works out its times.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from kafkatap.dissector.dtypes import EXCHANGE, NO_INT32, NO_TIME, OUTCOMES, STATUSES
from kafkatap.dissector.inspection import Frames
from kafkatap.dissector.layouts.catalog import api_name
from kafkatap.dissector.programs.loading import load_programs
from kafkatap.dissector.tree.summary import FactReader, Facts
from kafkatap.kernels.arrays import taken
from kafkatap.reports.batch import Batch, endpoint

from ..engine import Engine
from ..run import Run
from ..selection import EVERYTHING, Selection, Selector
from .envelopes import EnvelopeReader
from .message_index import MakeEngine, Survey, message_ids, message_times, named_topics
from .node_names import NodeFinder

if TYPE_CHECKING:
    from kafkatap.dissector.layouts.overlay import Definitions

Array = np.ndarray[Any, Any]
#: Of a batch: its length and, four bytes further, its magic; the number of its records.
_BATCH_HEAD, _BATCH_COUNT = struct.Struct(">i4xb"), struct.Struct(">i")
_PROBLEMS = ("request_problem", "response_problem")
_COLUMN = {name: number for number, name in enumerate(EXCHANGE.names or ())}


@dataclass(slots=True)
class Message:
    """One request or response. Texts are as they came from the wire, not escaped.

    `id`: exchange * 2 + direction (0 request, 1 response). `time`: ns since the epoch, of the first byte. `size`: the
    size field's value. `token`: bare SASL bytes without a header. `frame`: the captured bytes from the size field on,
    where they were asked for; the body begins at `body` of them, and `missing` bytes behind them were not captured.
    `row`: the exchange's columns (`rows.EXCHANGE`), final for a response, for a request what was known when it came.
    """

    id: int
    time: int
    row: tuple[Any, ...]
    client: str
    broker: str
    client_id: bytes | None
    mechanism: bytes | None
    token: bool
    version: int  # the layout's that it was read with; -1 where none is known
    facts: Facts
    problem: str | None  # path of the field at which it is malformed
    records: int | None  # how many, where the headers of batches tell
    outcome: str = ""  # of the exchange; "" where it is not known yet
    frame: bytes = b""
    body: int = 0
    missing: int = 0
    enveloped: tuple[int, int] | None = None  # of an Envelope's response: key and version of what was in its request

    def column(self, name: str) -> Any:
        """A column of the exchange, as a number."""
        return self.row[_COLUMN[name]]

    @property
    def is_response(self) -> bool:
        return bool(self.id & 1)

    @property
    def began(self) -> int:
        """When its exchange began, ns since the epoch; without a request, its own time."""
        first = int(self.column("request_first"))
        return self.time if first == NO_TIME else first

    @property
    def size(self) -> int:
        return int(self.column("response_bytes" if self.is_response else "request_bytes"))

    @property
    def packets(self) -> tuple[int, int]:
        """Numbers of the packets that carried its first and its last byte."""
        side = "response" if self.is_response else "request"
        return self.column(f"{side}_packet_first"), self.column(f"{side}_packet_last")

    @property
    def status(self) -> str:
        return STATUSES[self.column("response_status" if self.is_response else "request_status")]

    @property
    def problem_at(self) -> int | None:
        """The offset in the frame at which it is malformed, or of the first of its trailing bytes."""
        at = int(self.column(f"{_PROBLEMS[self.is_response]}_at"))
        return None if at == NO_INT32 else at

    @property
    def api_key(self) -> int:
        """-1 for a bare token, and for a response whose request was not captured."""
        return int(self.column("api_key"))

    @property
    def api(self) -> str:
        return api_name(self.api_key)


class Collector:
    """An inspector that makes a Message of each message asked for."""

    def __init__(self, wanted: Array | None, with_frames: bool = False, definitions: Definitions | None = None) -> None:
        self._sorted = None if wanted is None else np.sort(wanted)
        self._with_frames = with_frames
        self._programs = load_programs("line", definitions)
        self._reader = FactReader(self._programs)
        self._engine: Engine | None = None
        self._made: list[Message] = []
        self._texts: dict[int, bytes | None] = {-1: None}
        self._ends: dict[tuple[int, int], str] = {}
        self._envelopes = EnvelopeReader(definitions) if with_frames else None

    def bind(self, engine: Engine) -> Engine:
        """Name the engine whose messages are looked at; return it."""
        self._engine = engine
        return engine

    def take(self, batch: Batch | None) -> list[Message]:
        """The messages made since the last call. Responses get the times that their drain's batch works out."""
        made, self._made = self._made, []
        if batch is None or not made:
            return made
        answers = np.array([m.id >> 1 for m in made if m.is_response], np.int64)
        rows = taken(batch.exchanges, np.flatnonzero(np.isin(batch.exchanges["exchange"], answers))).tolist()
        final = {row[0]: row for row in rows}
        for message in made:
            if message.is_response:
                message.row = final.get(message.id >> 1, message.row)
                message.outcome = OUTCOMES[message.column("outcome")]
        return made

    def look(self, frames: Frames) -> None:
        ids = message_ids(frames)
        if self._envelopes is not None:
            self._envelopes.look(frames)
        numbers = np.arange(len(ids)) if self._sorted is None else np.flatnonzero(_is_in(ids, self._sorted))
        if not len(numbers):
            return
        assert self._engine is not None
        jobs, rows = frames.decode(self._programs, numbers)
        tape = rows.tolist()
        versions = frames.programs.versions(frames.jobs["program"][numbers])
        slots = jobs["frame"] >> 1
        links = frames.links[slots]
        ends = self._engine.endpoints(links["connection"])
        mechanisms = self._engine.dissector.connections["mechanism"][links["connection"]]
        columns = zip(
            ids[numbers].tolist(), message_times(frames)[numbers].tolist(), taken(frames.rows, slots).tolist(),
            jobs.tolist(), versions.tolist(), ends.tolist(), mechanisms.tolist(), links["token"].tolist(),
            strict=True,
        )  # fmt: skip
        for each in columns:
            self._made.append(self._message(each, tape, frames))

    def _message(self, columns: tuple[Any, ...], tape: list[tuple[int, ...]], frames: Frames) -> Message:
        number, time, row, job, version, ends, mechanism, token = columns
        at, end, limit, first, _, _, source, _, count, *_ = job
        buffer = frames.buffers[source]
        facts = self._reader.read(tape[first : first + count], first, buffer)
        size = row[_COLUMN["response_bytes" if number & 1 else "request_bytes"]]
        start = limit - size - 4
        client_id = row[_COLUMN["client_id"]]
        made = Message(
            number, time, row, self._end(ends[0], ends[1]), self._end(ends[2], ends[3]),
            self._text(client_id), self._text(mechanism),
            bool(token), version, facts, self._problem(row[_COLUMN[_PROBLEMS[number & 1]]]),
            _count_records(facts, buffer, end),
        )  # fmt: skip
        if self._with_frames:
            made.frame, made.body, made.missing = buffer[start:end].tobytes(), at - start, limit - end
        if self._envelopes is not None and number & 1:
            made.enveloped = self._envelopes.inner.get(number >> 1)
        return made

    def _problem(self, number: int) -> str | None:
        path = self._text(number)
        return None if path is None else path.decode()

    def _text(self, number: int) -> bytes | None:
        """An interned string by its number."""
        if number not in self._texts:
            assert self._engine is not None
            self._texts[number] = self._engine.strings[number]
        return self._texts[number]

    def _end(self, address: int, port: int) -> str:
        found = self._ends.get((address, port))
        if found is None:
            assert self._engine is not None
            found = self._ends[address, port] = endpoint(self._engine.addresses[address], port)
        return found


def _is_in(ids: Array, ordered: Array) -> Array:
    """Which of the ids are among the ordered ones."""
    if not len(ordered):
        return np.zeros(len(ids), bool)
    places = np.minimum(np.searchsorted(ordered, ids), len(ordered) - 1)
    found: Array = ordered[places] == ids
    return found


def _count_records(facts: Facts, buffer: Array, end: int) -> int | None:
    """How many records a message holds, by the heads of its batches; None where these do not tell."""
    if facts.records is None:
        return None
    counts = [_count_batches(buffer[at : min(at + length, end)].data) for at, length in facts.records if length > 0]
    return None if min(counts, default=0) < 0 else int(sum(counts))  # plain Python gives numpy's


def _count_batches(field: memoryview) -> int:
    """Records in one field; -1 with message sets of magic 0 and 1 that are compressed. As `exchanges.count_records`."""
    at, total, end = 0, 0, len(field)
    while at + 17 <= end:
        size, magic = _BATCH_HEAD.unpack_from(field, at + 8)
        if size < 14 or magic > 2:
            break
        if magic == 2:
            if at + 61 > end:
                break
            total += max(_BATCH_COUNT.unpack_from(field, at + 57)[0], 0)
        else:
            if at + 12 + size > end:
                break
            if field[at + 17] & 7:
                return -1
            total += 1
        at += 12 + size
    return total


class LiveTopics(Mapping[bytes, str]):
    """Names of topics by id, as far as an engine has seen them."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._known: dict[bytes, str] = {}
        self._read = 0

    def _current(self) -> dict[bytes, str]:
        told = self._engine.topic_names
        if len(told) != self._read:
            self._known = named_topics(self._engine)
            self._read = len(told)
        return self._known

    def __getitem__(self, topic_id: bytes) -> str:
        return self._current()[topic_id]

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._current())

    def __len__(self) -> int:
        return len(self._current())


def read_messages(survey: Survey, make_engine: MakeEngine, collector: Collector) -> Iterator[Message]:
    """The messages of a survey, in its order: reads the captures once more."""
    rank = {number: place for place, number in enumerate(survey.order.tolist())}
    if not rank:
        return
    run = Run(survey.run.paths, collector.bind(make_engine(inspectors=[collector])))
    waiting: dict[int, Message] = {}
    told = 0
    for batch in chain(run.batches(), (None,)):
        for message in collector.take(batch):
            place = rank[message.id]
            message.outcome = OUTCOMES[survey.outcomes[place]]
            waiting[place] = message
        while told in waiting:
            yield waiting.pop(told)
            told += 1
        if told == len(rank):
            return
    for place in sorted(waiting):  # a capture that grew or shrank between the passes
        yield waiting[place]


def streaming_engine(
    make_engine: MakeEngine, collector: Collector, nodes: NodeFinder, selection: Selection
) -> Engine:  # fmt: skip
    """The engine for `stream_messages`."""
    needed = selection.engine_options
    return collector.bind(
        make_engine(all_results=needed.all_results, inspectors=[*needed.inspectors, nodes, collector])
    )


def stream_messages(run: Run, collector: Collector, selection: Selection = EVERYTHING) -> Iterator[Message]:
    """The selected messages of a run in one pass. With an expression a message comes as soon as its exchange is
    finished and can be judged, else as soon as it is there. Within a block messages are in time order."""
    engine = run.engine
    selector = Selector(selection, engine)
    held: dict[int, list[Message]] = {}
    for batch in chain(run.batches(), (None,)):
        made = collector.take(batch)
        if selection.expression is None and selection.window is not None and engine.first is not None:
            start, end = selection.window.span(engine.first)
            made = [message for message in made if start <= message.began < end]
        elif selection.expression is not None:
            for message in made:
                held.setdefault(message.id >> 1, []).append(message)
            made = []
            if batch is not None:
                chosen = selector.select(batch)
                for exchange, is_chosen in zip(batch.exchanges["exchange"].tolist(), chosen.tolist(), strict=True):
                    messages = held.pop(exchange, ())
                    made += messages if is_chosen else ()
        yield from sorted(made, key=lambda m: (m.time, m.id))
