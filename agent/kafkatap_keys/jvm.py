"""A JVM that runs, and how an agent is loaded into it: HotSpot's attach mechanism on Linux, as jcmd uses it.

The JVM listens on a socket `/tmp/.java_pidN`, once a file `/tmp/.attach_pidN` and a SIGQUIT have asked it to. It
accepts its own user and root. In a container it has a /tmp and a process id of its own.
"""

from __future__ import annotations

import os
import signal
import socket
import stat
import time
from contextlib import suppress
from pathlib import Path

#: How long a JVM may take to answer.
_PATIENCE = 10.0


class AttachError(Exception):
    """The agent could not be loaded; the text says why and what to do."""


class Jvm:
    """A process that is a JVM. AttachError if it is none, or does not run.

    `user`, `group`: its effective ids. `own_pid`: its process id as it sees itself. `root`: the path of its root
    folder. `main`: its main class or jar. `java`: its version, such as "17.0.15"; "" if unknown.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        try:
            status = Path(f"/proc/{pid}/status").read_text()
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            raise AttachError(f"there is no process {pid} (`jps -l` and `pgrep -af java` list those of Java)") from None
        fields = {name: value.split() for name, _, value in (line.partition(":") for line in status.splitlines())}
        self.user, self.group = int(fields["Uid"][1]), int(fields["Gid"][1])
        self.own_pid = int(fields.get("NSpid", [str(pid)])[-1])
        # A program that does not catch SIGQUIT ends by it.
        self._catches_quit = bool(int(fields["SigCgt"][0], 16) >> (signal.SIGQUIT - 1) & 1)
        self.main = _main_class([word.decode(errors="replace") for word in words])
        if not self.main or not self._catches_quit:
            raise AttachError(f"process {pid} is no JVM, or one that cannot be attached to (option -Xrs)")
        self.root = Path("/") if _is_own_mount(pid) else Path(f"/proc/{pid}/root")
        self.java = self._version()

    def _version(self) -> str:
        with suppress(OSError):
            home = Path(os.readlink(f"/proc/{self.pid}/exe")).parent.parent
            for line in (self.root / home.relative_to("/") / "release").read_text().splitlines():
                if line.startswith("JAVA_VERSION="):
                    return line.partition("=")[2].strip('"')
        return ""

    def load(self, jar: str, arguments: str) -> None:
        """Load an agent: `jar` is its path as the JVM sees it. Returns when its `agentmain` has. AttachError."""
        said = self._ask("load", "instrument", "false", f"{jar}={arguments}")
        code, _, rest = said.partition("\n")
        result = rest.removeprefix("return code: ").strip() or "0"
        if code.strip() != "0" or result != "0":
            raise AttachError(
                f"the JVM could not start the agent ({' '.join(said.split())}); its standard error says why"
            )

    def _ask(self, *words: str) -> str:
        path = self.root / f"tmp/.java_pid{self.own_pid}"
        if not path.exists():
            self._begin_listening(path)
        found = os.lstat(path)
        if not stat.S_ISSOCK(found.st_mode) or found.st_uid not in (self.user, 0):
            raise AttachError(f"{path} is not the socket of the JVM: it belongs to another user")
        with socket.socket(socket.AF_UNIX) as channel:
            channel.settimeout(_PATIENCE)
            try:
                channel.connect(str(path))
                channel.sendall(b"".join(word.encode() + b"\0" for word in ("1", *words)))
                parts = []
                while part := channel.recv(65_536):
                    parts.append(part)
            except OSError as error:
                raise AttachError(f"the JVM does not answer: {error.strerror or error}") from None
        return b"".join(parts).decode(errors="replace")

    def _begin_listening(self, path: Path) -> None:
        """Let the JVM open its socket."""
        request = self.root / f"tmp/.attach_pid{self.own_pid}"
        try:
            os.close(os.open(request, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
            end = time.monotonic() + _PATIENCE
            os.kill(self.pid, signal.SIGQUIT)
            while not path.exists():
                if time.monotonic() > end:
                    raise AttachError("the JVM opens no socket to attach to; has it -XX:+DisableAttachMechanism?")
                time.sleep(0.05)
        except OSError as error:
            raise AttachError(
                f"cannot attach to process {self.pid}: {error.strerror}: {error.filename or ''}"
            ) from None
        finally:
            with suppress(OSError):
                request.unlink()


def _is_own_mount(pid: int) -> bool:
    """Whether a process sees the same files as this one."""
    try:
        return os.readlink(f"/proc/{pid}/ns/mnt") == os.readlink("/proc/self/ns/mnt")
    except OSError:
        return True


#: Options of `java` that take the next word.
_WITH_VALUE = (
    "-cp", "-classpath", "--class-path", "-p", "--module-path", "--add-modules", "--add-exports", "--add-opens",
    "--add-reads", "--limit-modules", "--upgrade-module-path",
)  # fmt: skip


def _main_class(words: list[str]) -> str:
    """The main class, module or jar of a command line of `java`; "" if it is none."""
    if "java" not in words[0].rpartition("/")[2]:
        return ""
    rest = iter(words[1:])
    for word in rest:
        if word in ("-jar", "-m", "--module"):
            return next(rest, "")
        if word in _WITH_VALUE:
            next(rest, "")
        elif word and not word.startswith("-"):
            return word
    return "java"
