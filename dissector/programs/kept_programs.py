"""Programs in the user's cache folder, in a folder beside those of kernels.

They are those of layouts that changed since the package was made, and those of definitions.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path

from kafkatap.kernels import cache

from .program import Programs
from .program_files import programs_as_bytes

#: Sets of definitions whose programs are kept; of the built-in layouts one set is.
SETS_KEPT = 4


def path_of(name: str, digest: str | None = None) -> Path | None:
    """Where the programs of a profile are kept, or None if they cannot be. `digest`: of definitions; None: the built-in
    layouts."""
    folder = _folder()
    if folder is None:
        return None
    stem = f"programs-{name}" if digest is None else f"definitions-{name}-{digest}"
    return folder / f"{stem}-{_sources()}.programs"


def _folder() -> Path | None:
    try:
        root = cache.open_root()
        if not cache.trusted(root):
            return None
        folder = root / "programs"
        folder.mkdir(exist_ok=True)
        return folder
    except (OSError, RuntimeError):
        return None


def keep_programs(path: Path, programs: Programs) -> None:
    """Keep programs: written whole under another name, then renamed. A folder that cannot be written is left alone."""
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix="programs-new-")
        try:
            with open(handle, "wb") as file:
                file.write(programs_as_bytes(programs))
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise
        ours, kept = ("programs", 1) if programs.definitions is None else ("definitions", SETS_KEPT)
        others = path.parent.glob(f"{ours}-{programs.profile}-*.programs")
        newest = sorted((p for p in others if p != path), key=lambda p: p.stat().st_mtime_ns, reverse=True)
        for old in newest[kept - 1 :]:
            old.unlink(missing_ok=True)
    except OSError:
        return


def source_files() -> list[str]:
    """The files that built-in programs are made of: the layouts, and the sources of what reads and compiles them."""
    here = os.path.dirname(os.path.abspath(__file__))
    above = os.path.dirname(here)
    folders = ((here, ".py"), (os.path.join(above, "layouts"), ".py"), (os.path.join(above, "messages"), ".kmsg"))
    return [
        os.path.join(folder, name)
        for folder, suffix in folders
        for name in sorted(os.listdir(folder))
        if name.endswith(suffix)
    ]


def _sources() -> str:
    """Changes with `source_files` (their sizes and times)."""
    digest = hashlib.blake2b(digest_size=8)
    for path in source_files():
        status = os.stat(path)
        digest.update(f"{os.path.basename(path)} {status.st_size} {status.st_mtime_ns}\0".encode())
    return digest.hexdigest()
