"""Check names and types: convert a syntax tree to atoms. An atom is a column or a field with a test.

`!=`, `!~` and `not in` become negations of an atom. So null and many values need no extra rules: a negation is true
exactly if the comparison is false.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from kafkatap.dissector.probes import Place

from ..addresses import is_end
from ..literals import Moment, undo_escapes
from . import tree
from .expression_error import ExpressionError, suggestion
from .field_paths import NUMBERS, TEXTS, Fields, Messages, coordinator_keys, fields_with_role, find_fields, is_path
from .grammar import CONTAINS, parse
from .names import ALIASES, CLIENT_END, ELSEWHERE, FIELD, HEADER, NAMES, RECORD, Name, find_name
from .values import bytes_of, number_of, pattern_of, text_of
from .verdicts import Floats, MatchedBytes, MatchedTexts, Numbers, Present, Test

_ORDERED = frozenset(("number", "size", "duration", "time", "api", "error"))
_CALLED = {"bytes": "bytes", "flag": "true or false", "api": "an API", "error": "an error code"}
_SPELLED = frozenset(("text", "word", "api", "error"))


@dataclass(frozen=True, slots=True)
class ColumnAtom:
    """A test of a column."""

    name: Name
    test: Test


@dataclass(frozen=True, slots=True)
class FieldAtom:
    """A test of decoded fields. One matching value is enough."""

    places: frozenset[Place]
    test: Test


@dataclass(frozen=True, slots=True)
class RecordAtom:
    """A test of the `part` of a record: "key", "value" or "header"; of headers with the name `header` one is enough."""

    part: str
    header: bytes
    test: MatchedBytes | Present


@dataclass(frozen=True, slots=True)
class Not:
    item: Node


@dataclass(frozen=True, slots=True)
class Every:
    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Either:
    items: tuple[Node, ...]


Atom = ColumnAtom | FieldAtom | RecordAtom
Node = Atom | Not | Every | Either


@dataclass(frozen=True, slots=True)
class Expression:
    """An expression with valid names and types. `messages`: the layouts of its paths, or None for the built-in ones."""

    text: str
    root: Node
    messages: Messages | None = field(default=None, repr=False, compare=False)

    @property
    def is_resolved(self) -> bool:
        """Whether no time in it depends on the capture's first packet."""
        return all(_is_resolved(atom.test) for atom in atoms_of(self.root))

    def at(self, first: int) -> Expression:
        """The same with all times as ns since the epoch. `first`: the time of the capture's first packet."""
        return self if self.is_resolved else replace(self, root=_resolved(self.root, first))


def parse_expression(text: str, messages: Messages | None = None, utc: bool = False) -> Expression:
    """Parse a filter expression. ExpressionError for a mistake. `utc`: times without a zone are UTC, and not local."""
    return Expression(text, _Resolver(text, messages, utc).node(parse(text)), messages)


def atoms_of(node: Node) -> Iterator[Atom]:
    """The atoms of a node, from left to right."""
    if isinstance(node, (ColumnAtom, FieldAtom, RecordAtom)):
        yield node
    elif isinstance(node, Not):
        yield from atoms_of(node.item)
    else:
        for item in node.items:
            yield from atoms_of(item)


def _is_resolved(test: Test | MatchedBytes) -> bool:
    return not (isinstance(test, Numbers) and any(isinstance(value, Moment) for value in test.values))


def _resolved(node: Node, first: int) -> Node:
    if isinstance(node, ColumnAtom) and isinstance(node.test, Numbers):
        values = tuple(v.at(first) if isinstance(v, Moment) else v for v in node.test.values)
        return ColumnAtom(node.name, Numbers(node.test.op, values))
    if isinstance(node, Not):
        return Not(_resolved(node.item, first))
    if isinstance(node, (Every, Either)):
        return replace(node, items=tuple(_resolved(item, first) for item in node.items))
    return node


def named_in(role: str, test: Test, messages: Messages | None) -> list[Node]:
    """The atoms of a test of the names of a role. One true atom is enough. What FindCoordinator looks for is a group,
    unless its KeyType is another one."""
    keys, key_type = coordinator_keys(messages)
    kinds: dict[str, Node] = {
        "group_id": Not(FieldAtom(key_type, Numbers(">", (0,)))),
        "transactional_id": FieldAtom(key_type, Numbers("==", (1,))),
    }
    named = FieldAtom(fields_with_role(role, messages).places(), test)
    return [named, Every((FieldAtom(keys, test), kinds[role]))] if role in kinds and keys else [named]


