"""`PacketTables`: all that turns packets into chunks, as one argument of the kernels."""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np

from .flows import FlowArrays
from .fragments import FragmentArrays
from .packet_counts import PACKETS_STATE
from .stream_tables import StreamTables

Array = np.ndarray[Any, Any]


class PacketTables(NamedTuple):
    """The tables of each step, from packets to chunks."""

    headers: Annotated[Array, PACKETS_STATE]
    flows: FlowArrays
    fragments: FragmentArrays
    streams: StreamTables
