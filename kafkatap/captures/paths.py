"""Find the captures that a user names: files, pipes, folders of captures, globs."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Callable, Iterable
from typing import cast

from kafkatap.reassembly.errors import CaptureError
from kafkatap.reassembly.scanner import HEADER_SIZE, Scanner

from .decompression import open_decompressor
from .pipes import STANDARD_INPUT
from .storage import expand, is_uri, open_input

#: Files of a folder with these names are captures, whatever they hold. Other files are, if they begin as captures do.
_CAPTURE_NAME = r"(?i)\.(pcap|pcapng|cap|dmp)\d*(\.gz|\.zst)?$"


def find_captures(named: Iterable[str], note: Callable[[str], None] = lambda text: None) -> list[str]:
    """The captures that paths, folders and globs name, each once, in the order named. Folders and globs are sorted.
    `note` gets a line for each file of a folder that is passed over.

    FileNotFoundError where a glob matches nothing, or a folder has no captures. Any other path is returned as it is,
    even if no such file exists: opening it fails.
    """
    found: dict[str, None] = {}
    for path in named:
        if path != STANDARD_INPUT and (os.path.isdir(path) or is_uri(path)):
            files = []
            for file in _files_below(path):
                if is_uri(file) or is_capture(file):
                    files.append(file)
                else:
                    note(f"{file} is passed over: it is no capture")
            if not files:
                raise FileNotFoundError(f"{path}: there is no capture in this folder")
            found.update(dict.fromkeys(files))
        elif os.path.lexists(path) or path == STANDARD_INPUT or not any(wild in path for wild in "*?["):
            found[path] = None
        else:
            found.update(dict.fromkeys(expand(path)))
    return list(found)


def _files_below(path: str) -> list[str]:
    try:
        return expand(path)
    except FileNotFoundError:
        if not os.path.isdir(path):
            raise
        return []


def has_capture_name(path: str) -> bool:
    """Whether a file is a capture by its name."""
    return re.search(_CAPTURE_NAME, path) is not None


def is_capture(path: str) -> bool:
    """Whether a file of a folder is a capture, by its name or by its first bytes."""
    if has_capture_name(path):
        return True
    try:
        opened: io.BufferedReader = io.BufferedReader(cast(io.RawIOBase, open_input(path)))
        with opened as file:
            head = bytearray(HEADER_SIZE)
            _, decompressor = open_decompressor(file)
            count = file.readinto(head) if decompressor is None else decompressor.readinto(memoryview(head))
            Scanner(packets=1).start(bytes(head[:count]))
    except (CaptureError, OSError):
        return False
    return True
