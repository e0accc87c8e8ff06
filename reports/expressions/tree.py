"""The syntax tree of an expression, before names are checked. Places are offsets in the text, for error messages."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Literal:
    """A value in the text. `kind`: "number", "string", "word", "time", "address" or "null". `text`: without
    quotes, with resolved escapes. `source`: the unchanged characters (of a string: between its quotes)."""

    kind: str
    text: str
    source: str
    at: int
    end: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """`name op values`. `op`: == != < <= > >= ~ !~ in, "not in", or "" for a name alone."""

    name: str
    op: str
    values: tuple[Literal, ...]
    at: int
    end: int
    op_at: int


@dataclass(frozen=True, slots=True)
class NotSyntax:
    item: Node


@dataclass(frozen=True, slots=True)
class AndSyntax:
    """All items are true."""

    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class OrSyntax:
    """At least one item is true."""

    items: tuple[Node, ...]


Node = Comparison | NotSyntax | AndSyntax | OrSyntax
