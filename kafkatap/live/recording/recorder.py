"""The flight recorder: packets on disk, all of them or those around incidents.

Packets are packed into a ring in memory, and written from there to a file, oldest first. Without a condition there is
one file for the whole run. With a condition, a matching exchange opens a file. That begins with the packets in the ring
that no earlier file has, and ends when no exchange matched for a while. If the files reach the limit, the oldest are
removed. A file grows by whole records, so it is readable at any time, also after a crash.

No call writes much more than MOST_AT_ONCE bytes, unless they would be overwritten otherwise. A failed write never ends
the capture; one line reports it.
"""

from __future__ import annotations

import errno
import os
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from zlib import crc32

import numpy as np

from kafkatap.dissector import dtypes as r
from kafkatap.reassembly import pcap_writer as writer
from kafkatap.reassembly import pcapng_blocks as blocks
from kafkatap.reassembly.link_types import link_name
from kafkatap.reports import units
from kafkatap.reports.batch import Array, Batch, endpoint
from kafkatap.reports.counting.rollup import api_label
from kafkatap.reports.findings import NOTE, Finding
from kafkatap.reports.sections.error_codes import error_label

from ...engine.selection import Selection, Selector
from ...installation import own_version
from ..provisional_rows import without_confirmed
from ..sink import Elapsed, Sink
from .capture_file import CaptureFile
from .incident_causes import CoolDown, causes_of
from .packet_ring import PacketRing

if TYPE_CHECKING:
    from kafkatap.reports.counting.counts import ReportCounts

    from ...engine.engine import Engine

SECOND = 1_000_000_000
MOST_AT_ONCE = 16 << 20
RING_SIZE = 64 << 20
AFTER = 5 * SECOND
LIMIT = 1 << 30
#: The ring of a recorder without a condition: what arrives between two writes.
_SMALL_RING = 8 << 20
_NEVER = 1 << 62
#: Error codes that a line names, at most.
_NAMED = 3
#: In place of an API in the cause of an incident that is an event.
_EVENT = -1


