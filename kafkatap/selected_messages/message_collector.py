"""`MessageCollector`: an inspector that copies the selected messages while their bytes are in memory.

A response waits for the end of its drain, which computes its times.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kafkatap.dissector.inspection import Frames
from kafkatap.dissector.layouts.overlay import Definitions
from kafkatap.dissector.programs.loading import load_programs
from kafkatap.dissector.tree.packed_facts import PACKED
from kafkatap.dissector.tree.summary import FactReader
from kafkatap.kernels.arrays import taken
from kafkatap.reports.batch import Batch, endpoint, rows_of
from kafkatap.reports.expressions.exchange_columns import began_at

from ..engine.engine import Engine
from .envelopes import EnvelopeCollector
from .message import (
    BROKER,
    BROKER_HOST,
    CLIENT,
    CLIENT_HOST,
    CLIENT_ID,
    ENVELOPED,
    FACTS,
    FRAME,
    MECHANISM,
    MESSAGE,
    NOT_FINISHED,
    OBJECTS,
    PROBLEM,
    Messages,
    joined_messages,
)
from .message_index import are_among, message_ids, message_times

Array = np.ndarray[Any, Any]
#: Texts of addresses with ports that are kept.
_ENDS = 100_000


class MessageCollector:
    """An inspector that makes `Messages` of the selected messages.

    `ids`: the selected messages; None selects all. `with_frames`: messages keep their bytes.
    """

    def __init__(self, ids: Array | None, with_frames: bool = False, definitions: Definitions | None = None) -> None:
        self._ids = None if ids is None else np.sort(ids)
        self._with_frames = with_frames
        self._programs = load_programs("line", definitions)
        self._reader = FactReader(self._programs)
        self._engine: Engine | None = None
        self._made: list[Messages] = []
        self._texts: dict[int, bytes | None] = {-1: None}
        self._ends: dict[int, str] = {}
        self._envelopes = EnvelopeCollector(definitions) if with_frames else None

    def bind(self, engine: Engine) -> Engine:
        """Set the engine whose messages this inspector sees; return the engine."""
        self._engine = engine
        return engine

    def take(self, batch: Batch | None) -> Messages | None:
        """Remove and return the messages made since the last call. `batch` completes the rows of responses."""
        made, self._made = self._made, []
        if not made:
            return None
        messages = joined_messages(made)
        if batch is not None:
            found = rows_of(batch.exchanges["exchange"], messages.heads["id"] >> 1)
            responses = np.flatnonzero(messages.are_responses)
            final = responses[found[responses] >= 0]
            rows = messages.rows.view(np.dtype((np.void, messages.rows.dtype.itemsize)))
            rows[final] = taken(batch.exchanges, found[final]).view(rows.dtype)
            messages.heads["outcome"][responses] = messages.rows["outcome"][responses]
        return messages

    def look(self, frames: Frames) -> None:
        ids = message_ids(frames)
        if self._envelopes is not None:
            self._envelopes.look(frames)
        numbers = np.arange(len(ids)) if self._ids is None else np.flatnonzero(are_among(ids, self._ids))
        if not len(numbers):
            return
        assert self._engine is not None
        jobs, tape = frames.decode(self._programs, numbers)
        slots = jobs["frame"] >> 1
        rows, links = taken(frames.rows, slots), taken(frames.links, slots)
        messages = Messages(
            np.zeros(len(numbers), MESSAGE), rows, np.zeros(len(numbers), PACKED),
            np.empty((len(numbers), OBJECTS), object),
        )  # fmt: skip
        heads, objects = messages.heads, messages.objects
        heads["id"], heads["time"] = ids[numbers], message_times(frames)[numbers]
        heads["missing"], heads["token"] = jobs["limit"] - jobs["end"], links["token"]
        heads["outcome"] = NOT_FINISHED
        connections = links["connection"]
        ends = self._engine.endpoints(connections).astype(np.int64)
        objects[:, CLIENT], objects[:, BROKER] = self._end_texts(ends[:, :2]), self._end_texts(ends[:, 2:])
        objects[:, CLIENT_HOST], objects[:, BROKER_HOST] = self._hosts(ends[:, 0], rows), self._hosts(ends[:, 2], rows)
        objects[:, CLIENT_ID] = self._strings(rows["client_id"])
        objects[:, MECHANISM] = self._strings(self._engine.dissector.connections["mechanism"][connections])
        problems = self._strings(messages.of_side("problem"))
        objects[:, PROBLEM] = [None if path is None else path.decode() for path in problems]
        objects[:, FACTS], messages.numbers[:] = self._reader.read(jobs, tape, frames.buffers)
        if self._with_frames:
            first = jobs["limit"] - messages.of_side("bytes") - 4
            places = zip(jobs["source"].tolist(), first.tolist(), jobs["end"].tolist(), strict=True)
            objects[:, FRAME] = [frames.buffers[source][at:end].tobytes() for source, at, end in places]
        if self._envelopes is not None:
            inner = self._envelopes.inner
            objects[:, ENVELOPED] = [inner.get(number >> 1) if number & 1 else None for number in heads["id"].tolist()]
        self._made.append(messages)

    def _strings(self, numbers: Array) -> list[bytes | None]:
        """Strings of the engine by their numbers."""
        assert self._engine is not None
        texts = self._texts
        wanted: list[int] = numbers.tolist()
        for number in set(wanted).difference(texts):
            texts[number] = self._engine.strings[number]
        return [texts[number] for number in wanted]

    def _hosts(self, ips: Array, rows: Array) -> list[str | None] | None:
        """The names of addresses when the exchanges began."""
        assert self._engine is not None
        hosts = self._engine.hosts
        if hosts is None:
            return None
        found = hosts.numbers(ips, began_at(rows), self._engine.addresses).tolist()
        return [None if number < 0 else hosts.names[number].text for number in found]

    def _end_texts(self, ends: Array) -> list[str]:
        """Texts of ends: address number and port, int64 (n, 2)."""
        assert self._engine is not None
        keys = ends[:, 0] << 16 | ends[:, 1]
        wanted: list[int] = keys.tolist()
        new = set(wanted).difference(self._ends)
        if len(self._ends) + len(new) > _ENDS:
            self._ends.clear()
            new = set(wanted)
        for key in new:
            self._ends[key] = endpoint(self._engine.addresses[key >> 16], key & 0xFFFF)
        return [self._ends[key] for key in wanted]
