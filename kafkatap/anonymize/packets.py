"""Rewrites packets along their trails: by what `headers` has of each header, and of TCP's payload.

`reassembly.trail` shows where each header begins, so a packet that leads to a stream is always one that is rewritten. A
new packet starts as zeros. The innermost TCP payload is filler under the bytes of the stream map. All checksums are
computed anew, from the innermost header outwards. A packet that does not lead to TCP is left out. Packets whose headers
were seen before are rewritten together (`segments`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, cast

import numpy as np

from kafkatap.dissector.programs.tape import as_array
from kafkatap.reassembly import link_types as link
from kafkatap.reassembly.dtypes import PACKET
from kafkatap.reassembly.trail import FRAGMENT_PAYLOAD, LONGEST_TRAIL, TCP_SEGMENT, TRAIL, read_trail

from .addresses import Addresses
from .fields import FILLER
from .headers import EXTENSIONS, WRITERS, Header, HeaderCopy, copy_segment, stream_of
from .segments import HEAD, PLACE, read_heads, write_packets
from .stream_map import StreamMap

Array = np.ndarray[Any, Any]
#: Bytes of packets that need no larger buffer.
_USUAL_PACKET = 65_536
#: Headers of which the needed bytes are remembered.
_MOST_REMEMBERED = 4_096
#: Datagrams that wait for more fragments, at most; the oldest are given up.
_MOST_WAITING = 4_096
#: Flows whose heads are remembered.
_MOST_FLOWS = 65_536
#: Of a datagram: its addresses, protocol and identifier.
_FragmentKey = tuple[bytes, bytes, int, int]


class PacketRewriter:
    """Rewrites the packets of a capture whose streams are in `streams`. If it has IP fragments, `collect` has
    to see all packets (`scan`). `only_changed`: as in `write_packets`."""

    only_changed = False

    def __init__(self, addresses: Addresses, streams: StreamMap) -> None:
        self.addresses = addresses
        self.streams = streams
        self.fragments = _Fragments()
        #: Calls `collect` for all packets; it is called at the first fragment.
        self.scan: Callable[[], None] | None = None
        self._row = np.zeros(1, PACKET)
        self._trail = np.zeros(LONGEST_TRAIL, TRAIL)
        self._set_buffer(_USUAL_PACKET)
        self._needed: dict[tuple[int, bytes], bytes] = {}
        self._flows: dict[bytes, tuple[int, int]] = {}  # by head: the number of the new one, and its first stream
        self._heads = bytearray()  # the new ones

    def collect(self, packet: bytes, link_type: int, number: int) -> None:
        """See a packet in the scan for fragments."""
        self.fragments.is_collecting = True
        self.rewrite(packet, link_type, number)
        self.fragments.is_collecting = False

    def rewrite_all(self, buffer: Array, packets: Array) -> tuple[Array, Array]:
        """Rewrite the packets of a block (PACKET): their new bytes, at the same places, and which of them lead to TCP
        (bool)."""
        places, heads = np.zeros(len(packets), PLACE), np.zeros(len(packets) * HEAD, np.uint8)
        read_heads(buffer, packets, self._trail, places, heads)
        if len(self._flows) > _MOST_FLOWS:
            self._flows.clear()
            self._heads.clear()
        known = np.flatnonzero(places["tcp"] >= 0)
        flows = []
        for row, head in zip(known.tolist(), heads.view(f"V{HEAD}")[known].tolist(), strict=True):
            flow = self._flows.get(head)
            flows.append(flow or self._add_flow(head, buffer, packets[row]))
        if flows:
            places["flow"][known], places["stream"][known] = np.array(flows).T
        new = np.zeros(int((packets["at"] + packets["captured"]).max()), np.uint8)
        write_packets(buffer, packets, places, as_array(self._heads), self.streams.tables, int(self.only_changed), new)
        are_kept = places["flow"] >= 0
        for row in np.flatnonzero(~are_kept).tolist():
            made = self.rewrite(*single(buffer, packets[row]))
            if made is not None:
                at = int(packets["at"][row])
                new[at : at + len(made)] = np.frombuffer(made, np.uint8)
                are_kept[row] = True
        return new, are_kept

    def _add_flow(self, head: bytes, buffer: Array, packet: Any) -> tuple[int, int]:
        """Learn a head by a packet that has it."""
        copy = self._copied(*single(buffer, packet))
        assert copy is not None
        size = head[-1]
        flow = len(self._heads) // HEAD, stream_of(self.streams, copy.old_ends, head[size : size + 4])
        self._heads += copy.new[:size].ljust(HEAD, b"\0")
        self._flows[head] = flow
        return flow

    def rewrite(self, packet: bytes, link_type: int, number: int) -> bytes | None:
        """A packet's captured bytes in as many bytes, or None for one that does not lead to TCP."""
        copy = self._copied(packet, link_type, number)
        return None if copy is None else bytes(copy.new)

    def _copied(self, packet: bytes, link_type: int, number: int) -> HeaderCopy | None:
        trail = self.trail(packet, link_type)
        if not trail:
            return None
        copy = HeaderCopy(packet, number, self.addresses)
        for header, following in pairwise(trail):
            self._write_header(copy, header, min(following.at, len(packet)), link_type)
        last = trail[-1]
        if last.what == TCP_SEGMENT:
            copy_segment(copy, self.streams, last)
        else:
            self._write_fragment(copy, trail)
        copy.write_checksums()
        return copy

    def trail(self, packet: bytes | bytearray, link_type: int) -> list[Header]:
        """The headers of a packet; none if it does not lead to TCP."""
        size = len(packet)
        if size > len(self._buffer):
            self._set_buffer(2 * size)
        self._buffer[:size] = packet
        self._row[0] = 0, 0, 0, size, size, link_type, 0
        count = self._read_trail()
        return list(map(Header._make, self._trail[:count].tolist()))

    def _set_buffer(self, size: int) -> None:
        """Set how long packets may be."""
        buffer = np.zeros(size, np.uint8)
        self._buffer = memoryview(cast(Any, buffer))
        self._read_trail = read_trail.bound(buffer, self._row, 0, self._trail)

    def _write_header(self, copy: HeaderCopy, header: Header, stop: int, link_type: int) -> None:
        if header.what in WRITERS:
            WRITERS[header.what](copy, header, stop)
        elif header.what in EXTENSIONS:
            copy.extension(EXTENSIONS[header.what], header.at, stop)
        else:
            copy.new[header.at : stop] = self._needed_bytes(copy.old, header, stop, link_type)

    def _needed_bytes(self, packet: bytes, header: Header, stop: int, link_type: int) -> bytes:
        """A header of which nothing is known but where it ends: only those of its bytes that lead the reader along the
        same trail. The others are zeros."""
        old = packet[header.at : stop]
        found = self._needed.get((header.what, old))
        if found is not None:
            return found
        trail, changed = self.trail(packet, link_type), bytearray(packet)
        for at in range(header.at, stop):
            changed[at] = 0
            if self.trail(changed, link_type) != trail:
                changed[at] = packet[at]
        if len(self._needed) < _MOST_REMEMBERED:
            self._needed[header.what, old] = bytes(changed[header.at : stop])
        return bytes(changed[header.at : stop])

    def _write_fragment(self, copy: HeaderCopy, trail: list[Header]) -> None:
        """The payload of an IP fragment: a part of its rewritten datagram, or filler."""
        last, before = trail[-1], trail[-2]
        assert last.what == FRAGMENT_PAYLOAD
        at, end = last.at, last.end
        fragments = self.fragments
        copy.fill(at, end)
        if not fragments.is_collecting:
            scan, self.scan = self.scan, None
            if scan is not None:
                scan()
            payload = fragments.new.get(copy.number, b"")[: max(end - at, 0)]
            copy.new[at : at + len(payload)] = payload
            return
        protocol = copy.old[before.at if before.what in EXTENSIONS else before.at + 9]
        key = (*copy.old_ends, protocol, last.identifier)
        whole = fragments.add(_Fragment(key, copy.number, last.offset, bool(last.is_last), copy.old[at:end]))
        if whole is not None:
            fragments.keep(whole, self._datagram(key, b"".join(other.payload for other in whole), copy.number))

    def _datagram(self, key: _FragmentKey, payload: bytes, number: int) -> bytes:
        """The new payload of a datagram that came in fragments; filler if it does not lead to TCP."""
        source, target, protocol, _ = key
        if len(source) == 4:
            head = b"\x45\0" + min(20 + len(payload), 0xFFFF).to_bytes(2, "big") + bytes(4)
            head += bytes((64, protocol, 0, 0)) + source + target
        else:
            head = b"\x60\0\0\0" + min(len(payload), 0xFFFF).to_bytes(2, "big") + bytes((protocol, 64))
            head += source + target
        new = self.rewrite(head + payload, link.RAW, number)
        return FILLER * len(payload) if new is None else new[len(head) :]