class Recorder(Sink):
    """`path`: the file, overwritten if it exists; with `on`, the pattern of file names: `x.pcap` leads to
    `x-20261121T174501.123Z.pcap`, with the time of the match. The format is pcapng if it ends in .pcapng, else classic
    pcap (ns). Only the user can read the files (0600).

    `on`: the incidents; the engine has to decode its fields (`Selection.engine_options`). `on_events`: events that are
    more than notes are incidents, too. `size`: bytes of packets in
    memory. `after`: ns of packets written after the last match. `cool_down`: ns for which a recorded cause does not
    match again. `limit`: bytes of all files together. `links`: the expected link types, with the names of their
    interfaces. `counters` returns the packets received and dropped so far, for pcapng. `notify` gets lines for users.

    ValueError for a wrong name or size, and for link types that do not fit into one classic pcap. OSError if files
    cannot be created.
    """

    reads_packets = True

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        on: Selection | None = None,
        on_events: bool = False,
        size: int = RING_SIZE,
        after: int = AFTER,
        limit: int = LIMIT,
        cool_down: int = 0,
        links: Mapping[int, str] | None = None,
        counters: Callable[[], tuple[int, int]] = lambda: (0, 0),
        notify: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.path = Path(path)
        self.files: list[Path] = []
        self.bytes = 0  # in all files
        self.incidents = 0
        self.selection = on
        self._on_events = on_events
        self._has_incidents = on is not None or on_events
        self._selector: Selector | None = None
        self._after = after
        self._limit = limit
        self._notify = notify
        self._check(links or {})
        form = writer.NEXT_GENERATION if self.path.suffix == ".pcapng" else writer.CLASSIC
        self._cool_down = CoolDown(cool_down)
        self._complete: deque[CaptureFile] = deque()  # files of past incidents, the oldest first
        self._what = ""  # the incident whose file has no packet so far
        self._rotates = False  # a file was removed, and a line reported it
        self._ring = PacketRing(
            form, size if self._has_incidents else _SMALL_RING, links or {}, counters, self._refused
        )
        self._file: CaptureFile | None = None
        self._described = 0  # interfaces that the file describes
        self._start = 0  # the position at which the file begins
        self._written = 0  # the position up to which packets are on disk, or are skipped
        self._end = _NEVER  # the position at which the file ends
        self._quiet_from = _NEVER  # when it ends: by the time of packets,
        self._quiet_at = _NEVER  # and by the clock if there are no packets
        self._matched = 0  # matching exchanges in this incident
        self._elapsed = Elapsed()
        self._retry = 0  # when a file may be created again, by the time of packets
        self._waiting: Array = np.zeros(0, np.int64)  # exchanges that matched while they waited, a second ago
        self._lost = 0  # incidents that were not recorded
        self._over = False  # no more packets are written
        self._failed = False  # and a line reported it
        if not self._has_incidents:
            self._open(self.path, fresh=False)
            if self._ring.links:
                self._describe()

    def _check(self, links: Mapping[int, str]) -> None:
        if self.path.suffix in (".gz", ".zst", ".lz4", ".xz"):
            raise ValueError(f"{self.path}: packets are not compressed as they come; name it .pcap or .pcapng")
        if self.path.suffix != ".pcapng" and len(links) > 1:
            kinds = ", ".join(f"{name} ({link_name(link)})" for link, name in links.items())
            raise ValueError(f"{self.path}: a pcap holds one link type, not those of {kinds}; name it .pcapng")
        if self._has_incidents:
            folder = self.path.parent
            if not folder.is_dir():
                raise FileNotFoundError(errno.ENOENT, "no such folder", str(folder))
            if not os.access(folder, os.W_OK | os.X_OK):
                raise PermissionError(errno.EACCES, "files cannot be made there", str(folder))

    # ---------------------------------------------------------------- input

    def add_packets(self, buffer: Array, packets: Array, count: int) -> None:
        if self._over:
            return
        ring, done = self._ring, 0
        while (done := ring.pack(buffer, packets, done, count)) < count:
            self._write(ring.next_oldest, _NEVER)
            ring.turn()
        self._write_packed(ring.begun)

    def add_batch(self, batch: Batch, engine: Engine) -> None:
        if self.selection is None:
            return
        batch = without_confirmed(batch)  # provisional rows matched before
        matching = self._matching(batch, engine)
        self._record(batch, matching, len(matching), engine)

    def add_waiting(self, batch: Batch, engine: Engine) -> None:
        if self.selection is None or not self.selection.sees_waiting:
            return
        matching = self._matching(batch, engine)
        numbers = batch.exchanges["exchange"][matching]
        known, self._waiting = self._waiting, numbers
        self._record(batch, matching, int((~np.isin(numbers, known)).sum()), engine)

    def _matching(self, batch: Batch, engine: Engine) -> Array:
        """The rows of a batch that match, int64 (n,)."""
        if self._selector is None:
            assert self.selection is not None
            self._selector = Selector(self.selection, engine)
        return np.flatnonzero(self._selector.select(batch))

    def _record(self, batch: Batch, matching: Array, new: int, engine: Engine) -> None:
        """Record what is around matching rows, of which so many did not match before."""
        if not len(matching):
            return
        now = self._ring.latest
        causes = self._cool_down.fresh(causes_of(batch, matching), now)
        if causes:
            if self._file is None and now >= self._retry:
                self._open_incident(batch, min(row for _, row in causes), engine)
            if self._file is not None:
                self._cool_down.begin(causes, now)
            self._end, self._quiet_from, self._quiet_at = _NEVER, now + self._after, _NEVER
        self._matched += new

    def add_provisional(self, batch: Batch, engine: Engine) -> None:
        self.add_batch(batch, engine)

    def add_event(self, finding: Finding) -> None:
        if not self._on_events or finding.severity == NOTE:
            return
        now = self._ring.latest
        party = finding.parties[0].name if finding.parties else ""
        cause = (_EVENT, crc32(f"{finding.id} {party}".encode()), 0)
        if self._cool_down.fresh([(cause, 0)], now):
            if self._file is None and now >= self._retry:
                self._begin_incident(units.safe(finding.text), finding.begin or now)
            if self._file is not None:
                self._cool_down.begin([(cause, 0)], now)
            self._end, self._quiet_from, self._quiet_at = _NEVER, now + self._after, _NEVER
        self._matched += 1

    def end_second(self, now: int, counts: ReportCounts, engine: Engine) -> None:
        wall, known, now = now, self._elapsed.steps, self._elapsed.at(now)
        if self._elapsed.steps > known:  # the clock was set back, and so are the times of packets
            self._ring.set_latest(wall)
            self._quiet_from = min(self._quiet_from, wall + self._after) if self._quiet_from != _NEVER else _NEVER
            self._cool_down.forget()
            self._retry = 0
        if self._file is None:
            return
        if self._file.gone:
            self._fail(FileNotFoundError(errno.ENOENT, "it was removed"))
        if self._quiet_from != _NEVER and self._quiet_at == _NEVER:
            self._quiet_at = now + self._after
        if now >= self._quiet_at:
            self._end = min(self._end, self._ring.head)
        self._write_packed(self._ring.head)

    def resolve_names(self, engine: Engine) -> None:
        if self._selector is not None:
            self._selector.forget()

    def close(self, engine: Engine) -> None:
        self._write(self._ring.head, _NEVER)
        self._end_file()
        if self._lost:
            self._notify(f"{self._lost} incidents were not recorded")
        if self._ring.left_out:
            self._notify(f"{self._ring.left_out:,} packets of other link types were not recorded")

    # ---------------------------------------------------------------- files

    def _open_incident(self, batch: Batch, row: int, engine: Engine) -> None:
        """Open the file of an incident."""
        exchange = batch.exchanges[row]
        codes = batch.results["error_code"][batch.results["exchange"] == exchange["exchange"]]
        moment = int(exchange["response_last" if exchange["outcome"] == r.ANSWERED else "request_last"])
        self._begin_incident(describe(exchange, codes, engine), moment)

    def _begin_incident(self, what: str, moment: int) -> None:
        self.incidents += 1
        self._matched = 0
        self._written = max(self._written, self._ring.oldest)
        try:
            self._open(self._free_path(moment if moment > 0 else self._ring.latest), fresh=True, comment=what)
        except OSError as error:
            self._fail(error)
        else:
            self._what = what

    def _report_incident(self) -> None:
        """Report an incident when its first packets are on disk, but not while the disk is full."""
        if self._what and self._file is not None and not self._failed:
            self._notify(f"{self._file.path.name} begins: {self._what}")
        self._what = ""

    def _free_path(self, moment: int) -> Path:
        """An unused name for a time (ns)."""
        stem = f"{self.path.stem}-{_stamp(moment)}"
        path, number = self.path.with_name(stem + self.path.suffix), 1
        while path.exists():
            number += 1
            path = self.path.with_name(f"{stem}-{number}{self.path.suffix}")
        return path

    def _open(self, path: Path, fresh: bool, comment: str = "") -> None:
        self._file = CaptureFile(path, fresh)
        self.files.append(path)
        self._described = 0
        self._start = self._written
        self._end = self._quiet_from = self._quiet_at = _NEVER
        if self._ring.form == writer.NEXT_GENERATION:
            self._put(blocks.section_header(f"kafkatap {own_version()}", comment))

    def _describe(self) -> None:
        """Write the headers that packets need before them."""
        known, self._described = self._described, max(len(self._ring.links), 1)
        if known < self._described and (known == 0 or self._ring.form == writer.NEXT_GENERATION):
            self._put(self._ring.descriptions(known))

    def _write_packed(self, end: int) -> None:
        """Write the packets before `end`, and end an incident without recent matches."""
        if self._file is None:
            return
        if self._ring.latest > self._quiet_from:
            self._end = min(self._end, self._ring.head)
        self._write(end if self._end == _NEVER else self._end, MOST_AT_ONCE)
        if self._written >= self._end:
            self._end_file()

    def _write(self, end: int, most: int) -> None:
        """Write the packets before `end` and the end of the file, oldest first: at most about `most` bytes."""
        end = min(end, self._end)
        if self._file is not None and self._written < end:
            self._describe()
        while self._file is not None and self._written < end and most > 0:
            data = self._ring.read(self._written, end)
            room = self._room(len(data))
            kept = data if len(data) <= room else self._ring.whole(data, room)
            self._put(kept)
            if self._file is None:
                return
            self._written += len(kept)
            most -= len(data)
            if len(kept):
                self._report_incident()
            if len(kept) < len(data):
                self._reach_limit()

    def _room(self, wanted: int) -> int:
        """The bytes that may still be written. Remove older incidents if there is no room for `wanted`."""
        while self.bytes + wanted > self._limit and self._complete:
            oldest = self._complete.popleft()
            oldest.remove()
            self.files.remove(oldest.path)
            self.bytes -= oldest.size
            if not self._rotates:
                self._notify(f"{units.size(self._limit)} of packets are on disk: the oldest incidents are removed")
            self._rotates = True
        return self._limit - self.bytes

    def _reach_limit(self) -> None:
        """End the file: it has reached the limit of all files."""
        if self.selection is not None:
            self._notify(f"{units.size(self._limit)} of packets, which is the limit, hold no more of this incident")
            if self._written == self._start:
                self._remove()
                self._close_file()
            self._written = self._ring.head  # skip the rest of this incident
            self._end_file()
            return
        self._end_file()
        self._over = True
        self._notify(f"{units.size(self._limit)} of packets are on disk, which is the limit: no more are written")

    def _put(self, data: bytes | Array) -> None:
        if self._file is None or not len(data):
            return
        try:
            self._file.write(data)
        except OSError as error:
            self._fail(error)
        else:
            self.bytes += len(data)

    def _end_file(self) -> None:
        """End the file: it is complete."""
        if self._file is None:
            return
        name = self._file.path.name
        if self.selection is not None and self._written == self._start:
            self._remove()
            self._notify(f"{name} is removed: all packets so far are in the file before it")
        else:
            self._describe()  # in case there was no packet
            self._put(self._ring.statistics(self._start))
        if self._file is not None and self.selection is not None and self._written > self._start:
            matched = f"{self._matched:,} exchange{'' if self._matched == 1 else 's'} matched"
            self._notify(f"{name} ends: {units.size(self._file.size)}, {matched}")
            self._failed = False
        self._close_file()

    def _fail(self, error: OSError) -> None:
        """Give up a file that cannot be written. A later incident may try again."""
        if not self._failed:
            path = self.path if self._file is None else self._file.path
            self._notify(f"{path}: {error.strerror or error}: packets are not recorded; the capture continues")
        self._failed = True
        if self.selection is None:
            self._over = True
        else:
            self._lost += self._file is None or self._written == self._start
            self._retry = self._ring.latest + self._after
        if self._written == self._start:
            self._remove()
        self._close_file()

    def _remove(self) -> None:
        """Remove a file without packets."""
        if self._file is not None:
            self._file.remove()
            self.files.remove(self._file.path)
            self.bytes -= self._file.size

    def _close_file(self) -> None:
        """Close the file."""
        file, self._file = self._file, None
        self._what = ""
        if file is not None and self.selection is not None and file.path in self.files:
            self._complete.append(file)
        self._end = self._quiet_from = self._quiet_at = _NEVER
        try:
            if file is not None:
                file.close()
        except OSError as error:  # earlier writes may be lost
            self._fail(error)

    def _refused(self, link_type: int) -> None:
        self._notify(
            f"packets of link type {link_name(link_type)} are not recorded: a pcap holds one link type; "
            f"name it {self.path.stem}.pcapng to have all"
        )


