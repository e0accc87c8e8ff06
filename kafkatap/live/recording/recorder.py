"""The flight recorder: packets on disk, all of them or those around incidents.

Packets are packed into a ring in memory, and a thread writes them from there to files, oldest first. Without a
condition everything is written. With a condition, a matching exchange opens a file. That begins with the packets in the
ring that no earlier file has, and ends when no exchange matched for a while.

This decides what is recorded; `recording_files` writes it. No call here waits for a disk.
"""

from __future__ import annotations

import errno
import os
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
from ...output_file import is_device, refuse_link
from ...replaceable import CAPTURE, PCAPNG, found_at
from ..background import Background
from ..provisional_rows import without_confirmed
from ..sink import Elapsed, Sink
from .capture_file import CaptureFile
from .incident_causes import CoolDown, causes_of
from .packet_ring import PacketRing
from .recording_files import NEVER, PARTS, SECOND, RecordingFiles, Span
from .trimming.packets import PacketTrimmer

if TYPE_CHECKING:
    from kafkatap.reports.counting.counts import ReportCounts

    from ...engine.engine import Engine

RING_SIZE = 64 << 20
AFTER = 5 * SECOND
LIMIT = 1 << 30
#: A file of all packets takes at least one packet, and so many segments of the ring.
LEAST_LIMIT = PARTS << 20
#: Packets are handed over when there are so many bytes of them, and every second.
_AT_ONCE = 256 << 10
#: Error codes that a line names, at most.
_NAMED = 3
#: In place of an API in the cause of an incident that is an event.
_EVENT = -1


