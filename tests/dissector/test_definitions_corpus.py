"""The notation says what Kafka's own definitions say, field by field, for every version of three sets.

The set of 3.9 was taken before its release; some of its versions were not stable then.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kafkatap.dissector.layouts.catalog import load_messages
from kafkatap.dissector.layouts.overlay import read_definitions
from kafkatap.dissector.layouts.schema import REQUEST, RESPONSE, MessageLayout, Rules, Struct

#: Oldest first, with the number of (key, version) pairs in each.
SETS = {"3.9-trunk": 327, "4.3.0": 302, "4.4.0": 309}
NEWEST = list(SETS)[-1]
#: Where older sets have other names for the same bytes: (set, api_key, direction) → versions.
RENAMED = {
    ("3.9-trunk", 28, REQUEST): (3, 4, 5),
    ("3.9-trunk", 52, REQUEST): (0, 1),
    ("3.9-trunk", 74, RESPONSE): (0,),
    ("4.3.0", 28, REQUEST): (3, 4, 5),
    ("4.3.0", 88, RESPONSE): (0,),
}
#: Where a later set laid out a version anew that was not stable before: (set, api_key, direction) → versions.
RELAID = {("3.9-trunk", 87, RESPONSE): (0,)}


@pytest.fixture(scope="module")
def definitions(corpus: Path) -> dict[str, dict[tuple[int, int], MessageLayout]]:
    return {name: read_definitions(corpus / "kafka-messages" / name).own[0] for name in SETS}


def layout(struct: Struct, version: int, *, names: bool = True) -> list[Any]:
    """All that one version of a struct says, in wire order."""
    return [
        (
            field.name if names else "",
            field.type,
            field.is_array,
            version in field.nullable,
            field.tag if version in field.tagged else None,
            field.role if names else "",
            field.flexible,
            None if field.struct is None else (field.struct.name if names else ""),
            None if field.struct is None else layout(field.struct, version, names=names),
        )
        for field in struct.fields
        if version in field.versions
    ]


def relaid(name: str, key: tuple[int, int], version: int) -> bool:
    return version in RELAID.get((name, *key), ())


@pytest.mark.parametrize("name", SETS)
def test_every_version_has_the_layout_that_kafka_defines(definitions: Any, name: str) -> None:
    ours = load_messages()
    compared = 0
    for key, theirs in definitions[name].items():
        mine = ours[key]
        for version in theirs.versions:
            where = (theirs.name, "response" if key[1] else "request", version)
            assert version in mine.versions, where
            assert (version in mine.flexible) == (version in theirs.flexible), where
            differs = version in RENAMED.get((name, *key), ()) or relaid(name, key, version)
            assert (layout(mine.body, version) != layout(theirs.body, version)) == differs, where
            same = layout(mine.body, version, names=False) == layout(theirs.body, version, names=False)
            assert same != relaid(name, key, version), where
            compared += 1
        if name == NEWEST:
            assert (mine.name, mine.body.name) == (theirs.name, theirs.body.name)
    assert compared == 2 * SETS[name]


def rules_of(struct: Struct, prefix: str = "") -> dict[str, Rules]:
    """What is said of each field besides its bytes, by path, without sentences."""
    found = {}
    for field in struct.fields:
        found[prefix + field.name] = replace(field.rules, about=None)
        if field.struct is not None:
            found |= rules_of(field.struct, f"{prefix}{field.name}.")
    return found


def test_fields_have_the_rules_of_their_newest_definition(definitions: Any) -> None:
    """Default, ignorable, mapKey and entityType."""
    for key, message in load_messages().items():
        theirs: dict[str, Rules] = {}
        for name in SETS:
            theirs |= rules_of(definitions[name][key].body) if key in definitions[name] else {}
        ours = rules_of(message.body)
        assert ours == {path: theirs[path] for path in ours}, (message.name, key)


def test_the_notation_has_no_version_that_kafka_has_not(definitions: Any) -> None:
    theirs = {
        (*key, version) for name in SETS for key, message in definitions[name].items() for version in message.versions
    }
    ours = {(*key, version) for key, message in load_messages().items() for version in message.versions}
    assert ours == theirs
