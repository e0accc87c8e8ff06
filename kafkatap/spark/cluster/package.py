"""What makes up this package: its files, wherever they lie, and a fingerprint by which two copies are told apart.

It runs on executors too, and imports nothing but the standard library.
"""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from functools import cache
from pathlib import Path

#: The folders that the package is made of may lie apart where it is worked on.
PARTS = ("kafkatap", "kafkatap.kernels", "kafkatap.reassembly", "kafkatap.dissector", "kafkatap.reports")
_NOT_SOURCES = ("__pycache__", "compiled")  # the latter: kernels that are shipped


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
    """Changes with the version, and with any file."""
    digest = hashlib.blake2b(digest_size=6)
    for name, path in sorted(package_files().items()):
        digest.update(name.encode() + b"\0" + path.read_bytes() + b"\0")
    return f"{version()}+{digest.hexdigest()}"


def version() -> str:
    """The version of the package, as it was installed."""
    from ...installation import own_version

    return own_version()


def python_version() -> str:
    """As far as it must be the same on driver and executors: 3.11."""
    return "{}.{}".format(*sys.version_info[:2])
