"""`kafkatap apis`: what is known, version by version and by release."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kafkatap.commands.apis.command import Api, known_apis, ranges, schema
from kafkatap.dissector.kafka.releases import RELEASES
from kafkatap.dissector.layouts.catalog import built_in_names, forget_names, load_api
from kafkatap.dissector.layouts.history import changes_in
from kafkatap.dissector.programs.loading import open_definitions
from tests.support.messages import Taste, generate_message
from tests.support.newer import write_definitions
from tests.support.reference import decode_message

from .running import ROOT, kafkatap, on_terminal


def one(name: str, *arguments: str) -> Any:
    done = kafkatap("apis", name, "--json", *arguments)
    assert done.code == 0, done.err
    (api,) = json.loads(done.out)["apis"]
    return api


def rows_of(out: str) -> dict[str, list[str]]:
    """The rows of the list by API name."""
    rows = (line.split() for line in out.splitlines() if line[:3].strip().isdigit() and line[3] == " " != line[5])
    return {row[1]: [row[0], *row[2:]] for row in rows}


def test_the_list() -> None:
    done = kafkatap("apis")
    assert (done.code, done.err) == (0, "")
    rows = rows_of(done.out)
    assert [int(row[0]) for row in rows.values()] == list(built_in_names())
    assert rows["Fetch"] == ["1", "0-18", "12+", "0.8.2", "0-3", "v18", "4.1"]
    assert rows["StopReplica"] == ["5", "0-4", "2+", "0.8.2", "all", "(0-4)", "v4", "3.4"]
    assert rows["SaslHandshake"] == ["17", "0-1", "-", "0.10.0", "-", "v1", "1.0"]
    assert rows["InitProducerId"][-2:] == ["v5", "3.8"]  # 6 is in no release as a stable version
    pairs = sum(len(list(request.versions)) for request, _ in map(load_api, built_in_names()))
    assert f"Kafka's APIs, 0.8.2 to {RELEASES[-1]}" in done.out
    assert f"{len(rows)} APIs, {pairs} versions." in done.out
    assert max(map(len, done.out.splitlines())) <= 120


def test_it_fits_a_terminal() -> None:
    code, shown = on_terminal("apis", "--color", "never", columns=80)
    assert code == 0
    assert max(map(len, shown.splitlines())) <= 80
    assert rows_of(shown)["Fetch"][:2] == ["1", "0-18"]
    code, shown = on_terminal("apis", "Fetch", "OffsetFetch", "--color", "never", columns=60)
    assert code == 0
    assert max(map(len, shown.splitlines())) <= 60


def test_one_api_version_by_version() -> None:
    lines = kafkatap("apis", "fetch").out.splitlines()
    assert lines[0] == "Fetch: API key 1, versions 0-18, flexible from v12"
    at = lines.index(" v12  since Kafka 2.7, flexible from here on")
    assert lines[at + 1] == "      request   +ClusterId string? (tag 0)  +Topics.Partitions.LastFetchedEpoch int32"
    at = lines.index(" v13  since Kafka 3.1")
    assert lines[at + 2] == "      response  +Responses.TopicId uuid  -Responses.Topic"
    assert "  v2  since Kafka 0.10.0, removed in 4.0, same fields" in lines
    assert "      response  +NodeEndpoints []{NodeId int32, Host string, Port int32, Rack string?} (tag 0)" in lines


def test_several_apis_by_name_and_key() -> None:
    lines = kafkatap("apis", "60", "Api_Versions").out.splitlines()
    assert [line.partition(":")[0] for line in lines if ": API key" in line] == ["ApiVersions", "DescribeCluster"]


def test_what_a_release_speaks() -> None:
    rows = rows_of(kafkatap("apis", "--release", "4.0").out)
    assert "StopReplica" not in rows
    assert rows["Fetch"][1] == "4-17"
    assert rows["Produce"][1] == "3-12"
    assert rows_of(kafkatap("apis", "--release", "0.9.0").out)["Fetch"][1] == "0-1"
    lines = kafkatap("apis", "Fetch", "--release", "4.0").out.splitlines()
    assert lines[0] == "Fetch: API key 1, versions 4-17 in Kafka 4.0, flexible from v12"
    assert lines[2].startswith("      request   +IsolationLevel")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("Fetsh",), "no API is called 'Fetsh'; did you mean Fetch?"),
        (("777", "778"), "no API with key 777, 778 is known"),
        (("StopReplica", "--release", "4.0"), "no API with key 5 is in Kafka 4.0"),
        (("--release", "5"), "argument --release: unknown Kafka release '5'; known are 0.8.2, 0.9.0, "),
    ],
)
def test_wrong_calls(arguments: tuple[str, ...], reason: str) -> None:
    done = kafkatap("apis", *arguments)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"kafkatap: {reason}")
    assert done.err.removesuffix("kafkatap apis --help lists all options\n").count("\n") == 1


def test_json() -> None:
    done = kafkatap("apis", "--json", "--release", "3.9")
    whole = json.loads(done.out)
    assert (done.code, whole["schema_version"], whole["release"]) == (0, 1, "3.9")
    apis = {api["name"]: api for api in whole["apis"]}
    produce = apis["Produce"]
    assert (produce["key"], produce["flexible_from"], produce["since"]) == (0, 9, "0.8.2")
    assert (produce["newest_version"], produce["newest_since"]) == (11, "3.8")
    v3 = produce["versions"][3]
    assert (v3["version"], v3["since"], v3["removed_in"], v3["flexible"]) == (3, "0.11.0", None, False)
    assert v3["request"] == {
        "added": [{"path": "TransactionalId", "type": "string?", "tag": None}], "removed": [], "changed": [],
    }  # fmt: skip
    assert one("CreateTopics")["versions"][0]["removed_in"] == "4.0"


def test_the_schema_is_the_one_in_docs() -> None:
    assert json.loads((ROOT / "docs" / "apis.schema.json").read_text()) == schema()


def test_json_is_as_its_schema_says() -> None:
    whole = json.loads(kafkatap("apis", "--json").out)
    check(whole, schema(), "")


def check(value: Any, wanted: dict[str, Any], at: str) -> None:
    """What of JSON Schema docs/apis.schema.json uses."""
    kinds = {"object": dict, "array": list, "string": str, "integer": int, "boolean": bool, "null": type(None)}
    allowed = wanted.get("type", [])
    allowed = allowed if isinstance(allowed, list) else [allowed]
    assert not allowed or type(value) in {kinds[name] for name in allowed}, at
    assert "const" not in wanted or value == wanted["const"], at
    if isinstance(value, dict):
        assert value.keys() == set(wanted["required"]) == wanted["properties"].keys(), at
        for name, inner in value.items():
            check(inner, wanted["properties"][name], f"{at}.{name}")
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            check(inner, wanted["items"], f"{at}[{number}]")


def test_definitions_add_versions_and_apis(tmp_path: Path) -> None:
    folder = str(write_definitions(tmp_path / "newer"))
    rows = rows_of(kafkatap("apis", "--definitions", folder).out)
    assert rows["Fetch"] == ["1", "0-21", "12+", "0.8.2", "0-3", "v18", "4.1"]
    assert rows["QueuePeek"] == ["100", "0-1", "0+", "-", "-", "-", "-"]
    lines = kafkatap("apis", "QueuePeek", "--definitions", folder).out.splitlines()
    assert lines[:2] == [
        "QueuePeek: API key 100, versions 0-1, flexible from v0",
        f"  v0  defined by {folder}; in no release of Apache Kafka up to {RELEASES[-1]}, flexible from here on",
    ]
    added = one("Fetch", "--definitions", folder)["versions"][20]["request"]["added"]
    assert added == [{"path": "Mood", "type": "string", "tag": None}]
    (tmp_path / "newer" / "QueuePeekResponse.json").unlink()
    versions = one("QueuePeek", "--definitions", folder)["versions"]
    assert [v["response"] for v in versions] == [None, None]


# ---------------------------------------------------------------- the library


def test_rows_of_the_library(tmp_path: Path) -> None:
    fetch, metadata = known_apis([1, 3])
    assert isinstance(fetch, Api)
    assert (fetch.key, fetch.name, len(fetch.versions), metadata.flexible_from) == (1, "Fetch", 19, 9)
    definitions = open_definitions(write_definitions(tmp_path / "newer"))
    assert [api.name for api in known_apis(definitions=definitions)][-1] == "QueuePeek"
    forget_names()
    with pytest.raises(KeyError):
        known_apis(release="5.0")


def test_every_version_of_a_release_is_told() -> None:
    spoken = {(api.key, v.version) for release in RELEASES for api in known_apis(release=release) for v in api.versions}
    assert spoken == {(api.key, v.version) for api in known_apis() for v in api.versions if v.since}


def test_changes_are_those_on_the_wire() -> None:
    """What a message of a version holds is what all versions before it added, less what they took."""
    for key in (0, 1, 3, 8, 9, 11, 19, 32, 68):
        for message in load_api(key):
            known: set[str] = set()
            for version in message.versions:
                changes = changes_in(message, version)
                assert not known & changes.added.keys()
                assert set(changes.removed) | changes.changed.keys() <= known
                known = (known | changes.added.keys()) - set(changes.removed)
                data, _ = generate_message(message, version, version, Taste(nulls=False, unknown_tags=False))
                assert set(paths(decode_message(message, version, data).value)) <= known


def paths(value: dict[str, Any], prefix: str = "") -> list[str]:
    found = []
    for name, inner in value.items():
        found.append(prefix + name)
        for each in inner if isinstance(inner, list) else [inner]:
            found += paths(each, f"{prefix}{name}.") if isinstance(each, dict) else []
    return found


def test_ranges() -> None:
    assert [ranges(v) for v in ([], [3], [0, 1, 2, 5, 7, 8])] == ["", "3", "0-2, 5, 7-8"]


def field_of(api: Any, direction: str, path: str) -> Any:
    (found,) = [f for f in api["fields"] if (f["direction"], f["path"]) == (direction, path)]
    return {name: value for name, value in found.items() if name not in ("direction", "path")}


def test_what_a_definition_says_of_a_field() -> None:
    api = one("Fetch")
    assert field_of(api, "request", "RackId") == {
        "type": "string", "versions": "11-18", "nullable_versions": None, "flexible_versions": "12-18", "tag": None,
        "tagged_versions": None, "default": '""', "ignorable": True, "map_key": False, "entity_type": None,
        "about": None,
    }  # fmt: skip
    leader = field_of(api, "response", "Responses.Partitions.CurrentLeader.LeaderId")
    assert (leader["default"], leader["entity_type"], leader["versions"]) == ("-1", "brokerId", "12-18")
    cluster = field_of(api, "request", "ClusterId")
    assert (cluster["nullable_versions"], cluster["tag"], cluster["tagged_versions"]) == ("12-18", 0, "12-18")
    assert field_of(one("Metadata"), "response", "Brokers.NodeId")["map_key"]
    lines = kafkatap("apis", "fetch", COLUMNS="200").out.splitlines()
    (row,) = [line.split() for line in lines if " ForgottenTopicsData.Topic " in line]
    assert row[:5] == ["request", "ForgottenTopicsData.Topic", "string", "7-12", "-"]
    assert "topicName" in row


def test_only_fields_of_a_release() -> None:
    paths = [f["path"] for f in one("Fetch", "--release", "2.0")["fields"]]
    assert "SessionId" in paths
    assert not {"RackId", "ClusterId", "Topics.TopicId"} & set(paths)


def test_definitions_of_the_user_have_their_about(tmp_path: Path) -> None:
    fields = [
        {"name": "Codes", "type": "[]int16", "versions": "0+", "nullableVersions": "1+", "default": "null",
         "ignorable": True, "about": "The \x1b[31mcodes."},
        {"name": "Ids", "type": "[]string", "versions": "0+", "entityType": "groupId", "flexibleVersions": "none"},
    ]  # fmt: skip
    definition = {
        "apiKey": 9_999, "type": "request", "name": "OddRequest", "validVersions": "0-2", "flexibleVersions": "1+",
        "fields": fields,
    }  # fmt: skip
    (tmp_path / "OddRequest.json").write_text(json.dumps(definition))
    api = one("9999", "--definitions", str(tmp_path))
    codes, ids = field_of(api, "request", "Codes"), field_of(api, "request", "Ids")
    assert (codes["default"], codes["ignorable"], codes["nullable_versions"]) == ("null", True, "1-2")
    assert (codes["about"], codes["flexible_versions"]) == ("The \x1b[31mcodes.", "1-2")
    assert (ids["entity_type"], ids["flexible_versions"], ids["about"]) == ("groupId", None, None)
    shown = kafkatap("apis", "9999", "--definitions", str(tmp_path), COLUMNS="200").out
    assert "\x1b" not in shown
    assert "[31mcodes." in shown
