"""Files that appear whole or not at all.

`OutputFile` is written under a temporary name. `write_whole` writes a text so. `UnnamedFile` is one that nobody sees:
it has no name, so it is gone when the process ends, however that happens. `check_file` and `check_output` find out
before a long run whether a file can be written.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import BinaryIO, cast

from .captures.pipes import is_pipe

STANDARD_OUTPUT = "-"


def check_file(option: str, path: str, inputs: Iterable[str] = ()) -> None:
    """Check that an option's file can be written. ValueError if the name is none of a file, or that of an input;
    OSError if its folder is missing or takes no file."""
    if not path or path == STANDARD_OUTPUT:
        raise ValueError(f"{option} needs the name of a file")
    if os.path.isdir(path):
        raise ValueError(f"{option}: {path} is a directory; name a file in it")
    for name in inputs:
        if not is_pipe(name) and os.path.exists(path) and os.path.exists(name) and os.path.samefile(path, name):
            raise ValueError(f"{option} would overwrite the capture {name}; name another file")
    if _is_device(path):
        if not os.access(path, os.W_OK):
            raise PermissionError(13, "permission denied", path)
        return
    _check_folder(os.path.realpath(path), path)


def check_output(output: str | UnnamedFile, captures: Sequence[str], overwrite: bool) -> None:
    """Check that a pcapng can be written: ValueError or OSError."""
    if isinstance(output, UnnamedFile):
        return
    if output == STANDARD_OUTPUT:
        if sys.stdout.isatty():
            raise ValueError("standard output is a terminal; pipe it (kafkatap extract ... -o - | tshark -r -)")
        return
    if output.endswith((".gz", ".zst")):
        raise ValueError(f"{output}: the packets are not compressed; name it .pcapng, and compress the file afterwards")
    if output.endswith((".pcap", ".cap")):
        raise ValueError(f"{output}: a pcap holds no comments and no names; name it .pcapng")
    if os.path.isdir(output):
        raise IsADirectoryError(21, "this is a folder; name a file in it", output)
    for capture in captures:
        with suppress(OSError):
            if os.path.samefile(capture, output):
                raise ValueError(f"{output}: this capture is read; name another file")
    is_device = os.path.abspath(output).startswith(("/dev/", "/proc/"))  # /dev/stdout may lead to a file
    if is_device or (os.path.exists(output) and not os.path.isfile(output)):
        raise ValueError(f"{output}: this is not a file; -o - writes to standard output")
    if os.path.lexists(output) and not overwrite:
        raise ValueError(f"{output}: this file exists; --overwrite replaces it")
    _check_folder(output, output)


def _check_folder(place: str, path: str) -> None:
    """OSError if no file can be created beside `place`. `path`: its name in messages."""
    import tempfile  # imported late: most runs write no file

    folder = os.path.dirname(place) or "."
    if not os.path.isdir(folder):
        raise FileNotFoundError(2, "no such folder", folder)
    try:
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise OSError(error.errno, "no file can be created in this folder", path) from None


def write_whole(path: str, text: str) -> None:
    """Write a text as UTF-8. A file of that name is replaced at once; a link stays, and a device or pipe is written to.
    OSError, with this path, if it cannot be written."""
    try:
        if _is_device(path):
            with open(path, "w", encoding="utf-8") as device:
                device.write(text)
            return
        with OutputFile(os.path.realpath(path), overwrite=True, is_private=False) as made:
            made.file.write(text.encode())
            made.publish()
    except OSError as error:
        raise type(error)(error.errno, error.strerror, path) from None


def _is_device(path: str) -> bool:
    """Whether it is a device, or a pipe such as /dev/stdout."""
    return os.path.exists(path) and not stat.S_ISREG(os.stat(path).st_mode)


def folder_of(output: str) -> str | None:
    """The folder for temporary files of an output; None is that of the system."""
    return None if output == STANDARD_OUTPUT else os.path.dirname(output) or "."


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
    """The file under a temporary name. `publish` gives it its own name, or copies it to standard output; leaving the
    context without that removes it. `is_private`: only its user may read it."""

    def __init__(self, output: str, overwrite: bool = False, is_private: bool = True) -> None:
        import tempfile  # imported late: most runs write no file

        self._output, self._overwrite = output, overwrite
        handle, self.path = tempfile.mkstemp(".part", ".kafkatap-", folder_of(output))  # 0600
        if not is_private:
            os.chmod(self.path, 0o666 & ~_umask())
        self.file: BinaryIO = os.fdopen(handle, "w+b", 1 << 20)
        self._is_there = True

    def __enter__(self) -> OutputFile:
        return self

    def restart(self) -> None:
        """Drop what was written."""
        self.file.seek(0)
        self.file.truncate()

    def publish(self) -> None:
        """Make the file appear. ValueError if another one appeared meanwhile and must not be replaced."""
        self.file.flush()
        if self._output == STANDARD_OUTPUT:
            self.file.seek(0)
            import shutil  # imported late: most runs write no file

            shutil.copyfileobj(self.file, sys.stdout.buffer, 1 << 20)
            sys.stdout.buffer.flush()
            return
        if self._overwrite:
            os.replace(self.path, self._output)
        else:
            try:
                os.link(self.path, self._output)
            except FileExistsError:
                raise ValueError(f"{self._output}: this file exists; --overwrite replaces it") from None
            except OSError:  # a file system without hard links
                os.rename(self.path, self._output)
                self._is_there = False
                return
            os.unlink(self.path)
        self._is_there = False

    def __exit__(self, *_: object) -> None:
        if self._is_there:
            with suppress(OSError):
                os.unlink(self.path)  # before `close`, which writes what is left and fails where the disk is full
        self.file.close()


def _umask() -> int:
    """The permissions that new files lack."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
