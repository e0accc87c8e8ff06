"""A producer on plain sockets that writes the head and the body of each request apart, as a program: for samples.

    python -m tests.support.piecewise_client ADDRESS PORT SETTINGS

SETTINGS is a JSON object: `client_id`, `topic`, `count`, `pause` (seconds between requests), `size` (bytes of a
record), `nodelay` (TCP_NODELAY). The output is a JSON object. `requests` has for each request, in ms: the time until
the kernel had sent the second piece, and the time until its response. The first is SIOCOUTQNSD of the socket, polled.
"""

from __future__ import annotations

import fcntl
import json
import socket
import struct
import sys
import time
from typing import Any

from .records import Record, batch

#: The bytes of a socket that its kernel has not sent yet (linux/sockios.h).
SIOCOUTQNSD = 0x894B


def text(value: str | None) -> bytes:
    return struct.pack(">h", -1) if value is None else struct.pack(">h", len(value)) + value.encode()


def pieces(api: int, version: int, number: int, client: str, body: bytes) -> tuple[bytes, bytes]:
    """The size and header of a request, and its body."""
    head = struct.pack(">hhi", api, version, number) + text(client)
    return struct.pack(">i", len(head) + len(body)) + head, body


def produce_body(topic: str, size: int) -> bytes:
    """The body of a Produce request of version 3 with one record."""
    records = batch([Record(None, b"o" * size)])
    return b"".join((
        text(None), struct.pack(">hii", 1, 10_000, 1), text(topic), struct.pack(">iii", 1, 0, len(records)), records,
    ))  # fmt: skip


def answer(connection: socket.socket) -> bytes:
    """The next response."""
    data = b""
    while len(data) < 4 or len(data) < 4 + struct.unpack_from(">i", data)[0]:
        more = connection.recv(65_536)
        if not more:
            raise ConnectionError("the broker closed the connection")
        data += more
    return data


def unsent(connection: socket.socket) -> int:
    return int(struct.unpack("i", fcntl.ioctl(connection, SIOCOUTQNSD, b"\0\0\0\0"))[0])


def exchange(connection: socket.socket, head: bytes, body: bytes) -> list[float]:
    """Write a request in two pieces and wait for its response."""
    began = time.perf_counter()
    connection.sendall(head)
    connection.sendall(body)
    while unsent(connection):
        time.sleep(0.0002)
    sent = time.perf_counter()
    answer(connection)
    return [round(1000 * (at - began), 2) for at in (sent, time.perf_counter())]


def main(address: str, port: str, given: str) -> None:
    settings: dict[str, Any] = json.loads(given)
    client = settings["client_id"]
    requests = []
    with socket.create_connection((address, int(port))) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, int(settings["nodelay"]))
        connection.sendall(b"".join(pieces(18, 0, 0, client, b"")))
        answer(connection)
        for number in range(1, settings["count"] + 1):
            head, body = pieces(0, 3, number, client, produce_body(settings["topic"], settings["size"]))
            requests.append(exchange(connection, head, body))
            time.sleep(settings["pause"])
    print(json.dumps({"requests": requests}))


if __name__ == "__main__":
    main(*sys.argv[1:])
