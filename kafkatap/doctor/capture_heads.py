"""`read_head`: what the first bytes of a capture say about how it was made: interfaces, snap lengths, filter, program.

Only regular files have a head: the bytes of a pipe can be read once. Texts in it are other people's. What is damaged
or missing is left out: the run itself reports damage.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from kafkatap.reassembly.errors import CaptureError
from kafkatap.reassembly.pcapng import INTERFACE_DESCRIPTION, PACKET_BLOCKS, SECTION_HEADER, SMALLEST_BLOCK
from kafkatap.reassembly.pcapng_blocks import APPLICATION, COMMENT, FILTER, INTERFACE_NAME

from ..captures.capture_bytes import CaptureBytes
from ..captures.pipes import is_pipe
from ..captures.storage import is_uri
from ..extract.extraction import EXTRACT_MARK

#: Bytes that are read, and interfaces that are kept.
HEAD_BYTES, MOST_INTERFACES = 262_144, 100
_PCAP = {
    b"\xd4\xc3\xb2\xa1": "<", b"\x4d\x3c\xb2\xa1": "<", b"\x34\xcd\xb2\xa1": "<",
    b"\xa1\xb2\xc3\xd4": ">", b"\xa1\xb2\x3c\x4d": ">", b"\xa1\xb2\xcd\x34": ">",
}  # fmt: skip
_SECTION_BYTES = SECTION_HEADER.to_bytes(4, "big")  # the same in both byte orders


class Interface(NamedTuple):
    """An interface of a capture. `snap_length`: 0: none. `filter`: the capture filter, if the capture has it."""

    name: str
    link_type: int
    snap_length: int
    filter: str = ""


class Head(NamedTuple):
    """`program`: what wrote the capture, if it says so. `comment`: that of the whole file, if it has one."""

    interfaces: tuple[Interface, ...] = ()
    program: str = ""
    comment: str = ""

    @property
    def is_extract(self) -> bool:
        """Whether `kafkatap extract` wrote the capture."""
        return self.program.startswith("kafkatap ") and self.program.endswith(EXTRACT_MARK)


def read_head(path: str) -> Head:
    """The head of a capture. An empty one for pipes, and for what cannot be read."""
    if is_pipe(path) or is_uri(path):
        return Head()
    data = bytearray(HEAD_BYTES)
    length = 0
    try:
        source = CaptureBytes(path)
        try:
            while length < HEAD_BYTES and (count := source.readinto(memoryview(data)[length:])):
                length += count
        finally:
            source.close()
    except (OSError, CaptureError):
        if not length:
            return Head()
    return head_of(bytes(data[:length]))


def head_of(data: bytes) -> Head:
    """The head of a capture that begins with `data`."""
    order = _PCAP.get(data[:4])
    if order is not None and len(data) >= 24:
        snap_length, link = struct.unpack_from(order + "II", data, 16)
        return Head((Interface("", link & 0x03FFFFFF, snap_length),))
    if data[:4] != _SECTION_BYTES:
        return Head()
    interfaces: list[Interface] = []
    program = comment = ""
    for kind, body, order in _blocks(data):
        if kind == SECTION_HEADER:
            named = dict(_options(body[16:], order))
            program, comment = _text(named.get(APPLICATION, b"")) or program, _text(named.get(COMMENT, b"")) or comment
        elif kind == INTERFACE_DESCRIPTION and len(body) >= 8 and len(interfaces) < MOST_INTERFACES:
            link, snap_length = struct.unpack_from(order + "HxxI", body)
            options = dict(_options(body[8:], order))
            found = options.get(FILTER, b"")
            text = _text(found[1:]) if found[:1] == b"\0" else ""
            interfaces.append(Interface(_text(options.get(INTERFACE_NAME, b"")), link, snap_length, text))
    return Head(tuple(interfaces), program, comment)


def _blocks(data: bytes) -> Iterator[tuple[int, bytes, str]]:
    """The pcapng blocks: type, body, byte order."""
    at, order = 0, "<"
    while at + SMALLEST_BLOCK <= len(data):
        if data[at : at + 4] == _SECTION_BYTES:
            order = ">" if data[at + 8 : at + 12] == b"\x1a\x2b\x3c\x4d" else "<"
        kind, length = struct.unpack_from(order + "II", data, at)
        if length < SMALLEST_BLOCK or at + length > len(data):
            return
        if kind not in PACKET_BLOCKS:
            yield kind, data[at + 8 : at + length - 4], order
        at += length


def _options(data: bytes, order: str) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + 4 <= len(data):
        code, length = struct.unpack_from(order + "HH", data, at)
        if code == 0:
            return
        yield code, data[at + 4 : at + 4 + length]
        at += 4 + (length + 3) // 4 * 4


def _text(value: bytes) -> str:
    return value.split(b"\0")[0].decode("utf-8", "replace")
