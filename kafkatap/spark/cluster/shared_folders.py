"""`shared_folders`: do executors see the captures and the output folder that the driver sees?

The driver writes an empty file to the output folder, and executors look for it. Of each local folder with captures,
they look for some of the captures that the driver has found.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from typing import Any

from ...captures.storage import is_uri, system_of, without_credentials
from ...captures.stores import naming

#: Folders of captures that executors look at, and captures in each. A stream may delete one of them meanwhile.
_FOLDERS, _IN_EACH = 16, 4
_REMEDY = "Executors must see it under the same name, so use a disk that all machines mount, or s3://, gs://, hdfs://."


@dataclass(frozen=True, slots=True)
class SharedFolders:
    """What executors look for. `token`: a file in the folder `out`. `captures`: of each local folder, some captures."""

    captures: tuple[tuple[str, ...], ...] = ()
    out: str | None = None
    token: str = ""

    def problem(self) -> str:
        """What this machine does not see, in a sentence for the user; "" if it sees all. Looks once per process."""
        return _problem(self)


@contextmanager
def shared_folders(captures: Iterable[str], out: str | None = None) -> Iterator[SharedFolders]:
    """What executors have to share: these captures and the folder `out`, as absolute paths or URIs.

    While the block runs, `out` has an empty file with a name like `_driver-8d5a3f0c`.
    """
    folders: dict[str, list[str]] = {}
    for path in captures:
        if not is_uri(path):
            some = folders.setdefault(os.path.dirname(path), [])
            if len(some) < _IN_EACH:
                some.append(path)
    found = tuple(tuple(paths) for _, paths in sorted(folders.items())[:_FOLDERS])
    if out is None:
        yield SharedFolders(found)
        return
    token = f"_driver-{uuid.uuid4().hex[:8]}"
    system, folder = system_of(out)
    with naming(out):
        system.create_dir(folder)
        system.open_output_stream(f"{folder}/{token}").close()
    try:
        yield SharedFolders(found, out, token)
    finally:
        with suppress(OSError):
            system.delete_file(f"{folder}/{token}")


@cache
def _problem(folders: SharedFolders) -> str:
    host = os.uname().nodename
    for captures in folders.captures:
        if not any(os.path.exists(path) for path in captures):
            return f"The executor on {host} does not see {captures[0]}. {_REMEDY}"
    try:
        has_file = folders.out is None or _has_file(folders.out, folders.token)
    except OSError as error:
        return f"The executor on {host} cannot use {without_credentials(str(error))}."
    if not has_file:
        return f"The executor on {host} sees another folder at {folders.out} than the driver. {_REMEDY}"
    if folders.out is not None and not is_uri(folders.out) and not os.access(folders.out, os.W_OK):
        return f"The executor on {host} must not write to {folders.out}: its user has no permission."
    return ""


def _has_file(folder: str, name: str) -> bool:
    system: Any
    system, path = system_of(folder)
    with naming(folder):
        [info] = system.get_file_info([f"{path}/{name}"])
    return bool(info.is_file)
