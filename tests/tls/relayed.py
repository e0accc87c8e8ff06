"""Connections of `openssl s_client` to `openssl s_server` through a relay that keeps their records."""

from __future__ import annotations

import selectors
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from kafkatap.engine.tls.key_log import KeyLog

from .talk import certificate

OPENSSL = shutil.which("openssl")


class Relay:
    """Passes the bytes of one connection after another. `connections`: their records as (direction, record)."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.connections: list[list[tuple[int, bytes]]] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            with client, socket.create_connection(("127.0.0.1", self._target)) as server:
                self._pass((client, server))

    def _pass(self, ends: tuple[socket.socket, socket.socket]) -> None:
        records: list[tuple[int, bytes]] = []
        self.connections.append(records)
        held = [b"", b""]
        selector = selectors.DefaultSelector()
        for direction, end in enumerate(ends):
            selector.register(end, selectors.EVENT_READ, direction)
        while True:
            for key, _ in selector.select():
                direction = key.data
                try:
                    data = ends[direction].recv(65_536)
                    ends[1 - direction].sendall(data)
                except OSError:
                    return
                if not data:
                    return
                data = held[direction] + data
                while len(data) >= 5 and len(data) >= (length := 5 + int.from_bytes(data[3:5], "big")):
                    records.append((direction, data[:length]))
                    data = data[length:]
                held[direction] = data

    def close(self) -> None:
        self._listener.close()


class Server:
    """`openssl s_server -rev`: it sends each line back, reversed."""

    def __init__(self, folder: Path, options: Sequence[str]) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port: int = free.getsockname()[1]
        self._keys = folder / "keys.log"
        path = certificate("broker.example")
        command = [OPENSSL or "", "s_server", "-accept", f"127.0.0.1:{self.port}", "-cert", path, "-key", path]
        if "-early_data" not in options:
            command.append("-rev")
        self._process = subprocess.Popen(
            [*command, "-keylogfile", str(self._keys), *options],
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        self._wait()
        self.relay = Relay(self.port)

    def _wait(self) -> None:
        for _ in range(200):
            try:
                socket.create_connection(("127.0.0.1", self.port)).close()
                return
            except OSError:
                time.sleep(0.05)
        raise AssertionError("openssl s_server does not listen")

    def say(self, lines: Sequence[str], options: Sequence[str] = (), pause: float = 0.25) -> list[tuple[int, bytes]]:
        """Connect, write the lines with pauses, and end. Returns the records."""
        count = len(self.relay.connections)
        process = subprocess.Popen(
            [OPENSSL or "", "s_client", "-connect", f"127.0.0.1:{self.relay.port}", *options],
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        assert process.stdin is not None
        time.sleep(2 * pause)
        for line in (*lines, "Q"):
            try:
                process.stdin.write(line.encode() + b"\n")
                process.stdin.flush()
            except BrokenPipeError:
                break
            time.sleep(pause)
        with suppress(BrokenPipeError):
            process.stdin.close()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(20)
        time.sleep(pause)
        return self.relay.connections[count]

    @property
    def key_log(self) -> KeyLog:
        return KeyLog([str(self._keys)])

    def close(self) -> None:
        self.relay.close()
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.kill()
        self._process.wait(20)
