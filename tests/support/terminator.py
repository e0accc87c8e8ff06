"""A TLS terminator before a broker: TLS in front, plain text behind. It notes which connections belong together."""

from __future__ import annotations

import select
import socket
import threading
from collections.abc import Callable
from typing import Any

from .openssl import Context, End, TlsError

#: Called with the front end, the direction (0: to the broker, 1: to the client) and the number of reads so far in it.
Hook = Callable[[End, int, int], None]


class Terminator:
    """Listens on a port of loopback and passes bytes to another one. `use` sets the TLS of the connections to come."""

    def __init__(self, port: int, back_port: int) -> None:
        self._listener = socket.create_server(("127.0.0.1", port), backlog=16)
        self._back = ("127.0.0.1", back_port)
        self._context: Context | None = None
        self._case, self._hook = "", None  # type: tuple[str, Hook | None]
        self._threads: list[threading.Thread] = []
        #: A row for each connection.
        self.connections: list[dict[str, Any]] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def use(self, case: str, context: Context, hook: Hook | None = None) -> None:
        """Wait for the connections so far to end, then serve new ones with this context."""
        self.wait()
        self._case, self._context, self._hook = case, context, hook

    def wait(self) -> None:
        for thread in self._threads:
            thread.join(20)
        self._threads.clear()

    def close(self) -> None:
        self.wait()
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                front, peer = self._listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._serve, args=(front, peer[1]), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, front: socket.socket, port: int) -> None:
        assert self._context is not None
        front.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        row: dict[str, Any] = {"case": self._case, "front": port}
        self.connections.append(row)
        hook = self._hook
        try:
            end = self._context.accept(front)
        except TlsError as error:
            row |= {"error": str(error), "alert": error.alert}
            front.close()
            return
        row |= {"version": end.version, "suite": end.suite, "resumed": end.is_resumed, "early": len(end.early)}
        with socket.create_connection(self._back) as back:
            row["back"] = back.getsockname()[1]
            back.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if end.early:
                back.sendall(end.early)
            try:
                self._relay(end, back, hook)
            except (TlsError, OSError) as error:
                row |= {"error": str(error), "alert": getattr(error, "alert", None)}
        end.close()

    def _relay(self, front: End, back: socket.socket, hook: Hook | None) -> None:
        counts = [0, 0]
        while True:
            ready = [front.socket] if front.pending() else select.select([front.socket, back], [], [])[0]
            for each in ready:
                direction = int(each is back)
                data = back.recv(65536) if direction else front.read()
                if data == b"":
                    return
                if data is None:
                    continue
                if hook is not None:
                    hook(front, direction, counts[direction])
                counts[direction] += 1
                if direction:
                    front.write(data)
                else:
                    back.sendall(data)
