"""Messages to systemd from a service of `Type=notify` (sd_notify): that it is ready, each second that it is alive, and
that it is about to end.

Each is a datagram, sent without waiting. With `WatchdogSec=`, systemd restarts a capture that hangs.
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from typing import TYPE_CHECKING

from ..sink import Sink

if TYPE_CHECKING:
    from kafkatap.reports.counting.counts import ReportCounts

    from ...engine.engine import Engine


class ServiceManager(Sink):
    """`address`: the variable NOTIFY_SOCKET; a name that begins with @ is an abstract one."""

    def __init__(self, address: str) -> None:
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        self._tell(f"READY=1\nMAINPID={os.getpid()}")

    def end_second(self, now: int, counts: ReportCounts, engine: Engine) -> None:
        self._tell("WATCHDOG=1")

    def close(self, engine: Engine) -> None:
        self._tell("STOPPING=1")
        self._socket.close()

    def _tell(self, text: str) -> None:
        with suppress(OSError):  # nobody listens, or not in time
            self._socket.sendto(text.encode(), socket.MSG_DONTWAIT, self._address)
