"""The notation says what Kafka's own definitions say, field by field, for every version of two sets: 3.9 and 4.3.0.

The set of 3.9 was taken before its release; some of its versions were not stable then.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kafkatap.dissector.layouts.catalog import load_messages
from kafkatap.dissector.layouts.overlay import read_definitions
from kafkatap.dissector.layouts.schema import REQUEST, RESPONSE, MessageLayout, Struct

SETS = ("3.9-trunk", "4.3.0")
#: Where the older set has other names for the same bytes: (api_key, direction) → versions.
RENAMED = {(52, REQUEST): (0, 1), (74, RESPONSE): (0,)}
#: Where 4.3.0 laid out a version anew that no release before it had as a stable one: (api_key, direction) → versions.
RELAID = {(87, RESPONSE): (0,)}


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


@pytest.mark.parametrize("name", SETS)
def test_every_version_has_the_layout_that_kafka_defines(definitions: Any, name: str) -> None:
    ours = load_messages()
    older = name == SETS[0]
    compared = 0
    for key, theirs in definitions[name].items():
        mine = ours[key]
        for version in theirs.versions:
            where = (theirs.name, "response" if key[1] else "request", version)
            assert version in mine.versions, where
            assert (version in mine.flexible) == (version in theirs.flexible), where
            names = not (older and version in RENAMED.get(key, ()))
            same = layout(mine.body, version, names=names) == layout(theirs.body, version, names=names)
            assert same != (older and version in RELAID.get(key, ())), where
            compared += 1
        if not older:
            assert (mine.name, mine.body.name) == (theirs.name, theirs.body.name)
    assert compared == 2 * {"3.9-trunk": 327, "4.3.0": 302}[name]


def test_the_notation_has_no_version_that_kafka_has_not(definitions: Any) -> None:
    theirs = {
        (*key, version) for name in SETS for key, message in definitions[name].items() for version in message.versions
    }
    ours = {(*key, version) for key, message in load_messages().items() for version in message.versions}
    assert ours == theirs
    assert len({key for key, _, _ in ours}) == 93
    assert len({(key, version) for key, _, version in ours}) == 361
