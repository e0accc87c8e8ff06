"""The tree of a message as lines of text: each field's offset and size, its name, its value and the value's meaning.

A message has dozens of lines and captures have millions of messages, so each line is made in one step with its colours.
Text from the wire is escaped for a terminal. An array of plain values is one line, which is wrapped if it is long. Only
the first bytes of a byte field are shown; everything else is complete.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kafkatap.dissector.tree import node as n
from kafkatap.dissector.tree.node import Node, Run, RunLayout
from kafkatap.reports.batch import uuid_text
from kafkatap.reports.units import safe

_INDENT = "  "
#: Bytes of a value that are shown, in hexadecimal.
_BYTES_SHOWN = 32
#: Characters of a text that are shown: more than brokers accept in names.
_TEXT_SHOWN = 64 << 10
#: Heads of lines that are kept.
_KEPT = 4_096
#: Where the line of an array of plain values is broken.
_WIDTH = 100


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
    return "\n".join(TreeWriter(paint, offsets, margin).lines(node)).split("\n")


class TreeWriter:
    """Writes trees as `tree_text` does. It keeps the forms of runs of numbers, which are filled in at once."""

    def __init__(self, paint: Paint, offsets: bool = True, margin: str = "") -> None:
        self._paint = paint
        self._offsets, self._margin = offsets, margin
        self._lines: list[str] = []
        self._width = -1
        self._place = ""
        self._forms: dict[tuple[RunLayout, str], tuple[str, str]] = {}
        self._before_number = f"{paint.faint}: {paint.end}{paint.number}"
        self._heads: dict[tuple[str, str, str, str], str] = {}

    def lines(self, node: Node) -> list[str]:
        """The lines of all nodes below a node, where a run is one text."""
        width = max(4, len(str(node.end))) if self._offsets else 0
        if width != self._width:
            paint, self._width = self._paint, width
            place = f"{paint.faint}%{width}d %{width}d  {paint.end}" if width else "%.0s%.0s"
            self._place = self._margin + place
            self._forms.clear()
        self._lines = []
        for part in node.parts:
            self._write(part, "")
        return self._lines

    def _write(self, part: Node | Run, margin: str) -> None:
        """The lines of a node and all below it."""
        if isinstance(part, Run):
            self._run(part, margin)
            return
        kind, parts = part.kind, part.parts
        if kind == n.ARRAY and parts and _is_plain(parts):
            self._plain_array(part, margin)
            return
        key = kind, part.name, part.type, margin
        head = self._heads.get(key)
        if head is None:
            if len(self._heads) >= _KEPT:
                self._heads.clear()
            head = self._heads[key] = margin + self._head(part)
        self._lines.append(self._place % (part.offset, part.length) + head + self._value(part))
        if parts:
            margin += _INDENT
            for child in parts:
                if kind != n.BATCH or (isinstance(child, Node) and child.kind == n.ARRAY):
                    self._write(child, margin)  # a batch's line has the fields of its head

    def _run(self, run: Run, margin: str) -> None:
        """The lines of a run of numbers."""
        layout = run.layout
        key = layout, margin
        form = self._forms.get(key)
        if form is None:
            form = self._forms[key] = self._form(layout, margin)
        values = run.values
        if layout.bools:
            values = list(values)
            for place in layout.bools:
                values[place] = "true" if values[place] else "false"
        at = run.offset
        filled: list[object] = []
        if run.texts is None:
            for start, value in zip(layout.starts, values, strict=True):
                filled += (at + start, value)
            self._lines.append(form[0] % tuple(filled))
            return
        paint = self._paint
        for start, value, text in zip(layout.starts, values, run.texts, strict=True):
            filled += (at + start, value, f"{paint.text} ({safe(text)}){paint.end}" if text else "")
        self._lines.append(form[1] % tuple(filled))

    def _form(self, layout: RunLayout, margin: str) -> tuple[str, str]:
        """The lines of a run with places for offsets and values; and with places for meanings, too."""
        paint, lines = self._paint, []
        for name, width in zip(layout.names, layout.widths, strict=True):
            shown = (margin + safe(name)).replace("%", "%%")
            lines.append(f"{self._sized(width)}{shown}{self._before_number}%s{paint.end}")
        return "\n".join(lines), "\n".join(line + "%s" for line in lines)

    def _sized(self, length: int) -> str:
        """How a line begins, with a place for the offset alone."""
        paint, width = self._paint, self._width
        return self._margin + (f"{paint.faint}%{width}d {length:{width}d}  {paint.end}" if width else "%.0s")

    def _head(self, node: Node) -> str:
        """A node's name, and what stands between it and its value: the same for all nodes of this kind, name, type."""
        paint, kind, name = self._paint, node.kind, safe(node.name)
        if kind == n.STRUCT:
            shown = "" if node.name in ("Header", "tags") else node.type
            return f"{name}{paint.faint} {safe(shown)}{paint.end}" if shown else name
        if kind == n.NESTED or kind == n.RAW:
            return name
        if kind == n.BATCH:
            return f"{name}{paint.faint} {node.type}{paint.end}{paint.text}: "
        color = paint.faint if kind == n.NULL or kind == n.HIDDEN else paint.number
        return f"{name}{paint.faint}: {paint.end}{color}"

    def _value(self, node: Node) -> str:
        """The text behind that: its value, its meaning, its problem."""
        paint, kind = self._paint, node.kind
        if kind == n.STRUCT:
            shown = ""
        elif kind == n.BATCH:
            shown = f"{safe(node.text)}{paint.end}"
        elif kind == n.NESTED:
            shown = f"{paint.faint} {safe(node.text)}{paint.end}" if node.text else ""
        elif kind == n.RAW and not node.length:
            shown = ""  # where decoding stopped: the problem says it
        else:
            shown = f"{value_text(node)}{paint.end}"
            if kind == n.RAW:
                shown = f"{paint.faint}: {paint.end}{paint.number}{shown}"
            if node.text:
                shown += f"{paint.text} ({safe(node.text)}){paint.end}"
        if node.problem:
            shown += f"{paint.problem}  <- {safe(node.problem)}{paint.end}"
        return shown

    def _plain_array(self, node: Node, margin: str) -> None:
        """`Name: [1, 2, 3]`, in as many lines as it takes."""
        paint, name = self._paint, margin + safe(node.name)
        begin = " " * (len(name) + 3)
        used = len(begin)
        line = f"{name}{paint.faint}: {paint.end}{paint.faint}[{paint.end}"
        children = node.children
        about, last = node, len(children) - 1
        for number, child in enumerate(children):
            value = value_text(child)
            meaning = f" ({safe(child.text)})" if child.text else ""
            size = len(value) + len(meaning) + 2
            if used + size > _WIDTH and number:
                self._lines.append(self._place % (about.offset, about.length) + line)
                about, line, used = child, begin, len(begin)
            elif number:
                line += " "
            comma = "," if number < last else "]"
            line += f"{paint.number}{value}{paint.end}{paint.text}{meaning}{paint.end}{paint.faint}{comma}{paint.end}"
            used += size
        self._lines.append(self._place % (about.offset, about.length) + line)


