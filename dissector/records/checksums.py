"""CRCs of record batches and messages: CRC-32C from the attributes on (magic 2), CRC-32 from the magic on (0 and 1)."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np

from . import batches as b

Array = np.ndarray[Any, Any]
#: Where the bytes begin that a CRC covers, from the batch's first byte.
_COVERED_FROM = {2: 21, 1: 16, 0: 16}


def check_crcs(arena: memoryview, batches: Array) -> None:
    """Compare the CRC of every batch (BATCH) that is whole with what the batch says; sets `crc_state`."""
    whole = np.flatnonzero((batches["status"] == b.OK) & (batches["body"] >= 0))
    columns = (batches[name][whole].tolist() for name in ("magic", "at", "end"))
    found = [crc_of(magic, arena[at:end]) for magic, at, end in zip(*columns, strict=True)]
    right = np.array(found, np.int64) == batches["crc"][whole]
    batches["crc_state"][whole] = np.where(right, b.CRC_RIGHT, b.CRC_WRONG)


def check_messages(arena: memoryview, batches: Array, records: Array) -> int:
    """Compare the CRCs of the messages (RECORD) within compressed ones; sets `crc_state`. Return how many are wrong."""
    inside = np.flatnonzero((records["end"] > 0) & (batches["codec"][records["batch"]] != 0))
    states = []
    for at, end in records[["at", "end"]][inside].tolist():
        is_right = crc_of(1, arena[at:end]) == int.from_bytes(arena[at + 12 : at + 16])
        states.append(b.CRC_RIGHT if is_right else b.CRC_WRONG)
    records["crc_state"][inside] = states
    return states.count(b.CRC_WRONG)


def crc_of(magic: int, batch: memoryview) -> int:
    """The CRC of a whole batch or message."""
    import crc32c

    covered = batch[_COVERED_FROM[magic] :]
    return int(crc32c.crc32c(covered) if magic == 2 else zlib.crc32(covered))
