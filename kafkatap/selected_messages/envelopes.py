"""The requests that brokers forward to their controller in Envelopes (KIP-590).

An Envelope's response does not name the API of its inner response. Only the request does.
"""

from __future__ import annotations

import numpy as np

from kafkatap.dissector.inspection import Frames
from kafkatap.dissector.layouts.overlay import Definitions
from kafkatap.dissector.layouts.schema import REQUEST
from kafkatap.dissector.programs.loading import load_programs

ENVELOPE = 58
#: The collector keeps this many Envelopes and drops the oldest.
MAX_ENVELOPES = 4_096


class EnvelopeCollector:
    """An inspector that collects the inner requests of Envelopes. `inner`: (api_key, api_version) by exchange."""

    def __init__(self, definitions: Definitions | None = None) -> None:
        self._definitions = definitions
        self.inner: dict[int, tuple[int, int]] = {}

    def look(self, frames: Frames) -> None:
        jobs = frames.jobs
        slots = jobs["frame"] >> 1
        are_envelopes = (frames.rows["api_key"][slots] == ENVELOPE) & (jobs["frame"] & 1 == 0) & (jobs["program"] >= 0)
        numbers = np.flatnonzero(are_envelopes)
        if not len(numbers):
            return
        programs = load_programs("everything", self._definitions)
        chosen, tape = frames.decode(programs, numbers)
        request_data = programs.fields.find[ENVELOPE, REQUEST, "RequestData"]
        for row in tape[tape["field"] == request_data].tolist():
            at, job, length = row[0], chosen[chosen["frame"] == row[1]][0], row[3]
            raw = frames.buffers[int(job["source"])][at : at + min(length, 4)].tobytes()
            if len(raw) == 4:
                exchange = int(frames.rows["exchange"][int(job["frame"]) >> 1])
                self.inner[exchange] = (
                    int.from_bytes(raw[:2], "big", signed=True),
                    int.from_bytes(raw[2:], "big", signed=True),
                )
        while len(self.inner) > MAX_ENVELOPES:
            del self.inner[next(iter(self.inner))]
