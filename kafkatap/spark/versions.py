"""Versions of one capture: files with the same first packet (`captures/identity.py`). One has grown, was compressed or
repaired, was copied in part, or has shorter packets.

A lake keeps the rows of the best one: that with the most packets (without empty ones); then with the longest packets;
then the one that was read first. The others are left out of a run, and the rows of worse ones that are there
are replaced.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .output.delta import is_delta, read_table
from .output.run_tables import file_infos

if TYPE_CHECKING:
    from kafkatap.reports.batch import FileInfo


@dataclass
class BestVersions:
    """The `Choice` of a run that writes to `out`. `replace`: versions that `out` has do not count. `notes`: a sentence
    for each file that is left out."""

    out: str
    replace: bool = False
    notes: list[str] = field(default_factory=list)

    def __call__(self, files: Mapping[int, FileInfo]) -> set[int]:
        there, own = {}, {info.capture for info in files.values()}
        if not self.replace and is_delta(self.out, "files"):
            infos = file_infos(read_table(self.out, "files"))
            there = {info.capture: info for info in infos if info.capture in own}
        chosen: dict[int, int] = {}
        left_out = set()
        for number, info in sorted(files.items()):
            rival = chosen.get(info.capture)
            if rival is not None:
                worse = number if _quality(info) <= _quality(files[rival]) else rival
                left_out.add(worse)
            elif info.capture in there and _quality(info) < _quality(there[info.capture]):
                left_out.add(number)
            if number not in left_out:
                chosen[info.capture] = number
        for number in sorted(left_out):
            info = files[number]
            best = files[chosen[info.capture]] if info.capture in chosen else there[info.capture]
            where = "" if info.capture in chosen else f", whose rows are in {self.out}"
            self.notes.append(
                f"{info.path} is left out, with {_amount(info)}: it is another version of {best.path}, with "
                f"{_amount(best)}{where}."
            )
        return left_out


def _amount(info: FileInfo) -> str:
    packets, captured = _quality(info)
    return f"{packets:,} packets of {captured:,} bytes"


def _quality(info: FileInfo) -> tuple[int, int]:
    return info.packets - info.empty_packets, info.captured_bytes
