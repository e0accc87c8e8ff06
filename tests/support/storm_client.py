"""Connections that a careless client makes, for samples: storm_client KIND ADDRESS PORT COUNT

Kinds: `reconnect` (ApiVersions, then FIN), `password` (SASL PLAIN with a wrong password), `knock` (a connection, or the
attempt at one, without a byte), `reset` (closed with RST while the answer is on its way), `idle` (ApiVersions, then
silence until the broker closes). The output is a JSON object: how often what happened.
"""

from __future__ import annotations

import json
import socket
import struct
import sys
import time
from collections import Counter

API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE = 18, 17, 36


def request(key: int, version: int, client: str, body: bytes = b"", correlation: int = 1) -> bytes:
    """A request with a header of version 1."""
    name = client.encode()
    data = struct.pack(f">hhih{len(name)}s", key, version, correlation, len(name), name) + body
    return struct.pack(">i", len(data)) + data


def text(value: str) -> bytes:
    data = value.encode()
    return struct.pack(f">h{len(data)}s", len(data), data)


def response(connection: socket.socket) -> bytes:
    """One frame without its size; empty where the broker closed."""
    data = b""
    while len(data) < 4 or len(data) < 4 + struct.unpack(">i", data[:4])[0]:
        more = connection.recv(65536)
        if not more:
            return b""
        data += more
    return data[4:]


def one(kind: str, address: str, port: int) -> str:
    """Make one connection; the name of what happened to it."""
    try:
        connection = socket.create_connection((address, port), timeout=0.4 if kind == "knock" else 20)
    except ConnectionRefusedError:
        return "refused"
    except TimeoutError:
        return "no answer"
    with connection:
        if kind == "knock":
            return "connected"
        if kind == "reset":
            connection.sendall(request(API_VERSIONS, 0, "crasher"))
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            return "reset"
        if kind == "password":
            return password(connection)
        connection.sendall(request(API_VERSIONS, 0, "reconnector" if kind == "reconnect" else "idler"))
        assert response(connection)
        if kind == "idle":
            return "closed by broker" if not connection.recv(1) else "data"
        return "closed"


def password(connection: socket.socket) -> str:
    """Authenticate as a user that the broker does not know."""
    connection.sendall(request(SASL_HANDSHAKE, 1, "wrong-password", text("PLAIN")))
    response(connection)
    token = b"\0mallory\0not-the-password"
    connection.sendall(request(SASL_AUTHENTICATE, 0, "wrong-password", struct.pack(">i", len(token)) + token, 2))
    answer = response(connection)
    return f"error {struct.unpack('>h', answer[4:6])[0]}" if answer else "closed by broker"


def main(kind: str, address: str, port: int, count: int) -> None:
    seen: Counter[str] = Counter()
    for _ in range(count):
        seen[one(kind, address, port)] += 1
        time.sleep(0.005)
    print(json.dumps(seen))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
