"""The captures that are named for a command or an analysis: files, pipes, folders of captures, globs."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterable
from typing import cast

from kafkatap.reassembly.errors import CaptureError
from kafkatap.reassembly.scanner import HEADER_SIZE, Scanner

from .decompression import open_stream
from .pipes import STANDARD_INPUT
from .storage import expand, is_uri, open_input

#: Files of a folder that are read whatever they hold. The others are read if they begin as captures do.
_CAPTURE_NAME = re.compile(r"\.(pcap|pcapng|cap|dmp)\d*(\.gz|\.zst)?$", re.IGNORECASE)


def find_captures(named: Iterable[str]) -> list[str]:
    """The captures that paths, folders and globs name, each once: in the order named, those of a folder or glob sorted.

    FileNotFoundError where a glob matches nothing, or a folder has no captures. A path that is neither stays as it is,
    also where nothing is there: opening it tells.
    """
    found: dict[str, None] = {}
    for path in named:
        if path != STANDARD_INPUT and (os.path.isdir(path) or is_uri(path)):
            files = [file for file in _expanded(path) if is_uri(file) or _is_capture(file)]
            if not files:
                raise FileNotFoundError(f"{path}: there is no capture in this folder")
            found.update(dict.fromkeys(files))
        elif os.path.lexists(path) or path == STANDARD_INPUT or not any(wild in path for wild in "*?["):
            found[path] = None
        else:
            found.update(dict.fromkeys(expand(path)))
    return list(found)


def _expanded(path: str) -> list[str]:
    try:
        return expand(path)
    except FileNotFoundError:
        if not os.path.isdir(path):
            raise
        return []


def _is_capture(path: str) -> bool:
    """Whether a file of a folder is a capture: by its name, else by its first bytes."""
    if _CAPTURE_NAME.search(path):
        return True
    try:
        opened: io.BufferedReader = io.BufferedReader(cast(io.RawIOBase, open_input(path)))
        with opened as file:
            head = bytearray(HEADER_SIZE)
            _, stream = open_stream(file)
            count = file.readinto(head) if stream is None else stream.readinto(memoryview(head))
            Scanner(packets=1).start(bytes(head[:count]))
    except (CaptureError, OSError):
        return False
    return True
