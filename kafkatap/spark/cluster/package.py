"""The files of this package and a fingerprint of them, which differs between different copies.

Executors run this too. It imports only the standard library.
"""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from functools import cache
from pathlib import Path

#: The folders of the package. In a checkout they are apart.
PARTS = ("kafkatap", "kafkatap.kernels", "kafkatap.reassembly", "kafkatap.dissector", "kafkatap.reports")
_NOT_SOURCES = ("__pycache__", "compiled")  # compiled: shipped kernels


def package_files() -> dict[str, Path]:
    """The package's files by their paths in an installed copy: `kafkatap/kernels/store.py` ..."""
    files: dict[str, Path] = {}
    for part in PARTS:
        spec = importlib.util.find_spec(part)
        assert spec is not None
        assert spec.submodule_search_locations
        folder = Path(spec.submodule_search_locations[0])
        for path in sorted(folder.rglob("*")):
            inside = path.relative_to(folder)
            if path.is_file() and not any(name in _NOT_SOURCES for name in inside.parts):
                files[f"{part.replace('.', '/')}/{inside.as_posix()}"] = path
    return files


@cache
def fingerprint() -> str:
    """A text that changes with the version and with any file."""
    digest = hashlib.blake2b(digest_size=6)
    for name, path in sorted(package_files().items()):
        digest.update(name.encode() + b"\0" + path.read_bytes() + b"\0")
    return f"{version()}+{digest.hexdigest()}"


def version() -> str:
    """The installed version of the package."""
    from ...installation import own_version

    return own_version()


def python_version() -> str:
    """The part of the version that must be the same on driver and executors: 3.11."""
    return "{}.{}".format(*sys.version_info[:2])
