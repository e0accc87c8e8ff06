"""A sample of record batches: how large they are when decompressed, and whether their checksum is right."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from ..batch_headers import BATCH_HEADER, CODEC_BITS

Array = np.ndarray[Any, Any]


@cache
def _bounds() -> Any:
    from ..records.codecs import Bounds

    return Bounds()


def fill_samples(facts: Array, numbers: Array, buffers: Sequence[Array]) -> None:
    """Set the columns of the sampled batches, `facts[numbers]` (int64). `v3` has their checksum before.

    Only batches that were captured whole are sampled. The size of one that cannot be decompressed is -1.
    """
    views = [memoryview(buffer) for buffer in buffers]  # type: ignore[arg-type]
    sizes, damaged = np.full(len(numbers), -1, np.int64), np.zeros(len(numbers), np.int64)
    columns = (facts[name][numbers].tolist() for name in ("source", "at", "v0", "v2", "v3"))
    for i, (source, at, size, attributes, checksum) in enumerate(zip(*columns, strict=True)):
        batch = views[source][at : at + size]
        sizes[i] = _decompressed_size(batch, attributes & CODEC_BITS)
        damaged[i] = _is_damaged(batch, checksum)
    facts["v1"][numbers], facts["v3"][numbers] = sizes, damaged


def _is_damaged(batch: memoryview, checksum: int) -> bool:
    from ..records.checksums import crc_of

    return crc_of(2, batch) != checksum


def _decompressed_size(batch: memoryview, codec: int) -> int:
    """The bytes of a batch with its records decompressed, or -1 if they cannot be."""
    if codec == 0:
        return len(batch)
    from ..records.codecs import DONE, decompress

    found = decompress(codec, 2, batch[BATCH_HEADER:], _bounds())
    return BATCH_HEADER + len(found.data) if found.problem == DONE else -1