def describe(exchange: Array, codes: Array, engine: Engine) -> str:
    """One line about a match: an EXCHANGE row and the error codes of its response; escaped."""
    orphan = exchange["outcome"] == r.ORPHAN_RESPONSE
    parts = [f"exchange {exchange['key']}"]
    parts.append("a response alone" if orphan else f"{api_label(int(exchange['api_key']))} v{exchange['api_version']}")
    client = engine.strings[int(exchange["client_id"])] if exchange["client_id"] >= 0 else None
    if client is not None:
        parts.append(f'of "{units.safe(client.decode("utf-8", "replace"))}"')
    ends = ("client", "broker")
    parts.append(" > ".join(endpoint(engine.addresses[exchange[f"{e}_ip"]], int(exchange[f"{e}_port"])) for e in ends))
    parts.append(f"at {units.iso(int(exchange['response_first' if orphan else 'request_first']))}")
    failed = np.unique(codes[codes != 0]).tolist()
    said = [error_label(code) for code in failed[:_NAMED]] + ["..."] * (len(failed) > _NAMED)
    if exchange["outcome"] == r.ANSWERED:
        said.append(units.duration(int(exchange["total_ns"])))
    elif exchange["outcome"] == r.IN_FLIGHT:
        said.append(f"waiting for {units.duration(int(exchange['waited_ns']))}")
    else:
        said.append(r.OUTCOMES[exchange["outcome"]])
    return f"{' '.join(parts)}: {', '.join(said)}"


def _stamp(ns: int) -> str:
    """`20261121T174501.123Z`."""
    seconds, rest = divmod(ns, SECOND)
    return time.strftime("%Y%m%dT%H%M%S", time.gmtime(seconds)) + f".{rest // 1_000_000:03d}Z"
