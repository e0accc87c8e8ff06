"""The first pass: reads a capture as a report does, and makes the map of new bytes of its streams.

The engine reads the capture. Before it dissects a part, the part's chunks are kept. An inspector then sees each frame,
finds its place in the stream, and adds the rewritten frame to the map. Of TLS only the headers of records are added,
and at the start of a stream a header of the PROXY protocol. All other bytes stay unknown, and become filler. If only
secrets are blanked, TLS stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from kafkatap.dissector.dtypes import MAX_FRAME
from kafkatap.dissector.framing.connections import PROTOCOL_FOREIGN, PROTOCOL_KAFKA, PROTOCOL_TLS, PROTOCOL_UNKNOWN
from kafkatap.dissector.inspection import Frames
from kafkatap.dissector.programs.loading import load_programs
from kafkatap.dissector.tree.view import Viewer
from kafkatap.kernels.arrays import taken
from kafkatap.reassembly.dtypes import CHUNK_DATA, CHUNK_END, CHUNK_GAP, CHUNK_START, FROM_HELD
from kafkatap.reports.batch import Batch

from ..engine.assembly import Assembled
from ..engine.engine import Engine
from ..engine.read_options import AS_USUAL, ReadOptions
from ..engine.tls.record_header import RECORD_HEADER, record_length
from ..run import Run, Watch, never
from ..selected_messages.envelopes import EnvelopeCollector
from .addresses import Addresses
from .blanking import SecretBlanker
from .captured_streams import CapturedStream
from .messages import CapturedFrame, MessageRewriter
from .names import Names
from .stream_map import End, Stream, StreamMap

Array = np.ndarray[Any, Any]
#: Frames from this size on are not copied while they are rewritten.
_LARGE = 1 << 20
#: Bytes of frames that are rewritten together.
_TOGETHER = 1 << 20
#: The facts are those of HAProxy's specification, as in `dissector.framing.proxy_protocol`.
_LINE = re.compile(
    rb"PROXY (?:UNKNOWN[^\r\n]*|TCP([46]) ([0-9A-Fa-f:.]+) ([0-9A-Fa-f:.]+) ([0-9]{1,5}) ([0-9]{1,5}))\r\n"
)
_SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"
_FIXED = 16
#: Bytes of an address, by the family byte.
_WIDTHS = {0x11: 4, 0x21: 16}


@dataclass
class Counts:
    """What the first pass did. `unplaced`: frames whose place was not found, so that they became filler."""

    frames: int = 0
    unplaced: int = 0


class _Engine(Engine):
    """An engine that shows a learner the chunks of each part before it dissects them."""

    learner: Learner

    def dissect(self, part: Assembled) -> Iterator[Batch]:
        self.learner.keep_chunks(part)
        return super().dissect(part)


class Learner:
    """Learns the streams of one capture. `names` None: only secrets are blanked."""

    def __init__(self, names: Names | None, read: ReadOptions = AS_USUAL) -> None:
        definitions = read.definitions

        def viewer() -> Viewer:
            return Viewer(
                load_programs("everything", definitions),
                None if definitions is None else definitions.messages,
                max_frame=read.max_frame or MAX_FRAME,
            )

        self.messages = SecretBlanker(viewer) if names is None else MessageRewriter(names, viewer())
        self.names = self.messages.names
        self._keeps_tls = names is None
        self.streams = StreamMap()
        self.counts = Counts()
        self._read = read
        self._envelopes = EnvelopeCollector(definitions)
        self._open: dict[int, tuple[CapturedStream, CapturedStream]] = {}
        self._engine: _Engine

    def read(self, path: str, watch: Watch = never) -> None:
        """Read the capture; then `streams` is closed, and the engine is gone."""
        self._engine = _Engine(self._read, inspectors=[self])
        self._engine.learner = self
        for _ in Run([path], self._engine, watch).batches():
            pass
        del self._engine
        self._open.clear()
        self.streams.close()

    # ---------------------------------------------------------------- chunks

    def keep_chunks(self, part: Assembled) -> None:
        """Keep the bytes of a part's chunks until their frames are known."""
        if not part.chunk_count:
            return
        chunks, known = part.chunks, self._engine.dissector.connections["protocol"]
        connections = chunks["connection"]
        protocols = np.where(connections < len(known), known[np.minimum(connections, len(known) - 1)], PROTOCOL_UNKNOWN)
        block, held = memoryview(cast(Any, part.block)), memoryview(cast(Any, part.held))
        flows = iter(part.started_flows)
        columns = ("kind", "connection", "direction", "source", "at", "captured", "length", "seq", "packet")
        rows = zip(*(chunks[name].tolist() for name in columns), protocols.tolist(), strict=True)
        for kind, connection, direction, source, at, captured, length, seq, packet, protocol in rows:
            if kind == CHUNK_START:
                self._begin(connection, next(flows), packet)
                continue
            if kind == CHUNK_END or connection not in self._open:
                continue
            stream = self._open[connection][direction]
            if kind == CHUNK_GAP:
                stream.append(b"", length, packet, True)
            elif kind == CHUNK_DATA:
                if stream.stream.base < 0:  # a gap has no sequence number
                    stream.stream.base = (seq - stream.end) & 0xFFFFFFFF
                data = bytes((held if source == FROM_HELD else block)[at : at + captured])
                is_known = protocol in (PROTOCOL_TLS, PROTOCOL_FOREIGN)
                if protocol == PROTOCOL_KAFKA:
                    stream.is_kafka = True
                elif protocol == PROTOCOL_TLS and self._keeps_tls:
                    self.streams.add(stream.stream, stream.end, data)
                else:
                    self._add_envelope(stream, data)
                stream.append(data, length, packet, not is_known)

    def _begin(self, connection: int, flow: Any, packet: int) -> None:
        ends: list[End] = []
        for end in ("a", "b"):
            halves = (int(flow[f"{end}_{half}"]) & (1 << 64) - 1 for half in ("high", "low"))
            ends.append((b"".join(half.to_bytes(8, "big") for half in halves), int(flow[f"{end}_port"])))
        begun = [CapturedStream(self.streams.begin(ends[d], ends[1 - d], packet)) for d in (0, 1)]
        self._open[connection] = (begun[0], begun[1])

    def _add_envelope(self, stream: CapturedStream, data: bytes) -> None:
        """Add what is harmless around the bytes of other protocols: a PROXY header, the headers of TLS records."""
        at, first = 0, stream.end
        if not first and data[:1] in (b"P", b"\r"):
            header = _rewritten_proxy_header(self.names.addresses, data)
            self.streams.add(stream.stream, 0, header)
            at = len(header)
            stream.cursor = at
        if stream.tls_next >= first + at:
            if self._keeps_tls:
                self.streams.add(stream.stream, first + at, data[at : stream.tls_next - first])
            at = stream.tls_next - first
        while at + RECORD_HEADER <= len(data):
            length = int(record_length(data, at))
            if not length:
                stream.tls_next = -1
                return
            kept = length if self._keeps_tls else RECORD_HEADER
            self.streams.add(stream.stream, first + at, data[at : at + kept])
            at += length
        stream.tls_next = first + at if at >= len(data) else -1

    # ---------------------------------------------------------------- frames

    def look(self, frames: Frames) -> None:
        """See the frames of a drain: the method of an inspector."""
        self._envelopes.look(frames)
        jobs = frames.jobs
        if not len(jobs):
            return
        known = self._engine.dissector.connections
        slots = jobs["frame"] >> 1
        links, rows = frames.links[slots], taken(frames.rows, slots)
        clients, mechanisms = known["client"][links["connection"]], known["mechanism"][links["connection"]]
        columns = [jobs[name].tolist() for name in ("frame", "at", "end", "limit", "source")]
        columns += [links[name].tolist() for name in ("connection", "token")]
        columns += [rows[name].tolist() for name in ("exchange", "api_key", "api_version")]
        sides = ("request", "response")
        sizes = [rows[f"{side}_bytes"].tolist() for side in sides]
        packets = [rows[f"{side}_packet_first"].tolist() for side in sides]
        found: list[tuple[Stream, int]] = []
        captured: list[CapturedFrame] = []
        total = 0
        for place, row in enumerate(zip(*columns, clients.tolist(), mechanisms.tolist(), strict=True)):
            slot, _, end, limit, source, connection, token, exchange, api_key, version, client, mechanism = row
            side = slot & 1
            size = sizes[side][place] + 4
            start = limit - size
            there = frames.buffers[source][start:end]
            frame = there.data if end - start >= _LARGE else there.tobytes()
            self.counts.frames += 1
            direction = client if not side else 1 - client
            streams = self._open.get(connection)
            if streams is None or client < 0:
                self.counts.unplaced += 1
                continue
            stream = streams[direction]
            at = stream.locate(frame, packets[side][place], size)
            if at < 0:
                self.counts.unplaced += 1
                continue
            found.append((stream.stream, at))
            enveloped = self._envelopes.inner.get(exchange) if side else None
            captured.append(CapturedFrame(frame, side, api_key, version, self._text(mechanism), enveloped, bool(token)))
            total += len(frame)
            if total >= _TOGETHER:
                self._add_rewritten(found, captured)
                total = 0
        self._add_rewritten(found, captured)

    def _add_rewritten(self, found: list[tuple[Stream, int]], captured: list[CapturedFrame]) -> None:
        """Rewrite some frames, add them at their places, and empty both lists."""
        for (stream, at), new in zip(found, self.messages.rewrite_all(captured), strict=True):
            self.streams.add(stream, at, new)
        found.clear()
        captured.clear()

    def _text(self, number: int) -> str | None:
        if number < 0:
            return None
        raw = self._engine.strings[number]
        return None if raw is None else raw.decode("utf-8", "replace")


