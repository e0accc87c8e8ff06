"""What the tests of trees share: whole frames of random messages, and trees compared with what the reference read."""

from __future__ import annotations

from functools import cache
from typing import Any

from kafkatap.dissector.layouts.schema import REQUEST, MessageLayout
from kafkatap.dissector.tree import node as n
from kafkatap.dissector.tree.node import Node, path_text, walk
from kafkatap.dissector.tree.view import Viewer
from tests.support.reference import UNKNOWN_TAGS, Traced

CORRELATION_ID = 7
CLIENT_ID = b"tester"


def header_of(message: MessageLayout, version: int) -> bytes:
    """A header up to its tag section."""
    correlation = CORRELATION_ID.to_bytes(4, "big")
    if message.direction != REQUEST:
        return correlation
    head = message.api_key.to_bytes(2, "big") + version.to_bytes(2, "big") + correlation
    if message.header_version(version) == 0:
        return head
    return head + len(CLIENT_ID).to_bytes(2, "big") + CLIENT_ID


def frame_of(message: MessageLayout, version: int, rest: bytes) -> bytes:
    """Size, header, and `rest`, which begins with the header's tag section."""
    whole = header_of(message, version) + rest
    return len(whole).to_bytes(4, "big") + whole


def value_of(node: Node, frame: bytes) -> Any:
    """A node's value as the reference gives it: bytes as they are, whatever is nested in them."""
    if node.kind == n.NULL:
        return None
    if node.kind == n.ARRAY:
        return [value_of(child, frame) for child in node.children]
    if node.kind in (n.NESTED, n.RECORDS):
        return frame[node.children[0].offset : node.end] if node.children else b""
    return fields_of(node, frame) if node.kind == n.STRUCT else node.value


def fields_of(node: Node, frame: bytes) -> dict[str, Any]:
    """A struct's fields as the reference gives them; unknown tags under their key."""
    found: dict[str, Any] = {}
    for child in node.children:
        if child.kind != n.TAGS:
            found[child.name] = value_of(child, frame)
            continue
        for tag in child.children:
            if tag.type == "tag":
                found.setdefault(UNKNOWN_TAGS, []).append((int(tag.name.split()[1]), tag.value))
            else:
                found[tag.name] = value_of(tag, frame)
    return found


def traced(node: Node, first: int) -> list[Traced]:
    """Every field, element and tag below a node as the reference traces them: by path, offsets from `first` on."""
    found = []

    def descend(inner: Node, names: tuple[str, ...]) -> None:
        for child in inner.children:
            path = names if child.kind == n.TAGS else (*names, child.name)
            if child.kind != n.TAGS:
                found.append((path, child.offset - first, child.end - first))
            if child.kind not in (n.NESTED, n.RECORDS):
                descend(child, path)

    descend(node, ())
    return sorted(found)


def check_cover(root: Node, size: int) -> None:
    """Each of `size` bytes belongs to exactly one node, as its own byte or as a leaf's."""
    owned = []
    for path, node in walk(root):
        assert node.length >= 0, path
        at = node.offset
        for child in node.children:
            assert at <= child.offset <= child.end <= node.end, (path, child)
            at = child.end
        own = own_bytes(node)
        owned += own
        if node.children:
            check_own(path, node, own)
    owned.sort()
    at = 0
    for start, end in owned:
        assert start == at, (at, start)
        at = end
    assert at == size


def check_own(path: tuple[str, ...], node: Node, own: list[tuple[int, int]]) -> None:
    """What is around children: a length, count or tag number before them, a struct's empty tag section behind them."""
    front = [r for r in own if r[1] <= node.children[0].offset]
    behind = [r for r in own if r not in front]
    assert len(front) <= 1 >= len(behind), path
    assert all(end - start <= 15 for start, end in front), path
    assert all(end - start == 1 for start, end in behind), path


def problems(node: Node) -> list[str]:
    """All that is wrong in a tree, as `path: problem`."""
    return [f"{path_text(path)}: {n.problem}" if path else n.problem for path, n in walk(node) if n.problem]


def find(node: Node, *names: str) -> Node | None:
    """The node that these names lead to."""
    for name in names:
        found = next((child for child in node.children if child.name == name), None)
        if found is None:
            return None
        node = found
    return node


def own_bytes(node: Node) -> list[tuple[int, int]]:
    """The ranges (start, end) of a node that no child covers."""
    ranges, at = [], node.offset
    for child in node.children:
        if child.offset > at:
            ranges.append((at, child.offset))
        at = max(at, child.end)
    if node.end > at:
        ranges.append((at, node.end))
    return ranges


def view_message(frame: bytes, direction: int = REQUEST, api_key: int = -1, version: int = -1) -> Node:
    """The tree of a frame by the built-in definitions, without names and secrets."""
    return _viewer().view(frame, direction, api_key, version)


@cache
def _viewer() -> Viewer:
    return Viewer()
