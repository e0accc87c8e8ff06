"""A limit on the bytes of frames that are not complete, in all connections together.

Above it, no frame keeps more than HEAD_ONLY leading bytes any more, or what it has already; its boundaries are still
found. Large buffers of streams without a boundary are dropped: those that are searched, and the first bytes of
connections that are not yet known to be Kafka. Below half of the limit, frames are kept whole again.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kafkatap.kernels import kernel

from .framing.buffers import skip_buffer
from .framing.connections import STREAM_IN_SYNC, STREAM_RESYNC
from .framing.tables import Tables

Array = np.ndarray[Any, Any]

#: Leading bytes of a frame that are kept above the limit.
HEAD_ONLY = 256
#: From this class on (8 KiB) buffers without a boundary are large.
LARGE_CLASS = 13


def held_bytes(streams: Array) -> int:
    """The bytes of all buffers of streams (STREAM)."""
    capacity = streams["capacity"]
    return int(np.left_shift(1, capacity[capacity > 0].astype(np.int64)).sum())


def cut_frames(streams: Array) -> int:
    """Have the current frames keep no more than HEAD_ONLY bytes, or what they have. Return how many are cut."""
    most = np.maximum(streams["used"], HEAD_ONLY)
    cut = (streams["mode"] == STREAM_IN_SYNC) & (streams["frame_size"] > 0) & (streams["kept"] > most)
    streams["kept"] = np.where(cut, most, streams["kept"])
    return int(cut.sum())


@kernel(Tables, int)
def drop_searched(t, first):  # type: ignore[no-untyped-def]
    """Skip the bytes of large buffers without a boundary, of streams from `first` on. Return the stream before which a
    drain is needed, or how many there are."""
    for number in range(first, t.streams.shape[0]):
        stream = t.streams[number]
        if stream.capacity < LARGE_CLASS or stream.mode == STREAM_IN_SYNC:
            continue
        if t.state[0].deferred >= t.deferred.shape[0]:
            return number
        skip_buffer(t, stream)
        stream.mode = STREAM_RESYNC
        stream.retry = 0
        stream.losses += 1
    return t.streams.shape[0]