def single(buffer: Array, packet: Any) -> tuple[bytes, int, int]:
    """The bytes of a packet (a row of PACKET), its link type and its number."""
    at = int(packet["at"])
    return buffer[at : at + int(packet["captured"])].tobytes(), int(packet["link_type"]), int(packet["number"])


class PayloadRewriter(PacketRewriter):
    """Rewrites only packets whose payload changes, or was cut: their checksum would reveal what it was made of."""

    only_changed = True

    def rewrite(self, packet: bytes, link_type: int, number: int) -> bytes | None:
        made = super().rewrite(packet, link_type, number)
        if made is None:
            return None
        last = self.trail(packet, link_type)[-1]
        at, is_cut = last.at, False
        if last.what == TCP_SEGMENT:
            at = last.at + (packet[last.at + 12] >> 4) * 4 if last.at + 12 < len(packet) else last.end
            is_cut = last.end < last.wire
        return made if is_cut or made[at : last.end] != packet[at : last.end] else packet


@dataclass(frozen=True, slots=True)
class _Fragment:
    """The payload of one fragment."""

    key: _FragmentKey
    number: int
    offset: int
    is_last: bool
    payload: bytes


class _Fragments:
    """IP fragments: the new bytes of each, made of the whole datagram.

    At the first one, a scan of the capture adds all of them. Once those of a datagram are complete, it is rewritten as
    a whole, so that its TCP payload and checksum are right, and cut again as before. Fragments of datagrams that never
    become complete stay filler. `is_collecting`: during the scan. `new`: by packet number, the new payload.
    """

    def __init__(self) -> None:
        self.is_collecting = False
        self.new: dict[int, bytes] = {}
        self._waiting: dict[_FragmentKey, list[_Fragment]] = {}

    def add(self, fragment: _Fragment) -> list[_Fragment] | None:
        """Add a fragment; return all of its datagram, in order, if they are complete."""
        found = self._waiting.setdefault(fragment.key, [])
        if any(other.offset == fragment.offset for other in found):
            return None
        found.append(fragment)
        found.sort(key=lambda other: other.offset)
        end = 0
        for other in found:
            if other.offset != end:
                break
            end += len(other.payload)
        else:
            if found[-1].is_last:
                return self._waiting.pop(fragment.key)
        if len(self._waiting) > _MOST_WAITING:
            del self._waiting[next(iter(self._waiting))]
        return None

    def keep(self, datagram: list[_Fragment], payload: bytes) -> None:
        """Keep the new payload of a datagram, as it is cut."""
        for fragment in datagram:
            self.new[fragment.number] = payload[fragment.offset : fragment.offset + len(fragment.payload)]
