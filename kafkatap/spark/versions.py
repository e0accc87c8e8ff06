"""Versions of one capture: a file that has grown, was compressed or was copied in part, under whatever name.

Each has an identity of its own (`captures/identity.py`). A lake keeps the rows of one: a run over a version with as
many packets or more replaces the rows of the others. One with fewer is refused.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from .lake_options import OtherOptions
from .output.delta import is_delta, read_table
from .output.run_tables import file_infos

if TYPE_CHECKING:
    from kafkatap.reports.batch import FileInfo

_COMPRESSED = re.compile(r"\.(gz|zst)$")


def earlier_versions(out: str, files: Sequence[FileInfo], replace: bool = False) -> set[int]:
    """The identities of captures in a lake of which these files are other versions.

    That is so if both begin with the same packet, and have the same name, but for `.gz` or `.zst`, or also end with the
    same packet and have as many. OtherOptions if a file has fewer packets than the version that is there, unless
    `replace`.
    """
    if not is_delta(out, "files"):
        return set()
    by_first: dict[int | None, list[FileInfo]] = {}
    for version in file_infos(read_table(out, "files")):
        by_first.setdefault(_microseconds(version.first), []).append(version)
    found, own = set(), {info.capture for info in files}
    for info in files:
        for version in by_first.get(_microseconds(info.first), ()):
            if info.first is None or version.capture in own or not _is_same(version, info):
                continue
            if version.packets > info.packets and not replace:
                raise OtherOptions(
                    f"{info.path}: {out} has {version.packets:,} packets of this capture, from {version.path}, and "
                    f"this file has {info.packets:,}. Leave it out, or say --replace"
                )
            found.add(version.capture)
    return found


def _is_same(version: FileInfo, info: FileInfo) -> bool:
    """Whether two files that begin with the same packet are versions of one capture."""
    is_named_so = _COMPRESSED.sub("", version.path) == _COMPRESSED.sub("", info.path)
    ends_so = _microseconds(version.last) == _microseconds(info.last)
    return is_named_so or (ends_so and version.packets == info.packets)


def _microseconds(time: int | None) -> int | None:
    """A time as a lake has it."""
    return None if time is None else time // 1_000
