"""Load the agent into a JVM, and read the lines that it writes to a named pipe, until its time is over."""

from __future__ import annotations

import os
import selectors
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from .jvm import AttachError, Jvm
from .outlets import Outlet

JAR = Path(__file__).with_name("agent.jar")
#: The agent writes something twice a second. Silence for so long: the JVM has stopped.
_SILENCE = 60.0
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


def take(
    jvm: Jvm, outlet: Outlet, seconds: int, peers: Sequence[str], is_over: Callable[[], bool],
    on_change: Callable[[Taken], None],
) -> Taken:  # fmt: skip
    """Take secrets for so many seconds, or until `is_over`. `peers`: networks such as "10.1.0.0/16"; none: all.

    This process has to be of the JVM's user. AttachError if the JVM does not let it.
    """
    taken = Taken()
    with _folder(jvm) as (folder, seen):
        pipe = folder / "pipe"
        os.mkfifo(pipe, 0o600)
        reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        jar = _visible_jar(jvm, folder, seen)
        selector = selectors.DefaultSelector()
        try:
            lines = _Lines(reading, outlet, taken)
            selector.register(reading, selectors.EVENT_READ, lines.read)
            outlet.begin(selector)
            try:
                jvm.load(jar, " ".join(["start", f"{seen}/pipe", str(seconds), *peers]))
            except AttachError as error:
                lines.read()
                raise AttachError(taken.problem or str(error)) from None
            with suppress(OSError):  # both ends are open: a run that is killed leaves nothing behind
                pipe.unlink()
                folder.rmdir()  # unless it has a copy of the agent
            try:
                _run(selector, lines, time.monotonic() + seconds, is_over, on_change)
            finally:
                with suppress(AttachError):  # a JVM that has ended needs no end
                    jvm.load(jar, "stop")
                lines.read()
        finally:
            selector.close()
            os.close(reading)
    return taken


def _run(
    selector: selectors.BaseSelector, lines: _Lines, end: float, is_over: Callable[[], bool],
    on_change: Callable[[Taken], None],
) -> None:  # fmt: skip
    shown = 0
    while not lines.is_over and time.monotonic() < end and not is_over():
        for key, _ in selector.select(0.25):
            key.data()
        lines.outlet.flush()
        if time.monotonic() - lines.last > _SILENCE:
            raise AttachError("the JVM has written nothing for a minute: has it stopped?")
        if lines.taken.lines != shown or not shown:
            shown = lines.taken.lines
            on_change(lines.taken)


class _Lines:
    """Reads the pipe."""

    def __init__(self, number: int, outlet: Outlet, taken: Taken) -> None:
        self._number = number
        self.outlet = outlet
        self._rest = b""
        self._has_begun = False
        self.taken = taken
        self.is_over = False
        self.last = time.monotonic()

    def read(self) -> None:
        """Read what is there."""
        with suppress(BlockingIOError):
            while data := os.read(self._number, 65_536):
                self._has_begun, self.last = True, time.monotonic()
                *whole, self._rest = (self._rest + data).split(b"\n")
                self._use(whole)
                if len(self._rest) > _LONGEST_LINE:
                    raise AttachError("the agent's pipe has something else than lines")
            self.is_over = self._has_begun  # the agent has closed it

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
        taken = self.taken
        if word in ("open", "more"):
            taken.open += int(rest)
        elif word == "missed":
            count, _, problem = rest.partition(" ")
            taken.missed, taken.problem = int(count), problem.strip()
        elif word == "error":
            taken.problem = rest
        elif word == "end":
            taken.is_complete = True


@contextmanager
def _folder(jvm: Jvm) -> Iterator[tuple[Path, str]]:
    """A folder of this user, and its path as the JVM sees it."""
    try:
        folder = Path(tempfile.mkdtemp(prefix=f"kafkatap-keys-{os.getpid()}-", dir=jvm.root / "tmp"))
    except OSError as error:
        raise AttachError(f"cannot write to the JVM's /tmp: {error.strerror}: {error.filename}") from None
    try:
        yield folder, f"/tmp/{folder.name}"
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _visible_jar(jvm: Jvm, folder: Path, seen: str) -> str:
    """The path of the agent as the JVM sees it: a copy, where it cannot see the installed one."""
    if jvm.root == Path("/"):
        places = [JAR.resolve(), *JAR.resolve().parents]
        if all(os.access(place, os.R_OK if place.is_file() else os.X_OK, effective_ids=True) for place in places):
            return str(JAR.resolve())
    shutil.copyfile(JAR, folder / "agent.jar")
    return f"{seen}/agent.jar"
