"""Compiled objects by the digests of their kernels, kept beside the stores: a changed helper compiles only its kernels.

An object is a file: a line with a digest of the object code, then the object code. The folder lies in the store's
root, so it is trusted as the stores are. The objects used last are kept, up to `MOST_BYTES`.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path

#: The name of the folder in the store's root.
FOLDER = "objects"
#: How many bytes of objects are kept: some fifty builds of all kernels.
MOST_BYTES = 32 << 20


def object_digest(code: bytes) -> str:
    """Return the digest of an object for an index. Native code that was damaged on disk would crash the process."""
    return hashlib.blake2b(code, digest_size=16).hexdigest()


def read_object(folder: Path, digest: str) -> bytes | None:
    """Return the kept object code of a kernel's digest, or None if there is none or it is damaged."""
    path = folder / digest
    try:
        head, _, code = path.read_bytes().partition(b"\n")
        if head.decode() != object_digest(code):
            return None
        os.utime(path)
    except (OSError, ValueError):
        return None
    return code


def write_object(folder: Path, digest: str, code: bytes) -> None:
    """Keep object code: written whole under another name, then renamed. Without room on the disk it is not kept."""
    try:
        handle, temporary = tempfile.mkstemp(dir=folder, prefix="new-")
        try:
            with open(handle, "wb") as file:
                file.write(object_digest(code).encode() + b"\n" + code)
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