def _is_plain(parts: tuple[Node | Run, ...]) -> bool:
    return not any(True for part in parts if isinstance(part, Run) or part.parts or part.problem)


def value_text(node: Node) -> str:
    """A value by itself: `5`, `true`, `"orders"`, `null`, a uuid as Kafka writes it, bytes in hexadecimal."""
    value, kind = node.value, node.kind
    if kind == n.VALUE and type(value) is int:
        return str(value)
    if kind == n.VALUE and type(value) is str:
        return quoted(value)
    if kind == n.NULL:
        return "null"
    if kind == n.HIDDEN:
        return f"hidden, {_bytes(value)}"
    if kind in (n.RAW, n.MISSING, n.RECORDS):
        return _bytes(value)
    if kind == n.ARRAY:
        return f"{value!s} element" + ("" if value == 1 else "s") if value else "[]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, bytes):
        if node.type == "uuid":
            return str(uuid_text(value))
        shown = value[:_BYTES_SHOWN].hex()
        more = "..." if len(value) > _BYTES_SHOWN else ""
        return f"{_bytes(len(value))}{': ' if value else ''}{shown}{more}"
    return str(value)


def quoted(text: str) -> str:
    """A string between quotes, escaped for a terminal."""
    if len(text) > _TEXT_SHOWN:
        return f"{quoted(text[:_TEXT_SHOWN])}... and {len(text) - _TEXT_SHOWN:,} more characters"
    return '"' + safe(text).replace('"', '\\"') + '"'


def _bytes(count: object) -> str:
    return f"{count} byte" + ("" if count == 1 else "s")
