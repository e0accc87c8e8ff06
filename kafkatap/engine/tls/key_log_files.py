"""Find the key logs that a user names, and say what is wrong with a file before anything is read."""

from __future__ import annotations

import os
from collections.abc import Iterable
from glob import glob, has_magic

from kafkatap.reassembly.errors import CaptureError

from ...captures.capture_bytes import CaptureBytes
from ...captures.pipes import is_pipe
from .key_log import KeyLog
from .key_log_sources import is_socket

#: The first bytes of a file that show what it is.
_HEAD = 65_536
#: What the first bytes of other files are, and what to do.
_OTHER_FILES = (
    (b"-----BEGIN", "this is a key or certificate, which decrypts no connection: record a key log (docs/tls.md)"),
    (b"\x0a\x0d\x0d\x0a", "this is a capture; --keylog names the file with its secrets"),
    (b"\xd4\xc3\xb2\xa1", "this is a capture; --keylog names the file with its secrets"),
    (b"\x4d\x3c\xb2\xa1", "this is a capture; --keylog names the file with its secrets"),
)  # fmt: skip
_DENIED = "permission denied (a key log is often readable only by the user of its program; use sudo)"
#: How a line of a key log begins.
_LABELS = (b"CLIENT_", b"SERVER_", b"EXPORTER_SECRET", b"EARLY_EXPORTER_SECRET", b"RSA ", b"ECH_", b"QUIC_", b"#")


def open_key_logs(named: Iterable[str | os.PathLike[str]], is_growing: bool = False) -> KeyLog:
    """The key logs that paths and globs name, as one. `is_growing`: they may be empty or missing, and are read
    again as they grow.

    OSError if there is no such file or it cannot be read. ValueError if it is no key log.
    """
    paths = find_key_logs(named, is_growing)
    for path in paths:
        if not is_socket(path) and ("://" in path or os.path.lexists(path)):
            _check(path, is_growing)
    try:
        return KeyLog(paths, is_growing)
    except PermissionError as error:
        raise PermissionError(13, _DENIED, error.filename or ", ".join(paths)) from None


def find_key_logs(named: Iterable[str | os.PathLike[str]], is_growing: bool = False) -> list[str]:
    """The files that paths and globs name, each once. FileNotFoundError if there is none (`is_growing`: one that is
    named without a glob may come later)."""
    found: dict[str, None] = {}
    for each in named:
        name = os.fspath(each)
        if is_socket(name) and not is_growing:
            raise ValueError(f"{name}: a socket is read by live and by --follow; kafkatap keys -o writes a key log")
        if name == "-" or (is_pipe(name) and not is_socket(name)):
            raise ValueError(f"{name}: a key log is read more than once, and a pipe cannot be: save it to a file first")
        is_awaited = is_growing and not has_magic(name)
        matches = [name] if is_awaited or os.path.lexists(name) else sorted(glob(name, recursive=True))
        if not matches:
            advice = "there is no such key log (live and --follow wait for a file that is named in full)"
            raise FileNotFoundError(2, advice, name)
        found.update(dict.fromkeys(matches))
    return list(found)


def _check(path: str, may_be_empty: bool) -> None:
    if os.path.isdir(path):
        raise IsADirectoryError(21, "this is a folder; name a key log in it", path)
    try:
        source = CaptureBytes(path)
    except PermissionError:
        raise PermissionError(13, _DENIED, path) from None
    head = bytearray(_HEAD)
    try:
        count = source.readinto(memoryview(head))
    except CaptureError as error:
        raise ValueError(f"{path}: this key log cannot be read: {error.message}") from None
    finally:
        source.close()
    if not count:
        if may_be_empty:
            return
        raise ValueError(f"{path}: this key log is empty: its program has written no secrets (docs/tls.md)")
    for magic, advice in _OTHER_FILES:
        if head.startswith(magic):
            raise ValueError(f"{path}: {advice}")
    lines = bytes(head[:count]).replace(b"\r", b"\n").split(b"\n")
    if not any(line.lstrip().startswith(_LABELS) for line in lines) and not (may_be_empty and len(lines) == 1):
        raise ValueError(
            f"{path}: this is no key log: none of its first lines begins as in the format of SSLKEYLOGFILE, such as "
            "CLIENT_RANDOM"
        )
