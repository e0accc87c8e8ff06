"""A broker and clients that speak a little Kafka, as programs of their own.

python -m tests.collect.small_cluster broker ADDRESS      # answers everybody, until it is stopped
python -m tests.collect.small_cluster client ADDRESS...   # asks each broker 20 times a second
"""

from __future__ import annotations

import socket
import struct
import sys
import threading
import time

from tests.support.tcp import frame
from tests.wire.kafkatalk import METADATA, PRODUCE, SASL_AUTHENTICATE, SASL_HANDSHAKE, request, response

PORT = 9_092
PASSWORD = b"hunter2-hunter2-hunter2"
_VERSIONS = {METADATA: 4, PRODUCE: 7, SASL_HANDSHAKE: 1, SASL_AUTHENTICATE: 1}


def _receive(link: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        part = link.recv(count - len(data))
        if not part:
            raise ConnectionError
        data += part
    return data


def _frame(link: socket.socket) -> bytes:
    return _receive(link, struct.unpack(">i", _receive(link, 4))[0])


def _answer(link: socket.socket) -> None:
    try:
        while True:
            api, version, number = struct.unpack_from(">hhi", _frame(link))
            values = {"Mechanisms": ["PLAIN"]} if api == SASL_HANDSHAKE else {}
            link.sendall(response(api, version, number, **values))
    except OSError:
        link.close()


def broker(address: str) -> None:
    """Answer whoever connects."""
    with socket.create_server((address, PORT)) as server:
        while True:
            link, _ = server.accept()
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=_answer, args=(link,), daemon=True).start()


def client(address: str, name: str) -> None:
    """Log in, and ask for ever."""
    with socket.create_connection((address, PORT)) as link:
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        number = 0
        topics = [{"Name": "orders"}]
        data = [{"Name": "orders", "PartitionData": [{"Index": 0, "Records": b""}]}]
        questions: list[tuple[int, dict[str, object]]] = [
            (SASL_HANDSHAKE, {"Mechanism": "PLAIN"}),
            (SASL_AUTHENTICATE, {"AuthBytes": b"\0alice\0" + PASSWORD}),
        ]
        while True:
            questions = questions or [(METADATA, {"Topics": topics}), *[(PRODUCE, {"Acks": 1, "TopicData": data})] * 9]
            api, values = questions.pop(0)
            link.sendall(request(api, _VERSIONS[api], number, name, **values))
            assert frame(_frame(link))
            number += 1
            time.sleep(0.05)


def main(kind: str, *addresses: str) -> None:
    """Run one of them."""
    if kind == "broker":
        broker(*addresses)
    for number, address in enumerate(addresses):
        threading.Thread(target=client, args=(address, f"client-{number}"), daemon=True).start()
    threading.Event().wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
