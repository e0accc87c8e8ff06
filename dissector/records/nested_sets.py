"""Message sets within message sets: compressed messages of magic 0 and 1 inside of compressed messages.

`flattened` puts the messages of an inner set in the place of their wrapper. So the kernels read one set, however deep
the messages are. A wrapper that cannot be replaced stays, and is read as NESTED.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ..batch_headers import CODEC_BITS
from ..programs.tape import as_array
from .checksums import crc_of
from .codecs import DONE, TOO_LARGE, Bounds, decompress
from .record_reader import move_offsets, nested_messages

#: Levels of sets within the outermost one, and their wrappers, that are decompressed.
LEVELS, WRAPPERS = 8, 1_000

Data = bytes | bytearray
_FIELDS = 4  # of a wrapper, as `nested_messages` finds it


@dataclass(slots=True)
class _Left:
    """What inner sets may still need, all together."""

    size: int
    wrappers: int


def flattened(messages: Data, bounds: Bounds, size: int) -> Data:
    """A message set with the messages of inner sets in place of their wrappers, and the offsets that those make.
    `size`: the most decompressed bytes of all inner sets."""
    return _flattened(messages, bounds, _Left(size, WRAPPERS), LEVELS)


def _flattened(messages: Data, bounds: Bounds, left: _Left, levels: int) -> Data:
    found = np.empty(_FIELDS * left.wrappers, np.int64)
    count = nested_messages(as_array(messages), found) if levels else 0
    if not count:
        return messages
    left.wrappers -= count
    view = memoryview(messages)
    pieces: list[Data | memoryview] = []
    done = 0
    for at, end, value_at, value_end in found[: _FIELDS * count].reshape(-1, _FIELDS).tolist():
        inner = _inner_set(view[at:end], view[value_at:value_end], bounds, left)
        if inner is not None:
            flat = memoryview(bytearray(_flattened(inner, bounds, left, levels - 1)))
            if move_offsets(as_array(flat), view[at + 16], int.from_bytes(view[at : at + 8], signed=True)):
                pieces += (view[done:at], flat)
                done = end
    return b"".join((*pieces, view[done:]))


def _inner_set(wrapper: memoryview, value: memoryview, bounds: Bounds, left: _Left) -> Data | None:
    """The decompressed value of a wrapper; None if its CRC is wrong or the value cannot be decompressed."""
    if crc_of(wrapper[16], wrapper) != int.from_bytes(wrapper[12:16]):
        return None
    bounds = replace(bounds, absolute=min(bounds.absolute, left.size))
    inner = decompress(wrapper[17] & CODEC_BITS, wrapper[16], value, bounds)
    left.size -= bounds.of(len(value)) if inner.problem == TOO_LARGE else len(inner.data)
    return inner.data if inner.problem == DONE else None
