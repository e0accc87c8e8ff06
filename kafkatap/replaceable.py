"""Which files an output may replace: empty ones, and those that kafkatap wrote.

A file is known by its bytes. Those that kafkatap writes have a mark in them: pages and pictures name their generator,
Parquet files have a key, copies of packets their program. A text has no place for one: it is one of ours if its first
line is that of the new one, such as the header of a CSV.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Mapping
from typing import NamedTuple

#: The key in the metadata of Parquet files.
PARQUET_KEY = "written_by_kafkatap"
CAPTURE, PCAPNG, HTML, SVG, PNG, PARQUET, ARCHIVE, KEY_LOG, TEXT = (
    "a capture (pcap)", "a capture (pcapng)", "an HTML page", "an SVG picture", "a PNG picture", "a Parquet file",
    "a gzip file", "a TLS key log", "a text",
)  # fmt: skip
#: What a file is by its first bytes, and the mark in them.
_KINDS: tuple[tuple[str, bytes, bytes | None], ...] = (
    (PCAPNG, rb"\n\r\r\n", rb"kafkatap [^\0]{0,40} \((extract|collect)\)"),
    (CAPTURE, rb"[\xd4\x4d\x34][\xc3\x3c\xcd]\xb2\xa1|\xa1\xb2[\xc3\x3c\xcd][\xd4\x4d\x34]", None),
    (PARQUET, rb"PAR1", None),
    (PNG, rb"\x89PNG", rb"tEXtSoftware\0kafkatap"),
    (ARCHIVE, rb"\x1f\x8b", rb"^.{3}\x08.{6}kafkatap"),
    ("a zstd file", rb"\x28\xb5\x2f\xfd", None),
    (HTML, rb"\s*<(!doctype html|html)", rb'<meta name="generator" content="kafkatap '),
    (SVG, rb"\s*(<\?xml|<svg)", rb"<dc:title>kafkatap</dc:title>"),
    (KEY_LOG, rb"(#[^\n]*\n)*[A-Z][A-Z0-9_]{5,40} [0-9a-fA-F]{64} [0-9a-fA-F]+", None),
    (TEXT, rb"[^\0-\x08]*$", None),
)  # fmt: skip
_UNREADABLE = "a file that you may not read"
#: Bytes of the beginning, and of the end, that are read.
_HEAD, _TAIL = 1 << 13, 1 << 20
#: Kinds by the ends of names.
KIND_OF: Mapping[str, str] = {".csv": TEXT, ".svg": SVG, ".png": PNG, ".parquet": PARQUET}


class Found(NamedTuple):
    """What a file is, in words; whether it has the mark of kafkatap; its first line, if it is a text."""

    kind: str
    is_marked: bool
    line: bytes = b""


def found_at(path: str) -> Found | None:
    """What a file is; None if there is none, if it is empty, or if it is no file but a device or a pipe. OSError if it
    cannot be read."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            return None
        with open(path, "rb") as file:
            head = file.read(_HEAD)
            size = file.seek(0, os.SEEK_END)
            file.seek(max(size - _TAIL, 0))
            tail = file.read() if head.startswith(b"PAR1") else b""
    except FileNotFoundError:
        return None
    except PermissionError:
        return Found(_UNREADABLE, False)
    if not head:
        return None
    for kind, beginning, mark in _KINDS:
        if re.match(beginning, head, re.IGNORECASE | re.DOTALL) is not None:
            is_marked = mark is not None and re.search(mark, head, re.DOTALL) is not None
            line = head.partition(b"\n")[0].rstrip(b"\r") if kind == TEXT else b""
            return Found(kind, is_marked or PARQUET_KEY.encode() in tail, line)
    return Found("a file of another kind", False)


def check_replaceable(path: str, kind: str, overwrite: bool, line: bytes | None = None) -> None:
    """FileExistsError unless a file of a kind may be written there. `line`: the first one of a text; None: not known.
    `overwrite`: another one's file of this kind may be replaced, too."""
    old = found_at(path)
    if old is None:
        return
    if old.kind not in (kind, _UNREADABLE):
        what = f"this is {old.kind}, and {kind} does not replace it; name another file"
    elif overwrite or old.is_marked or (line is not None and old.line == line):
        return
    else:
        what = f"this is {old.kind} that kafkatap may not have written; name another file, or say --overwrite"
    raise FileExistsError(errno.EEXIST, what, path)


def check_replaced(path: str, new: str, overwrite: bool) -> None:
    """FileExistsError unless a file, which is complete, may replace that at `path`."""
    made = found_at(new)
    if made is not None:
        check_replaceable(path, made.kind, overwrite, made.line if made.kind == TEXT else None)
    elif found_at(path) is not None and not overwrite:
        raise FileExistsError(errno.EEXIST, "this file is not empty; name another file, or say --overwrite", path)
