"""The tree of a message as lines of text: each field's offset and size, its name, its value and the value's meaning.

A message has dozens of lines and captures have millions of messages, so each line is made in one step with its colours.
Text from the wire is escaped for a terminal. An array of plain values is one line, which is wrapped if it is long. Only
the first bytes of a byte field are shown; everything else is complete.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kafkatap.dissector.tree import node as n
from kafkatap.dissector.tree.node import Node
from kafkatap.reports.batch import uuid_text
from kafkatap.reports.units import safe

_INDENT = "  "
#: Bytes of a value that are shown, in hexadecimal.
_BYTES_SHOWN = 32
#: Characters of a text that are shown: more than brokers accept in names.
_TEXT_SHOWN = 64 << 10
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
    writer = _Writer(paint, max(4, len(str(node.end))) if offsets else 0, margin)
    for child in node.children:
        writer.write(child, "")
    return writer.lines


class _Writer:
    """Collects the lines of a tree. `width` is that of offsets and sizes; 0: without them."""

    def __init__(self, paint: Paint, width: int, margin: str) -> None:
        self.lines: list[str] = []
        self._paint = paint
        self._place = f"{margin}{paint.faint}%{width}d %{width}d  {paint.end}" if width else f"{margin}%.0s%.0s"

    def write(self, node: Node, margin: str) -> None:
        """The lines of a node and all below it."""
        kind, children = node.kind, node.children
        if kind == n.ARRAY and children and _is_plain(children):
            self._plain_array(node, margin)
            return
        self.lines.append(self._place % (node.offset, node.length) + margin + safe(node.name) + self._value(node))
        if children:
            margin += _INDENT
            for child in children:
                if kind != n.BATCH or child.kind == n.ARRAY:  # a batch's line has the fields of its head
                    self.write(child, margin)

    def _value(self, node: Node) -> str:
        """The text behind a node's name: its value, its meaning, its problem."""
        paint, kind = self._paint, node.kind
        if kind == n.STRUCT or kind == n.NESTED:
            detail = node.text if kind == n.NESTED else "" if node.name in ("Header", "tags") else node.type
            shown = f"{paint.faint} {safe(detail)}{paint.end}" if detail else ""
        elif kind == n.RAW and not node.length:
            shown = ""  # where decoding stopped: the problem says it
        elif kind == n.BATCH:
            shown = f"{paint.faint} {node.type}{paint.end}{paint.text}: {safe(node.text)}{paint.end}"
        else:
            color = paint.faint if kind == n.NULL or kind == n.HIDDEN else paint.number
            shown = f"{paint.faint}: {paint.end}{color}{value_text(node)}{paint.end}"
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
        about, last = node, len(node.children) - 1
        for number, child in enumerate(node.children):
            value = value_text(child)
            meaning = f" ({safe(child.text)})" if child.text else ""
            size = len(value) + len(meaning) + 2
            if used + size > _WIDTH and number:
                self.lines.append(self._place % (about.offset, about.length) + line)
                about, line, used = child, begin, len(begin)
            elif number:
                line += " "
            comma = "," if number < last else "]"
            line += f"{paint.number}{value}{paint.end}{paint.text}{meaning}{paint.end}{paint.faint}{comma}{paint.end}"
            used += size
        self.lines.append(self._place % (about.offset, about.length) + line)


def _is_plain(children: tuple[Node, ...]) -> bool:
    return not any(True for child in children if child.children or child.problem)


def value_text(node: Node) -> str:
    """A value by itself: `5`, `true`, `"orders"`, `null`, a uuid as Kafka writes it, bytes in hexadecimal."""
    value, kind = node.value, node.kind
    if type(value) is int and kind == n.VALUE:
        return str(value)
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