class _Resolver:
    """Resolves the names of one text."""

    def __init__(self, text: str, messages: Messages | None, utc: bool) -> None:
        self.text, self.messages, self.utc = text, messages, utc

    def node(self, item: tree.Node) -> Node:
        if isinstance(item, tree.NotSyntax):
            return Not(self.node(item.item))
        if isinstance(item, tree.AndSyntax):
            return Every(tuple(map(self.node, item.items)))
        if isinstance(item, tree.OrSyntax):
            return Either(tuple(map(self.node, item.items)))
        return self.comparison(item)

    def comparison(self, item: tree.Comparison) -> Node:
        negated = item.op in ("!=", "!~", "not in")
        op = {"!=": "==", "!~": "~", "not in": "==", "in": "=="}.get(item.op, item.op)
        atom = self.atom(item, op)
        return Not(atom) if negated else atom

    def atom(self, item: tree.Comparison, op: str) -> Node:
        nulls = [v for v in item.values if v.kind == "null"]
        if nulls and op != "==":
            raise ExpressionError("null is compared with == or != only", self.text, nulls[0].at, nulls[0].end)
        values = tuple(v for v in item.values if v.kind != "null")
        given = Either(tuple(self._parts(item, op, values))) if values or not nulls else None
        if not nulls:
            assert given is not None
            return given.items[0] if len(given.items) == 1 else given
        absent = Not(Either(tuple(self._parts(item, "given", ()))))
        return absent if given is None else Either((absent, *given.items))

    def _parts(self, item: tree.Comparison, op: str, values: tuple[tree.Literal, ...]) -> list[Node]:
        """The atoms of a comparison. One true atom is enough."""
        name = find_name(item.name)
        if name is not None and name.per == RECORD:
            return [self._of_records(item, name, op, values)]
        if name is not None and name.per != FIELD:
            found: list[Node] = [ColumnAtom(name, self.test(item, name, op, values))]
            ends = tuple(value for value in values if op == "==" and name.name == "client" and is_end(value.text))
            if ends:
                found.append(ColumnAtom(NAMES[CLIENT_END], self.test(item, NAMES[CLIENT_END], op, ends)))
            return found
        if name is not None:
            assert name.role is not None
            return named_in(name.role, self.test(item, name, op, values), self.messages)
        if not is_path(item.name):
            raise self._unknown(item)
        return self._fields(item, find_fields(item, self.text, self.messages), op, values)

    def _of_records(self, item: tree.Comparison, name: Name, op: str, values: tuple[tree.Literal, ...]) -> RecordAtom:
        part, header = name.name.removeprefix("record."), b""
        if name.name.startswith(HEADER):
            part, shown = "header", name.name[len(HEADER) :]
            header = (undo_escapes(shown[1:-1]) if shown[0] == '"' else shown).encode("utf-8", "surrogatepass")
        if op in ("", "given"):
            return RecordAtom(part, header, Present())
        if op not in ("==", "~", CONTAINS):
            raise self._operator(item, name, "numbers")
        if op == "~":
            return RecordAtom(part, header, MatchedBytes(pattern=pattern_of(values[0], self.text)))
        found = [bytes_of(value, self.text) for value in values]
        test = MatchedBytes(part=found[0]) if op == CONTAINS else MatchedBytes(frozenset(found))
        return RecordAtom(part, header, test)

    def _fields(self, item: tree.Comparison, fields: Fields, op: str, values: tuple[tree.Literal, ...]) -> list[Node]:
        found: list[Node] = []
        if op in ("", "given"):
            flags = fields.places(frozenset(("bool",))) if op == "" else frozenset()
            if flags:
                found.append(FieldAtom(flags, Numbers("==", (1,))))
            if fields.places() - flags:
                found.append(FieldAtom(fields.places() - flags, Present()))
            return found
        if not (fields.has(NUMBERS) or fields.has(TEXTS)):
            raise self._opaque(item, fields)
        # A field can be a number in one API and a text in another. The kind of the value decides.
        spoken = op in ("~", CONTAINS) or any(v.kind in ("word", "string", "address") for v in values)
        if fields.has(TEXTS) and (spoken or not fields.has(NUMBERS)):
            name = fields.name(item.name, TEXTS)
            return [FieldAtom(fields.places(TEXTS), self.test(item, name, op, values))]
        name = fields.name(item.name, NUMBERS)
        test = self.test(item, name, op, values)
        floats, whole = fields.places(frozenset(("float64",))), fields.places(NUMBERS - {"float64"})
        if whole:
            found.append(FieldAtom(whole, test))
        if floats:
            assert isinstance(test, Numbers)
            found.append(FieldAtom(floats, Floats(test)))
        return found

    def test(self, item: tree.Comparison, name: Name, op: str, values: tuple[tree.Literal, ...]) -> Test:
        """The test of a comparison, with values of the name's kind."""
        kind = name.kind
        if op in ("", "given"):
            if op == "" and kind == "flag":
                return Numbers("==", (1,))
            return Present()
        if op in ("~", CONTAINS):
            if kind not in _SPELLED or (name.per == FIELD and kind != "text"):
                raise self._operator(item, name, "texts")
            value = values[0]
            if op == CONTAINS:
                value = replace(value, source=re.escape(value.text))
            return MatchedTexts(pattern=pattern_of(value, self.text))
        if op != "==" and kind not in _ORDERED:
            raise self._operator(item, name, "numbers")
        if kind == "text":
            return MatchedTexts(frozenset(text_of(value, name, self.text) for value in values))
        return Numbers(op, tuple(number_of(value, name, self.text, self.utc) for value in values))

    def _operator(self, item: tree.Comparison, name: Name, wanted: str) -> ExpressionError:
        at, kind = item.op_at, _CALLED.get(name.kind, f"a {name.kind}")
        return ExpressionError(f"{item.op} is for {wanted}, {item.name} is {kind}", self.text, at, at + len(item.op))

    def _opaque(self, item: tree.Comparison, fields: Fields) -> ExpressionError:
        """The error for a field that is not a single value."""
        info = fields.infos[0]
        if info.type == "struct":
            return ExpressionError(
                f"{item.name} is a struct: compare one of its fields, or use the name alone (true if there is any)",
                self.text, item.at, item.at + len(item.name),
            )  # fmt: skip
        return ExpressionError(
            f"{item.name} contains bytes: you can only test its presence, with the name alone",
            self.text, item.at, item.at + len(item.name),
        )  # fmt: skip

    def _unknown(self, item: tree.Comparison) -> ExpressionError:
        plain = item.name.lower()
        if plain in ELSEWHERE:
            more = f": {ELSEWHERE[plain]}"
        else:
            near = suggestion(item.name, [*NAMES, *ALIASES])
            more = near or "; decoded fields begin with request. or response. (--filter help lists all names)"
        return ExpressionError(f"there is no name {item.name!r}{more}", self.text, item.at, item.at + len(item.name))
