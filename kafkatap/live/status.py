"""How the monitor itself does: load, drops, level of detail, open connections."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from kafkatap.reports.batch import Array

from .broker_health import VALUES


@dataclass(frozen=True, slots=True)
class Status:
    """How the monitor itself does. Times are ns since the epoch. Rates are those of the last whole second."""

    now: int
    started: int  # when the counts began; `reset` moves it
    interfaces: tuple[str, ...]
    packets: int  # analysed since the start of the process
    packet_rate: float
    byte_rate: float  # of TCP payload on the wire
    dropped: int  # by the kernel, because they were not read in time
    dropped_lately: int  # in the last 10 s
    level: int  # governor.FULL, LEAN, HEADERS or PAUSED
    level_since: int
    reason: str  # why it is not FULL, else ""
    cpu: float  # of one core, over the last second: 0.25 is a quarter
    memory: int  # resident, bytes
    connections: int  # open
    waiting: int  # requests without a response so far
    encrypted_share: float  # of the payload: TLS that was not decrypted
    decrypted_share: float = 0.0  # of the payload: TLS that was decrypted
    longest_waits: Mapping[str, int] = field(default_factory=dict)  # `Engine.longest_waits`: ns by broker
    last_packet: int = 0  # the latest time of all packets; 0: none came
    unwritten: Mapping[str, int] = field(default_factory=dict)  # `Sink.unwritten` of all sinks
    events_late: int = 0  # `EventWatch.late`: seconds
    troubles: Array = field(default_factory=lambda: np.zeros(len(VALUES), np.int64))  # of connections, in the last 10 s
