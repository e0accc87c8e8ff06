"""The tree of a message as plain dicts for JSON. `docs/show.schema.json` ("$defs/body") says what comes out.

Fields are named as Kafka names them. Beside a value stand, where they are known, `<Field>_name` (an enum's name, a
topic's, a broker's address, a time). Tagged fields stand among the others of their struct.
"""

from __future__ import annotations

import base64
from typing import Any

from kafkatap.dissector import node as n
from kafkatap.dissector.node import Node
from kafkatap.reports.batch import uuid_text

#: Keys that no field has, for what is no field.
UNKNOWN_TAGS, PROBLEMS = "_unknown_tags", "_problems"


def tree_json(node: Node) -> dict[str, Any]:
    """A message: `header`, `body` (null where there is none), and `rest`: what of the frame is in neither."""
    header, body = node.child("Header"), node.child("Body")
    rest = [
        {"what": child.name, "offset": child.offset, "size": child.length, "problem": child.problem}
        for child in node.children
        if child.kind in (n.RAW, n.MISSING)
    ]
    found: dict[str, Any] = {
        "header": None if header is None else struct_json(header),
        "body": None if body is None else struct_json(body),
    }
    token = node.child("Token")
    if token is not None:
        put(found, token)
    if node.text:
        found["note"] = printable(node.text)
    if rest:
        found["rest"] = rest
    return found


def struct_json(node: Node) -> dict[str, Any]:
    """The fields of a struct by name."""
    found: dict[str, Any] = {}
    for child in node.children:
        put(found, child)
    return found


def put(into: dict[str, Any], node: Node) -> None:
    """A field into the dict of its struct, with what is known of it beside it."""
    if node.kind == n.TAGS:
        for child in node.children:
            if child.type == "tag":
                into.setdefault(UNKNOWN_TAGS, []).append(_tag(child))
            else:
                put(into, child)
        return
    if node.problem:
        into.setdefault(PROBLEMS, []).append({"field": node.name, "offset": node.offset, "problem": node.problem})
    if node.kind == n.RAW and node.length == 0:
        return  # where decoding stopped: only the problem
    into[node.name] = value_json(node)
    name = _name(node)
    if name is not None:
        into[f"{node.name}_name"] = name


def value_json(node: Node) -> Any:
    """A value: number, boolean, string, null, list, dict; bytes, and what is hidden, as a dict that says so."""
    kind, value = node.kind, node.value
    if kind in (n.STRUCT, n.NESTED):
        return struct_json(node)
    if kind == n.ARRAY:
        return [value_json(child) for child in node.children]
    if kind == n.BATCH:
        return struct_json(node)
    if kind == n.RECORDS:
        return {"size": value, "batches": [value_json(child) for child in node.children]}
    if kind == n.HIDDEN:
        return {"hidden": True, "size": value, **({"note": printable(node.text)} if node.text else {})}
    if kind in (n.RAW, n.MISSING):
        return {"undecoded": True, "size": value}
    if isinstance(value, bytes):
        if node.type == "uuid":
            return uuid_text(value)
        return {"base64": base64.b64encode(value).decode("ascii"), "size": len(value)}
    if isinstance(value, str):
        return printable(value)
    return value


def _name(node: Node) -> Any:
    """What is known of a value beyond itself; of an array of plain values a list, if it is known of any."""
    if node.kind == n.ARRAY:
        plain = [child.text if child.kind == n.VALUE else "" for child in node.children]
        return [printable(text) or None for text in plain] if any(plain) else None
    return printable(node.text) if node.kind == n.VALUE and node.text else None


def _tag(node: Node) -> dict[str, Any]:
    number = int(node.name.removeprefix("tag "))
    return {"tag": number, **value_json(node)}


def printable(text: str) -> str:
    """A string without lone surrogates, which JSON readers refuse: each byte that is not UTF-8 as U+FFFD."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
