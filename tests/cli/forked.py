"""`kafkatap` as a process of its own, without the start of an interpreter: a fork of one that has imported the package.

A start imports for a fifth of a second before the command begins, and the tests of commands start it a thousand times.
`run` sends arguments, folder and environment to a server, with the files that are to be the standard ones. The server
forks; the child runs what the installed command runs. What depends on the start itself needs a real one
(`tests.cli.running`): variables that Python or the kernels read then, terminals, signals, memory.
"""

from __future__ import annotations

import atexit
import io
import json
import os
import selectors
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from functools import cache
from typing import NoReturn

#: Variables with these beginnings are read while the interpreter starts or modules are imported.
READ_AT_START = ("PYTHON", "NUMBA_", "KAFKATAP_", "LD_", "MALLOC_", "OPENBLAS_", "LC_", "LANG")
#: Modules that a report imports while it runs.
_IMPORTED = (
    "kafkatap.commands.command_parser", "kafkatap.commands.report.command", "kafkatap.commands.show.command",
    "kafkatap.kernels.library", "kafkatap.reports.build", "kafkatap.reports.rendering.text",
    "kafkatap.reports.rendering.json_report",
)  # fmt: skip
_LENGTH = struct.Struct("<I")
_NUMBER = struct.Struct("<i")


def can_run(environment: Mapping[str, str]) -> bool:
    """Whether a fork is as a start with these variables."""
    return _read_at_start(environment) == _server().read_at_start


def run(arguments: Sequence[str], cwd: str, environment: Mapping[str, str], timeout: float) -> tuple[int, bytes, bytes]:
    """Run a command. Return its exit code (negative: the signal that ended it), and its output and errors.

    TimeoutExpired after so many seconds.
    """
    return _server().run(arguments, cwd, environment, time.monotonic() + timeout)


def _read_at_start(environment: Mapping[str, str]) -> dict[str, str]:
    wanted = {name: value for name, value in environment.items() if name.startswith(READ_AT_START)}
    return {**wanted, "PYTHONIOENCODING": "utf-8"}


@cache
def _server() -> _Server:
    made = _Server()
    atexit.register(made.end)
    return made


class _Server:
    """The server of this process, as its client. It ends when this process does."""

    def __init__(self) -> None:
        self.read_at_start = _read_at_start(os.environ)
        self._socket, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.cli.forked", str(theirs.fileno())], pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip

    def run(
        self, arguments: Sequence[str], cwd: str, environment: Mapping[str, str], end: float
    ) -> tuple[int, bytes, bytes]:
        message = json.dumps([list(arguments), cwd, dict(environment)]).encode()
        pipes = os.pipe(), os.pipe()
        socket.send_fds(self._socket, [_LENGTH.pack(len(message))], [written for _, written in pipes])
        for _, written in pipes:
            os.close(written)
        self._socket.sendall(message)
        (pid,) = _NUMBER.unpack(_received(self._socket, _NUMBER.size))
        said = _read_all([read for read, _ in pipes], end)
        if said is None:
            os.kill(pid, signal.SIGKILL)
        (code,) = _NUMBER.unpack(_received(self._socket, _NUMBER.size))
        if said is None:
            raise subprocess.TimeoutExpired(list(arguments), end)
        return int(code), *said

    def end(self) -> None:
        self._socket.close()
        self._process.wait(10)


def _read_all(files: Sequence[int], end: float) -> tuple[bytes, bytes] | None:
    """All bytes of two pipes, which are closed then; None if they are open after `end`."""
    found: dict[int, list[bytes]] = {file: [] for file in files}
    with selectors.DefaultSelector() as selector:
        for file in files:
            selector.register(file, selectors.EVENT_READ)
        while selector.get_map():
            ready = selector.select(max(0.0, end - time.monotonic()))
            if not ready:
                break
            for key, _ in ready:
                data = os.read(key.fd, 1 << 20)
                found[key.fd].append(data)
                if not data:
                    selector.unregister(key.fd)
        is_over = not selector.get_map()
    for file in files:
        os.close(file)
    out, errors = (b"".join(parts) for parts in found.values())
    return (out, errors) if is_over else None


def _received(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        more = connection.recv(count - len(data))
        if not more:
            raise EOFError("the server of forks has ended")
        data += more
    return data


def _serve(connection: socket.socket) -> None:
    """Fork for each request until the client is gone. Nothing here has started a thread."""
    while True:
        head, files, _, _ = socket.recv_fds(connection, _LENGTH.size, 2)
        if not head:
            return
        arguments, cwd, environment = json.loads(_received(connection, *_LENGTH.unpack(head)))
        pid = os.fork()
        if not pid:
            connection.close()
            _become(arguments, cwd, environment, files)
        for file in files:
            os.close(file)
        connection.sendall(_NUMBER.pack(pid))
        connection.sendall(_NUMBER.pack(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])))


def _become(arguments: list[str], cwd: str, environment: dict[str, str], files: list[int]) -> NoReturn:
    """Run the command in this process."""
    from kafkatap.__main__ import command

    for number, file in zip((1, 2), files, strict=True):
        os.dup2(file, number)
        os.close(file)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    sys.stdin, sys.stdout = open(0, encoding="utf-8"), open(1, "w", encoding="utf-8")  # noqa: SIM115
    # As the interpreter makes it: each line is written at once.
    sys.stderr = io.TextIOWrapper(io.FileIO(2, "w"), "utf-8", "backslashreplace", line_buffering=True)
    sys.argv = ["kafkatap", *arguments]
    command()


if __name__ == "__main__":
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    for _name in _IMPORTED:
        __import__(_name)
    os.environ.pop("OPENBLAS_NUM_THREADS")
    _serve(socket.socket(fileno=int(sys.argv[1])))
