"""The files of a recorder: what is in the ring goes to disk here, in a thread of its own.

The recorder lists spans of the ring, and this writes each to a file. If the disk is slower than packets arrive, the
ring overtakes it: then packets are missing, and are counted. A failed write never ends the capture; one line reports
it, and another file is tried later.
"""

from __future__ import annotations

import errno
import os
import re
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from kafkatap.reassembly import pcap_writer as writer
from kafkatap.reassembly import pcapng_blocks as blocks
from kafkatap.reports import units
from kafkatap.reports.batch import Array

from ...installation import own_version
from ...output_file import is_device
from ..disk_budget import DiskBudget
from .capture_file import CaptureFile
from .packet_ring import PacketRing

SECOND = 1_000_000_000
NEVER = 1 << 62
#: A recording of all packets has about so many files, so that little is lost with the oldest.
PARTS = 8
#: Seconds after a failed write until another file is tried: the first time, and at most.
_RETRY, _LAST_RETRY = 5.0, 60.0


@dataclass(eq=False)
class Span:
    """A part of the ring that has a file of its own. `end` is NEVER until it is known."""

    begin: int
    moment: int = 0  # for the file's name, ns since the epoch
    incident: str = ""  # what happened
    matched: int = 0  # exchanges
    end: int = NEVER


