"""`TopicNaming`: which exchange names a topic id, so that an extract needs one of them and not all.

For each topic id it keeps the first exchange that names it, and the first of each connection, up to MOST_OWN of these.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from kafkatap.dissector.inspection import Array, Frames
from kafkatap.dissector.programs.roles import NAMING_REQUESTS, NAMING_RESPONSES, R_TOPIC_ID, R_TOPIC_NAME
from kafkatap.kernels.arrays import taken

#: APIs whose requests or responses name topic ids.
NAMING_APIS = (*NAMING_REQUESTS, *NAMING_RESPONSES)
#: Pairs of a connection and a topic id that are kept.
MOST_OWN = 200_000


class TopicNaming:
    """An inspector of the first pass."""

    def __init__(self) -> None:
        self._first: dict[bytes, int] = {}
        self._own: dict[tuple[int, bytes], int] = {}

    def look(self, frames: Frames) -> None:
        jobs = frames.jobs
        slots = jobs["frame"] >> 1
        api, is_response = frames.rows["api_key"][slots], (jobs["frame"] & 1).astype(bool)
        is_naming = np.where(is_response, np.isin(api, NAMING_RESPONSES), np.isin(api, NAMING_REQUESTS))
        numbers = np.flatnonzero(is_naming & (jobs["program"] >= 0))
        if not len(numbers):
            return
        roles = np.asarray(frames.programs.roles)
        chosen, tape = frames.decode(frames.programs, numbers)
        counts = chosen["tape_count"].astype(np.int64)
        jobs_of = np.repeat(np.arange(len(chosen)), counts)
        places = np.arange(len(jobs_of)) + np.repeat(chosen["tape_first"] - np.cumsum(counts) + counts, counts)
        roles = roles[tape["field"][places]]
        parents = jobs_of << 32 | (tape["parent"][places].astype(np.int64) & 0xFFFFFFFF)
        named = parents[(roles == R_TOPIC_NAME) & (tape["length"][places] > 0)]
        found = np.flatnonzero((roles == R_TOPIC_ID) & np.isin(parents, named))
        values, jobs_of = tape["value"][places[found]], jobs_of[found]
        exchanges, sources = taken(frames.rows, slots[numbers[jobs_of]]), chosen["source"][jobs_of].tolist()
        columns = (values.tolist(), sources, exchanges["exchange"].tolist(), exchanges["connection"].tolist())
        for at, source, exchange, connection in zip(*columns, strict=True):
            self._note(frames.buffers[source][at : at + 16].tobytes(), exchange, connection)

    def _note(self, topic_id: bytes, exchange: int, connection: int) -> None:
        self._first.setdefault(topic_id, exchange)
        if len(self._own) < MOST_OWN:
            self._own.setdefault((connection, topic_id), exchange)

    def exchanges(self, topic_ids: Iterable[bytes], connections: Iterable[int]) -> Array:
        """The numbers of exchanges that name these topics, one for each, ascending: if possible of one of these
        connections (keys)."""
        keys = list(connections)
        found = set()
        for topic_id in topic_ids:
            own = next((self._own[key, topic_id] for key in keys if (key, topic_id) in self._own), None)
            number = self._first.get(topic_id) if own is None else own
            if number is not None:
                found.add(number)
        return np.array(sorted(found), np.int64)
