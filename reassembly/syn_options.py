"""The TCP options of a SYN: what an end offers for the whole connection."""

from __future__ import annotations

import numpy as np

from kafkatap.kernels.decorator import helper
from kafkatap.kernels.readers import be16

from .dtypes import NOT_SCALED

#: The largest window shift (RFC 7323).
_LARGEST_SHIFT = 14
#: Kinds of options.
_END, _NOP, _MSS, _SCALE, _SACK, _TIMESTAMPS = 0, 1, 2, 3, 4, 8


@helper
def read_options(buf, segment, stream):  # type: ignore[no-untyped-def]
    """Note the options of a SYN in the row of its direction. Of malformed options only those before the error count."""
    stream.shift = NOT_SCALED
    end = segment.at
    at = end - segment.options
    while at < end:
        kind = np.int64(buf[np.uintp(at)])
        if kind == _END:
            break
        if kind == _NOP:
            at += 1
            continue
        if at + 2 > end:
            break
        length = np.int64(buf[np.uintp(at + 1)])
        if length < 2 or at + length > end:
            break
        if kind == _MSS and length == 4:
            stream.mss = be16(buf, at + 2)
        elif kind == _SCALE and length == 3:
            stream.shift = min(np.int64(buf[np.uintp(at + 2)]), np.int64(_LARGEST_SHIFT))
        elif kind == _SACK and length == 2:
            stream.sack_permitted = 1
        elif kind == _TIMESTAMPS and length == 10:
            stream.timestamps = 1
        at += length
