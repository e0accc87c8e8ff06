"""Kafka's JSON definitions, read into the model."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkatap.dissector.layouts.definitions import DefinitionError, load_definition, load_definitions
from kafkatap.dissector.layouts.notation import parse_api
from kafkatap.dissector.layouts.overlay import read_definitions

DEFINITION = """
// A header // with a comment
{
  "apiKey": 200,
  "type": "request", // and one here
  "name": "ExampleRequest",
  "validVersions": "1-5",
  "flexibleVersions": "4+",
  "fields": [
    { "name": "Url", "type": "string", "versions": "0+", "default": "http://x//y", "nullableVersions": "2+" },
    { "name": "Gone", "type": "int8", "versions": "0" },
    { "name": "Topics", "type": "[]Topic", "versions": "2-3", "fields": [
      { "name": "Name", "type": "string", "versions": "0+", "entityType": "topicName" },
      { "name": "Places", "type": "[]Place", "versions": "0+" } ]},
    { "name": "Where", "type": "Place", "versions": "4+", "tag": "1",
       "taggedVersions": "4+", "nullableVersions": "4+" },
    { "name": "Plain", "type": "string", "versions": "1+", "flexibleVersions": "none" }
  ],
  "commonStructs": [ { "name": "Place", "versions": "0+", "fields": [
      { "name": "PartitionIndex", "type": "int32", "versions": "0+" } ]} ]
}
"""
SAME = """\
api 200 Example

request 1-5 flexible 4+
  Url string?2+ 1+
  Topics []Topic 2-3
    Name string 1+ @topic_name
    Places []Place 1+
  Where Place? 4+ tag 1
  Plain string 1+ flexible=none
  struct Place
    PartitionIndex int32 1+ @partition
"""


def test_a_definition_reads_as_the_notation_does() -> None:
    assert (load_definition(DEFINITION),) == parse_api(SAME)


def test_what_is_no_message_gives_nothing() -> None:
    assert load_definition('{"type": "data", "name": "X", "validVersions": "0"}') is None
    removed = '{"type": "request", "apiKey": 4, "name": "XRequest", "validVersions": "none"}'
    assert load_definitions({"x": removed}) == {}


@pytest.mark.parametrize(
    "text",
    [
        "no json",
        "{}",
        "[]",
        DEFINITION.replace('"1-5"', '"one"'),
        DEFINITION.replace('"type": "[]Place"', '"type": "[]Nowhere"'),
    ],
)
def test_an_unreadable_definition_is_named(text: str) -> None:
    with pytest.raises(DefinitionError, match=r"^x\.json: "):
        load_definitions({"x.json": text})


def test_a_struct_within_itself_is_refused() -> None:
    circular = DEFINITION.replace('"name": "PartitionIndex", "type": "int32"', '"name": "Inner", "type": "[]Place"')
    with pytest.raises(DefinitionError, match="contains itself"):
        load_definitions({"x.json": circular})


def test_a_folder_is_read(tmp_path: Path) -> None:
    (tmp_path / "ExampleRequest.json").write_text(DEFINITION, encoding="utf-8")
    (tmp_path / "notes.txt").write_text("not a definition", encoding="utf-8")
    assert list(read_definitions(tmp_path).own[0]) == [(200, 0)]
