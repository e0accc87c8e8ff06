"""What the scripts in samples/tls/ share: a loopback of their own, a client that sends single requests, key logs."""

from __future__ import annotations

import ctypes
import os
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from .broker import fetch_agent, fetch_jars, fetch_logger
from .openssl import Context, End, Session, missing
from .recording import cannot_record

_CLONE_NEWNET = 0x40000000
FOLDER = Path(__file__).resolve().parents[2] / "samples" / "tls"


def own_loopback() -> None:
    """Move this process into a network namespace of its own, whose loopback carries packets of the wire's size."""
    fetch_jars()  # while there is a network
    fetch_logger()
    fetch_agent()
    if ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "unshare")
    features = ["tso", "off", "gso", "off", "gro", "off"]
    subprocess.run(["ip", "link", "set", "lo", "up", "mtu", "1500"], check=True, timeout=10)
    subprocess.run(["ethtool", "-K", "lo", *features], check=True, timeout=10, capture_output=True)
    # Names are resolved only where there is an interface besides loopback.
    for words in ("link add eth0 type veth peer name eth1", "addr add 10.77.0.1/24 dev eth0", "link set eth0 up"):
        subprocess.run(["ip", *words.split()], check=True, timeout=10)


class Requests:
    """A client that sends single requests of Kafka and reads the responses, one after the other.

    They are ApiVersions 2, Metadata 1 of all topics, and of one, in turn; or only those of one topic.
    """

    def __init__(self, name: str, short: bool = False) -> None:
        self._name = name.encode()
        self._short = short
        self._number = 0

    def next(self) -> bytes:
        """The next request with its size."""
        kinds = ((18, 2, b""), (3, 1, b"\xff\xff\xff\xff"), (3, 1, b"\0\0\0\1\0\6orders"))
        key, version, body = kinds[2 if self._short else self._number % 3]
        self._number += 1
        head = struct.pack(">hhih", key, version, self._number, len(self._name)) + self._name
        return struct.pack(">i", len(head) + len(body)) + head + body

    def ask(self, end: End, count: int = 1) -> None:
        """Send requests, each after the response to the one before."""
        for _ in range(count):
            end.write(self.next())
            self.answer(end)

    def answer(self, end: End) -> None:
        """Read a response."""
        size = struct.unpack(">i", end.read_exactly(4))[0]
        end.read_exactly(size)


def connection(
    port: int, context: Context, session: Session | None = None, early: bytes = b"", host: str = "localhost"
) -> End:
    """A connection of a client to a port of loopback."""
    connected = socket.create_connection(("127.0.0.1", port), 20)
    connected.settimeout(None)
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return context.connect(connected, host, session, early)


def main(record: Callable[[Path], None], arguments: Sequence[str]) -> int:
    """The command line of a script: [FOLDER], by default samples/tls."""
    script = os.path.basename(sys.argv[0])
    if len(arguments) > 1:
        print(f"usage: python samples/tls/{script} [FOLDER]", file=sys.stderr)
        return 2
    if why := cannot_record() or missing():
        print(f"{script}: {why}", file=sys.stderr)
        return 2
    own_loopback()
    record(Path(arguments[0]) if arguments else FOLDER)
    return 0
