"""Rewrites frames: all that is not known to be harmless becomes filler or a pseudonym.

A new frame starts as filler. Then the tree of the original (`dissector.tree.view`) is walked, and what it decoded is
copied by its type: numbers and booleans, lengths, counts and tags as they are; strings by `fields`; uuids and addresses
as pseudonyms; records by `record_batches`. Bytes that have no node of their own never leave the original.

Bytes may decode and still not be what their layout says. So no run of six or more printable bytes is copied as numbers.
The numbers of headers stay all the same if their message has a layout: requests and responses are paired by them.

A frame of which something is wrong or missing is decoded again. It is filled so that it is wrong at the same place, if
one of the fillers has that effect. In such frames also lengths and counts are no text.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from kafkatap.dissector.kafka.varints import VARINT_32, varint
from kafkatap.dissector.layouts.schema import FIXED_WIDTHS, REQUEST
from kafkatap.dissector.tree import node as n
from kafkatap.dissector.tree.message_rows import Frames
from kafkatap.dissector.tree.node import Node, has_problem
from kafkatap.dissector.tree.view import EarlierFacts, Viewer

from .fields import FILLER, rewritten_string
from .message_rows import FramesRewriter
from .names import Names
from .plausible import PRINTABLE
from .record_batches import RecordRewriter
from .sasl_tokens import rewritten_token

#: Fillers of a frame that does not decode to its end: one of them may be wrong at the place of the original.
FILLERS = (FILLER, b"\0", b"\xff", b"\x7f", b"\x80", b"\1")
_LEAVES = (n.RAW, n.MISSING, n.HIDDEN)
_TOKENS = ("AuthBytes", "Token")
#: Bytes of the lengths of fields that are not flexible.
_LENGTH_WIDTHS = {"string": 2, "bytes": 4, "records": 4}
#: Bytes that are compared at once.
_PIECE = 1 << 20
_PRINTABLE = bytes(range(0x20, 0x7F))


class CapturedFrame(NamedTuple):
    """A frame, from its size field on, as far as it was captured. The other fields are as for `Viewer.view`.
    `is_token`: it is a bare SASL token. Only one that is `bytes` is rewritten together with others."""

    frame: bytes | memoryview
    direction: int
    api_key: int
    version: int
    mechanism: str | None
    enveloped: tuple[int, int] | None
    is_token: bool


class MessageRewriter:
    """Rewrites the frames of one run. `viewer`: makes their trees; it shows secrets and reads no records."""

    def __init__(self, names: Names, viewer: Viewer | None = None) -> None:
        self.names = names
        self.records = RecordRewriter(names)
        self._viewer = viewer or Viewer()
        self._viewer.secrets, self._viewer.numbers, self._viewer.records = True, False, _no_records
        self._usual = FramesRewriter(names, self.records, self._viewer)
        self.changed_problems = 0  # frames that are not wrong at the place of the original

    def string(self, names: Names, field: str, value: bytes, siblings: Mapping[str, object]) -> bytes:
        """What a string becomes (`rewritten_string`)."""
        return rewritten_string(names, field, value, siblings)

    def rewrite_all(self, frames: Sequence[CapturedFrame]) -> list[bytes | bytearray]:
        """Each frame as `rewrite` or `rewrite_token` does."""
        made = self._usual.rewritten(
            Frames(
                [frame.frame if isinstance(frame.frame, bytes) else b"" for frame in frames],
                [frame.direction != REQUEST for frame in frames],
                [frame.api_key for frame in frames],
                [frame.version for frame in frames],
                [int(frame.is_token) for frame in frames],
            )
        )
        return [
            found if found is not None else self._rewritten(frame) for found, frame in zip(made, frames, strict=True)
        ]

    def _rewritten(self, frame: CapturedFrame) -> bytes | bytearray:
        if frame.is_token:
            return self.rewrite_token(frame.frame)
        return self.rewrite(
            frame.frame, frame.direction, frame.api_key, frame.version, frame.mechanism, frame.enveloped
        )

    def rewrite(
        self,
        frame: bytes | memoryview,
        direction: int,
        api_key: int = -1,
        version: int = -1,
        mechanism: str | None = None,
        enveloped: tuple[int, int] | None = None,
    ) -> bytes | bytearray:
        """A frame, from its size field on, as far as it was captured; in as many bytes.

        Arguments as for `Viewer.view`.
        """
        earlier = EarlierFacts(mechanism, enveloped)
        tree: Node | None = self._viewer.view(frame, direction, api_key, version, earlier)
        assert tree is not None
        if not _is_incomplete(tree):
            writer = _Writer(self, frame, FILLER, keeps_header=True)
            return writer.without_misread(FILLER, writer.written(tree), only_numbers=True)
        wanted = _problems(tree)
        first: bytes | bytearray = b""
        is_flexible, is_known = self._is_flexible(frame, direction, api_key, version)
        for prefixed in (True, False):
            for filler in FILLERS:
                writer = _Writer(self, frame, filler, prefixed, is_flexible, is_known)
                tree = tree or self._viewer.view(frame, direction, api_key, version, earlier)
                made = writer.without_misread(filler, writer.written(tree))
                if isinstance(frame, memoryview):  # not two large trees at a time
                    tree = None
                again = self._viewer.view(memoryview(made), direction, api_key, version, earlier)
                if _problems(again) == wanted:
                    return made
                first = first or made
        self.changed_problems += 1
        return first

    def _is_flexible(self, frame: bytes | memoryview, direction: int, api_key: int, version: int) -> tuple[bool, bool]:
        """Whether a message is flexible, and whether it has a layout."""
        if direction == REQUEST:
            api_key, version = (int.from_bytes(frame[at : at + 2], "big", signed=True) for at in (4, 6))
        message = self._viewer.message(api_key, direction)
        if message is None:
            return False, False
        return version in message.flexible, version in message.versions

    def rewrite_token(self, frame: bytes | memoryview) -> bytes:
        """A frame that is a bare SASL token."""
        return bytes(frame[:4]) + rewritten_token(self.names, bytes(frame[4:]))


def _no_records(raw: bytes, offset: int, cut: int) -> Sequence[Node]:
    return ()


def _all_nodes(tree: Node) -> Iterator[Node]:
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        waiting += node.children


def _is_incomplete(tree: Node) -> bool:
    """Whether anything is wrong, missing or undecoded in a frame."""
    return has_problem(tree) or any(node.kind in _LEAVES for node in tree.children)


def _problems(tree: Node) -> list[tuple[int, int, str, str]]:
    """Where a tree has problems, and of which kind: cut short, or malformed."""
    return sorted(
        (node.offset, node.length, node.problem.partition(" at byte ")[0], node.name)
        for node in _all_nodes(tree)
        if node.problem or node.kind in _LEAVES
    )


class _Ranges:
    """Ranges of bytes, in ascending order. A frame may have a quarter of a million."""

    def __init__(self) -> None:
        self._starts, self._ends = array("q"), array("q")

    def add(self, start: int, end: int) -> None:
        if self._ends and self._ends[-1] == start:
            self._ends[-1] = end
            return
        self._starts.append(start)
        self._ends.append(end)

    def within(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """The parts of ranges that lie in start:end."""
        for row in range(bisect_right(self._ends, start), bisect_left(self._starts, end)):
            yield max(self._starts[row], start), min(self._ends[row], end)


class _Writer:
    """Writes one frame anew. `keeps_lengths`: keep the length of the string or bytes at which the capture ends.
    `is_flexible`: such lengths are varints (KIP-482). `keeps_header`: the numbers of headers are no text."""

    def __init__(
        self,
        owner: MessageRewriter,
        frame: bytes | memoryview,
        filler: bytes,
        keeps_lengths: bool = False,
        is_flexible: bool = False,
        keeps_header: bool = False,
    ) -> None:
        self.names, self.records, self.string, self.old = owner.names, owner.records, owner.string, frame
        self.new = bytearray(filler) * len(frame)
        self._keeps_lengths, self._is_flexible = keeps_lengths, is_flexible
        self._keeps_header = keeps_header
        #: Ranges of strings, records and headers, which have rules of their own, and of numbers.
        self._strings, self._numbers = _Ranges(), _Ranges()

    def written(self, tree: Node) -> bytearray:
        self.container(tree, "")
        return self.new

    def without_misread(self, filler: bytes, written: bytearray, only_numbers: bool = False) -> bytearray:
        """The new bytes without runs of printable bytes that are numbers only if nothing was misread. `only_numbers`:
        lengths and counts are right."""
        at, size = 4, _PIECE
        while at < len(written):
            end = min(at + size, len(written))
            alike = self._alike(written, at, end)
            behind = len(alike.rstrip(_PRINTABLE)) if end < len(written) else len(alike)
            if not behind:  # one run, which may go on
                size *= 2
                continue
            for found in PRINTABLE.finditer(alike, 0, behind):
                if found[0].strip(filler):
                    self._overwrite(written, at + found.start(), at + found.end(), filler, only_numbers)
            at, size = at + behind, _PIECE
        return written

    def _alike(self, written: bytearray, start: int, end: int) -> bytearray:
        """The bytes of a range that are those of the original; zeros in place of others, and of strings."""
        old, new = (np.frombuffer(memoryview(raw)[start:end], np.uint8) for raw in (self.old, written))
        alike = bytearray(np.multiply(old, old == new).data)
        for first, last in self._strings.within(start, end):
            alike[first - start : last - start] = bytes(last - first)
        return alike

    def _overwrite(self, written: bytearray, start: int, end: int, filler: bytes, only_numbers: bool) -> None:
        for first, last in self._numbers.within(start, end) if only_numbers else [(start, end)]:
            written[first:last] = filler * (last - first)

    def copy(self, start: int, end: int) -> None:
        self.new[start:end] = self.old[start : min(end, len(self.old))]

    def put(self, node: Node, value: bytes) -> None:
        """Write the content of a node, behind its own prefix."""
        at = node.end - len(value)
        self.copy(node.offset, at)
        self.new[at : node.end] = value

    def fill(self, node: Node, size: int) -> None:
        """Write filler as the content of a node, `size` bytes."""
        self.copy(node.offset, node.end - size)
        for at in range(node.end - size, node.end, _PIECE):
            end = min(at + _PIECE, node.end)
            self.new[at:end] = FILLER * (end - at)

    def container(self, node: Node, parent: str) -> None:
        """Copy the own bytes of a node (counts, lengths, tags), and write its children."""
        at, end = node.offset, min(node.end, len(self.old))
        siblings: dict[str, object] = {}
        inner = parent if node.name.startswith("[") else node.name
        is_array = node.kind == n.ARRAY
        is_tagged = node.kind == n.TAGS
        numbers = self._strings if self._keeps_header and node.name == "Header" else self._numbers
        first = at  # what follows from there on to `at` is to be copied
        for child in node.children:
            value, start = child.value, child.offset
            if child.kind == n.VALUE and not isinstance(value, (str, bytes)) and start >= at:
                at = start + child.length
                numbers.add(start, at)
            else:
                self.copy(first, max(at, start))
                self.node(child, inner, siblings, is_tagged)
                first = at = max(at, child.end)
            if not is_array:
                siblings[child.name] = value
        self.copy(first, at)
        if at < end and node.kind in (n.STRUCT, n.TAGS, n.ARRAY):
            stopped = bool(node.children) and node.children[-1].kind in _LEAVES
            if not stopped:
                self.copy(at, end)
                if is_array and not node.children and isinstance(node.value, int):  # numbers have no nodes
                    self._numbers.add(end - node.value * FIXED_WIDTHS.get(node.type[2:], 0), end)
        if node.kind == n.NESTED and bytes(self.old[at:end]) == b"\0":  # its empty tag section
            self.copy(at, end)
        if len(self.new) != len(self.old):
            raise AssertionError("a rewritten frame has another size")

    def node(self, node: Node, parent: str, siblings: Mapping[str, object], is_tagged: bool) -> None:
        if node.kind == n.VALUE:
            self.value(node, parent, siblings)
        elif node.kind == n.NULL:
            self.copy(node.offset, node.end)
        elif node.kind == n.RECORDS:
            self.record_set(node)
        elif node.name in _TOKENS and node.kind == n.NESTED:
            start = node.children[0].offset
            self.copy(node.offset, start)
            self.new[start : node.end] = rewritten_token(self.names, bytes(self.old[start : node.end]))
        elif node.kind in _LEAVES:
            if node.kind == n.RAW and self._keeps_lengths:
                self.length_of_cut(node, is_tagged)
        else:
            self.container(node, parent)

    def value(self, node: Node, parent: str, siblings: Mapping[str, object]) -> None:
        value = node.value
        if isinstance(value, str):
            field = f"{parent}.{node.name}" if not node.name.startswith("[") else parent
            old = value.encode("utf-8", "surrogateescape")
            self.put(node, self.string(self.names, field, old, siblings))
            self._strings.add(node.end - len(old), node.end)
        elif isinstance(value, bytes):
            made = self.bytes_value(node, parent, value)
            if made is None:
                self.fill(node, len(value))
            else:
                self.put(node, made)
        else:
            self.copy(node.offset, node.end)
            self._numbers.add(node.offset, node.end)

    def bytes_value(self, node: Node, parent: str, value: bytes) -> bytes | None:
        """What bytes become; None: filler."""
        if node.type == "uuid" or (len(value) == 16 and node.type == "[]uuid"):
            return self.names.uuid(value)
        if node.name == "ClientHostAddress" and len(value) in (4, 16):
            return self.names.addresses.packed(value)
        if node.name in _TOKENS:
            return rewritten_token(self.names, value)
        return None

    def record_set(self, node: Node) -> None:
        size = node.value if isinstance(node.value, int) else 0
        start = node.end - size
        self.copy(node.offset, start)
        there = self.old[start : min(node.end, len(self.old))]
        self.new[start : start + len(there)] = self.records.rewrite(there)
        self._strings.add(start, start + len(there))

    def length_of_cut(self, node: Node, is_tagged: bool) -> None:
        """Keep the length at which a cut field begins, if it reaches behind the captured bytes. A tagged field begins
        with its tag's number and size."""
        if node.length:
            return
        at, end = node.offset, len(self.old)
        if is_tagged:
            size, at = self.tag_size(at)
            if not self.reaches_behind(size, at):
                return
            self.copy(node.offset, at)
        if node.type not in _LENGTH_WIDTHS:
            return
        if self._is_flexible:
            length, content = varint(self.old, at, end, VARINT_32)
            length -= 1
        else:
            content = at + _LENGTH_WIDTHS[node.type]
            length = int.from_bytes(self.old[at:content], "big")
        if self.reaches_behind(length, content):
            self.cut_value(node, at, content)

    def tag_size(self, start: int) -> tuple[int, int]:
        """The size of a tag, and the place behind it; -1 if there is none. If the capture ends within it or within the
        tag's number, it may be any."""
        end = len(self.old)
        _, at = varint(self.old, start, end, VARINT_32)
        if at >= 0:
            start = at
            size, at = varint(self.old, start, end, VARINT_32)
        if at >= 0:
            return size, at
        return (1, end) if end - start < VARINT_32 else (0, -1)

    def reaches_behind(self, length: int, at: int) -> bool:
        """Whether a length, whose content begins at a place (-1: none), is more than was captured."""
        return 0 <= at <= len(self.old) and len(self.old) - at < length < 1 << 31

    def cut_value(self, node: Node, start: int, content: int) -> None:
        """Keep the length of a cut field, which is before its content, and what a token shows of its user."""
        self.copy(start, content)
        if node.name in _TOKENS:
            self.new[content:] = rewritten_token(self.names, bytes(self.old[content:]))
            self._strings.add(content, len(self.old))
