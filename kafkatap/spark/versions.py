"""Versions of one capture: files with the same first packet (`captures/identity.py`). One has grown, was compressed or
repaired, was copied in part, or has shorter packets.

A lake keeps the rows of the best one: one without damage; then that with the most packets (without empty ones); then
with the longest packets; then the one that was read first. The others are left out of a run, and the rows of worse ones
that are there are replaced. Captured bytes of rows without a `version` were not counted on every path: such rows are
replaced by those of the same packets only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kafkatap.reports.batch import FileInfo

from .output.delta import is_delta, read_table
from .output.run_tables import file_infos


@dataclass
class BestVersions:
    """The `Choice` of a run that writes to `out`. `replace`: versions that `out` has do not count. `notes`: a sentence
    for each file that is left out. `has_others`: one of them has other packets than the version that stays."""

    out: str
    replace: bool = False
    notes: list[str] = field(default_factory=list)
    has_others: bool = False

    def __call__(self, files: Mapping[int, FileInfo]) -> set[int]:
        there, uncounted = {}, set[int]()
        if not self.replace and is_delta(self.out, "files"):
            own, rows = {info.capture for info in files.values()}, read_table(self.out, "files")
            there = {info.capture: info for info in file_infos(rows) if info.capture in own}
            uncounted = set(rows.filter(rows["version"].is_null())["capture"].to_pylist())
        chosen: dict[int, int] = {}
        left_out = set()
        for number, info in sorted(files.items()):
            rival = chosen.get(info.capture)
            if rival is not None:
                worse = number if _quality(info) <= _quality(files[rival]) else rival
                left_out.add(worse)
            elif info.capture in there:
                before, is_old = there[info.capture], info.capture in uncounted
                if _span(info) != _span(before) if is_old else _quality(info) < _quality(before):
                    left_out.add(number)
            if number not in left_out:
                chosen[info.capture] = number
        for number in sorted(left_out):
            info = files[number]
            best = files[chosen[info.capture]] if info.capture in chosen else there[info.capture]
            self.has_others |= _quality(info) != _quality(best)
            where = "" if info.capture in chosen else f", whose rows are in {self.out}"
            advice = ""
            if where and info.capture in uncounted:
                advice = " An earlier version of kafkatap read that one: --replace reads this one in its place."
            self.notes.append(
                f"{info.path} is left out, with {_amount(info)}: it is another version of {best.path}, with "
                f"{_amount(best)}{where}.{advice}"
            )
        return left_out


def _amount(info: FileInfo) -> str:
    is_whole, packets, captured = _quality(info)
    return f"{packets:,} packets of {captured:,} bytes" + ("" if is_whole else ", damaged")


def _quality(info: FileInfo) -> tuple[bool, int, int]:
    return info.damage is None, info.packets - info.empty_packets, info.captured_bytes


def _span(info: FileInfo) -> tuple[int, int | None, int | None, bool]:
    """What every version of kafkatap has counted alike. Times are of the microsecond."""
    times = (None if time is None else time // 1_000 for time in (info.first, info.last))
    return (info.packets, *times, info.damage is None)  # type: ignore[return-value]
