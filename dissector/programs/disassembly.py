"""Programs as text, for people."""

from __future__ import annotations

from . import machine as m
from .program import Programs

#: Names of the operations by number ("array_c").
OP_NAMES = {value: name[3:].lower() for name, value in vars(m).items() if name.startswith("OP_")}
_JUMPS = frozenset((m.OP_ARRAY_32, m.OP_ARRAY_C, m.OP_NULLABLE_STRUCT, m.OP_TAGS, m.OP_TAG_NEXT))
#: The meaning of c.
_COUNTED = {
    m.OP_ARRAY_32: "least",
    m.OP_ARRAY_C: "least",
    m.OP_FIXED_32: "each",
    m.OP_FIXED_C: "each",
    m.OP_TAG_NEXT: "tags",
}
_FLAGS = ((m.NULLABLE, "nullable"), (m.ROW, "row"), (m.AHEAD, "ahead"))


def disassemble(programs: Programs, api_key: int, version: int, direction: int) -> str:
    """A program, one instruction a line: place, operation, bytes needed, field, flags, target of the jump, count."""
    start = programs.find(api_key, version, direction)
    if start < 0:
        raise KeyError(f"no program for api_key {api_key} version {version} direction {direction}")
    lines: list[str] = []
    at, op = 0, -1
    while op != m.OP_END:
        word, field, bits, extra = programs.code[start + at : start + at + 4].tolist()
        op = word & 255
        words = [f"{at:5} {OP_NAMES[op]:15} {word >> 8:4}"]
        if field >= 0:
            words.append(programs.fields[field].path)
        if op >= m.OP_NULLABLE_STRUCT:
            words += [name for flag, name in _FLAGS if bits & flag]
        if op in _JUMPS:
            words.append(f"-> {at + 4 + (bits >> 8)}")
        if op in _COUNTED:
            words.append(f"{_COUNTED[op]} {extra}")
        lines.append(" ".join(words))
        at += 4
        if op == m.OP_TAG_NEXT:
            table = at
            for at in range(table, table + 4 * extra, 4):
                tag, distance = programs.code[start + at : start + at + 2].tolist()
                lines.append(f"{at:5}   tag {tag} -> {table + distance}")
            at = table + 4 * extra
    return "\n".join(lines)
