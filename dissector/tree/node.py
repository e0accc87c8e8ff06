"""The tree of one message: its nodes, and ways to walk them. Pure data; nothing here reads bytes.

A node covers `length` bytes of its frame from `offset` on (the size field is at 0). Its children lie within it, in
order and without overlap; what they leave of it are its own bytes: lengths, counts and tag numbers before them, and in
a flexible struct the 0 behind them that says that there are no tags. So each byte belongs to exactly one node.

A tagged field's range begins with its tag's number and size. Values are as they are on the wire: int, bool, float, str
(bytes that are not UTF-8 as surrogates), bytes (of uuids 16).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

Value = int | bool | float | str | bytes | None

#: What a node is. `value` of an ARRAY is its count, of TAGS their number, of those from HIDDEN on a number of bytes.
VALUE = "value"  # a plain value
NULL = "null"
STRUCT = "struct"
ARRAY = "array"
TAGS = "tags"  # a tag section that is not empty: known fields by their names, others as `tag N`
NESTED = "nested"  # bytes that hold a layout of their own; `text` names it
BATCH = "batch"  # the head of a record batch or message; `text` tells it in one line
HIDDEN = "hidden"  # a secret, or payload, that was not asked for
RECORDS = "records"  # record batches; children where their heads were read
RAW = "raw"  # bytes of which nothing is known
MISSING = "missing"  # bytes that were not captured


@dataclass(slots=True)
class Node:
    """One field, element, struct, or stretch of bytes. `text` is what is known of the value beyond itself (an enum's
    name, a topic's name, a time); `problem` is what is wrong here.

    Nothing changes a node. It is not frozen all the same: to make one would take four times as long, and a tree has
    thousands.
    """

    name: str
    type: str
    offset: int
    length: int
    kind: str = VALUE
    value: Value = None
    children: tuple[Node, ...] = ()
    text: str = ""
    problem: str = ""

    @property
    def end(self) -> int:
        return self.offset + self.length


def walk(node: Node, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Node]]:
    """A node and all below it, in order, each with the names that lead to it (the first node's own left out)."""
    yield path, node
    for child in node.children:
        yield from walk(child, (*path, child.name))


def has_problem(node: Node) -> bool:
    """Whether anything is wrong in a tree."""
    waiting = [node]
    while waiting:
        node = waiting.pop()
        if node.problem:
            return True
        waiting += node.children
    return False


def path_text(path: tuple[str, ...]) -> str:
    """`("Body", "Topics", "[0]", "Name")` as `Body.Topics[0].Name`."""
    return ".".join(path).replace(".[", "[")
