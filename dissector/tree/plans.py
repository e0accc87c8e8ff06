"""Plans: the layout of one version of a message, prepared for walks over the machine's rows.

A `StructPlan` lists the fields of a struct. A `FieldPlan` describes how a field's rows become a node: their ids, how
the value is read, and the source of its name (an enum, a topic, a broker's address, a time). A plan is made once for
each version of a message.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby

from ..kafka.enums import enum_in_layout, enum_of, is_operations, is_time, names_of, operations_text, time_text
from ..layouts.schema import FIXED_WIDTHS, Field, MessageLayout, Struct
from ..layouts.secrets import CAREFUL_APIS, Guard, guard_of, is_secret_field
from ..programs.fields import HEADER_TAGS, TAGS, FieldTable
from .node import RunLayout

Note = Callable[[int], str]

#: How the row of a scalar becomes a value.
INTEGER, BOOL, FLOAT, UUID, STRING, BYTES, RECORD_SET = range(7)
_FORMS = {"bool": BOOL, "float64": FLOAT, "uuid": UUID, "string": STRING, "bytes": BYTES, "records": RECORD_SET}

#: Names in which a value is looked up.
TOPICS, BROKERS = "topics", "brokers"
_LOOKUPS = {("topic_id", "uuid"): TOPICS, ("broker_id", "int32"): BROKERS}


@dataclass(frozen=True, slots=True)
class FieldPlan:
    """`id` is the field id of the value's rows, or of an array's elements. `count` is the id of an array as a whole, or
    -1. `marked`: a nullable struct, which has a byte before it. `path` has dots. `note` returns a number's meaning."""

    name: str
    type: str
    id: int
    count: int
    form: int
    marked: bool
    may_be_null: bool
    struct: StructPlan | None
    path: str
    note: Note | None
    lookup: str
    is_secret: bool

    @property
    def is_array(self) -> bool:
        return self.count >= 0


@dataclass(frozen=True, slots=True)
class ScalarRun:
    """A run of numbers and booleans. Most nodes of a tree are of this kind.

    `ids` are the field ids of their rows, `size` the bytes of all. `texts`: (place in the run, note) of the values that
    have names; a note of None looks up brokers.
    """

    fields: tuple[FieldPlan, ...]
    ids: list[int]
    layout: RunLayout
    size: int
    texts: tuple[tuple[int, Note | None], ...]


@dataclass(frozen=True, slots=True)
class StructPlan:
    """`parts` are its fields in order, some in runs. `tags` is the id of unknown tags, -1 without a tag section;
    `tagged` are the known tags by number."""

    name: str
    parts: tuple[FieldPlan | ScalarRun, ...]
    tagged: Mapping[int, FieldPlan]
    tags: int
    guard: Guard | None


@dataclass(frozen=True, slots=True)
class MessagePlan:
    """One version of one message. `header_tags`: the id of the header's unknown tags, -1 without a tag section."""

    message: MessageLayout
    version: int
    body: StructPlan
    header_tags: int
    careful: bool  # show no bytes without a layout


def make_plan(message: MessageLayout, version: int, table: FieldTable) -> MessagePlan:
    """The plan of one version. `table` has the fields of the programs that decode it."""
    maker = _Maker(message, version, table)
    has_tags = message.has_header_tags(version)
    careful = message.has_header and message.api_key in CAREFUL_APIS
    return MessagePlan(
        message, version, maker.struct(message.body, ""), maker.id(HEADER_TAGS) if has_tags else -1, careful
    )


class _Maker:
    def __init__(self, message: MessageLayout, version: int, table: FieldTable) -> None:
        self.message, self.version, self.table = message, version, table
        self.flexible = version in message.flexible

    def id(self, path: str) -> int:
        return self.table.find[self.message.api_key, self.message.direction, path]

    def struct(self, layout: Struct, path: str) -> StructPlan:
        prefix = path + "." if path else ""
        fields: list[FieldPlan] = []
        tagged: dict[int, FieldPlan] = {}
        for item in layout.fields:
            if self.version in item.versions:
                plan = self.field(item, prefix + item.name)
                if self.version in item.tagged:
                    tagged[item.tag] = plan
                else:
                    fields.append(plan)
        tags = self.id(prefix + TAGS) if self.flexible else -1
        guard = guard_of(self.message.api_key, self.message.direction, path) if self.message.has_header else None
        return StructPlan(layout.name, _in_runs(fields), tagged, tags, guard)

    def field(self, item: Field, path: str) -> FieldPlan:
        key, direction = self.message.api_key, self.message.direction
        nullable = self.version in item.nullable
        inner = None if item.struct is None else self.struct(item.struct, path)
        type_name = item.type if item.struct is None else item.struct.name
        return FieldPlan(
            name=item.name,
            type=("[]" if item.is_array else "") + type_name,
            id=self.id(path),
            count=self.id(path + "#") if item.is_array else -1,
            form=_FORMS.get(item.type, INTEGER),
            marked=item.struct is not None and nullable and not item.is_array,
            may_be_null=nullable,
            struct=inner,
            path=path,
            note=self.note(item, path),
            lookup=_LOOKUPS.get((item.role or "", item.type), ""),
            is_secret=self.message.has_header and is_secret_field(key, direction, path),
        )

    def note(self, item: Field, path: str) -> Note | None:
        if item.type not in FIXED_WIDTHS:
            return None
        if self.message.has_header:
            enum = enum_of(self.message.api_key, self.message.direction, path, item.type)
        else:
            enum = enum_in_layout(self.message.name, path)
        names = None if enum is None else names_of(enum)
        if is_time(path, item.type):
            return time_text if names is None else lambda value: names.get(value) or time_text(value)
        if is_operations(path, item.type):
            return operations_text
        return None if names is None else lambda value: names.get(value, "")


def _in_runs(fields: Sequence[FieldPlan]) -> tuple[FieldPlan | ScalarRun, ...]:
    parts: list[FieldPlan | ScalarRun] = []
    for alike, group in groupby(fields, _is_of_run):
        some = tuple(group)
        parts += [_run(some)] if alike else some
    return tuple(parts)


def _is_of_run(field: FieldPlan) -> bool:
    return field.count < 0 and field.struct is None and field.form in (INTEGER, BOOL)


def _run(fields: tuple[FieldPlan, ...]) -> ScalarRun:
    widths = tuple(FIXED_WIDTHS[field.type] for field in fields)
    return ScalarRun(
        fields=fields,
        ids=[field.id for field in fields],
        layout=RunLayout(
            names=tuple(field.name for field in fields),
            types=tuple(field.type for field in fields),
            starts=tuple(accumulate(widths, initial=0))[:-1],
            widths=widths,
            bools=tuple(place for place, field in enumerate(fields) if field.form == BOOL),
        ),
        size=sum(widths),
        texts=tuple(
            (place, None if field.lookup == BROKERS else field.note)
            for place, field in enumerate(fields)
            if field.lookup == BROKERS or field.note is not None
        ),
    )


def float_of(bits: int) -> float:
    """The float64 of these bits."""
    return float(struct.unpack(">d", bits.to_bytes(8, "big", signed=True))[0])
