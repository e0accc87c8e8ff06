"""Named outputs: files that appear whole or not at all.

An `OutputFile` is written under a temporary name. When it appears, it has the permissions and the owner of the file
that it replaces; it replaces no file that others wrote (`replaceable`). A device, a pipe and an open file (/dev/stdout,
`>(command)`) get the bytes at that moment. A symbolic link is refused, because whoever made it would choose the file.
`OutputFiles` are files of one folder that appear together. `write_whole` writes a text. `UnnamedFile` is one that
nobody sees: it has no name, so it is gone when the process ends, however that happens. `check_file`, `check_folder` and
`check_output` find out before a long run whether a file can be written.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, BinaryIO, Self, cast

from .replaceable import KIND_OF, PCAPNG, TEXT, check_replaceable, check_replaced, found_at

if TYPE_CHECKING:
    from pathlib import Path

STANDARD_OUTPUT = "-"


def check_file(
    option: str, path: str, kind: str, inputs: Iterable[str] = (), overwrite: bool = False, line: bytes | None = None
) -> None:  # fmt: skip
    """Check that an option's file can be written. ValueError if the name is none of a file, or that of an input;
    OSError if it is a symbolic link, or if its folder is missing or takes no file; FileExistsError if a file of this
    kind does not replace what is there (`check_replaceable`)."""
    if not path or path == STANDARD_OUTPUT:
        raise ValueError(f"{option} needs the name of a file")
    if os.path.isdir(path):
        raise ValueError(f"{option}: {path} is a directory; name a file in it")
    check_not_read(option, path, inputs, "capture")
    _check_place(path)
    if folder_of(path) is not None:
        check_replaceable(path, kind, overwrite, line)


def check_not_read(option: str, path: str, inputs: Iterable[str], what: str = "input") -> None:
    """Check that an option's file is none of the files that are read: ValueError. `what`: a word for these."""
    for name in inputs:
        with suppress(OSError):
            if stat.S_ISREG(os.stat(name).st_mode) and os.path.samefile(path, name):
                raise ValueError(f"{option} would overwrite the {what} {name}; name another file")


def check_folder(
    option: str, path: str, suffixes: Sequence[str], names: Callable[[], Collection[str]] = tuple,
    overwrite: bool = False,
) -> None:  # fmt: skip
    """Check that an option's folder takes files, and make it if it is missing. ValueError if the name is none of a
    folder; OSError if it takes none, or if one of its files with such a suffix is a symbolic link. FileExistsError if
    one that may be written, by its name without the suffix, does not replace what is there. That a text is one of ours
    is known when it is written."""
    if not path:
        raise ValueError(f"{option} needs the name of a directory")
    if os.path.exists(path) and not os.path.isdir(path):
        raise ValueError(f"{path} is not a directory")
    os.makedirs(path, exist_ok=True)
    _check_folder(path, path)
    with os.scandir(path) as entries:
        for entry in entries:
            stem, suffix = os.path.splitext(entry.name)
            if suffix in suffixes:
                refuse_link(entry.path)
                if stem in names():
                    kind = KIND_OF[suffix]
                    check_replaceable(entry.path, kind, overwrite or kind == TEXT)


def check_output(output: str | UnnamedFile, captures: Sequence[str], overwrite: bool = False) -> None:
    """Check that a pcapng can be written: ValueError or OSError, as for `check_file`."""
    if isinstance(output, UnnamedFile):
        return
    number = 1 if output == STANDARD_OUTPUT else _open_file(output)
    if number is not None:
        if os.isatty(number):
            raise ValueError("standard output is a terminal; pipe it (kafkatap extract ... -o - | tshark -r -)")
        return
    if output.endswith((".gz", ".zst")):
        raise ValueError(f"{output}: the packets are not compressed; name it .pcapng, and compress the file afterwards")
    if output.endswith((".pcap", ".cap")):
        raise ValueError(f"{output}: a pcap holds no comments and no names; name it .pcapng")
    check_file("output", output, PCAPNG, captures, overwrite)


def _check_place(path: str) -> None:
    """OSError if nothing can be written there."""
    if _open_file(path) is not None:
        return
    if is_device(path):
        if not os.access(path, os.W_OK):
            raise PermissionError(errno.EACCES, "permission denied", path)
        return
    refuse_link(path)
    _check_folder(os.path.dirname(path) or ".", path)


def _check_folder(folder: str, path: str) -> None:
    """OSError if no file can be created in a folder. `path`: its name in messages."""
    import tempfile  # imported late: most runs write no file

    if not os.path.isdir(folder):
        raise FileNotFoundError(errno.ENOENT, "no such folder", folder)
    try:
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise OSError(error.errno, "no file can be created in this folder", path) from None


