"""A TCP proxy on loopback that cuts a client's connection around a Produce: the answer is lost, or the request is.

    with CuttingProxy(broker_port) as proxy:     # proxy.port; set it as the broker's advertised port
        proxy.cut("checkout", "response")        # the next Produce of this client id

"response": the broker answers, the proxy keeps the answer and closes both connections. "reset": the proxy resets the
broker's connection directly after the request, so the broker appends and cannot answer. "request": the request never
reaches the broker.
"""

from __future__ import annotations

import socket
import struct
import threading
import time
from contextlib import suppress
from types import TracebackType

PRODUCE = 0


class CuttingProxy:
    """A proxy in threads: two for each connection."""

    def __init__(self, broker_port: int = 0) -> None:
        self.broker_port = broker_port
        #: Each cut: time in ms, client id, kind, port of the connection to the broker.
        self.cuts: list[tuple[int, str, str, int]] = []
        self._wanted: dict[str, str] = {}
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self, client_id: str, kind: str) -> None:
        """Cut at the next Produce of a client: "response", "reset" or "request"."""
        assert kind in ("response", "reset", "request")
        self._wanted[client_id] = kind

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return  # closed
            threading.Thread(target=self._connect, args=(client,), daemon=True).start()

    def _connect(self, client: socket.socket) -> None:
        try:
            broker = socket.create_connection(("127.0.0.1", self.broker_port), timeout=5)
        except OSError:
            client.close()  # the broker does not listen now
            return
        broker.settimeout(None)
        for end in (client, broker):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        drop = threading.Event()  # responses from now on are not passed on
        threading.Thread(target=self._responses, args=(client, broker, drop), daemon=True).start()
        try:
            self._requests(client, broker, drop)
        except OSError:
            pass
        finally:
            _shut(client, broker)

    def _requests(self, client: socket.socket, broker: socket.socket, drop: threading.Event) -> None:
        while frame := _frame(client):
            key, _, _, length = struct.unpack_from(">hhih", frame, 4)
            client_id = frame[14 : 14 + max(length, 0)].decode()
            kind = self._wanted.pop(client_id, None) if key == PRODUCE else None
            if kind is None:
                broker.sendall(frame)
                continue
            self.cuts.append((time.time_ns() // 1_000_000, client_id, kind, int(broker.getsockname()[1])))
            if kind != "request":
                drop.set()
                broker.sendall(frame)
            if kind == "response":
                time.sleep(0.3)  # the answer comes
            else:
                broker.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # close sends RST
                broker.close()
            return

    def _responses(self, client: socket.socket, broker: socket.socket, drop: threading.Event) -> None:
        try:
            while data := broker.recv(65536):
                if not drop.is_set():
                    client.sendall(data)
        except OSError:
            pass
        finally:
            _shut(client, broker)

    def __enter__(self) -> CuttingProxy:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._listener.close()


def _shut(*ends: socket.socket) -> None:
    """Close both directions: the other thread of the connection ends too."""
    for end in ends:
        with suppress(OSError):  # closed already
            end.shutdown(socket.SHUT_RDWR)
        end.close()


def _frame(end: socket.socket) -> bytes:
    """The next request with its size; b"" at the end."""
    size = _exactly(end, 4)
    return size + _exactly(end, int.from_bytes(size, "big")) if size else b""


def _exactly(end: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        got = end.recv(count - len(data))
        if not got:
            return b""
        data += got
    return data
