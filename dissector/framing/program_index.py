"""Which program decodes a body: the programs' index, by direction, api_key and version."""

from __future__ import annotations

import numpy as np

from kafkatap.kernels.decorator import helper

from ..dtypes import INCOMPLETE, TOO_LARGE, UNKNOWN_API, UNKNOWN_VERSION
from ..programs.program import KEYS, VERSIONS
from .cursor import i2
from .headers import API_VERSIONS

#: A flag of the index: only the head of these bodies is decoded.
HEAD_ONLY = 1 << 30
REQUEST, RESPONSE = 0, 1
UNSUPPORTED_VERSION = 35


@helper
def _entry(index, kind, key, version):  # type: ignore[no-untyped-def]
    """The index's entry for a body, or -1."""
    if key < 0 or key >= KEYS or version < 0 or version >= VERSIONS:
        return np.int64(-1)
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
def status_without_program(t, key, frame):  # type: ignore[no-untyped-def]
    """The status of a body that no program decodes."""
    if frame.end < frame.limit:
        return np.int64(TOO_LARGE if frame.limit - frame.at > t.state[0].max_frame else INCOMPLETE)
    for entry in range(2 * VERSIONS):
        if program_of(t.program_index, entry // VERSIONS, key, np.int64(entry % VERSIONS)) >= 0:
            return np.int64(UNKNOWN_VERSION)
    return np.int64(UNKNOWN_API)
