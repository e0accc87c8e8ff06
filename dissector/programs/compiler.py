"""Layouts to programs: every version of every message, for a profile.

A program has no conditions on versions. Runs of unwanted fields of fixed size become part of the next instruction.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..layouts.schema import FIXED_WIDTHS, REQUEST, Field, MessageLayout, Struct
from . import machine as m
from .fields import HEADER_TAGS, TAGS, FieldTable, number_fields
from .profiles import Profile
from .program import DENSE, KEYS, LARGEST, VERSIONS, Programs, pack_message
from .roles import R_ERROR_CODE

Array = np.ndarray[Any, Any]
#: The most bytes that one instruction needs; longer runs of unwanted fields are split.
_LARGEST_NEED = (1 << 22) - 1

_FIXED_OPS = {
    "bool": m.OP_BOOL,
    "int8": m.OP_INT8,
    "int16": m.OP_INT16,
    "uint16": m.OP_UINT16,
    "int32": m.OP_INT32,
    "uint32": m.OP_UINT32,
    "int64": m.OP_INT64,
    "float64": m.OP_INT64,
    "uuid": m.OP_UUID,
}


def compile_programs(messages: Mapping[tuple[int, int], MessageLayout], profile: Profile) -> Programs:
    """Compile every version of every message. ValueError names the message that cannot be compiled."""
    table = number_fields(messages)
    starts: dict[int, int] = {}
    code: list[int] = []
    for key in sorted(messages):
        message = messages[key]
        for version in message.versions:
            if not (message.api_key <= LARGEST and version <= LARGEST):
                raise ValueError(f"{_label(message, version)}: keys and versions go up to {LARGEST}")
            starts[pack_message(message.direction, message.api_key, version)] = len(code)
            _Compiler(code, message, version, table, profile).compile()
    roles = np.array([info.role if profile.role is None else profile.role(info) for info in table], np.uint8)
    index, others = _index_of(starts)
    return Programs(np.array(code, np.int32), index, roles, profile.name, table, others=others)


def _index_of(starts: Mapping[int, int]) -> tuple[Array, Array]:
    """`index` and `others` of Programs, from the first instruction of each message (`pack_message`)."""
    index = np.full(DENSE, -1, np.int32)
    others = []
    for message in sorted(starts):
        direction, key, version = message >> 30, message >> 15 & LARGEST, message & LARGEST
        if key < KEYS and version < VERSIONS:
            index[(direction * KEYS + key) * VERSIONS + version] = starts[message]
        else:
            others.append(message)
    index = np.append(index, np.array([starts[message] for message in others], np.int32))
    return index, np.array(others, np.int32)


def _label(message: MessageLayout, version: int) -> str:
    return f"{message.name}{'Request' if message.direction == REQUEST else 'Response'} v{version}"


class _Compiler:
    """Writes the program of one version. `skip` counts unwanted bytes that the next instruction has to skip."""

    def __init__(
        self, code: list[int], message: MessageLayout, version: int, table: FieldTable, profile: Profile
    ) -> None:
        self.code, self.message, self.version, self.profile = code, message, version, profile
        self.table = table
        self.flexible = version in message.flexible
        self.skip = 0
        self.depth = 0

    def compile(self) -> None:
        if self.profile.head:
            self.compile_head()
            return
        self.header()
        self.struct(self.message.body, "")
        self.write(m.OP_END)

    def header(self) -> None:
        if self.message.has_header_tags(self.version):
            self.tags({}, "", self.id(HEADER_TAGS))

    def compile_head(self) -> None:
        """Compile the body up to the last wanted field. The tag section at its end is not read."""
        present = [item for item in self.present(self.message.body) if self.version not in item.tagged]
        wanted = [place for place, item in enumerate(present) if self.gives_rows(item, item.name)]
        if wanted:
            self.header()
            for item in present[: wanted[-1] + 1]:
                self.field(item, "")
        self.write(m.OP_END, b=m.OPEN)

    def id(self, path: str) -> int:
        return self.table.find[self.message.api_key, self.message.direction, path]

    def write(self, op: int, need: int = 0, a: int = -1, b: int = 0, c: int = 0) -> int:
        """Append an instruction; return its place for `land`."""
        while self.skip + need > _LARGEST_NEED:
            step = min(self.skip, _LARGEST_NEED)
            self.skip -= step
            self.code += [m.OP_SKIP | step << 8, a, 0, 0]
        at = len(self.code)
        self.code += [op | (self.skip + need) << 8, a, b, c]
        self.skip = 0
        return at

    def land(self, *jumps: int) -> None:
        """Let the instructions at these places jump to here."""
        assert self.skip == 0
        for at in jumps:
            distance = len(self.code) - at - 4
            if distance >= 1 << 22:
                raise ValueError(f"{_label(self.message, self.version)}: too long")
            self.code[at + 2] |= distance << 8

    def flush(self) -> None:
        """Write the pending skip, so that a jump can land here."""
        if self.skip:
            self.write(m.OP_SKIP)

    def struct(self, struct: Struct, prefix: str) -> None:
        tagged: dict[int, Field] = {}
        for item in self.present(struct):
            if self.version in item.tagged:
                tagged[item.tag] = item
            else:
                self.field(item, prefix)
        if self.flexible:
            self.tags(tagged, prefix, self.id(prefix + TAGS))

    def present(self, struct: Struct) -> list[Field]:
        return [item for item in struct.fields if self.version in item.versions]

    def field(self, item: Field, prefix: str) -> None:
        path = prefix + item.name
        number = self.id(path)
        if item.is_array:
            self.array(item, path, number)
        elif item.struct is None:
            self.scalar(item, number, self.version in item.nullable)
        elif self.version in item.nullable:
            jump = self.write(m.OP_NULLABLE_STRUCT, 1, number, m.ROW * self.wants(number))
            self.struct(item.struct, path + ".")
            self.flush()
            self.land(jump)
        else:
            if self.wants(number):
                self.write(m.OP_STRUCT, 0, number)
            self.struct(item.struct, path + ".")

    def scalar(self, item: Field, number: int, nullable: bool) -> None:
        wanted = self.wants(number)
        width = FIXED_WIDTHS.get(item.type)
        if width is None:
            flags = m.NULLABLE * nullable | m.ROW * wanted | m.AHEAD * (item.type == "records")
            if self.flexible and item.flexible:
                self.write(m.OP_BYTES_C, 1, number, flags)
            elif item.type == "string":
                self.write(m.OP_BYTES_16, 2, number, flags)
            else:
                self.write(m.OP_BYTES_32, 4, number, flags)
        elif wanted:
            self.write(m.OP_NONZERO16 if self.is_sparse(number) else _FIXED_OPS[item.type], width, number)
        else:
            self.skip += width

    def array(self, item: Field, path: str, number: int) -> None:
        compact = self.flexible and item.flexible
        prefix_width = 1 if compact else 4
        count_row = self.wants(self.id(path + "#"))
        flags = m.NULLABLE * (self.version in item.nullable) | m.ROW * count_row
        least, is_fixed = self.width(item)
        if least == 0:
            raise ValueError(f"{_label(self.message, self.version)}, {path}: elements of no bytes")
        if is_fixed and not self.gives_rows(item, path):
            self.write(m.OP_FIXED_C if compact else m.OP_FIXED_32, prefix_width, number, flags, least)
            return
        jump = self.write(m.OP_ARRAY_C if compact else m.OP_ARRAY_32, prefix_width, number, flags, least)
        self.nest(1)
        if item.struct is None:
            self.scalar(item, number, False)
        else:
            if self.gives_rows(item, path, sparse=False):
                self.write(m.OP_ELEMENT, 0, number)
            self.struct(item.struct, path + ".")
        self.write(m.OP_NEXT)
        self.nest(-1)
        self.land(jump)

    def tags(self, tagged: dict[int, Field], prefix: str, number: int) -> None:
        flags = m.ROW * self.wants(number)
        jump = self.write(m.OP_TAGS, 1, number, flags)
        next_tag = self.write(m.OP_TAG_NEXT, 0, number, flags, len(tagged))
        entry = len(self.code)
        for tag in sorted(tagged):
            self.code += [tag, 0, self.id(prefix + tagged[tag].name), 0]
        self.nest(1)
        for place, tag in enumerate(sorted(tagged)):
            self.code[entry + 4 * place + 1] = len(self.code) - entry
            self.field(tagged[tag], prefix)
            self.write(m.OP_TAG_END, 0, self.id(prefix + tagged[tag].name))
        self.nest(-1)
        self.land(jump, next_tag)

    def nest(self, by: int) -> None:
        self.depth += by
        if self.depth > m.MAX_DEPTH:
            raise ValueError(f"{_label(self.message, self.version)}: nested too deeply")

    def wants(self, number: int) -> bool:
        return self.profile.wanted(self.table[number], self.version)

    def is_sparse(self, number: int) -> bool:
        """Whether this field has a row only if it is not 0."""
        return not self.profile.zero_errors and self.table[number].role == R_ERROR_CODE

    def gives_rows(self, item: Field, path: str, sparse: bool = True) -> bool:
        """Whether this field, or one inside of it, has rows; with `sparse` False, rows for every value."""
        number = self.id(path)
        if self.wants(number) and (sparse or not self.is_sparse(number)):
            return True
        if item.is_array and self.wants(self.id(path + "#")):
            return True
        if item.struct is None:
            return False
        if self.flexible and self.wants(self.id(f"{path}.{TAGS}")):
            return True
        return any(self.gives_rows(inner, f"{path}.{inner.name}", sparse) for inner in self.present(item.struct))

    def width(self, item: Field) -> tuple[int, bool]:
        """The least number of bytes of one value, or of one element of an array, and whether it is always this many."""
        if item.struct is not None:
            return self.struct_width(item.struct)
        if item.type in FIXED_WIDTHS:
            return FIXED_WIDTHS[item.type], True
        return (1 if self.flexible and item.flexible else 2 if item.type == "string" else 4), False

    def struct_width(self, struct: Struct) -> tuple[int, bool]:
        least, is_fixed = int(self.flexible), not self.flexible
        for item in self.present(struct):
            if self.version in item.tagged:
                continue
            if item.is_array:
                width, fixed = 1 if self.flexible and item.flexible else 4, False
            elif item.struct is not None and self.version in item.nullable:
                width, fixed = 1, False
            else:
                width, fixed = self.width(item)
            least += width
            is_fixed = is_fixed and fixed
        return least, is_fixed
