"""A folder of definitions over the built-in layouts: what stands where both speak, and what is kept of it."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkatap.dissector.dtypes import OK
from kafkatap.dissector.layouts import catalog, overlay
from kafkatap.dissector.layouts.catalog import api_name, api_names, load_messages
from kafkatap.dissector.layouts.definitions import DefinitionError, load_definitions
from kafkatap.dissector.layouts.notation import parse_api
from kafkatap.dissector.layouts.overlay import lay_message_over, lay_over, read_definitions
from kafkatap.dissector.layouts.schema import REQUEST, RESPONSE, Versions
from kafkatap.dissector.layouts.vendors import vendor_names
from kafkatap.dissector.programs import kept_programs
from kafkatap.dissector.programs.compiler import compile_programs
from kafkatap.dissector.programs.kept_programs import SETS_KEPT
from kafkatap.dissector.programs.loading import load_programs, open_definitions
from kafkatap.dissector.programs.profiles import EVERYTHING
from kafkatap.kernels import store
from tests.support.messages import generate_message
from tests.support.newer import QUEUE_PEEK, newer_texts, write_definitions
from tests.support.notation_writer import render_message
from tests.support.reference import decode_message


@pytest.fixture(autouse=True)
def forget() -> Iterator[None]:
    yield
    catalog.forget_names()


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of kept programs."""
    (tmp_path / "kept").mkdir()
    monkeypatch.setattr(store, "made_ahead", lambda: None)
    monkeypatch.setattr(kept_programs, "_folder", lambda: tmp_path / "kept")
    return tmp_path / "kept"


def test_newer_versions_follow_on_the_built_in_ones(tmp_path: Path, kept: Path) -> None:
    definitions = open_definitions(write_definitions(tmp_path / "newer"))
    fetch = definitions.messages[1, REQUEST]
    assert (fetch.versions, fetch.flexible) == (Versions(0, 21), Versions(12, 21))
    names = {version: [f.name for f in fetch.body.fields if version in f.versions] for version in (0, 18, 19, 21)}
    assert names[0] == ["ReplicaId", "MaxWaitMs", "MinBytes", "Topics"]
    assert "SessionId" in names[18]
    assert (names[19], names[21]) == (["MaxWaitMs", "MinBytes", "Topics"], ["MaxWaitMs", "MinBytes", "Mood", "Topics"])
    assert load_programs("everything", definitions).known_versions[1] == ((0, 21),)


def test_names_of_new_apis_are_known_everywhere(tmp_path: Path, kept: Path) -> None:
    assert api_name(QUEUE_PEEK) == "API 100"
    for _ in ("compiled", "kept"):
        open_definitions(write_definitions(tmp_path / "newer"))
        assert api_name(QUEUE_PEEK) == "QueuePeek"
        assert list(api_names()) == sorted({*catalog.built_in_names(), QUEUE_PEEK, *vendor_names()})
        catalog.forget_names()
        assert api_name(QUEUE_PEEK) == "API 100"


