"""The tree of a message as lines of text: each field's offset and size, its name, its value and the value's meaning.

A message has dozens of lines and captures have millions of messages. So trees become rows first (`node_rows`), which a
kernel writes as lines (`text_rows`). Rows of usual messages are made without trees (`message_rows`).

Text from the wire is escaped for a terminal. An array of plain values is one line, which is wrapped if it is long. Only
the first bytes of a byte field are shown; everything else is complete.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from kafkatap.dissector.programs.tape import as_array
from kafkatap.dissector.tree import node as n
from kafkatap.dissector.tree import node_rows as r
from kafkatap.dissector.tree.message_rows import Frames, RowMaker
from kafkatap.dissector.tree.node import Node, Run
from kafkatap.kernels.arrays import joined
from kafkatap.kernels.writers import written
from kafkatap.reports.units import safe

from ..selected_messages.message import FRAME, Messages
from .text_rows import BYTES_SHOWN, TREE, WORDS, write_trees
from .viewing import MessageViewer

Array = np.ndarray[Any, Any]
#: Characters of a text that are shown: more than brokers accept in names.
_TEXT_SHOWN = 64 << 10
#: Bytes of texts that are kept.
_KEPT = 1 << 20


@dataclass(frozen=True, slots=True)
class Paint:
    """The escape sequences that begin each kind of text in a line, and that end it; empty without colours."""

    number: str = ""
    faint: str = ""
    text: str = ""
    problem: str = ""
    end: str = ""


PLAIN = Paint()


def terminal_paint(styled: Callable[[str], tuple[str, str]]) -> Paint:
    """Colours. `styled` returns the escape sequences that begin and end a style."""
    number, faint, text, problem = (styled(style)[0] for style in ("cyan", "dim", "green", "bold red"))
    return Paint(number, faint, text, problem, end=styled("dim")[1])


def tree_text(node: Node, paint: Paint = PLAIN, offsets: bool = True, margin: str = "") -> list[str]:
    """The lines of all nodes below a node. With `offsets` a line begins with the node's offset and size."""
    return TreeWriter(paint, offsets, margin).text(node).split("\n")


