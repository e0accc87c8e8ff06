"""Load the agent into a JVM, and read the lines that it writes to a named pipe, until its time is over."""

from __future__ import annotations

import os
import secrets
import selectors
import stat
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from .jvm import AttachError, Jvm, NoAnswer
from .outlets import Outlet

_JAR = Path(__file__).with_name("agent.jar")
#: The agent writes something twice a second. Silence for so long: the JVM has stopped.
_SILENCE = 60.0
#: Seconds after which the agent ends by itself, if this process has not ended it.
_GRACE = 5
#: How long the agent may take to write what waits when it has been ended.
_LAST = 10.0
_LONGEST_LINE = 4_096
#: One line of each connection begins so. What stands in place of the client random of one that was open.
_ONCE, _ENDS = (b"CLIENT_RANDOM", b"CLIENT_TRAFFIC_SECRET_0"), b"kafkatap".hex().encode()


@dataclass(slots=True)
class Taken:
    """What was taken. `open`: connections that were open. `handshakes`: of new connections. `lines`: with secrets.
    `missed`: secrets that could not be read, and `problem` the last reason. `is_complete`: the agent has ended as it
    should."""

    open: int = 0
    handshakes: int = 0
    lines: int = 0
    missed: int = 0
    problem: str = ""
    is_complete: bool = False


class Agent:
    """The agent's jar as it is installed: read before root becomes another user."""

    def __init__(self) -> None:
        self.data = _JAR.read_bytes()
        path = _JAR.resolve()
        are_open = [place.stat().st_mode & 0o001 for place in path.parents]
        #: Its path, if everybody on this host can read it.
        self.public_path = str(path) if all(are_open) and path.stat().st_mode & 0o004 else None


def take(
    jvm: Jvm, agent: Agent, outlet: Outlet, seconds: int, peers: Sequence[str], is_over: Callable[[], bool],
    on_change: Callable[[Taken], None],
) -> Taken:  # fmt: skip
    """Take secrets for so many seconds, or until `is_over`. `peers`: networks such as "10.1.0.0/16"; none: all.

    This process has to be of the JVM's user. AttachError if the JVM does not let it.
    """
    folder = _Folder(jvm)
    selector = selectors.DefaultSelector()
    try:
        jar = agent.public_path if jvm.is_here else None
        if jar is None:
            jar = folder.write("agent.jar", agent.data)
        lines = _Lines(folder.reading, outlet, Taken())
        selector.register(folder.reading, selectors.EVENT_READ, lines.read)
        outlet.begin(selector)
        try:
            jvm.load(jar, " ".join([folder.seen, str(seconds + _GRACE), *peers]))
        except NoAnswer as error:
            folder.is_kept = True  # the JVM may still look for it, and nobody else may take its name
            raise AttachError(f"{error}. It may still load the agent, which finds nobody then") from None
        except AttachError as error:
            lines.read()
            raise AttachError(lines.taken.problem or str(error)) from None
        end = time.monotonic() + seconds
        _run(selector, lines, lambda: time.monotonic() >= end or is_over(), on_change)
        is_early = lines.is_over
        folder.remove("pipe")
        last = time.monotonic() + _LAST
        _run(selector, lines, lambda: time.monotonic() >= last, on_change)
        lines.taken.is_complete &= not is_early
        return lines.taken
    finally:
        selector.close()
        folder.close()


class _Folder:
    """A folder in the JVM's /tmp that only its user can enter, with the pipe. AttachError if it cannot be made.

    `seen`: its path as the JVM sees it. `reading`: the pipe. `is_kept`: it stays.
    """

    def __init__(self, jvm: Jvm) -> None:
        name = f"kafkatap-keys-{os.getpid()}-{secrets.token_hex(4)}"
        self.seen = f"/tmp/{name}"
        self.is_kept = False
        self._tmp, self._name = jvm.tmp, name
        try:
            os.mkdir(name, 0o700, dir_fd=jvm.tmp)
            self._number = os.open(
                name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=jvm.tmp
            )  # fmt: skip
            status = os.fstat(self._number)
            if status.st_uid != os.geteuid() or status.st_mode & 0o077:
                raise AttachError(f"{self.seen} was replaced by another user")
            os.mkfifo("pipe", 0o600, dir_fd=self._number)
            flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
            self.reading = os.open("pipe", flags, dir_fd=self._number)
            if not stat.S_ISFIFO(os.fstat(self.reading).st_mode):
                raise AttachError(f"{self.seen}/pipe was replaced")
        except OSError as error:
            raise AttachError(f"cannot write to the JVM's /tmp: {error.strerror}") from None

    def write(self, name: str, data: bytes) -> str:
        """Make a file; return its path as the JVM sees it."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            with open(os.open(name, flags, 0o600, dir_fd=self._number), "wb") as file:
                file.write(data)
        except OSError as error:
            raise AttachError(f"cannot write {self.seen}/{name} for the JVM: {error.strerror}") from None
        return f"{self.seen}/{name}"

    def remove(self, name: str) -> None:
        with suppress(OSError):
            os.unlink(name, dir_fd=self._number)

    def close(self) -> None:
        """Remove it, and what is in it."""
        os.close(self.reading)
        if not self.is_kept:
            for name in ("pipe", "agent.jar"):
                self.remove(name)
            with suppress(OSError):
                os.rmdir(self._name, dir_fd=self._tmp)
        os.close(self._number)


def _run(
    selector: selectors.BaseSelector, lines: _Lines, is_over: Callable[[], bool], on_change: Callable[[Taken], None]
) -> None:
    """Read lines until it is over, or the agent has ended."""
    shown = -1
    while not lines.is_over and not is_over():
        for key, _ in selector.select(0.25):
            key.data()
        lines.outlet.flush()
        if time.monotonic() - lines.last > _SILENCE:
            raise AttachError("the JVM has written nothing for a minute: has it stopped?")
        if lines.taken.lines != shown and lines.has_begun:
            shown = lines.taken.lines
            on_change(lines.taken)


class _Lines:
    """Reads the pipe."""

    def __init__(self, number: int, outlet: Outlet, taken: Taken) -> None:
        self._number = number
        self.outlet = outlet
        self._rest = b""
        self.has_begun = False
        self.taken = taken
        self.is_over = False
        self.last = time.monotonic()

    def read(self) -> None:
        """Read the bytes that are in the pipe now."""
        with suppress(BlockingIOError):
            while data := os.read(self._number, 65_536):
                self.has_begun, self.last = True, time.monotonic()
                *whole, self._rest = (self._rest + data).split(b"\n")
                self._use(whole)
                if len(self._rest) > _LONGEST_LINE:
                    raise AttachError("the agent's pipe has something else than lines")
            self.is_over = self.has_begun  # the agent has closed it

    def _use(self, lines: list[bytes]) -> None:
        taken, found = self.taken, []
        for line in lines:
            word, _, rest = line.partition(b" ")
            if word == b"#":
                self._note(rest.decode(errors="replace"))
            elif word:
                found.append(line + b"\n")
                taken.handshakes += word in _ONCE and not rest.startswith(_ENDS)
        taken.lines += len(found)
        if found:
            self.outlet.write(b"".join(found))

    def _note(self, text: str) -> None:
        word, _, rest = text.partition(" ")
        count, _, problem = rest.partition(" ")
        taken = self.taken
        if word in ("open", "more") and count.isdecimal():
            taken.open += int(count)
        elif word == "missed" and count.isdecimal():
            taken.missed, taken.problem = int(count), problem.strip()
        elif word == "error":
            taken.problem = rest
        elif word == "end":
            taken.is_complete = True
