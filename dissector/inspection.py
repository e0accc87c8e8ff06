"""Looking at messages while their bytes are there: what the dissector shows to whoever asks for more than its rows.

A frame's bytes lie in the block that it came with and are gone after a drain. An inspector sees every message of the
drain once, before its exchange is finished, and takes a copy of what it wants to keep.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from .programs.program import Programs

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Frames:
    """The messages of one drain, in the order in which they were framed.

    `jobs` (JOB): one a message; `frame` is slot * 2 + direction (0 request, 1 response), `at`:`end` the captured bytes
    of its body (behind a request's client_id or a response's correlation_id), `limit` the end that its size declares;
    `program` is one of `programs`, or -1 where the layouts know no such body, for orphan responses, and for bare SASL
    tokens, whose body is the token. `rows` (EXCHANGE) and `links` (LINK) by slot: what is known so far of the exchange,
    which is all of a request's part, and of a response everything but its times told apart. `buffers` (uint8): block,
    held bytes, pool; a job's `source` says which. `marks` (uint64) by slot: bits that inspectors set, 0 at first; they
    arrive with the finished exchange.
    """

    jobs: Array
    programs: Programs
    rows: Array
    links: Array
    buffers: tuple[Array, Array, Array]
    marks: Array


class Inspector(Protocol):
    """Looks at each drain's messages. The arrays belong to the dissector: nothing of them may be kept."""

    def look(self, frames: Frames) -> None: ...
