"""A JVM that runs, and how an agent is loaded into it: HotSpot's attach mechanism on Linux, as jcmd uses it.

The JVM listens on a socket `/tmp/.java_pidN`, once a file `/tmp/.attach_pidN` and a SIGQUIT have asked it to. It
accepts its own user and root. In a container it has a /tmp and a process id of its own. Everything in it is reached
from that folder, once it is open, because others may make links.
"""

from __future__ import annotations

import os
import signal
import socket
import stat
import struct
import time
from contextlib import suppress
from pathlib import Path

#: How long a JVM may take to answer.
_PATIENCE = 10.0
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class AttachError(Exception):
    """The agent could not be loaded; the text says why and what to do."""


class NoAnswer(AttachError):
    """The JVM was asked to load an agent and has not answered: it may still do it."""


class Jvm:
    """A process that is a JVM. AttachError if it is none, does not run, or belongs to another user.

    `user`, `group`: its effective ids. `own_pid`: its process id as it sees itself. `main`: its main class or jar.
    `tmp`: its open /tmp. `is_here`: it sees the same files as this process.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        try:
            self._process = os.pidfd_open(pid)
            status = Path(f"/proc/{pid}/status").read_text()
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except (OSError, OverflowError):
            raise AttachError(f"there is no process {pid} (`jps -l` and `pgrep -af java` list those of Java)") from None
        fields = {name: value.split() for name, _, value in (line.partition(":") for line in status.splitlines())}
        self.user, self.group = int(fields["Uid"][1]), int(fields["Gid"][1])
        self.own_pid = int(fields.get("NSpid", [str(pid)])[-1])
        if os.geteuid() not in (0, self.user):
            raise AttachError(f"process {pid} belongs to user {self.user}: run this as that user, or with sudo")
        # A program that does not catch SIGQUIT ends by it.
        catches_quit = int(fields["SigCgt"][0], 16) >> (signal.SIGQUIT - 1) & 1
        if not catches_quit or not _has_libjvm(pid):
            raise AttachError(f"process {pid} is no JVM, or one that cannot be attached to (option -Xrs)")
        self.main = _main_class([word.decode(errors="replace") for word in words])
        try:
            root = os.open(f"/proc/{pid}/root", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                self.tmp = os.open("tmp", _FOLDER, dir_fd=root)
            finally:
                os.close(root)
            self.is_here = os.readlink(f"/proc/{pid}/ns/mnt") == os.readlink("/proc/self/ns/mnt")
        except OSError as error:
            raise AttachError(f"cannot open /tmp of process {pid}: {error.strerror}") from None

    def load(self, jar: str, arguments: str) -> None:
        """Load an agent: `jar` is its path as the JVM sees it. Returns when its `agentmain` has. AttachError."""
        said = self._ask("load", "instrument", "false", f"{jar}={arguments}")
        code, _, rest = said.partition("\n")
        result = rest.removeprefix("return code: ").strip() or "0"
        if code.strip() != "0" or result != "0":
            words = " ".join(said.split())
            raise AttachError(f"the JVM could not start the agent ({words}); its standard error says why")

    def _ask(self, *words: str) -> str:
        name = f".java_pid{self.own_pid}"
        if self._kind(name) is None:
            self._begin_listening(name)
        with socket.socket(socket.AF_UNIX) as channel:
            channel.settimeout(_PATIENCE)
            try:
                channel.connect(f"/proc/self/fd/{self.tmp}/{name}")
                self._check_peer(channel)
                channel.sendall(b"".join(word.encode() + b"\0" for word in ("1", *words)))
            except OSError as error:
                raise AttachError(f"the JVM does not answer: {error.strerror or error}") from None
            parts = []
            try:
                while part := channel.recv(65_536):
                    parts.append(part)
            except OSError as error:
                raise NoAnswer(f"the JVM does not answer: {error.strerror or error}") from None
        return b"".join(parts).decode(errors="replace")

    def _check_peer(self, channel: socket.socket) -> None:
        """AttachError if another process listens than the one that was named."""
        peer, _, _ = struct.unpack("iII", channel.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        if peer != self.pid:
            raise AttachError(f"/tmp/.java_pid{self.own_pid} is a socket of process {peer}, not of {self.pid}")

    def _kind(self, name: str) -> int | None:
        """What kind of file a name in its /tmp has; None if there is none."""
        try:
            return stat.S_IFMT(os.stat(name, dir_fd=self.tmp, follow_symlinks=False).st_mode)
        except OSError:
            return None

    def _begin_listening(self, name: str) -> None:
        """Let the JVM open its socket."""
        request = f".attach_pid{self.own_pid}"
        try:
            os.close(os.open(request, _NEW_FILE, 0o600, dir_fd=self.tmp))
        except FileExistsError:
            raise AttachError(f"/tmp/{request} is there already; remove it if no other program attaches") from None
        except OSError as error:
            raise AttachError(f"cannot write to the JVM's /tmp: {error.strerror}") from None
        try:
            end = time.monotonic() + _PATIENCE
            signal.pidfd_send_signal(self._process, signal.SIGQUIT)
            while self._kind(name) != stat.S_IFSOCK:
                if time.monotonic() > end:
                    raise AttachError("the JVM opens no socket to attach to; has it -XX:+DisableAttachMechanism?")
                time.sleep(0.05)
        except OSError as error:
            raise AttachError(f"cannot attach to process {self.pid}: {error.strerror}") from None
        finally:
            with suppress(OSError):
                os.unlink(request, dir_fd=self.tmp)


def _has_libjvm(pid: int) -> bool:
    try:
        return "/libjvm.so" in Path(f"/proc/{pid}/maps").read_text(errors="replace")
    except OSError:
        return False


#: Options of `java` that take the next word.
_WITH_VALUE = (
    "-cp", "-classpath", "--class-path", "-p", "--module-path", "--add-modules", "--add-exports", "--add-opens",
    "--add-reads", "--limit-modules", "--upgrade-module-path",
)  # fmt: skip


def _main_class(words: list[str]) -> str:
    """The main class, module or jar of a command line of `java`; its first word if it has none."""
    rest = iter(words[1:])
    for word in rest:
        if word in ("-jar", "-m", "--module"):
            return next(rest, "")
        if word in _WITH_VALUE:
            next(rest, "")
        elif word and not word.startswith("-"):
            return word
    return words[0]