def refuse_link(path: str) -> None:
    """OSError if it is a symbolic link."""
    if os.path.islink(path):
        target = os.path.realpath(path)
        what = f"this is a symbolic link to {target}; name {target} itself, or remove the link"
        raise OSError(errno.ELOOP, what, path)


def _open_file(path: str) -> int | None:
    """The number of this process' open file that a path such as /dev/stdout or /dev/fd/63 leads to."""
    while os.path.exists(path):
        folder, name = os.path.realpath(os.path.dirname(path) or "."), os.path.basename(path)
        if folder == f"/proc/{os.getpid()}/fd":
            return int(name)
        path = os.path.join(folder, name)
        if folder != "/dev" or not os.path.islink(path):
            return None
        path = os.path.join(folder, os.readlink(path))
    return None


def is_device(path: str) -> bool:
    """Whether it is a device, a pipe, or an open file of another process. Links to them count only in /dev and /proc,
    where the system makes them."""
    try:
        if not os.path.islink(path):
            return not stat.S_ISREG(os.stat(path).st_mode)
    except OSError:
        return False
    folder = os.path.realpath(os.path.dirname(path) or ".")
    return folder == "/dev" or folder.startswith("/proc/")


def write_whole(path: str, text: str, overwrite: bool = False) -> None:
    """Write a text as UTF-8. A file of that name is replaced at once, and a device or pipe is written to. OSError, with
    this path, if it cannot be written. `overwrite`: as of `OutputFile`."""
    with naming(path), OutputFile(path, is_private=False, overwrite=overwrite) as made:
        made.file.write(text.encode())
        made.publish()


@contextmanager
def naming(path: str) -> Iterator[None]:
    """Raise OSErrors with this path: those of open files name none, others the temporary name."""
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, path) from None


def folder_of(output: str) -> str | None:
    """The folder for temporary files of an output; None is that of the system."""
    if output == STANDARD_OUTPUT or _open_file(output) is not None or is_device(output):
        return None
    return os.path.dirname(output) or "."


class UnnamedFile:
    """A file without a name, with the methods of an `OutputFile`. `path` opens it in this process and its children.

    Its bytes stay until the context is left. Where a system has no /proc, it has a name until then.
    """

    def __init__(self, folder: str | None) -> None:
        import tempfile  # imported late: most runs write no file

        unnamed = tempfile.TemporaryFile(buffering=1 << 20, dir=folder)  # noqa: SIM115 - closed by `__exit__`
        self.file: BinaryIO = cast(BinaryIO, unnamed)
        self.path = f"/proc/{os.getpid()}/fd/{self.file.fileno()}"
        self._is_named = not os.path.exists(self.path)
        if self._is_named:
            self.file.close()
            handle, self.path = tempfile.mkstemp(".part", ".kafkatap-", folder)  # 0600
            self.file = os.fdopen(handle, "w+b", 1 << 20)

    def __enter__(self) -> UnnamedFile:
        return self

    def restart(self) -> None:
        """Drop what was written."""
        self.file.seek(0)
        self.file.truncate()

    def publish(self) -> None:
        """Make all bytes readable through `path`."""
        self.file.flush()

    def __exit__(self, *_: object) -> None:
        """Remove it."""
        self.file.close()
        if self._is_named:
            with suppress(OSError):
                os.unlink(self.path)


