"""Compiled objects by the digests of their kernels, kept beside the stores: a changed helper compiles only its kernels.

An object is a file: a line of JSON (its own digest, its symbol, its number of arguments), then the object code. The
folder lies in the store's root, so it is trusted as the stores are. The objects used last are kept, up to `MOST_BYTES`.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from pathlib import Path
from typing import NamedTuple

#: The name of the folder in the store's root.
FOLDER = "objects"
#: How many bytes of objects are kept: some fifty builds of all kernels.
MOST_BYTES = 128 << 20


class CompiledObject(NamedTuple):
    """The object code of a kernel, as a C function."""

    symbol: str
    arguments: int  # 64-bit words
    code: bytes


def object_digest(code: bytes) -> str:
    """Return the digest of an object for an index. Native code that was damaged on disk would crash the process."""
    return hashlib.blake2b(code, digest_size=16).hexdigest()


def read_object(folder: Path, digest: str) -> CompiledObject | None:
    """Return the kept object of a kernel's digest, or None if there is none or it is damaged."""
    path = folder / digest
    try:
        head, _, code = path.read_bytes().partition(b"\n")
        entry = json.loads(head)
        if entry["digest"] != object_digest(code):
            return None
        os.utime(path)
        return CompiledObject(entry["symbol"], entry["arguments"], code)
    except (OSError, ValueError, LookupError, TypeError):
        return None


def write_object(folder: Path, digest: str, compiled: CompiledObject) -> None:
    """Keep an object: written whole under another name, then renamed. Without room on the disk it is not kept."""
    entry = {"digest": object_digest(compiled.code), "symbol": compiled.symbol, "arguments": compiled.arguments}
    try:
        handle, temporary = tempfile.mkstemp(dir=folder, prefix="new-")
        try:
            with open(handle, "wb") as file:
                file.write(json.dumps(entry).encode() + b"\n" + compiled.code)
            os.replace(temporary, folder / digest)
        except BaseException:
            os.unlink(temporary)
            raise
    except OSError:
        return


def forget_old_objects(folder: Path, most_bytes: int = MOST_BYTES) -> None:
    """Remove the objects whose last use is the longest ago, until the others have at most `most_bytes`."""
    found = [(path, path.stat()) for path in folder.iterdir()]
    total = 0
    for path, status in sorted(found, key=lambda one: one[1].st_mtime_ns, reverse=True):
        total += status.st_size
        if total > most_bytes:
            path.unlink(missing_ok=True)
