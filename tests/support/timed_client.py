"""A client on plain sockets that sends one request after another and times each, as a program: for samples.

    python -m tests.support.timed_client ADDRESS PORT SETTINGS

SETTINGS is a JSON object: `client_id`, `topic`, `kind` ("produce" or "both": a Fetch after each Produce), `count`
(requests of a connection), `connections` (one after another), `size` (bytes of a record), `pause` (seconds before each
request). A throttle time does not make it wait. The output is a JSON object. `requests` has for each request: its port,
correlation id and API key, the time when it was written (ms since the epoch), the ms until its response was read, and
the throttle time in ms.
"""

from __future__ import annotations

import json
import socket
import struct
import sys
import time
from typing import Any

from .piecewise_client import answer, pieces, produce_body, text

_PRODUCE, _FETCH, _API_VERSIONS = 0, 1, 18


def fetch_body(topic: str, size: int) -> bytes:
    """The body of a Fetch request of version 4 for the first record of a topic."""
    head = struct.pack(">iiiibi", -1, 500, 1, 10_000_000, 0, 1) + text(topic)
    return head + struct.pack(">iiqi", 1, 0, 0, size)


def throttle_ms(api: int, response: bytes) -> int:
    """The throttle time of a response: it ends a Produce 3, and begins a Fetch 4."""
    return int(struct.unpack_from(">i", response, len(response) - 4 if api == _PRODUCE else 8)[0])


def request(api: int, number: int, settings: dict[str, Any]) -> bytes:
    make, version = (produce_body, 3) if api == _PRODUCE else (fetch_body, 4)
    return b"".join(pieces(api, version, number, settings["client_id"], make(settings["topic"], settings["size"])))


def main(address: str, port: str, given: str) -> None:
    settings: dict[str, Any] = json.loads(given)
    apis = {"produce": (_PRODUCE,), "both": (_PRODUCE, _FETCH)}[settings["kind"]]
    requests = []
    for _ in range(settings.get("connections", 1)):
        with socket.create_connection((address, int(port))) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.sendall(b"".join(pieces(_API_VERSIONS, 0, 0, settings["client_id"], b"")))
            answer(connection)
            own = connection.getsockname()[1]
            for number in range(1, settings["count"] + 1):
                time.sleep(settings["pause"])
                api = apis[(number - 1) % len(apis)]
                data = request(api, number, settings)
                at, began = time.time(), time.perf_counter()
                connection.sendall(data)
                response = answer(connection)
                took = time.perf_counter() - began
                requests.append(
                    [own, number, api, round(1000 * at, 2), round(1000 * took, 2), throttle_ms(api, response)]
                )
            time.sleep(0.1)
    print(json.dumps({"requests": requests}))


if __name__ == "__main__":
    main(*sys.argv[1:])
