"""A file that appears whole or not at all."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from contextlib import suppress

from ..captures.pipes import is_pipe


def check_file(option: str, path: str, inputs: Iterable[str] = ()) -> None:
    """Check that a file can be written, before anything is read. ValueError if the name is none of a file, or that of
    an input; OSError if its folder is missing or takes no file."""
    if not path or path == "-":
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
    folder = os.path.dirname(os.path.realpath(path))
    if not os.path.isdir(folder):
        raise FileNotFoundError(2, "no such folder", folder)
    try:
        os.close(os.open(_hidden(path), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    except OSError as error:
        raise OSError(error.errno, "no file can be created in this folder", path) from None
    os.unlink(_hidden(path))


def write_whole(path: str, text: str) -> None:
    """Write a text as UTF-8. A file of that name is replaced at once; a link stays, and a device or pipe is written to.
    OSError, with this path, if it cannot be written."""
    try:
        if _is_device(path):
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
        else:
            _replace(path, text)
    except OSError as error:
        raise type(error)(error.errno, error.strerror, path) from None


def _replace(path: str, text: str) -> None:
    hidden = _hidden(path)
    try:
        with open(hidden, "x", encoding="utf-8") as file:
            file.write(text)
        os.replace(hidden, os.path.realpath(path))
    except BaseException:
        with suppress(OSError):
            os.unlink(hidden)
        raise


def _is_device(path: str) -> bool:
    """Whether it is a device, or a pipe such as /dev/stdout."""
    return os.path.exists(path) and not stat.S_ISREG(os.stat(path).st_mode)


def _hidden(path: str) -> str:
    """The name of the file until it is whole: beside the one that a link leads to."""
    folder, name = os.path.split(os.path.realpath(path))
    return os.path.join(folder, f".{name[:200]}.{os.getpid()}.part")
