"""The names that other programs use are those of `stable_names.txt`, with their types (STABILITY.md).

A name that is new is added by KAFKATAP_UPDATE=1. One that is gone, or has another type, is a broken promise: nothing
takes its line out but an editor, together with a line in CHANGELOG.md.
"""

from __future__ import annotations

import argparse
import inspect
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kafkatap
from kafkatap.live.export.metric_list import METRICS
from kafkatap.reports.tables import TABLES
from kafkatap.request_log import joined_table
from tests.test_option_names import options, parsers

ROOT = Path(__file__).resolve().parent.parent
STORED = ROOT / "tests" / "stable_names.txt"


def test_no_stable_name_is_gone_or_has_another_type() -> None:
    now, stored = dict(stable_names()), read_stored()
    broken = [f"{name}: {kind} -> {now.get(name, 'gone')}" for name, kind in stored.items() if now.get(name) != kind]
    assert not broken
    if os.environ.get("KAFKATAP_UPDATE"):
        STORED.write_text("".join(f"{name}: {kind}\n" for name, kind in sorted(now.items())), encoding="utf-8")
    assert sorted(now.keys() - read_stored().keys()) == [], "KAFKATAP_UPDATE=1 makes them stable"


def test_the_names_are_of_all_kinds() -> None:
    """Or the walk over schemas, parsers and classes misses some."""
    now = dict(stable_names())
    assert now["column exchanges.broker_ns"] == "int64?"
    assert now["json report reports.latency[].total_p99_ns"].startswith("integer")
    assert now["json show problems[].offset"] == "integer"
    assert now["metric kafkatap_broker_time_seconds"] == "histogram api broker long_poll"
    assert now["exit code report 130"] == "interrupted (the output covers what was read until then)"
    assert now["option compare --exit-code"] == "no value"
    assert now["library analyze captures"] == "positional"
    assert now["library analyze keylog"] == "keyword?"


def read_stored() -> dict[str, str]:
    lines = STORED.read_text(encoding="utf-8").splitlines() if STORED.exists() else []
    return {name: kind for name, _, kind in (line.partition(": ") for line in lines)}


def stable_names() -> Iterator[tuple[str, str]]:
    """Each name, with its type as a word or a few."""
    for table, columns in {**TABLES, "request_log": joined_table.COLUMNS}.items():
        for column in columns:
            yield f"column {table}.{column.name}", f"{column.type}{'?' * column.nullable}"
    for path in (ROOT / "docs").glob("*.schema.json"):
        schema = json.loads(path.read_text(encoding="utf-8"))
        for name, kind in fields(schema, schema, ""):
            yield f"json {path.name.partition('.')[0]} {name}", kind
    for metric in METRICS:
        yield f"metric {metric.name}", " ".join((metric.kind, *metric.labels))
    for command, parser in parsers().items():
        yield from exit_codes(command, parser.epilog or "")
    for command, action in options():
        for name in action.option_strings:
            if name.startswith("--"):
                yield f"option {command} {name}", value_of(action)
    for name in kafkatap.__all__:
        yield from signatures(name, getattr(kafkatap, name))


def fields(schema: Any, root: Any, path: str, within: tuple[str, ...] = ()) -> Iterator[tuple[str, str]]:
    """The fields below a JSON schema, each with the types of its values; `?` if it may be missing. `within`: the
    definitions that lead there. Trees refer to themselves."""
    if schema.get("$ref") in within:
        return
    if "$ref" in schema:
        within += (schema["$ref"],)
        schema = referred(schema, root)
    for name, inner in schema.get("properties", {}).items():
        there = f"{path}.{name}".lstrip(".")
        yield there, types(inner, root) + "?" * (name not in schema.get("required", ()))
        yield from fields(inner, root, there, within)
    for key, mark in (("items", "[]"), ("additionalProperties", ".*")):
        if isinstance(schema.get(key), dict):
            yield from fields(schema[key], root, path + mark, within)
    for inner in alternatives(schema):
        yield from fields(inner, root, path, within)


def types(schema: Any, root: Any) -> str:
    schema = referred(schema, root)
    if "const" in schema:
        return json.dumps(schema["const"])
    kinds = schema.get("type", [])
    found = {kinds} if isinstance(kinds, str) else set(kinds)
    found |= {{str: "string", type(None): "null"}.get(type(value), "number") for value in schema.get("enum", ())}
    for inner in alternatives(schema):
        found |= set(types(inner, root).split("|"))
    return "|".join(sorted(found)) or "any"


def referred(schema: Any, root: Any) -> Any:
    while "$ref" in schema:
        path, schema = schema["$ref"].removeprefix("#").strip("/").split("/"), root
        for part in filter(None, path):
            schema = schema[part]
    return schema


def alternatives(schema: Any) -> Iterator[Any]:
    for key in ("anyOf", "oneOf"):
        yield from schema.get(key, ())


def exit_codes(command: str, text: str) -> Iterator[tuple[str, str]]:
    for code, meaning in re.findall(r"^  (\d+) +(.+)$", text.partition("exit codes:\n")[2], re.MULTILINE):
        yield f"exit code {command} {code}", meaning


def value_of(action: argparse.Action) -> str:
    if action.nargs == 0:
        return "no value"
    words = {None: "one value", "?": "a value or none", "*": "values", "+": "values"}
    return words.get(action.nargs, str(action.nargs))


def signatures(name: str, of: Any) -> Iterator[tuple[str, str]]:
    """A class with its attributes, or a function with its arguments; `?` if there is a default."""
    yield f"library {name}", type(of).__name__
    if inspect.isclass(of):
        for part, value in vars(of).items():
            if part == "__init__" or part.startswith("_"):
                continue
            if callable(value):
                yield from signatures(f"{name}.{part}", value)
            else:
                yield f"library {name}.{part}", "attribute"
    else:
        for argument in inspect.signature(of).parameters.values():
            if argument.name != "self":
                kind = "keyword" if argument.kind is argument.KEYWORD_ONLY else "positional"
                yield f"library {name} {argument.name}", kind + "?" * (argument.default is not argument.empty)
