"""The notation: what is written is read back as the same model, and mistakes are told with their line."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkatap.dissector.layouts.catalog import MESSAGES_FOLDER, api_name, built_in_names, load_messages
from kafkatap.dissector.layouts.notation import NotationError, parse_api, parse_range
from kafkatap.dissector.layouts.schema import NO_VERSIONS, OPEN, REQUEST, RESPONSE, Versions
from tests.support.notation_writer import render_api

EXAMPLE = """\
api 200 Example

request 0-9 flexible 6+
  Name string?3+ 0+ @topic_name
  Ids []int32? 2-4
  Cause Cause 6+ tag 1
    Text string? 6+
  Moved int32 1+ tag 0 7+
  Old string 5 flexible=none
  First []Place 0-5
  Second []Place 6+
  struct Place
    Partition int32 0+ @partition
    Data bytes? 0+

response 0-9
  ErrorCode int16 0+ @error_code
"""


def test_every_part_of_a_field_is_read() -> None:
    request, response = parse_api(EXAMPLE)
    assert (request.api_key, request.name, request.direction) == (200, "Example", REQUEST)
    assert (request.versions, request.flexible) == (Versions(0, 9), Versions(6, 9))
    assert (response.direction, response.flexible) == (RESPONSE, NO_VERSIONS)
    name, ids, cause, moved, old, first, second = request.body.fields
    assert (name.role, name.nullable, name.type) == ("topic_name", Versions(3, 9), "string")
    assert (ids.is_array, ids.type, ids.versions, ids.nullable) == (True, "int32", Versions(2, 4), Versions(2, 4))
    assert (cause.type, cause.tag, cause.tagged, cause.is_array) == ("struct", 1, Versions(6, 9), False)
    assert (moved.tag, moved.versions, moved.tagged) == (0, Versions(1, 9), Versions(7, 9))
    assert (old.versions, old.flexible, name.flexible) == (Versions(5, 5), False, True)
    assert first.struct is not None
    assert first.struct == second.struct
    assert [field.name for field in first.struct.fields] == ["Partition", "Data"]
    assert response.body.fields[0].role == "error_code"


def test_rendering_is_the_inverse_of_parsing() -> None:
    assert render_api(parse_api(EXAMPLE)) == EXAMPLE


@pytest.mark.parametrize("path", sorted(Path(MESSAGES_FOLDER).glob("*.kmsg")), ids=lambda path: path.stem)
def test_each_file_is_as_it_would_be_rendered(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    messages = parse_api(text, path.name)
    assert [message.direction for message in messages] == [REQUEST, RESPONSE]
    assert path.stem == f"{messages[0].api_key:03}_{messages[0].name}"
    assert render_api(messages) == text


def test_comments_and_empty_lines_say_nothing() -> None:
    commented = "# why\n\n" + EXAMPLE.replace("  Ids []int32? 2-4\n", "  # removed soon\n  Ids []int32? 2-4  # here\n")
    assert parse_api(commented) == parse_api(EXAMPLE)


@pytest.mark.parametrize(
    ("old", "new", "line", "reason"),
    [
        ("api 200 Example", "api Example", 1, "api KEY NAME"),
        ("request 0-9", "request 0+", 3, "need an end"),
        ("request 0-9 flexible", "request 0-9 flex", 3, "expected: request"),
        ("response 0-9", "answer 0-9", 16, "expected: request"),
        ("response 0-9", "request 0-9", 16, "a second message"),
        ("string?3+ 0+", "string?3+ 0-10", 4, "not within"),
        ("string?3+ 0+", "string?3+ 5-4", 4, "empty"),
        ("string?3+ 0+", "string?3+ x", 4, "no range"),
        ("string?3+ 0+", "text 0+", 4, "text is no type"),
        ("@topic_name", "@topic", 4, "@topic is no mark"),
        ("@topic_name", "tag", 4, "tag is no mark"),
        ("  Ids []int32? 2-4", "   Ids []int32? 2-4", 5, "indentation"),
        ("    Text string? 6+", "      Text string? 6+", 7, "more than one level"),
        ("  Ids []int32? 2-4", "  Ids int32", 5, "a name, a type and versions"),
        ("  Ids []int32? 2-4", "  Ids []int32? 2-4\n    Inner int8 2", 5, "nothing can be indented"),
        ("[]Place 6+", "[]Thing 6+", 11, "no struct Thing"),
        ("Data bytes?", "Data Place?", 14, "contains itself"),
    ],
)
def test_a_mistake_is_told_with_its_line(old: str, new: str, line: int, reason: str) -> None:
    assert EXAMPLE.count(old) == 1
    with pytest.raises(NotationError) as caught:
        parse_api(EXAMPLE.replace(old, new), "200_Example.kmsg")
    assert str(caught.value).startswith(f"200_Example.kmsg, line {line}: ")
    assert reason in str(caught.value)


def test_ranges() -> None:
    assert [parse_range(text) for text in ("3+", "3-5", "3")] == [Versions(3, OPEN), Versions(3, 5), Versions(3, 3)]


def test_the_catalog_knows_every_api_by_name() -> None:
    assert list(built_in_names()) == list(range(len(built_in_names())))
    assert (api_name(1), api_name(7), api_name(94)) == ("Fetch", "ControlledShutdown", "UnregisterController")
    assert api_name(999) == "API 999"
    messages = load_messages()
    assert len(messages) == 2 * len(built_in_names())
    assert all(messages[key, REQUEST].versions == messages[key, RESPONSE].versions for key in built_in_names())


def test_header_versions_follow_kafkas_exceptions() -> None:
    messages = load_messages()
    assert [messages[7, REQUEST].header_version(version) for version in range(4)] == [0, 1, 1, 2]
    assert [messages[18, RESPONSE].header_version(version) for version in range(6)] == [0] * 6
    assert [messages[1, RESPONSE].header_version(version) for version in (11, 12)] == [0, 1]