class OutputFile:
    """The file under a temporary name. `publish` gives it its own name, or copies it to standard output, a device or a
    pipe; leaving the context without that removes it. OSError if its name is a symbolic link.

    `overwrite`: it may replace another one's file of its kind; otherwise `publish` raises FileExistsError.
    `is_private`: only its user may read it, unless it replaces a file that others may read. `is_locked`: its temporary
    name is `.NAME.part`. Another run that writes the same file gets BlockingIOError, and what a killed run left is
    overwritten.
    """

    def __init__(
        self, output: str, is_private: bool = True, is_locked: bool = False, overwrite: bool = False
    ) -> None:  # fmt: skip
        import tempfile  # imported late: most runs write no file

        self._output, self._is_private, self._overwrite = output, is_private, overwrite
        folder = folder_of(output)
        self._is_named = folder is not None
        if self._is_named:
            refuse_link(output)
        with naming(output):
            if folder is not None and is_locked:
                self.path = os.path.join(folder, f".{os.path.basename(output)}.part")
                handle = _locked(self.path)
            else:
                handle, self.path = tempfile.mkstemp(".part", ".kafkatap-", folder)  # 0600
        self.file: BinaryIO = os.fdopen(handle, "w+b", 1 << 20)
        self._is_there = True

    def __enter__(self) -> Self:
        return self

    def restart(self) -> None:
        """Drop what was written."""
        self.file.seek(0)
        self.file.truncate()

    def publish(self) -> None:
        """Make the file appear."""
        with naming(self._output):
            self.file.flush()
            if self._is_named:
                self.check()
                self._take_permissions()
                os.replace(self.path, self._output)
                self._is_there = False
            else:
                self._copy()

    def check(self) -> None:
        """FileExistsError if what was written, which has to be flushed, may not replace what is there. A link is
        replaced, and not the file that it names."""
        if self._is_named and not os.path.islink(self._output):
            check_replaced(self._output, self.path, self._overwrite)

    def _copy(self) -> None:
        """Write the bytes to what is no file with a name of its own."""
        import shutil  # imported late: most runs write no file

        self.file.seek(0)
        if self._output == STANDARD_OUTPUT:
            shutil.copyfileobj(self.file, sys.stdout.buffer, 1 << 20)
            sys.stdout.buffer.flush()
            return
        sys.stdout.flush()  # it may lead to the same file
        number = _open_file(self._output)
        # No file is made or emptied, even if one took the place of a device. An open file would be written from its
        # start if it were opened again.
        again = os.open(self._output, os.O_WRONLY | os.O_NOCTTY | os.O_CLOEXEC) if number is None else os.dup(number)
        with open(again, "wb") as output:
            shutil.copyfileobj(self.file, output, 1 << 20)

    def _take_permissions(self) -> None:
        """Take those of the file that is replaced, and its owner if that is possible."""
        handle = self.file.fileno()
        try:
            old = os.lstat(self._output)
        except FileNotFoundError:
            old = None
        if old is None or not stat.S_ISREG(old.st_mode):
            os.fchmod(handle, 0o600 if self._is_private else 0o666 & ~_umask())
            return
        mode, own = old.st_mode & 0o777, os.fstat(handle)
        if own.st_gid != old.st_gid:
            try:
                os.fchown(handle, -1, old.st_gid)
            except OSError:  # the permissions of a group are not for another one
                mode = mode & 0o707 | (mode & 0o007) << 3
        if own.st_uid != old.st_uid:
            with suppress(OSError):
                os.fchown(handle, old.st_uid, -1)
        os.fchmod(handle, mode)

    def __exit__(self, *_: object) -> None:
        if self._is_there:
            with suppress(OSError):
                os.unlink(self.path)  # before `close`, which writes what is left and fails where the disk is full
        self.file.close()


def _locked(path: str) -> int:
    """Open an empty file for writing, locked where the file system has locks. OSError if another run writes it, or if
    it is not an unfinished file of this user."""
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
        try:
            found = os.fstat(handle)
            if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1 or found.st_uid != os.geteuid():
                raise FileExistsError(errno.EEXIST, f"{path} is not an unfinished file of this user; remove it")
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise BlockingIOError(errno.EAGAIN, "another run of kafkatap writes this file") from None
            except OSError:  # there are no locks, as on some network file systems
                pass
            if os.path.exists(path) and os.path.samestat(os.stat(path), found):
                os.fchmod(handle, 0o600)
                os.ftruncate(handle, 0)
                return handle
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)  # the other run has just given it its name


class OutputFiles:
    """Files of a folder that appear together, when all of them are complete. It makes the folder if it is missing.

    As a context manager it removes what `publish` has not completed. OSErrors name the file.
    """

    def __init__(self, folder: Path, is_locked: bool = False, overwrite: bool = False) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._is_locked, self._overwrite = folder, is_locked, overwrite
        self._files: dict[Path, OutputFile] = {}
        self._dropped: list[Path] = []

    def __enter__(self) -> Self:
        return self

    def add(self, name: str) -> BinaryIO:
        """A file to write to. `is_locked`, `overwrite`: as of `OutputFile`."""
        path = self._folder / name
        made = OutputFile(str(path), is_private=False, is_locked=self._is_locked, overwrite=self._overwrite)
        self._files[path] = made
        return made.file

    def drop(self, name: str) -> None:
        """Have `publish` remove the file of an earlier run, if kafkatap wrote it."""
        self._dropped.append(self._folder / name)

    def publish(self) -> list[Path]:
        """Give all files their names; return their paths."""
        for path, made in self._files.items():
            with naming(str(path)):
                made.file.flush()
                made.check()
        for made in self._files.values():
            made.publish()
        for path in self._dropped:
            old = found_at(str(path))
            if old is not None and old.is_marked:
                path.unlink(missing_ok=True)
        written = list(self._files)
        self.discard()
        return written

    def discard(self) -> None:
        """Remove the files that have no names yet."""
        for made in self._files.values():
            with suppress(OSError):  # such as the one that is the reason for this call
                made.__exit__()
        self._files.clear()

    def __exit__(self, *_: object) -> None:
        self.discard()


def _umask() -> int:
    """The permissions that new files lack."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