def test_a_second_start_reads_no_definition(tmp_path: Path, kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_definitions(tmp_path / "newer")
    first = load_programs("results", open_definitions(folder))
    monkeypatch.setattr(overlay, "lay_over", None)
    again = load_programs("results", open_definitions(folder))
    assert again.code.tolist() == first.code.tolist()
    assert again.index.tolist() == first.index.tolist()
    assert again.names == {QUEUE_PEEK: "QueuePeek"}
    (folder / "QueuePeekRequest.json").write_text(newer_texts()["QueuePeekRequest.json"] + " ", encoding="utf-8")
    with pytest.raises(TypeError):
        open_definitions(folder)


def test_programs_of_few_folders_are_kept_beside_the_own_ones(tmp_path: Path, kept: Path) -> None:
    load_programs("summary")
    for number in range(SETS_KEPT + 2):
        folder = write_definitions(tmp_path / "newer")
        text = newer_texts()["QueuePeekRequest.json"].replace("QueuePeek", f"Peek{number}")
        (folder / "QueuePeekRequest.json").write_text(text, encoding="utf-8")
        open_definitions(folder)
    names = [path.name.split("-")[0] for path in kept.iterdir()]
    assert (names.count("programs"), names.count("definitions")) == (1, SETS_KEPT)


def test_kept_programs_know_their_fields(tmp_path: Path, kept: Path) -> None:
    folder = write_definitions(tmp_path / "newer")
    compiled, again = (load_programs("everything", open_definitions(folder)) for _ in range(2))
    assert again.table is None
    assert [info.path for info in again.fields] == [info.path for info in compiled.fields]


OLD = """\
api 1 Example

request 0-9 flexible 6+
  Gone string 0-3
  Kept []Inner 0+
    Was int8 0-5
    Stays string? 0+
  Changed int16 0+
  Moved int32 0+
  Tagged string 6+ tag 0
"""
NEW = """\
api 1 Renamed

request 4-11 flexible 6+
  Moved int32 4+
  Kept []Inner 4+
    Fresh uuid 10+
    Stays string? 4+
  Changed string 4+
  Tagged string 6+ tag 0
"""
BOTH = """\
request 0-11 flexible 6+
  Gone string 0-3
  Moved int32 4+
  Kept []Inner 0+
    Was int8 0-3
    Fresh uuid 10+
    Stays string? 0+
  ChangedV0 int16 0-3
  MovedV0 int32 0-3
  Changed string 4+
  Tagged string 6+ tag 0
"""


def test_layouts_are_put_together_field_by_field() -> None:
    (old,), (new,) = parse_api(OLD), parse_api(NEW)
    both = lay_message_over(old, new)
    assert render_message(both) == BOTH
    assert both.name == "Example"


def test_versions_above_those_of_an_older_folder_stay() -> None:
    text = "api 1 A\n\nrequest 0-9\n  X int32 0-3\n  Y string 2+\n"
    (old,), (new,) = parse_api(text), parse_api("api 1 A\n\nrequest 2-7\n  X int32 2-3\n  Y string 2+\n")
    assert lay_message_over(old, new) == old


def test_versions_behind_a_gap_stay() -> None:
    """A field of both spans the gap, in which there is no version."""
    (old,), (new,) = (
        parse_api("api 1 A\n\nrequest 0-3 flexible 2+\n  X int32 0+\n  Y int8 2+\n"),
        parse_api("api 1 A\n\nrequest 99 flexible 99\n  X int32 99\n  Z int8 99\n"),
    )
    both = lay_message_over(old, new)
    assert list(both.versions) == [0, 1, 2, 3, 99]
    assert [v for v in both.versions if v in both.flexible] == [2, 3, 99]
    assert 50 not in both.versions
    assert {v: [f.name for f in both.body.fields if v in f.versions] for v in both.versions} == {
        0: ["X"], 1: ["X"], 2: ["X", "Y"], 3: ["X", "Y"], 99: ["X", "Z"]
    }  # fmt: skip
    programs = compile_programs({(1, REQUEST): both}, EVERYTHING)
    assert programs.known_versions == {1: ((0, 3), (99, 99))}
    assert programs.find(1, 50, REQUEST) == -1


def assert_same_bytes(folder: Path) -> None:
    """Every version reads under the union as it does by the layout that stands for it."""
    built_in, own = load_messages(), read_definitions(folder).own[0]
    both = lay_over(built_in, own)
    assert both.keys() == built_in.keys() | own.keys()
    compile_programs(both, EVERYTHING)
    for key, message in both.items():
        for version in message.versions:
            source = own[key] if key in own and version in own[key].versions else built_in[key]
            for seed in range(2):
                data, value = generate_message(source, version, random.Random(seed))
                decoded = decode_message(message, version, data)
                assert (decoded.status, decoded.error) == (OK, ""), (message.name, version)
                assert plain(decoded.value) == plain(value), (message.name, version)


def plain(value: Any) -> list[str]:
    """What is in a value, whatever the names, which are those of the folder."""
    if isinstance(value, dict):
        value = list(value.values())
    return sorted(each for part in value for each in plain(part)) if isinstance(value, list) else [repr(value)]


def test_each_version_reads_by_the_layout_that_stands(tmp_path: Path) -> None:
    assert_same_bytes(write_definitions(tmp_path / "newer"))


@pytest.mark.parametrize("release", ["4.4.0", "4.3.0", "3.9-trunk"])
def test_kafkas_own_folders_read_by_the_layout_that_stands(corpus: Path, release: str) -> None:
    assert_same_bytes(corpus / "kafka-messages" / release)


def test_the_newest_release_adds_nothing(corpus: Path) -> None:
    both = lay_over(load_messages(), read_definitions(corpus / "kafka-messages" / "4.4.0").own[0])
    assert {key: m.versions for key, m in both.items()} == {key: m.versions for key, m in load_messages().items()}


# ---------------------------------------------------------------- what cannot be used


def changed(folder: Path, **entries: object) -> Path:
    """The definitions, with entries of QueuePeekRequest replaced."""
    path = write_definitions(folder) / "QueuePeekRequest.json"
    definition = json.loads(newer_texts()[path.name].partition("\n")[2].partition("  // and one")[0])
    path.write_text(json.dumps({**definition, **entries}), encoding="utf-8")
    return folder


LATER = {"name": "X", "type": "int8", "versions": "5+"}
EMPTY = {"name": "Nothing", "type": "[]Empty", "versions": "0+", "fields": [LATER]}
DEEP: dict[str, object] = {"name": "A", "type": "int8", "versions": "0+"}
for level in range(40):
    DEEP = {"name": "A", "type": f"[]A{level}", "versions": "0+", "fields": [DEEP]}


@pytest.mark.parametrize(
    ("entries", "reason"),
    [
        ({"apiKey": 32_768}, r"QueuePeekRequest\.json: 32768 is no apiKey \(0 to 32767\)"),
        ({"validVersions": "0+"}, r"QueuePeekRequest\.json: validVersions '0\+' needs an end below 32767"),
        ({"validVersions": "0-256"}, r"QueuePeekRequest\.json: validVersions '0-256' are more than 256"),
        ({"apiKey": "Fetch"}, r"QueuePeekRequest\.json: 'Fetch' is no apiKey"),
        ({"validVersions": "new"}, r"QueuePeekRequest\.json: 'new' is no range of versions"),
        ({"name": None}, r"QueuePeekRequest\.json: "),
        ({"fields": [{"name": "X", "type": "Y", "versions": "0+"}]}, r"QueuePeekRequest\.json: there is no 'Y'"),
        ({"fields": [{"name": "X", "type": "int8", "versions": "0+"}] * 2}, "two fields of one name"),
        ({"fields": [EMPTY], "flexibleVersions": "none"}, "QueuePeekRequest v0, Nothing: elements of no bytes"),
        ({"fields": [DEEP]}, r"QueuePeekRequest\.json: .*nested too deeply"),
    ],
)
def test_a_definition_that_cannot_be_used_is_named(
    tmp_path: Path, kept: Path, entries: dict[str, object], reason: str
) -> None:
    folder = changed(tmp_path / "newer", **entries)
    with pytest.raises(DefinitionError, match=reason) as told:
        open_definitions(folder)
    assert str(told.value).startswith(f"{folder}: ")
    assert "\n" not in str(told.value)
    assert not list(kept.iterdir())


def test_text_that_is_no_definition(tmp_path: Path, kept: Path) -> None:
    for content, reason in (
        (b"{", "line 1"),
        (b"\xff\xfe", "UTF-8"),
        (b"{}", "there is no 'type'"),
        (b"[" * 99_999, ""),
    ):
        (write_definitions(tmp_path / "newer") / "BadRequest.json").write_bytes(content)
        with pytest.raises(DefinitionError, match=rf"BadRequest\.json: .*{reason}"):
            open_definitions(tmp_path / "newer")


def test_folders_without_definitions(tmp_path: Path, kept: Path) -> None:
    with pytest.raises(FileNotFoundError):
        open_definitions(tmp_path / "missing")
    with pytest.raises(DefinitionError, match=r"no Kafka message definitions \(\*\.json\) in it"):
        open_definitions(kept)
    jar = tmp_path / "kafka-clients-9.9.jar"
    jar.touch()
    with pytest.raises(DefinitionError, match=f"did you mean {jar}"):
        open_definitions(tmp_path)
    (kept / "x.json").write_text('{"type": "data", "name": "X", "validVersions": "0"}')
    with pytest.raises(DefinitionError, match=r"x\.json: no request or response of Kafka"):
        open_definitions(kept)


def test_one_direction_alone_is_read(tmp_path: Path, kept: Path) -> None:
    folder = write_definitions(tmp_path / "newer")
    (folder / "QueuePeekResponse.json").unlink()
    programs = load_programs("summary", open_definitions(folder))
    assert programs.find(QUEUE_PEEK, 0, REQUEST) >= 0
    assert programs.find(QUEUE_PEEK, 0, RESPONSE) == -1


def test_texts_read_as_those_of_the_folder(tmp_path: Path) -> None:
    assert load_definitions(newer_texts()) == read_definitions(write_definitions(tmp_path / "newer")).own[0]