class RecordingFiles:
    """`path`: the file, or with incidents or `rotate` the pattern of names. `limit`, `age`: `DiskBudget`. `rotate`: ns
    of all packets that a file holds at most. `comment`: of each pcapng. `notify` gets lines for users. OSError if a
    file of all packets cannot be created.

    The recorder's thread adds spans, sets `head`, the ends of spans and `is_ordered`, and reads what is public. All
    else is for the thread of the files.
    """

    def __init__(
        self,
        path: Path,
        ring: PacketRing,
        has_incidents: bool,
        limit: int,
        age: int | None,
        notify: Callable[[str], None],
        rotate: int | None = None,
        comment: str = "",
    ) -> None:
        self.spans: deque[Span] = deque()
        self.head = 0  # packets before this position may be written
        self.is_ordered = False  # `work` will be called
        self.is_renewed = False  # the file of all packets ends here, and another one begins
        self.not_recorded = 0  # incidents without a file
        self.missing = 0  # bytes that were overwritten before they were written
        self.unwritten = 0  # bytes that a disk did not take: it was full, or away
        self.why = ""  # ... as the last error says
        self._path, self._ring, self._notify = path, ring, notify
        self._comment = comment
        self._has_incidents = has_incidents
        self._is_dated = has_incidents or rotate is not None  # each file has a name of its own from the begin
        self._is_device = is_device(str(path))
        self._made: list[Path] = []
        if not self._is_dated and not self._is_device:
            _keep(path)
        pattern = re.compile(rf"{re.escape(path.stem)}-\d{{8}}T\d{{6}}\.\d{{3}}Z(?:-\d+)?{re.escape(path.suffix)}")
        self._budget = DiskBudget(path.parent, pattern, limit, age, notify)
        self._part = limit // PARTS
        self._part_age = rotate or (NEVER if age is None else age // PARTS)
        self._span: Span | None = None
        self._file: CaptureFile | None = None
        self._opened = 0  # when, ns since the epoch
        self._described = 0  # interfaces that the file describes
        self._start = self._written = 0  # the positions at which the file begins, and before which it is written
        self._is_known = False  # a line reported that the incident began
        self._is_over = False  # no more is written of this span
        self._is_full = False  # ... because of the limit
        self._failed = False  # a line reported a failed write
        self._retry, self._retry_at = _RETRY, 0.0
        if not has_incidents:
            self._open()
            if ring.links:
                self._describe()

    @property
    def size(self) -> int:
        """Bytes in all files, also those of earlier runs."""
        return self._budget.bytes + (0 if self._file is None else self._file.size)

    @property
    def files(self) -> list[Path]:
        """The files of this run that are there."""
        return [path for path in self._made if os.path.lexists(path)]

    def work(self) -> None:
        """Write what is in the spans."""
        self.is_ordered = False
        self._budget.expire()
        if self._file is not None and self._file.gone:
            self._fail(FileNotFoundError(errno.ENOENT, "it was removed"))
        while self.spans:
            span = self.spans[0]
            if span is not self._span:
                self._begin(span)
            end = span.end
            self._write(min(end, self.head))
            if end > self.head:
                if self.is_renewed:
                    self._renew()
                return
            self._end(span)
            self.spans.popleft()

    def _begin(self, span: Span) -> None:
        self._span = span
        self._start = self._written = span.begin
        self._is_known = self._is_over = self._is_full = False
        self._retry_at = 0.0

    def _end(self, span: Span) -> None:
        """End the span, and its file."""
        self._leave_out(span.end)
        if self._file is not None:
            self._end_file(is_last=True)
        if self._has_incidents and not self._is_known and span.begin < span.end:
            self.not_recorded += 1

    # ---------------------------------------------------------------- packets

    def _write(self, end: int) -> None:
        """Write the packets before `end`, oldest first."""
        while self._written < end and not self._is_over:
            if self._file is None and time.monotonic() < self._retry_at:
                return
            data = self._next(end)
            if not len(data) or (self._file is None and not self._try_again()):
                return
            kept = self._fitting(data)
            if not self._describe() or not self._put(kept):
                return
            self._written += len(kept)
            if len(kept) and not self._is_known:
                self._report_incident()
            if len(kept) < len(data) or self._is_old():
                self._fill()
        if self._is_over:
            self._leave_out(end)

    def _leave_out(self, end: int) -> None:
        """Count the packets before `end` that are not written, unless the limit is why."""
        if not self._is_full and self._written < end:
            self.unwritten += end - self._written
            self._written = end

    def _next(self, end: int) -> Array:
        """A copy of the next packets in the ring. Those that were overwritten are missing."""
        assert self._span is not None
        with self._ring.lock:
            oldest = self._ring.oldest
            if self._written < oldest:
                lost = min(oldest, end) - self._written
                if self._failed:
                    self.unwritten += lost
                elif self._written > self._span.begin or not self._has_incidents:  # else it is older than the ring
                    self._report_missing(lost)
                if self._start == self._written:
                    self._start = oldest
                self._written = oldest
            if self._written >= end:
                return self._ring.read(oldest, oldest)
            return self._ring.read(self._written, end).copy()

    def _report_missing(self, size: int) -> None:
        if not self.missing:
            self._notify(f"{self._path}: the disk is slower than packets arrive: some are not recorded")
        self.missing += size

    def _fitting(self, data: Array) -> Array:
        """The leading whole records that the file may take."""
        assert self._file is not None
        size = self._file.size
        if self._is_device:
            return data
        if not self._has_incidents and size + len(data) > self._part:
            data = self._ring.whole(data, max(self._part - size, 0))
        room = self._budget.room(size + len(data)) - size
        return data if len(data) <= room else self._ring.whole(data, room)

    def _fill(self) -> None:
        """The file takes no more. All packets go on in another one; an incident is over."""
        if not self._has_incidents:
            self._end_file()
            return
        self._notify(f"{units.size(self._budget.limit)} of packets, which is the limit, hold no more of this incident")
        self._is_over = self._is_full = True
        if self._written == self._start:
            self._remove()

    def _renew(self) -> None:
        """Begin another file of all packets, if this one has some."""
        self.is_renewed = False
        if not self._has_incidents and not self._is_device and self._written > self._start:
            self._end_file()
            if not self._is_over and self._try_again():
                self._describe()

    def _is_old(self) -> bool:
        """Whether the packets that come now belong into another file because of their age."""
        return not self._has_incidents and time.time_ns() - self._opened > self._part_age

    def _report_incident(self) -> None:
        """Report an incident when its first packets are on disk, but not while the disk is full."""
        assert self._file is not None
        self._is_known = True
        if self._span is not None and self._span.incident and not self._failed:
            self._notify(f"{self._file.path.name} begins: {self._span.incident}")

    # ---------------------------------------------------------------- files

    def _try_again(self) -> bool:
        """Open another file; return whether that is possible."""
        try:
            self._open()
        except OSError as error:
            self._fail(error)
        return self._file is not None

    def _open(self) -> None:
        self._opened = time.time_ns()
        path = self._path
        if self._is_dated:
            path = free_path(self._path, (self._span.moment if self._span else 0) or self._opened)
        self._file = CaptureFile(path, fresh=self._is_dated)
        self._made = [*(made for made in self._made if made != path), path]
        self._described = 0
        self._start = self._written
        if self._ring.form == writer.NEXT_GENERATION:
            what = self._comment if self._span is None else self._comment or self._span.incident
            self._put(blocks.section_header(f"kafkatap {own_version()}", what))

    def _describe(self) -> bool:
        """Write the headers that packets need before them; return whether they are there."""
        known, self._described = self._described, max(len(self._ring.links), 1)
        if known < self._described and (known == 0 or self._ring.form == writer.NEXT_GENERATION):
            return self._put(self._ring.descriptions(known))
        return self._file is not None

    def _put(self, data: bytes | Array) -> bool:
        """Append to the file; return whether that is possible."""
        if self._file is None:
            return False
        try:
            self._file.write(data)
        except OSError as error:
            self._fail(error)
        return self._file is not None

    def _end_file(self, is_last: bool = False) -> None:
        """Complete the file. `is_last`: its span has ended."""
        self._describe()  # in case there was no packet
        with self._ring.lock:
            statistics = self._ring.statistics(self._start)
        self._put(statistics)
        file, span = self._file, self._span
        if file is None:
            return
        self._close(is_last)
        if self._has_incidents and span is not None:
            matched = f"{span.matched:,} exchange{'' if span.matched == 1 else 's'} matched"
            self._notify(f"{file.path.name} ends: {units.size(file.size)}, {matched}")
        self._failed, self._retry = False, _RETRY

    def _fail(self, error: OSError) -> None:
        """Give up a file that cannot be written. Another one is tried later."""
        if not self._failed:
            path = self._path if self._file is None else self._file.path
            self._notify(f"{path}: {error.strerror or error}: packets are not recorded; the capture continues")
        self._failed, self.why = True, error.strerror or str(error)
        self._retry_at = time.monotonic() + self._retry
        self._retry = min(2 * self._retry, _LAST_RETRY)
        self._is_over |= self._is_device
        if self._written == self._start:
            self._remove()
        else:
            self._close()

    def _remove(self) -> None:
        """Remove a file without packets."""
        file, self._file = self._file, None
        if file is not None:
            if not self._is_device:
                file.remove()
            with suppress(OSError):
                file.close()

    def _close(self, is_last: bool = False) -> None:
        """Close the file, which keeps its packets and counts from now on. One of all packets gets another name, unless
        it is the last."""
        file, self._file = self._file, None
        if file is None:
            return
        if not self._is_device and (self._is_dated or is_last or self._rename(file)):
            self._budget.add([file.path], file.size)
        with suppress(OSError):  # earlier writes may be lost
            file.close()

    def _rename(self, file: CaptureFile) -> bool:
        """Give the name to the next file; return whether this one is still there. Where that is not permitted, this is
        the last one."""
        try:
            file.rename(free_path(self._path, self._opened))
        except FileNotFoundError:
            return False
        except OSError as error:
            self._is_over, self.why = True, error.strerror or str(error)
            self._notify(f"{file.path}: {error.strerror}: it cannot be renamed, so further packets are not recorded")
        else:
            self._made.append(file.path)
        return True


def free_path(path: Path, moment: int) -> Path:
    """An unused name for a time (ns): `x-20261121T174501.123Z.pcap`."""
    stem = f"{path.stem}-{_stamp(moment)}"
    free, number = path.with_name(stem + path.suffix), 1
    while os.path.lexists(free):
        number += 1
        free = path.with_name(f"{stem}-{number}{path.suffix}")
    return free


def _keep(path: Path) -> None:
    """Rename the file of an earlier run: it is kept as the parts of this one are."""
    if path.is_file() and not path.is_symlink():
        os.rename(path, free_path(path, path.stat().st_mtime_ns))


def _stamp(ns: int) -> str:
    """`20261121T174501.123Z`."""
    seconds, rest = divmod(ns, SECOND)
    return time.strftime("%Y%m%dT%H%M%S", time.gmtime(seconds)) + f".{rest // 1_000_000:03d}Z"
