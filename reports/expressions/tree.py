"""What an expression says, before its names are looked up. Places are offsets in the text, for error messages."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Literal:
    """One value as written. `kind`: "number", "string", "word", "time", "address" or "null"; `text` without quotes and
    with escapes undone, `source` as it stands (of a string between its quotes)."""

    kind: str
    text: str
    source: str
    at: int
    end: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """`name op values`. `op`: == != < <= > >= ~ !~ in, "not in"; "" for a name alone (it has a value, is true)."""

    name: str
    op: str
    values: tuple[Literal, ...]
    at: int
    end: int
    op_at: int


@dataclass(frozen=True, slots=True)
class Not:
    item: Node


@dataclass(frozen=True, slots=True)
class Every:
    """All of the items hold."""

    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Either:
    """At least one of the items holds."""

    items: tuple[Node, ...]


Node = Comparison | Not | Every | Either
