"""The tree of one message: its nodes, and ways to walk them. Pure data; nothing here reads bytes.

A node covers `length` bytes of its frame from `offset` on; the size field is at 0. Its children lie within it, in order
and without overlap. The rest of it are its own bytes: lengths, counts and tag numbers before the children, and the 0 of
an empty tag section behind them. So each byte belongs to exactly one node.

A tagged field's range begins with its tag's number and size. Values have the types int, bool, float, str (bytes that
are not UTF-8 as surrogates) and bytes (16 for uuids).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any

Value = int | bool | float | str | bytes | None

#: Kinds of nodes. `value` is the count of an ARRAY or of TAGS, and a number of bytes from HIDDEN on.
VALUE = "value"  # a plain value
NULL = "null"
STRUCT = "struct"
ARRAY = "array"
TAGS = "tags"  # a tag section that is not empty: known fields by their names, others as `tag N`
NESTED = "nested"  # bytes with a layout of their own; `text` names it
BATCH = "batch"  # the head of a record batch or message; `text` is its line
HIDDEN = "hidden"  # a secret or payload that the user did not select
RECORDS = "records"  # record batches; children if their heads were decoded
RAW = "raw"  # bytes without a layout
MISSING = "missing"  # bytes that were not captured


@dataclass(frozen=True, slots=True, eq=False)
class RunLayout:
    """Numbers and booleans of fixed size that follow each other in a struct. `starts`: their offsets from the first
    one. `bools`: the places of booleans among them."""

    names: tuple[str, ...]
    types: tuple[str, ...]
    starts: tuple[int, ...]
    widths: tuple[int, ...]
    bools: tuple[int, ...] = ()


@dataclass(slots=True)
class Run:
    """The values of a run from `offset` on, in place of a node for each. `texts`: their meanings; None: there are
    none."""

    layout: RunLayout
    offset: int
    values: Sequence[Any]
    texts: Sequence[str] | None = None

    def nodes(self) -> Iterator[Node]:
        """The same as nodes."""
        layout = self.layout
        starts = [self.offset + start for start in layout.starts]
        texts = repeat("") if self.texts is None else self.texts
        return map(
            Node, layout.names, layout.types, starts, layout.widths, repeat(VALUE), self.values, repeat(()), texts
        )


def as_nodes(parts: Iterable[Node | Run]) -> list[Node]:
    """Parts of a node as nodes."""
    found: list[Node] = []
    for part in parts:
        if isinstance(part, Run):
            found += part.nodes()
        else:
            found.append(part)
    return found


@dataclass(slots=True)
class Node:
    """One field, element, struct, or range of bytes. `text` is a meaning of the value (an enum's or topic's name, a
    time); `problem` describes an error in it. `parts` are its children, of which numbers may be in runs.

    Nodes do not change. The class is not frozen because that makes construction four times slower, and a tree has
    thousands of nodes.
    """

    name: str
    type: str
    offset: int
    length: int
    kind: str = VALUE
    value: Value = None
    parts: tuple[Node | Run, ...] = ()
    text: str = ""
    problem: str = ""

    @property
    def children(self) -> tuple[Node, ...]:
        """Its children, each as a node."""
        return tuple(as_nodes(self.parts))

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
        waiting += [part for part in node.parts if isinstance(part, Node)]
    return False


def path_text(path: tuple[str, ...]) -> str:
    """`("Body", "Topics", "[0]", "Name")` as `Body.Topics[0].Name`."""
    return ".".join(path).replace(".[", "[")
