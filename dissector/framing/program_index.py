"""Which program decodes a body: the programs' index, by direction, api_key and version.

The array has the entries of `Programs.index`: DENSE of them by arithmetic, then those of other messages. The messages
of these follow in ascending order, for a binary search.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kafkatap.kernels.decorator import helper

from ..dtypes import INCOMPLETE, TOO_LARGE, UNKNOWN_API, UNKNOWN_VERSION
from ..programs.program import DENSE, KEYS, LARGEST, VERSIONS
from .cursor import i2
from .headers import API_VERSIONS

Array = np.ndarray[Any, Any]
#: A flag of the index: only the head of these bodies is decoded.
HEAD_ONLY = 1 << 30
REQUEST, RESPONSE = 0, 1
UNSUPPORTED_VERSION = 35


def framing_index(entries: Array, others: Array) -> Array:
    """The array for kernels. `entries`: those of `Programs.index`, perhaps with HEAD_ONLY; `others`: of Programs."""
    return np.concatenate((entries, others)).astype(np.int32) if len(others) else entries


@helper
def _place_among_others(index, packed):  # type: ignore[no-untyped-def]
    """How many of the other messages are less than `packed` (`pack_message`)."""
    count = (index.shape[0] - DENSE) >> 1
    low, high = np.int64(0), np.int64(count)
    while low < high:
        middle = (low + high) >> 1
        if index[DENSE + count + middle] < packed:
            low = middle + 1
        else:
            high = middle
    return low


@helper
def _other_entry(index, kind, key, version):  # type: ignore[no-untyped-def]
    """The entry of a message beyond KEYS or VERSIONS, or -1."""
    count = (index.shape[0] - DENSE) >> 1
    if count == 0 or key < 0 or key > LARGEST or version < 0 or version > LARGEST:
        return np.int64(-1)
    packed = (np.int64(kind) << 30) | (np.int64(key) << 15) | np.int64(version)
    place = _place_among_others(index, packed)
    if place == count or index[DENSE + count + place] != packed:
        return np.int64(-1)
    return np.int64(index[DENSE + place])


@helper
def _entry(index, kind, key, version):  # type: ignore[no-untyped-def]
    """The index's entry for a body, or -1."""
    if key < 0 or key >= KEYS or version < 0 or version >= VERSIONS:
        return _other_entry(index, kind, key, version)
    return np.int64(index[(kind * KEYS + key) * VERSIONS + version])


@helper
def program_of(index, kind, key, version):  # type: ignore[no-untyped-def]
    """The program for a REQUEST or RESPONSE, or -1."""
    entry = _entry(index, kind, key, version)
    return entry & ~HEAD_ONLY if entry >= 0 else entry


@helper
def is_head_only(index, kind, key, version):  # type: ignore[no-untyped-def]
    """Whether only the first `head_kept` bytes of the frame are decoded."""
    entry = _entry(index, kind, key, version)
    return entry >= 0 and entry & HEAD_ONLY != 0


@helper
def response_program(index, key, version, body):  # type: ignore[no-untyped-def]
    """The program for the response to a request. A broker answers an unknown version of ApiVersions in version 0."""
    if key == API_VERSIONS and version > 0 and i2(body, 0) == UNSUPPORTED_VERSION:
        version = np.int64(0)
    return program_of(index, RESPONSE, key, version)


@helper
def _is_known_api(index, key):  # type: ignore[no-untyped-def]
    """Whether any version of an API has a program."""
    if 0 <= key < KEYS:
        for entry in range(2 * VERSIONS):
            if index[((entry // VERSIONS) * KEYS + key) * VERSIONS + entry % VERSIONS] >= 0:
                return True
    count = (index.shape[0] - DENSE) >> 1
    for kind in range(2):
        first = (np.int64(kind) << 30) | (np.int64(key) << 15)
        place = _place_among_others(index, first)
        if place < count and index[DENSE + count + place] >> 15 == first >> 15:
            return True
    return False


@helper
def status_without_program(t, key, frame):  # type: ignore[no-untyped-def]
    """The status of a body that no program decodes."""
    if frame.end < frame.limit:
        return np.int64(TOO_LARGE if frame.limit - frame.at > t.state[0].max_frame else INCOMPLETE)
    return np.int64(UNKNOWN_VERSION if _is_known_api(t.program_index, key) else UNKNOWN_API)