class Recorder(Sink):
    """`path`: the file; with `on`, the pattern of file names: `x.pcap` leads to `x-20261121T174501.123Z.pcap`, with the
    time of the match. A file of all packets gets such a name, too, when it is full and when another run begins. The
    format is pcapng if it ends in .pcapng, else classic pcap (ns). Only the user can read the files (0600).

    `on`: the incidents; the engine has to decode its fields (`Selection.engine_options`). `on_events`: events that are
    more than notes are incidents, too. `size`: bytes of packets in memory. `after`: ns of packets written after the
    last match. `cool_down`: ns for which a recorded cause does not match again. `limit`, `age`: bytes of all files of
    this name together, and ns since their last packet, over all runs: the oldest are removed. `links`: the expected
    link types, with the names of their interfaces. `counters` returns the packets received and dropped so far, for
    pcapng. `notify` gets lines for users. `rotate`: of all packets, a file holds those of so many ns, and has the name
    of its first moment from the begin. `comment`: of each pcapng. `trimmer`: what is written of packets; None: all.

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
        age: int | None = None,
        cool_down: int = 0,
        links: Mapping[int, str] | None = None,
        counters: Callable[[], tuple[int, int]] = lambda: (0, 0),
        notify: Callable[[str], None] = lambda text: None,
        rotate: int | None = None,
        comment: str = "",
        trimmer: PacketTrimmer | None = None,
    ) -> None:
        self.path = Path(path)
        self.incidents = 0
        self.selection = on
        self._on_events = on_events
        self._has_incidents = on is not None or on_events
        self._selector: Selector | None = None
        self._after = after
        self._notify = notify
        self._trimmer = trimmer
        self._is_dated = rotate is not None
        self._check(links or {}, limit)
        form = writer.NEXT_GENERATION if self.path.suffix == ".pcapng" else writer.CLASSIC
        self._cool_down = CoolDown(cool_down)
        self._ring = PacketRing(form, size, links or {}, counters, self._refused)
        self._quiet_from = NEVER  # when the incident ends: by the time of packets,
        self._quiet_at = NEVER  # and by the clock if there are no packets
        self._elapsed = Elapsed()
        self._waiting: Array = np.zeros(0, np.int64)  # exchanges that matched while they waited, a second ago
        self._taken = 0  # packets before this position are in the spans of past incidents
        self._span: Span | None = None  # what is recorded now
        self._files = RecordingFiles(self.path, self._ring, self._has_incidents, limit, age, notify, rotate, comment)
        self._disk = Background("kafkatap-packets", 0)
        if not self._has_incidents:
            self._begin(Span(0))

    @property
    def files(self) -> list[Path]:
        """The files of this run that are there."""
        return self._files.files

    @property
    def bytes(self) -> int:
        """In all files of this name, also those of earlier runs."""
        return self._files.size

    def settle(self) -> None:
        """Wait until everything that is recorded so far is on disk."""
        self._disk.settle()

    def copy_packets(self, path: Path) -> int:
        """Write the packets in memory to a new file; return which time they span, ns. Any thread may call it."""
        ring, end = self._ring, self._files.head
        with ring.lock:
            at, span = ring.oldest, ring.span
        file = CaptureFile(path, fresh=True)
        try:
            if ring.form == writer.NEXT_GENERATION:
                file.write(blocks.section_header(f"kafkatap {own_version()}", ""))
            file.write(ring.descriptions(0))
            while at < end:
                with ring.lock:
                    at = max(at, ring.oldest)  # what was overwritten meanwhile is missing
                    data = ring.read(at, end).copy()
                file.write(data)
                at += len(data)
        finally:
            file.close()
        return span

    def _check(self, links: Mapping[int, str], limit: int) -> None:
        if self.path.suffix in (".gz", ".zst", ".lz4", ".xz"):
            raise ValueError(f"{self.path}: packets are not compressed as they come; name it .pcap or .pcapng")
        if self.path.suffix != ".pcapng" and len(links) > 1:
            kinds = ", ".join(f"{name} ({link_name(link)})" for link, name in links.items())
            raise ValueError(f"{self.path}: a pcap holds one link type, not those of {kinds}; name it .pcapng")
        is_dated = self._has_incidents or self._is_dated
        if not is_dated:  # the file of an earlier run is renamed, and removed as those of this one are
            if not is_device(str(self.path)):
                refuse_link(str(self.path))
            found = found_at(str(self.path))
            if found is not None and found.kind not in (CAPTURE, PCAPNG):
                what = f"this is {found.kind}, and no capture; name another file"
                raise FileExistsError(errno.EEXIST, what, str(self.path))
        if is_dated:
            folder = self.path.parent
            if not folder.is_dir():
                raise FileNotFoundError(errno.ENOENT, "no such folder", str(folder))
            if not os.access(folder, os.W_OK | os.X_OK):
                raise PermissionError(errno.EACCES, "files cannot be made there", str(folder))
        if not self._has_incidents and limit < LEAST_LIMIT:
            raise ValueError(f"{self.path}: all packets need a limit of at least {units.size(LEAST_LIMIT)}")

    # ---------------------------------------------------------------- input

    def add_packets(self, buffer: Array, packets: Array, count: int) -> None:
        ring = self._ring
        parts = [(packets, 0, count)] if self._trimmer is None else self._trimmer.prepared(buffer, packets, count)
        for rows, done, end in parts:
            while (done := ring.pack(buffer, rows, done, end)) < end:
                ring.turn()
        if self._span is not None and ring.latest > self._quiet_from:
            self._end_incident()
        elif ring.head - self._files.head >= _AT_ONCE:
            self._write()

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
            self._cool_down.begin(causes, now)
            if self._span is None:
                self._begin_incident(*_incident(batch, min(row for _, row in causes), engine))
            self._quiet_from, self._quiet_at = now + self._after, NEVER
        if self._span is not None:
            self._span.matched += new

    def add_provisional(self, batch: Batch, engine: Engine) -> None:
        self.add_batch(batch, engine)

    def add_event(self, finding: Finding) -> None:
        if not self._on_events or finding.severity == NOTE:
            return
        now = self._ring.latest
        party = finding.parties[0].name if finding.parties else ""
        cause = (_EVENT, crc32(f"{finding.id} {party}".encode()), 0)
        if self._cool_down.fresh([(cause, 0)], now):
            self._cool_down.begin([(cause, 0)], now)
            if self._span is None:
                begin = finding.begin or now
                self._begin_incident(units.safe(finding.text), begin, begin)
            self._quiet_from, self._quiet_at = now + self._after, NEVER
        if self._span is not None:
            self._span.matched += 1

    def end_second(self, now: int, counts: ReportCounts, engine: Engine) -> None:
        wall, known, now = now, self._elapsed.steps, self._elapsed.at(now)
        if self._elapsed.steps > known:  # the clock was set back, and so are the times of packets
            self._ring.set_latest(wall)
            self._quiet_from = min(self._quiet_from, wall + self._after) if self._quiet_from != NEVER else NEVER
            self._cool_down.forget()
        if self._quiet_from != NEVER and self._quiet_at == NEVER:
            self._quiet_at = now + self._after
        if now >= self._quiet_at:
            self._end_incident()
        self._write()

    def unwritten(self) -> Mapping[str, int]:
        return {"packet_bytes": self._files.missing + self._files.unwritten}

    def resolve_names(self, engine: Engine) -> None:
        if self._selector is not None:
            self._selector.forget()

    def reopen(self, engine: Engine) -> None:
        self._files.is_renewed = True
        self._write()

    def close(self, engine: Engine) -> None:
        if self._span is not None:
            self._end_incident()
        files = self._files
        if not self._disk.close():
            self._notify(f"{self.path}: the disk does not answer: the last packets are not recorded")
        if files.unwritten:
            self._notify(f"{units.size(files.unwritten)} of packets were not recorded: {files.why}")
        if files.not_recorded:
            self._notify(f"{files.not_recorded} incidents were not recorded")
        if files.missing:
            self._notify(f"{units.size(files.missing)} of packets were not recorded, because the disk is too slow")
        if self._ring.left_out:
            self._notify(f"{self._ring.left_out:,} packets of other link types were not recorded")

    # ---------------------------------------------------------------- spans

    def _begin_incident(self, what: str, moment: int, since: int) -> None:
        """Begin a file named by `moment`, which should have the packets from `since` on (ns since the epoch)."""
        self.incidents += 1
        if missing := self._ring.missing_since(since):
            what += f"; the packets in memory begin {units.duration(missing)} later (--ring-size)"
        self._begin(Span(max(self._taken, self._ring.oldest), moment, what))

    def _begin(self, span: Span) -> None:
        self._span = span
        self._files.spans.append(span)
        self._write()

    def _end_incident(self) -> None:
        """What is in the ring is the rest of what is recorded now."""
        assert self._span is not None
        self._files.head = self._taken = self._span.end = self._ring.head
        self._span = None
        self._quiet_from = self._quiet_at = NEVER
        self._write()

    def _write(self) -> None:
        """Let the packets so far be written."""
        files = self._files
        files.head = self._ring.head
        if not files.is_ordered:
            files.is_ordered = True
            self._disk.add(files.work)

    def _refused(self, link_type: int) -> None:
        self._notify(
            f"packets of link type {link_name(link_type)} are not recorded: a pcap holds one link type; "
            f"name it {self.path.stem}.pcapng to have all"
        )


def _incident(batch: Batch, row: int, engine: Engine) -> tuple[str, int, int]:
    """What a line says of the exchange in a row, its time, and when it began, ns since the epoch."""
    exchange = batch.exchanges[row]
    codes = batch.results["error_code"][batch.results["exchange"] == exchange["exchange"]]
    moment = int(exchange["response_last" if exchange["outcome"] == r.ANSWERED else "request_last"])
    return describe(exchange, codes, engine), moment, _began(exchange)


def _began(exchange: Array) -> int:
    return int(exchange["response_first" if exchange["outcome"] == r.ORPHAN_RESPONSE else "request_first"])


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
    parts.append(f"at {units.iso(_began(exchange))}")
    failed = np.unique(codes[codes != 0]).tolist()
    said = [error_label(code) for code in failed[:_NAMED]] + ["..."] * (len(failed) > _NAMED)
    if exchange["outcome"] == r.ANSWERED:
        said.append(units.duration(int(exchange["total_ns"])))
    elif exchange["outcome"] == r.IN_FLIGHT:
        said.append(f"waiting for {units.duration(int(exchange['waited_ns']))}")
    else:
        said.append(r.OUTCOMES[exchange["outcome"]])
    return f"{' '.join(parts)}: {', '.join(said)}"
