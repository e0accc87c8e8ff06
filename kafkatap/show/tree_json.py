"""The tree of a message as plain dicts for JSON. `docs/show.schema.json` ("$defs/tree") is its schema.

Fields have Kafka's names. Beside a value there may be `<Field>_name`: the name of an enum's value or a topic, a
broker's address, a time, or the layout of nested bytes. Tagged fields are among the others of their struct. Undecoded
fields have no key; `problems` describes the errors and their places.
"""

from __future__ import annotations

import base64
import json
import math
from typing import Any

from kafkatap.dissector.tree import node as n
from kafkatap.dissector.tree.node import Node, Run, has_problem, path_text, walk
from kafkatap.reports.batch import uuid_text

#: A key that no field has.
UNKNOWN_TAGS = "_unknown_tags"
#: Keys of the header, where they have names of their own.
_WHERE = ("Header", "Body", "Token")


def tree_json(node: Node) -> dict[str, Any]:
    """A message: `header` and `body`, or the `token` of a bare SASL token; null if they were not decoded. If there are
    any, a `note` on the whole, its `problems`, and `rest`: the other bytes of the frame."""
    found: dict[str, Any] = {"header": None, "body": None}
    rest = []
    for child in node.children:
        if child.name in _WHERE:
            found[child.name.lower()] = value_json(child)
        elif child.name != "Size":
            rest.append({"what": child.name, "offset": child.offset, "size": child.length})
    wrong = []
    if has_problem(node):
        wrong = [
            {"path": path_text(path), "offset": inner.offset, "problem": printable(inner.problem)}
            for path, inner in walk(node)
            if inner.problem
        ]
    if node.text:
        found["note"] = printable(node.text)
    for key, items in (("problems", wrong), ("rest", rest)):
        if items:
            found[key] = items
    return found


def struct_json(node: Node) -> dict[str, Any]:
    """The fields of a struct by name."""
    found: dict[str, Any] = {}
    for part in node.parts:
        if isinstance(part, Run):  # most values by far
            if part.texts is None:
                found.update(zip(part.layout.names, part.values, strict=True))
                continue
            for name, value, text in zip(part.layout.names, part.values, part.texts, strict=True):
                found[name] = value
                if text:
                    found[f"{name}_name"] = printable(text)
        elif part.kind == n.VALUE:
            found[part.name] = _plain(part, part.value)
            if part.text:
                found[f"{part.name}_name"] = printable(part.text)
        else:
            put(found, part)
    return found


def put(into: dict[str, Any], node: Node) -> None:
    """Put a field into the dict of its struct, with its name beside it."""
    if node.kind == n.TAGS:
        for child in node.children:
            if _is_stop(child):
                continue
            if child.type == "tag":
                into.setdefault(UNKNOWN_TAGS, []).append(_tag(child))
            else:
                put(into, child)
        return
    if _is_stop(node):
        return
    into[node.name] = value_json(node)
    name = _name(node)
    if name is not None:
        into[f"{node.name}_name"] = name


def value_json(node: Node) -> Any:
    """A value: number, boolean, string, null, list or dict; bytes and hidden values are dicts."""
    kind, value = node.kind, node.value
    if kind == n.STRUCT or kind == n.NESTED or kind == n.BATCH:
        return struct_json(node)
    if kind == n.ARRAY:
        return [
            child.value if child.kind == n.VALUE and type(child.value) is int else value_json(child)
            for child in node.children
            if not _is_stop(child)
        ]
    if kind == n.RECORDS:
        return {"size": value, "batches": [value_json(child) for child in node.children]}
    if kind == n.HIDDEN:
        return {"hidden": True, "size": value, **({"note": printable(node.text)} if node.text else {})}
    if kind in (n.RAW, n.MISSING):
        return {"undecoded": True, "size": value}
    return _plain(node, value)


def _plain(node: Node, value: Any) -> Any:
    """The value of a VALUE or NULL node."""
    if isinstance(value, bytes):
        if node.type == "uuid":
            return uuid_text(value)
        return {"base64": base64.b64encode(value).decode("ascii"), "size": len(value)}
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, float) and not math.isfinite(value):
        return json.dumps(value)  # "NaN" and the like, of which JSON has no numbers
    return value


def _name(node: Node) -> Any:
    """The name of a value; for an array of plain values a list of names, if any has one."""
    if node.kind == n.ARRAY:
        if not any(child.text and child.kind == n.VALUE for child in node.children):
            return None
        return [printable(child.text) or None if child.kind == n.VALUE else None for child in node.children]
    return printable(node.text) if node.kind in (n.VALUE, n.NESTED) and node.text else None


def _is_stop(node: Node) -> bool:
    """Whether a node only marks the place where decoding stopped."""
    return node.kind == n.RAW and node.length == 0


def _tag(node: Node) -> dict[str, Any]:
    number = int(node.name.removeprefix("tag "))
    return {"tag": number, **value_json(node)}


def printable(text: str) -> str:
    """A string without lone surrogates, which JSON readers refuse: each byte that is not UTF-8 as U+FFFD."""
    return text if text.isascii() else text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
