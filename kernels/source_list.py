"""Lists of the files from which something was made ahead, to see at start-up whether it still fits them.

A list is a text file. Its first line is a digest of the contents of all files. The others are files: size, time of
modification (ns), path in the package. Files of a wheel have no times in it, as installers set their own: these files
must not be newer than the list, but for `_INSTALLED_WITHIN`. A file with another time is read and compared.

This module is imported at every start: it imports nothing that costs time.
"""

from __future__ import annotations

import os

#: The folder of the package, `kafkatap`.
PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
#: An installer writes all files within this time (ns).
_INSTALLED_WITHIN = 120 * 10**9
_UNKNOWN = "-"


def write_source_list(path: str, files: list[str], package: str = PACKAGE, installed: bool = False) -> None:
    """Write the list of some files (absolute paths within `package`).

    `installed`: they are used where they are now, so their times are known.
    """
    files = sorted(set(files))
    lines = [_digest(files, package)]
    for file in files:
        status = os.stat(file)
        time = str(status.st_mtime_ns) if installed else _UNKNOWN
        lines.append(f"{status.st_size} {time} {os.path.relpath(file, package)}")
    with open(path, "w", encoding="utf-8") as out:
        out.write("\n".join(lines) + "\n")


def move_source_list(path: str, package: str) -> None:
    """Write a list again for a copy of the package in another folder, where the files have other times."""
    with open(path, encoding="utf-8") as file:
        _, *lines = file.read().splitlines()
    write_source_list(path, [os.path.join(package, line.split(" ", 2)[2]) for line in lines], package)


def sources_fit(path: str, package: str = PACKAGE) -> bool:
    """Return whether all files of a list have the contents that they had when it was written."""
    try:
        with open(path, encoding="utf-8") as file:
            digest, *lines = file.read().splitlines()
        newest = os.stat(path).st_mtime_ns + _INSTALLED_WITHIN
        same_times, files = True, []
        for line in lines:
            size, time, name = line.split(" ", 2)
            found = f"{package}/{name}"
            status = os.stat(found)
            if status.st_size != int(size):
                return False
            is_same = status.st_mtime_ns <= newest if time == _UNKNOWN else status.st_mtime_ns == int(time)
            same_times = same_times and is_same
            files.append(found)
        return same_times or _digest(files, package) == digest
    except (OSError, ValueError):
        return False


def _digest(files: list[str], package: str) -> str:
    import hashlib  # few starts need it

    digest = hashlib.blake2b(digest_size=16)
    for path in files:
        with open(path, "rb") as file:
            content = file.read()
        digest.update(f"{os.path.relpath(path, package)}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()