def _rewritten_proxy_header(addresses: Addresses, data: bytes) -> bytes:
    """The header of the PROXY protocol that `data` starts with, in as many bytes; b"" if none starts there. Its
    addresses become pseudonyms, all beyond addresses and ports filler."""
    if data.startswith(_SIGNATURE) and len(data) >= _FIXED:
        return _binary(addresses, data)
    found = _LINE.match(data)
    if found is None:
        return b""
    if found[1] is None:
        return b"PROXY UNKNOWN" + b" " * (len(found[0]) - 15) + b"\r\n"
    mapped = [(addresses.ipv4_text if found[1] == b"4" else addresses.ipv6_text)(found[k]) for k in (2, 3)]
    if mapped[0] is None or mapped[1] is None:
        return b""
    return b"PROXY TCP%s %s %s %s %s\r\n" % (found[1], mapped[0], mapped[1], found[4], found[5])


def _binary(addresses: Addresses, data: bytes) -> bytes:
    size = _FIXED + int.from_bytes(data[14:16], "big")
    if size > len(data):
        return b""
    made = bytearray(size)
    made[:_FIXED] = data[:_FIXED]
    width = _WIDTHS.get(data[13], 0)
    if width and size >= _FIXED + 2 * width + 4:
        for at in (_FIXED, _FIXED + width):
            made[at : at + width] = addresses.packed(data[at : at + width])
        ports = _FIXED + 2 * width
        made[ports : ports + 4] = data[ports : ports + 4]
    return bytes(made)
