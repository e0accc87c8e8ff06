"""`MessageCollector`: an inspector that copies the selected messages while their bytes are in memory.

A response waits for the end of its drain, which computes its times.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from kafkatap.dissector.batch_headers import records_in_field
from kafkatap.dissector.dtypes import OUTCOMES
from kafkatap.dissector.inspection import Frames
from kafkatap.dissector.programs.loading import load_programs
from kafkatap.dissector.tree.summary import FactReader, Facts
from kafkatap.kernels.arrays import taken
from kafkatap.reports.batch import Batch, endpoint

from ..engine.engine import Engine
from .envelopes import EnvelopeCollector
from .message import COLUMN, PROBLEMS, Message
from .message_index import are_among, message_ids, message_times

if TYPE_CHECKING:
    from kafkatap.dissector.layouts.overlay import Definitions

Array = np.ndarray[Any, Any]
#: Texts of addresses with ports that are kept.
_ENDS = 100_000


class MessageCollector:
    """An inspector that makes a `Message` of each selected message.

    `ids`: the selected messages; None selects all. `with_frames`: messages keep their bytes.
    """

    def __init__(self, ids: Array | None, with_frames: bool = False, definitions: Definitions | None = None) -> None:
        self._ids = None if ids is None else np.sort(ids)
        self._with_frames = with_frames
        self._programs = load_programs("line", definitions)
        self._reader = FactReader(self._programs)
        self._engine: Engine | None = None
        self._made: list[Message] = []
        self._texts: dict[int, bytes | None] = {-1: None}
        self._ends: dict[tuple[int, int], str] = {}
        self._envelopes = EnvelopeCollector(definitions) if with_frames else None

    def bind(self, engine: Engine) -> Engine:
        """Set the engine whose messages this inspector sees; return the engine."""
        self._engine = engine
        return engine

    def take(self, batch: Batch | None) -> list[Message]:
        """Remove and return the messages made since the last call. `batch` completes the rows of responses."""
        made, self._made = self._made, []
        if batch is None or not made:
            return made
        answered = np.array([m.id >> 1 for m in made if m.is_response], np.int64)
        rows = taken(batch.exchanges, np.flatnonzero(np.isin(batch.exchanges["exchange"], answered))).tolist()
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
        numbers = np.arange(len(ids)) if self._ids is None else np.flatnonzero(are_among(ids, self._ids))
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
        size = row[COLUMN["response_bytes" if number & 1 else "request_bytes"]]
        start = limit - size - 4
        client_id = row[COLUMN["client_id"]]
        made = Message(
            number, time, row, self._end(ends[0], ends[1]), self._end(ends[2], ends[3]),
            self._text(client_id), self._text(mechanism),
            bool(token), version, facts, self._problem(row[COLUMN[PROBLEMS[number & 1]]]),
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
        """A string of the engine by its number."""
        if number not in self._texts:
            assert self._engine is not None
            self._texts[number] = self._engine.strings[number]
        return self._texts[number]

    def _end(self, address: int, port: int) -> str:
        found = self._ends.get((address, port))
        if found is None:
            if len(self._ends) >= _ENDS:
                self._ends.clear()
            assert self._engine is not None
            found = self._ends[address, port] = endpoint(self._engine.addresses[address], port)
        return found


def _count_records(facts: Facts, buffer: Array, end: int) -> int | None:
    """How many records a message holds, by the headers of its batches; None where these do not say."""
    if facts.records is None:
        return None
    places = [(at, at + length) for at, length in facts.records if length > 0]
    counts = [records_in_field(buffer, at, min(stop, end), stop) for at, stop in places]
    return None if min(counts, default=0) < 0 else sum(counts)