class Texts:
    """Texts by number, as bytes. Number 0 is the empty one."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {"": 0}
        self._bytes = bytearray()
        self._ends = array("q", [0, 0])

    def __len__(self) -> int:
        """The bytes of all texts."""
        return len(self._bytes)

    def of(self, text: str) -> int:
        """The number of a text, which is escaped."""
        return self.of_escaped(safe(text)) if text else 0

    def of_escaped(self, text: str) -> int:
        """The number of a text that is as it is to be written."""
        number = self._numbers.get(text)
        if number is None:
            number = self._numbers[text] = len(self._numbers)
            self._bytes += text.encode()
            self._ends.append(len(self._bytes))
        return number

    def arrays(self) -> tuple[Array, Array]:
        """The bytes of all texts (uint8); where each text begins, and the last one ends (int64)."""
        return np.array(self._bytes, np.uint8) if self._bytes else np.zeros(0, np.uint8), np.array(self._ends)


class TreeWriter:
    """Writes trees as `tree_text` does. It keeps texts that many lines share."""

    def __init__(self, paint: Paint, offsets: bool = True, margin: str = "") -> None:
        self._paint, self._offsets, self._margin = paint, offsets, margin
        self._begin()

    def _begin(self) -> None:
        """Forget all texts."""
        paint = self._paint
        self._texts = Texts()
        marks = (*WORDS, self._margin, paint.number, paint.faint, paint.text, paint.problem, paint.end)
        self._marks = np.array([self._texts.of_escaped(mark) for mark in marks], np.int64)
        self._maker: RowMaker | None = None

    def text(self, node: Node) -> str:
        """The lines of all nodes below a node, with line ends between them."""
        rows = _TreeRows(self._texts, 0)
        rows.add_below(node)
        return next(iter(self._written(rows.nodes(), bytes(rows.data), [0], [rows.count], [node.end])))

    def texts(self, viewer: MessageViewer, messages: Messages) -> Iterable[str]:
        """The lines of each message, as `text` of its tree."""
        if len(self._texts) > _KEPT:
            self._begin()
        if self._maker is None:
            self._maker = RowMaker(viewer.viewer, self._texts.of, _TEXT_SHOWN)
        frames = Frames(
            messages.objects[:, FRAME].tolist(),
            messages.are_responses.tolist(),
            messages.rows["api_key"].tolist(),
            messages.rows["api_version"].tolist(),
            messages.heads["token"].tolist(),
        )
        made = self._maker.rows(frames)
        firsts, lasts = made.firsts.tolist(), made.lasts.tolist()
        sizes = list(map(len, frames.frames))
        parts, data, count = [made.nodes], [made.data], len(made.nodes)
        used = len(made.data)
        for place, first in enumerate(firsts):
            if first < 0:
                tree = viewer.view(messages.at(place))
                rows = _TreeRows(self._texts, used)
                rows.add_below(tree)
                parts.append(rows.nodes())
                data.append(bytes(rows.data))
                used += len(rows.data)
                firsts[place], lasts[place], sizes[place] = count, count + rows.count, tree.end
                count += rows.count
        nodes, whole = joined(parts, r.NODE), b"".join(data)
        self._escape(nodes, whole)
        return self._written(nodes, whole, firsts, lasts, sizes)

    def _escape(self, nodes: Array, data: bytes) -> None:
        """Set the texts of strings with characters to escape."""
        for place in np.flatnonzero(nodes["form"] == r.ODD).tolist():
            first, size = int(nodes["value"][place]), int(nodes["bytes"][place])
            text = data[first : first + size].decode("utf-8", "surrogateescape")
            nodes["value"][place], nodes["form"][place] = self._texts.of_escaped(quoted(text)), r.LITERAL

    def _written(
        self, nodes: Array, data: bytes, firsts: list[int], lasts: list[int], sizes: list[int]
    ) -> Iterable[str]:
        trees = np.zeros(len(firsts), TREE)
        trees["first"], trees["last"] = firsts, lasts
        if self._offsets:
            trees["width"] = [max(4, len(str(size))) for size in sizes]
        values = as_array(data)
        texts, ends = self._texts.arrays()
        write = lambda first, out, stops: write_trees(  # noqa: E731
            trees, first, nodes, values, self._marks, texts, ends, out, stops
        )
        return (text.decode() for text in written(write, len(trees)))


class _TreeRows:
    """The rows of a tree. The bytes of their values lie behind `used` others."""

    def __init__(self, texts: Texts, used: int) -> None:
        self._texts, self._used = texts, used
        self.data = bytearray()
        self._rows: list[tuple[int, ...]] = []

    @property
    def count(self) -> int:
        return len(self._rows)

    def nodes(self) -> Array:
        """The rows (NODE)."""
        return np.array(self._rows, r.NODE)

    def add_below(self, node: Node, depth: int = 0) -> None:
        """Add the rows of all below a node."""
        for part in node.parts:
            if node.kind == n.BATCH and (isinstance(part, Run) or part.kind != n.ARRAY):
                continue  # a batch's line has the fields of its head
            for child in part.nodes() if isinstance(part, Run) else (part,):
                self._add(child, depth)

    def _add(self, node: Node, depth: int) -> None:
        is_list = node.kind == n.ARRAY and _is_plain(node.parts)
        form, value, size = (r.LIST, len(node.parts), 0) if is_list else self._value(node)
        of = self._texts.of
        has_type = node.kind == n.BATCH or (node.kind == n.STRUCT and node.name not in ("Header", "tags"))
        self._rows.append((
            value, node.offset, node.length, of(node.name), -1, of(node.type) if has_type else 0, size, of(node.text),
            of(node.problem), form, depth,
        ))  # fmt: skip
        self.add_below(node, depth + 1)

    def _value(self, node: Node) -> tuple[int, int, int]:
        """Form, value and size in a row."""
        value, kind = node.value, node.kind
        if kind == n.VALUE or kind == n.TAGS:
            if isinstance(value, bool):
                return r.BOOL, value, 0
            if isinstance(value, int):
                return r.NUMBER, value, 0
            if isinstance(value, str):
                if value.isascii() and value.isprintable() and len(value) <= _TEXT_SHOWN:
                    return r.STRING, self._keep(value.encode()), len(value)
                return r.LITERAL, self._texts.of_escaped(quoted(value)), 0
            if isinstance(value, bytes):
                if node.type == "uuid":
                    return r.UUID, self._keep(value), len(value)
                return r.BYTES, self._keep(value[:BYTES_SHOWN]), len(value)
            return r.LITERAL, self._texts.of_escaped(str(value)), 0
        if kind == n.STRUCT or (kind == n.RAW and not node.length):  # where decoding stopped, its problem says it
            return r.NOTHING, 0, 0
        return _FORMS[kind], value if isinstance(value, int) else 0, 0

    def _keep(self, value: bytes) -> int:
        """The place of some bytes."""
        self.data += value
        return self._used + len(self.data) - len(value)


_FORMS = {
    n.NULL: r.NULL, n.HIDDEN: r.HIDDEN, n.RAW: r.SIZE, n.MISSING: r.SIZE, n.RECORDS: r.SIZE, n.ARRAY: r.ELEMENTS,
    n.NESTED: r.NESTED, n.BATCH: r.BATCH,
}  # fmt: skip


def _is_plain(parts: tuple[Node | Run, ...]) -> bool:
    """Whether these are elements, and plain values."""
    if not parts:
        return False
    return not any(isinstance(part, Run) or part.parts or part.problem or part.kind == n.STRUCT for part in parts)


def quoted(text: str) -> str:
    """A string between quotes, escaped for a terminal."""
    if len(text) > _TEXT_SHOWN:
        return f"{quoted(text[:_TEXT_SHOWN])}... and {len(text) - _TEXT_SHOWN:,} more characters"
    return '"' + safe(text).replace('"', '\\"') + '"'
