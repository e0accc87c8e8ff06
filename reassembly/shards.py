"""Connections shared out to several engines. Each reads all packets, and assembles those of its own connections.

The ends of a connection say which engine has it. Of the packets of others, an engine notes only which end listens, and
that they came: so it decides as one engine does that has all connections.
"""

from __future__ import annotations

import numpy as np

from kafkatap.kernels.decorator import helper, inlined
from kafkatap.kernels.readers import be32

from .dtypes import ACK, SYN
from .listeners import add_end

#: Odd numbers of 63 bits with about as many ones as zeros, by which ends are mixed.
_A, _B, _C = 0x1E3779B97F4A7C15, 0x4F6CDD1D7B5A2E93, 0x2545F4914F6CDD1D


@inlined
def is_foreign(buf, d, counts):  # type: ignore[no-untyped-def]
    """Return whether another engine has the connection of a datagram with TCP. `counts`: a row of PACKETS_STATE."""
    if counts.shards < 2:
        return False
    ports = be32(buf, d.at)
    source = (d.source_low ^ (d.source_high * _C)) * _A + (ports >> 16) * _B
    target = (d.target_low ^ (d.target_high * _C)) * _A + (ports & 0xFFFF) * _B
    mixed = ((source ^ (source >> 31)) * _C) ^ ((target ^ (target >> 31)) * _C)  # the same for both directions
    mixed = (mixed ^ (mixed >> 29)) * _A
    return ((mixed >> 33) & 0x3FFFFFFF) % counts.shards != counts.shard


@helper
def note_foreign(buf, d, streams):  # type: ignore[no-untyped-def]
    """Note a packet of another engine's connection, for which there is room (`listeners_full`)."""
    streams.state[0].recent += 1
    if buf[np.uintp(d.at + 13)] & (SYN | ACK) == SYN | ACK:
        add_end(streams.listeners, d.source_high, d.source_low, be32(buf, d.at) >> 16)
