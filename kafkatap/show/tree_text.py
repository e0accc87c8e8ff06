"""The tree of a message as lines of text: each field's offset and size, its name, its value, what is known of it.

Lines are spans (text, style), as `lines` makes them. Everything that came from the wire is escaped for a terminal.
Arrays of plain values stand in one line, broken where it becomes long; nothing is left out but the content of bytes
behind their first few.
"""

from __future__ import annotations

from collections.abc import Iterator

from kafkatap.dissector import node as n
from kafkatap.dissector.node import Node
from kafkatap.reports.batch import uuid_text
from kafkatap.reports.units import safe

from .lines import Span

_INDENT = 2
#: Bytes of a value that are shown, in hexadecimal.
_BYTES_SHOWN = 32
#: Where the line of an array of plain values is broken.
_WIDTH = 100

_NAME, _NUMBER, _FAINT, _TEXT, _PROBLEM = "", "cyan", "dim", "green", "bold red"


def render_tree(node: Node, offsets: bool = True) -> Iterator[str]:
    """The lines of a tree as plain text."""
    for line in tree_lines(node, offsets):
        yield "".join(text for text, _ in line).rstrip()


def tree_lines(node: Node, offsets: bool = True) -> Iterator[list[Span]]:
    """The lines of what lies in a node, the node itself left out: with `offsets` first each one's place and size."""
    width = max(4, len(str(node.end)))
    for child in node.children:
        for place, line in _lines(child, 0):
            if not offsets:
                yield line
                continue
            told = f"{place.offset:>{width}} {place.length:>{width}}" if place else " " * (2 * width + 1)
            yield [(told + "  ", _FAINT), *line]


def _lines(node: Node, depth: int) -> Iterator[tuple[Node | None, list[Span]]]:
    """(what the line is about, spans) of a node and all below it."""
    margin = " " * (_INDENT * depth)
    if node.kind == n.ARRAY and node.children and not any(c.children or c.problem for c in node.children):
        yield from _plain_array(node, margin)
        return
    yield node, [(margin + _label(node), _NAME), *value_spans(node)]
    for child in node.children:
        if node.kind != n.BATCH or child.kind == n.ARRAY:  # a batch's head is told in its line
            yield from _lines(child, depth + 1)


def _label(node: Node) -> str:
    return safe(node.name)


def value_spans(node: Node) -> list[Span]:
    """What stands behind a node's name: its value, what is known of it, what is wrong with it."""
    spans: list[Span] = []
    if node.kind in (n.STRUCT, n.NESTED):
        told = node.text if node.kind == n.NESTED else "" if node.name in ("Header", "tags") else node.type
        if told:
            spans.append((f" {safe(told)}", _FAINT))
    elif node.kind == n.RAW and not node.length:
        pass  # where decoding stopped: the problem says it
    elif node.kind == n.BATCH:
        spans += [(f" {node.type}", _FAINT), (f": {safe(node.text)}", _TEXT)]
    else:
        spans.append((": ", _FAINT))
        spans.append((value_text(node), _FAINT if node.kind in (n.NULL, n.HIDDEN) else _NUMBER))
        if node.text:
            spans.append((f" ({safe(node.text)})", _TEXT))
    if node.problem:
        spans.append((f"  <- {safe(node.problem)}", _PROBLEM))
    return spans


def value_text(node: Node) -> str:
    """A value by itself: `5`, `true`, `"orders"`, `null`, a uuid as Kafka writes it, bytes in hexadecimal."""
    value = node.value
    if node.kind == n.NULL:
        return "null"
    if node.kind == n.HIDDEN:
        return f"hidden, {_bytes(value)}"
    if node.kind in (n.RAW, n.MISSING, n.RECORDS):
        return _bytes(value)
    if node.kind == n.ARRAY:
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
    return '"' + safe(text).replace('"', '\\"') + '"'


def _bytes(count: object) -> str:
    return f"{count} byte" + ("" if count == 1 else "s")


def _plain_array(node: Node, margin: str) -> Iterator[tuple[Node | None, list[Span]]]:
    """`Name: [1, 2, 3]`, in as many lines as it takes."""
    spans: list[Span] = [(margin + _label(node), _NAME), (": ", _FAINT), ("[", _FAINT)]
    begin = " " * (sum(len(text) for text, _ in spans))
    used = len(begin)
    about: Node | None = node
    last = len(node.children) - 1
    for number, child in enumerate(node.children):
        value = value_text(child)
        told = f" ({safe(child.text)})" if child.text else ""
        comma = "," if number < last else "]"
        size = len(value) + len(told) + 2
        if used + size > _WIDTH and number:
            yield about, spans
            about, spans, used = child, [(begin, "")], len(begin)
        elif number:
            spans.append((" ", ""))
        spans += [(value, _NUMBER), (told, _TEXT), (comma, _FAINT)]
        used += size
    yield about, spans
