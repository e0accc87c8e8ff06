"""One walk over the tape of a body, along its plan, into nodes.

The machine has already checked everything. Rows come in the order of the wire, each with the place where its bytes
end, so a node starts where the one before it ends. Tag sections have no rows for their counts, numbers and sizes; the
walk reads these again, within the same bounds. If the rows end before the plan does, the missing field becomes a node
with the problem, and the walk stops. A walk never raises, whatever the bytes are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any

from ..kafka.varints import VARINT_32, varint
from ..layouts.schema import FIXED_WIDTHS, REQUEST
from ..layouts.secrets import Guard, is_secret_name
from ..programs.tape import DecodedBody
from . import node as n
from .batch_heads import view_batches
from .node import Node, Run, as_nodes
from .plans import (
    BOOL,
    BROKERS,
    FLOAT,
    INTEGER,
    RECORD_SET,
    STRING,
    TOPICS,
    UUID,
    FieldPlan,
    ScalarRun,
    StructPlan,
    float_of,
)

#: The nodes of a `records` field: its bytes, their place in the frame, and `cut` as in `batches.PART`.
ReadRecords = Callable[[bytes, int, int], Sequence[Node]]
#: Messages whose record batches are whole; in responses the last one may be cut.
_PRODUCE = ((0, REQUEST),)
_NULL = "null where none may be"
#: Names of the first elements of arrays.
_ELEMENTS = tuple(f"[{index}]" for index in range(256))
#: For nodes that are made together.
_VALUES, _NO_CHILDREN = repeat(n.VALUE), repeat(())


class TreeContext:
    """What a walk needs beyond the message: names, contents of byte fields, permission to show secrets.

    This one has none of it. Others override what they can answer.
    """

    secrets = False
    records: ReadRecords | None = None
    #: Whether the elements of an array of integers are nodes.
    numbers = True
    #: Bytes of a text that its node has, at most.
    longest_text = 1 << 62

    def topic(self, topic_id: bytes) -> str:
        """The name of a topic, or ""."""
        return ""

    def broker(self, node_id: int) -> str:
        """The address of a broker, or ""."""
        return ""

    @property
    def is_cut(self) -> bool:
        """Whether the missing bytes of the frame had not been sent when its connection or the capture ended."""
        return False

    def why_missing(self, size: int) -> str:
        """What did not happen to the missing bytes of a frame of this size: they were not "captured", "read", sent."""
        return "captured"

    def nested(self, walk: TreeWalk, field: FieldPlan, at: int, end: int) -> Nested | None:
        """The contents of a byte field at data[at:end], if its layout is known."""
        return None

    def secret_text(self, walk: TreeWalk, field: FieldPlan, raw: bytes) -> str:
        """A description of a secret that does not reveal it, or ""."""
        return ""


@dataclass(frozen=True, slots=True)
class Nested:
    """The contents of a byte field: the layout's name and its nodes; or a description of the bytes without nodes, and
    whether they are `secret`."""

    text: str
    children: tuple[Node | Run, ...] = ()
    secret: bool = False


class TreeWalk:
    """Turns the tape of a body of `data` into nodes.

    `owner` is (api_key, direction), or the name of a nested layout. A `careful` walk hides bytes without a layout. With
    `remember` the walk keeps strings and numbers by path, for nested layouts that depend on them.
    """

    def __init__(
        self,
        data: bytes | memoryview,
        body: DecodedBody,
        context: TreeContext,
        owner: tuple[int, int] | str,
        careful: bool,
        remember: bool = False,
    ) -> None:
        self.data, self.captured, self.limit = data, body.captured, body.limit
        self.values, self.lengths, self.fields, self.stops = body.values, body.lengths, body.fields, body.stops
        self.problem = body.problem
        self.context, self.owner, self.careful, self.remember = context, owner, careful, remember
        self.seen: dict[str, str] = {}
        self.numbers: dict[str, int] = {}
        self.at = body.first
        self.next = 0
        self.stopped = False

    def row(self, field: int) -> int:
        """The number of the next row, if it is of this field, else -1."""
        number = self.next
        if self.fields[number] != field:
            return -1
        self.next = number + 1
        self.at = self.stops[number]
        return number

    def stop(self, name: str, type_name: str, start: int) -> Node:
        """The node of a field without rows; it ends the walk."""
        self.stopped = True
        self.at = start
        return Node(name, type_name, start, 0, n.RAW, 0, (), "", self.problem)

    def struct(self, plan: StructPlan) -> tuple[Node | Run, ...]:
        """The nodes of a struct's fields and of its tag section."""
        children: list[Node | Run] = []
        for part in plan.parts:
            if type(part) is FieldPlan:
                children.append(self.field(part, self.at))
            else:
                self.run(part, children)  # type: ignore[arg-type]
            if self.stopped:
                break
        if plan.tags >= 0 and not self.stopped:
            self.tags(plan.tagged, plan.tags, children)
        if plan.guard is not None and not self.context.secrets:
            return tuple(guarded(as_nodes(children), plan.guard))
        return tuple(children)

    def run(self, run: ScalarRun, into: list[Node | Run]) -> None:
        """Numbers and booleans that follow each other."""
        number, at = self.next, self.at
        stop = number + len(run.ids)
        if self.remember or self.fields[number:stop] != run.ids:
            for field in run.fields:
                into.append(self.scalar(field, field.name, field.type, self.at))
                if self.stopped:
                    return
            return
        values: list[Any] = self.values[number:stop]
        for place in run.layout.bools:
            values[place] = values[place] != 0
        texts = None
        if run.texts:
            texts = [""] * len(values)
            for place, note in run.texts:
                texts[place] = self.context.broker(values[place]) if note is None else note(values[place])
        into.append(Run(run.layout, at, values, texts))
        self.next = stop
        self.at = at + run.size

    def field(self, field: FieldPlan, start: int) -> Node:
        if field.count >= 0:
            return self.array(field, start)
        if field.struct is None:
            return self.scalar(field, field.name, field.type, start)
        row = self.row(field.id)
        if row < 0:
            return self.stop(field.name, field.type, start)
        if self.lengths[row] < 0:
            return Node(field.name, field.type, start, self.at - start, n.NULL)
        children = self.struct(field.struct)
        return Node(field.name, field.type, start, self.at - start, n.STRUCT, None, children)

    def array(self, field: FieldPlan, start: int) -> Node:
        row = self.row(field.count)
        if row < 0:
            return self.stop(field.name, field.type, start)
        count = self.lengths[row]
        if count < 0:
            problem = "" if field.may_be_null else _NULL
            return Node(field.name, field.type, start, self.at - start, n.NULL, None, (), "", problem)
        struct, element = field.struct, field.type[2:]
        children: list[Node] = []
        done = 0
        if struct is None and field.form == INTEGER and not self.remember:
            done = self.numbers_of(field, element, count, children)
        for index in range(done, count):
            name = _ELEMENTS[index] if index < len(_ELEMENTS) else f"[{index}]"
            begin = self.at
            if struct is None:
                children.append(self.scalar(field, name, element, begin))
            elif self.row(field.id) < 0:
                children.append(self.stop(name, element, begin))
            else:
                inner = self.struct(struct)
                children.append(Node(name, element, begin, self.at - begin, n.STRUCT, None, inner))
            if self.stopped:
                break
        return Node(field.name, field.type, start, self.at - start, n.ARRAY, count, tuple(children))

    def numbers_of(self, field: FieldPlan, type_name: str, count: int, into: list[Node]) -> int:
        """The elements of an array of numbers, as many as have rows; how many these are."""
        number, at, width = self.next, self.at, FIXED_WIDTHS[type_name]
        there = self.fields[number : number + count]
        if there.count(field.id) < count:
            count = next((place for place, other in enumerate(there) if other != field.id), len(there))
        self.next, self.at = number + count, at + width * count
        if not self.context.numbers:
            return count
        names = _ELEMENTS[:count] if count <= len(_ELEMENTS) else [f"[{index}]" for index in range(count)]
        values = self.values[number : number + count]
        say = self.context.broker if field.lookup == BROKERS else field.note
        texts = repeat("") if say is None else map(say, values)
        into += map(
            Node, names, repeat(type_name), range(at, self.at, width), repeat(width), _VALUES, values, _NO_CHILDREN,
            texts,
        )  # fmt: skip
        return count

    def scalar(self, field: FieldPlan, name: str, type_name: str, start: int) -> Node:
        row = self.row(field.id)
        if row < 0:
            return self.stop(name, type_name, start)
        value, form = self.values[row], field.form
        length = self.at - start
        if form == INTEGER:
            text = field.note(value) if field.note else ""
            if self.remember:
                self.numbers[field.path] = value
            if field.lookup == BROKERS:
                text = self.context.broker(value)
            return Node(name, type_name, start, length, n.VALUE, value, (), text)
        if form == BOOL:
            text = field.note(value) if field.note else ""
            return Node(name, type_name, start, length, n.VALUE, value != 0, (), text)
        if form == FLOAT:
            return Node(name, type_name, start, length, n.VALUE, float_of(value))
        size = self.lengths[row]
        if size < 0:
            problem = "" if field.may_be_null and not field.is_array else _NULL
            return Node(name, type_name, start, length, n.NULL, None, (), "", problem)
        return self.variable(field, name, type_name, start, value, value + size)

    def variable(self, field: FieldPlan, name: str, type_name: str, start: int, at: int, end: int) -> Node:
        """A value whose bytes are data[at:end]."""
        form = field.form
        if form == RECORD_SET:
            return self.record_set(name, start, at, end)
        shown = min(end, at + self.context.longest_text) if form == STRING else end
        raw = bytes(self.data[at:shown])
        length = self.at - start
        if field.is_secret and not self.context.secrets:
            text = self.context.secret_text(self, field, raw)
            return Node(name, type_name, start, length, n.HIDDEN, end - at, (), text)
        if form == STRING:
            string = raw.decode("utf-8", "surrogateescape")
            if self.remember:
                self.seen[field.path] = string
            text = "" if shown == end else f"the first {shown - at:,} of {end - at:,} bytes"
            return Node(name, type_name, start, length, n.VALUE, string, (), text)
        if form == UUID:
            text = self.context.topic(raw) if field.lookup == TOPICS else ""
            return Node(name, type_name, start, length, n.VALUE, raw, (), text)
        nested = self.context.nested(self, field, at, end)
        if nested is None:
            return Node(name, type_name, start, length, n.VALUE, raw)
        if nested.children:
            return Node(name, type_name, start, length, n.NESTED, None, nested.children, nested.text)
        if nested.secret and not self.context.secrets:
            return Node(name, type_name, start, length, n.HIDDEN, end - at, (), nested.text)
        return Node(name, type_name, start, length, n.VALUE, raw, (), nested.text)

    def record_set(self, name: str, start: int, at: int, end: int) -> Node:
        if at == end:
            return Node(name, "records", start, end - start, n.RECORDS, 0)
        there = min(end, self.captured)
        problem = ""
        if there < end:  # the machine stopped behind the length
            self.at, self.stopped = end, True
            problem = f"{end - there} of {end - at} bytes were not {self.context.why_missing(self.limit)}"
        whole = bytes(self.data[at:there])
        read_records = self.context.records
        cut = (there < end) * (1 + self.context.is_cut)  # as in `batches.PART`
        if read_records is not None:
            children = list(read_records(whole, at, cut))
        else:
            children = view_batches(whole, at, cut, partial=self.owner not in _PRODUCE)
        if cut:
            missing = f"not {self.context.why_missing(self.limit)}"
            children.append(Node(missing, "bytes", there, end - there, n.MISSING, end - there))
        return Node(name, "records", start, end - start, n.RECORDS, end - at, tuple(children), "", problem)

    def tags(self, known: Mapping[int, FieldPlan], unknown: int, into: list[Node | Run]) -> None:
        """A tag section, as one node unless it is empty."""
        start = self.at
        if start < min(self.captured, self.limit) and self.data[start] == 0:
            self.at = start + 1
            return
        count, at = self.varint(start)
        if at < 0 or 2 * count > self.limit - at:
            into.append(self.stop("tags", "tags", start))
            return
        self.at = at
        children: list[Node] = []
        for _ in range(count):
            children.append(self.tag(known, unknown))
            if self.stopped:
                break
        into.append(Node("tags", "tags", start, self.at - start, n.TAGS, count, tuple(children)))

    def tag(self, plans: Mapping[int, FieldPlan], unknown: int) -> Node:
        start = self.at
        number, at = self.varint(start)
        size, at = self.varint(at) if at >= 0 else (0, -1)
        if at < 0 or size > self.limit - at:
            return self.stop("tag", "tag", start)
        field = plans.get(number)
        if field is not None:
            outer, self.limit = self.limit, at + size
            self.at = at
            found = self.field(field, start)
            if not self.stopped and self.at != self.limit:
                self.stopped = True
                found = Node(
                    found.name, found.type, start, found.length, found.kind, found.value, found.parts, found.text,
                    self.problem,
                )  # fmt: skip
            self.limit = outer
            return found
        if self.row(unknown) < 0:
            return self.stop(f"tag {number}", "tag", start)
        if self.careful and not self.context.secrets:
            return Node(f"tag {number}", "tag", start, self.at - start, n.HIDDEN, size)
        return Node(f"tag {number}", "tag", start, self.at - start, n.VALUE, bytes(self.data[at : at + size]))

    def varint(self, at: int) -> tuple[int, int]:
        """An unsigned varint of at most 32 bits and the place behind it; -1 where there is none."""
        value, following = varint(self.data, at, min(self.captured, self.limit), VARINT_32)
        return (value, following) if value < 1 << 32 else (0, -1)


