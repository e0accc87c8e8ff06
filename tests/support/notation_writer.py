"""Writes layouts in the project's notation, in the form of the files in `dissector/messages`.

`render_api(parse_api(text)) == text` for text without comments in this form.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from kafkatap.dissector.layouts.schema import ENTITY_TYPES, REQUEST, Field, MessageLayout, Struct, Versions

_INDENT = 2


def render_api(messages: Iterable[MessageLayout]) -> str:
    """One file: the api line and each message in turn. All are of one API."""
    messages = list(messages)
    head = f"api {messages[0].api_key} {messages[0].name}\n"
    return "\n".join([head, *(render_message(message) for message in messages)])


def render_message(message: MessageLayout) -> str:
    """One direction, from its `request` or `response` line on, or one `data` block."""
    word = "request" if message.direction == REQUEST else "response"
    if not message.has_header:
        word = f"data {message.name}"
    head = f"{word} {message.versions.low}-{message.versions.high}"
    if message.versions.low == message.versions.high:
        head = f"{word} {message.versions.low}"
    if message.flexible:
        head += f" flexible {_range(message.flexible, message)}"
    uses = Counter(_structs(message.body))
    by_name = Counter(struct.name for struct in uses)
    shared = {struct for struct, count in uses.items() if count > 1 and by_name[struct.name] == 1}
    lines = [head, *_render_fields(message.body, message, shared, 1)]
    for struct in sorted(shared, key=lambda s: s.name):
        lines.append(" " * _INDENT + f"struct {struct.name}")
        lines.extend(_render_fields(struct, message, shared, 2))
    return "\n".join(lines) + "\n"


def _structs(struct: Struct) -> Iterator[Struct]:
    """Each struct below this one, as often as fields name it; below a repeated one only once."""
    seen: set[Struct] = set()
    pending = [struct]
    while pending:
        for field in pending.pop().fields:
            if field.struct is not None:
                yield field.struct
                if field.struct not in seen:
                    seen.add(field.struct)
                    pending.append(field.struct)


def _range(versions: Versions, message: MessageLayout) -> str:
    if versions.high == message.versions.high:
        return f"{versions.low}+"
    return str(versions.low) if versions.low == versions.high else f"{versions.low}-{versions.high}"


def _rules(field: Field) -> Iterator[str]:
    rules = field.rules
    if rules.default is not None:
        yield f"={rules.default}"
    if rules.is_ignorable:
        yield "ignorable"
    if rules.is_map_key:
        yield "key"
    if rules.entity_type is not None:
        is_of_role = ENTITY_TYPES.get(field.role or "") == rules.entity_type
        yield "entity" if is_of_role else f"entity={rules.entity_type}"


def _render_fields(struct: Struct, message: MessageLayout, shared: set[Struct], depth: int) -> Iterator[str]:
    for field in struct.fields:
        type_name = field.struct.name if field.struct else field.type
        words = [field.name, ("[]" if field.is_array else "") + type_name, _range(field.versions, message)]
        if field.nullable:
            words[1] += "?" if field.nullable == field.versions else "?" + _range(field.nullable, message)
        if field.tag >= 0:
            words.append(f"tag {field.tag}")
            if field.tagged != field.versions:
                words.append(_range(field.tagged, message))
        if field.role:
            words.append(f"@{field.role}")
        if not field.flexible:
            words.append("flexible=none")
        words += _rules(field)
        yield " " * (_INDENT * depth) + " ".join(words)
        if field.struct is not None and field.struct not in shared:
            yield from _render_fields(field.struct, message, shared, depth + 1)
