"""`kafkatap` as a process of its own, without the start of an interpreter: a fork of one that has imported the package.

A start imports for a fifth of a second before the command begins, and the tests of commands start it a thousand times.
`run` sends arguments, folder and environment to a server, with the files that are to be the standard ones. The server
forks; the child runs what the installed command runs. What depends on the start itself needs a real one
(`tests.cli.running`): variables that Python or the kernels read then, terminals, signals, memory.
"""

from __future__ import annotations

import atexit
import gc
import io
import json
import os
import pkgutil
import selectors
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from typing import NoReturn

#: Variables with these beginnings are read while the interpreter starts or modules are imported.
_READ_AT_START = ("PYTHON", "NUMBA_", "KAFKATAP_", "LD_", "MALLOC_", "OPENBLAS_", "LC_", "LANG", "MPL")
#: What a command sets for itself (it stays where a test calls one in its own process), and what all tests set.
_SET = {"OPENBLAS_NUM_THREADS": "1", "KAFKATAP_PAGER": ""}
#: The variables before any test: the server starts with them, whichever test is the first to need it.
_AT_IMPORT = dict(os.environ)
#: Packages of which commands import modules while they run, and other modules that take long. Those that are missing
#: are left out.
_PACKAGES = ("kafkatap.commands", "kafkatap.reports", "kafkatap.dissector", "kafkatap.parquet")
_MODULES = (
    "kafkatap.kernels.library", "kafkatap.kernels.kept_objects", "kafkatap.selected_messages.selected_records",
    "kafkatap.spark.lake_report", "kafkatap.spark.verifying", "deltalake", "pyarrow.dataset", "pyarrow.parquet",
    "pandas", "matplotlib.figure", "matplotlib.backends.backend_svg", "cramjam", "crc32c", "lz4.frame", "zstandard",
    "llvmlite.binding", "jinja2",
)  # fmt: skip
_LENGTH = struct.Struct("<I")
_NUMBER = struct.Struct("<i")
_END = struct.Struct("<id")


def can_run(environment: Mapping[str, str]) -> bool:
    """Whether a fork is as a start with these variables."""
    return not differences(environment)


def differences(environment: Mapping[str, str]) -> set[tuple[str, str]]:
    """Variables that are read at the start and are others, or have other values, than the server's."""
    return set(_read_at_start(environment).items()) ^ set(_read_at_start(_AT_IMPORT).items())


def run(arguments: Sequence[str], cwd: str, environment: Mapping[str, str], timeout: float) -> tuple[int, bytes, bytes]:
    """Run a command. Return its exit code (negative: the signal that ended it), and its output and errors.

    TimeoutExpired after so many seconds.
    """
    return _server().run(arguments, cwd, environment, time.monotonic() + timeout)


def seconds() -> float:
    """Processor seconds of all forks so far, which are no children of this process."""
    return _server().seconds if _server.cache_info().currsize else 0.0


def _read_at_start(environment: Mapping[str, str]) -> dict[str, str]:
    wanted = {name: value for name, value in environment.items() if name.startswith(_READ_AT_START)}
    return {**_SET, **wanted, "PYTHONIOENCODING": "utf-8"}


@cache
def _server() -> _Server:
    made = _Server()
    atexit.register(made.end)
    return made


class _Server:
    """The server of this process, as its client. It ends when this process does."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._socket, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.cli.forked", str(theirs.fileno())], pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL, start_new_session=True, env=_AT_IMPORT,
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
        code, seconds = _END.unpack(_received(self._socket, _END.size))
        self.seconds += seconds
        if said is None:
            raise subprocess.TimeoutExpired(list(arguments), end)
        return code, *said

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
    """Fork for each request until the client is gone. Its only threads are of allocators that know forks."""
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
        _, status, used = os.wait4(pid, 0)
        connection.sendall(_END.pack(os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime))


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


def _import_all() -> None:
    """Import what commands import, so that no fork does."""
    for package in _PACKAGES:
        folders = import_module(package).__path__
        for found in pkgutil.walk_packages(folders, f"{package}."):
            if not found.name.endswith("__main__"):
                _import(found.name)
    for name in _MODULES:
        _import(name)
    gc.freeze()


def _import(name: str) -> None:
    with suppress(ImportError):
        import_module(name)


if __name__ == "__main__":
    os.environ.update(_SET)
    _import_all()
    _serve(socket.socket(fileno=int(sys.argv[1])))