def guarded(children: list[Node], guard: Guard) -> list[Node]:
    """A struct's nodes, with the guarded value hidden if its name or flag says that it is secret."""
    found = {child.name: child for child in children}
    name, flag, kind = found.get(guard.name), found.get(guard.flag), found.get("ConfigType")
    named = name.value if name is not None and isinstance(name.value, str) else None
    # If the message ends before the mark, the value is hidden as if the mark were set.
    marked = bool(guard.flag) and (flag is None or flag.value is not False)
    marked = marked or (kind is not None and kind.text == "PASSWORD")
    if not marked and not is_secret_name(named):
        return children
    return [
        hide(child)
        if child.name == guard.value
        else _hide_inside(child, guard.value)
        if guard.inner and child.name == guard.inner
        else child
        for child in children
    ]


def hide(node: Node) -> Node:
    """A string's node without its value."""
    if node.kind != n.VALUE or not isinstance(node.value, str):
        return node
    size = len(node.value.encode("utf-8", "surrogateescape"))
    return Node(node.name, node.type, node.offset, node.length, n.HIDDEN, size)


def _hide_inside(array: Node, name: str) -> Node:
    elements = tuple(
        Node(
            e.name, e.type, e.offset, e.length, e.kind, e.value,
            tuple(hide(c) if c.name == name else c for c in e.children), e.text, e.problem,
        )
        for e in array.children
    )  # fmt: skip
    return Node(array.name, array.type, array.offset, array.length, array.kind, array.value, elements, array.text)
