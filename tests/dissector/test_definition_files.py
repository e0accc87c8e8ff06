"""Where definitions come from: folders, Kafka's source tree, archives, files, several of these, and hostile ones."""

from __future__ import annotations

import io
import json
import random
import struct
import time
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from kafkatap import analyze
from kafkatap.dissector.layouts import catalog
from kafkatap.dissector.layouts.definition_files import LONGEST, LONGEST_ALL, DefinitionError
from kafkatap.dissector.layouts.definitions import MOST_FIELDS, MOST_NESTED, MOST_PLACES, load_definitions
from kafkatap.dissector.programs import kept_programs
from kafkatap.dissector.programs.loading import load_programs, open_definitions
from kafkatap.kernels import store
from tests.support.newer import QUEUE_PEEK, newer_texts, write_definitions
from tests.support.vendor import APPEND, DEFINITIONS, METADATA, PING, vendor_texts, write_vendor_definitions

PING_REQUEST: dict[str, Any] = DEFINITIONS[0]


@pytest.fixture(autouse=True)
def forget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "kept").mkdir()
    monkeypatch.setattr(store, "made_ahead", lambda: None)
    monkeypatch.setattr(kept_programs, "_folder", lambda: tmp_path / "kept")
    yield
    catalog.forget_names()


def archive(path: Path, texts: dict[str, str | bytes], compression: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", compression) as file:
        for name, text in texts.items():
            file.writestr(name, text)
    return path


def names_of(*paths: Path) -> dict[int, str]:
    return dict(open_definitions(*paths).names)


VENDOR = {PING: "VendorPing", APPEND: "VendorAppend"}


def test_a_source_tree(tmp_path: Path) -> None:
    """Modules with messages, and all that lies around them."""
    tree = tmp_path / "kafka"
    write_vendor_definitions(tree / "clients/src/main/resources/common/message")
    write_definitions_of_tests = write_vendor_definitions(tree / "clients/src/test/resources/common/message")
    (write_definitions_of_tests / "VendorPingRequest.json").write_text("{}")
    write_vendor_definitions(tree / "clients/build/resources/main/common/message")
    for module in ("metadata", "group-coordinator", "raft"):
        folder = tree / module / "src/main/resources/common/message"
        folder.mkdir(parents=True)
        record = {"apiKey": 1, "type": "metadata", "name": "Some", "validVersions": "0", "fields": []}
        (folder / "SomeRecord.json").write_text(f"// One\n{json.dumps(record)}")
        data = {"type": "coordinator-key", "name": "Key", "validVersions": "0", "fields": []}
        (folder / "Key.json").write_text(json.dumps(data))
    (tree / "package.json").write_text('{"type": "module"}')
    (tree / "damaged.json").write_text("{")
    (tree / "link").symlink_to(tree)
    (tree / "gone.json").symlink_to(tree / "nowhere")
    assert names_of(tree) == VENDOR


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_an_archive(tmp_path: Path, compression: int) -> None:
    texts: dict[str, str | bytes] = {f"common/message/{name}": text for name, text in vendor_texts().items()}
    texts |= {"org/apache/Fetch.class": b"\xca\xfe\xba\xbe", "META-INF/maven/x.json": "[]", "common/message/": ""}
    jar = archive(tmp_path / "kafka-clients-9.9.jar", texts, compression)
    assert names_of(jar) == VENDOR
    assert open_definitions(jar).messages == open_definitions(write_vendor_definitions(tmp_path / "folder")).messages


def test_an_archive_with_classes_alone(tmp_path: Path) -> None:
    jar = archive(tmp_path / "shaded.jar", {"org/apache/kafka/Fetch.class": b"\xca\xfe"})
    with pytest.raises(DefinitionError) as told:
        open_definitions(jar)
    assert str(told.value) == (
        f"{jar}: no Kafka message definitions (*.json) in it; Kafka's sources have them in "
        "clients/src/main/resources/common/message, kafka-clients jars in common/message"
    )


def test_a_file_and_the_other_direction_beside_it(tmp_path: Path) -> None:
    folder = write_vendor_definitions(tmp_path / "folder")
    for name in ("VendorPingRequest.json", "VendorPingResponse.json"):
        found = open_definitions(folder / name)
        assert [sorted(own) for own in found.own] == [[(PING, 0), (PING, 1)]]
    (folder / "VendorPingRequest.json").rename(folder / "ping.json")
    assert [sorted(own) for own in open_definitions(folder / "ping.json").own] == [[(PING, 0)]]


def test_several_sources(tmp_path: Path) -> None:
    """Versions add up. Of a version that two have, the last one's layout counts."""
    newer, vendor = write_definitions(tmp_path / "newer"), write_vendor_definitions(tmp_path / "vendor")
    both = open_definitions(newer, vendor)
    assert both.names == {QUEUE_PEEK: "QueuePeek", **VENDOR}
    assert both.messages == open_definitions(vendor, newer).messages
    assert load_programs("everything", both).known_versions[1] == ((0, 21),)
    assert both.defining(PING, 1) == str(vendor)
    assert both.defining(1, 20) == str(newer)
    assert both.defining(1, 4) is None
    other = tmp_path / "other"
    other.mkdir()
    changed = {**PING_REQUEST, "name": "PongRequest", "validVersions": "1-2",
               "fields": [{"name": "Text", "type": "string", "versions": "0+"}]}  # fmt: skip
    (other / "PongRequest.json").write_text(json.dumps(changed))
    last = open_definitions(vendor, other)
    assert (last.names[PING], last.messages[PING, 0].versions.low, last.messages[PING, 0].versions.high) == (
        "Pong",
        0,
        2,
    )
    assert [f.name for f in last.messages[PING, 0].body.fields if 1 in f.versions] == ["Text"]
    assert [f.name for f in last.messages[PING, 0].body.fields if 0 in f.versions] == ["GroupId", "Payload"]
    first = open_definitions(other, vendor)
    assert [f.name for f in first.messages[PING, 0].body.fields if 1 in f.versions] == ["GroupId", "Payload"]
    assert len({last.digest, first.digest, both.digest}) == 3


def test_one_source_with_two_layouts_of_a_message(tmp_path: Path) -> None:
    folder = tmp_path / "two"
    write_vendor_definitions(folder / "a")
    write_vendor_definitions(folder / "b")
    assert names_of(folder) == VENDOR
    (folder / "b/VendorPingRequest.json").write_text(json.dumps({**PING_REQUEST, "fields": []}))
    with pytest.raises(
        DefinitionError, match=r"a/VendorPingRequest\.json and b/VendorPingRequest\.json define key 10001"
    ):
        open_definitions(folder)


def test_the_library_takes_one_or_several(tmp_path: Path) -> None:
    vendor, newer = write_vendor_definitions(tmp_path / "vendor"), write_definitions(tmp_path / "newer")
    capture = tmp_path / "empty.pcap"
    capture.write_bytes(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65_535, 1))
    analyze(capture, definitions=str(vendor))
    assert catalog.key_of("VendorPing") == PING
    catalog.forget_names()
    analyze(capture, definitions=[vendor, newer])
    assert (catalog.key_of("vendor-append"), catalog.key_of("QueuePeek")) == (APPEND, QUEUE_PEEK)


def test_a_name_that_another_api_has(tmp_path: Path) -> None:
    """Kafka's own names stay. The other API is called by its key."""
    folder = tmp_path / "names"
    folder.mkdir()
    (folder / "FetchRequest.json").write_text(json.dumps({**PING_REQUEST, "name": "FetchRequest"}))
    open_definitions(folder)
    assert (catalog.key_of("Fetch"), catalog.api_name(PING), catalog.key_of("API 10001")) == (1, "API 10001", PING)


def test_versions_of_a_vendor_stand_beside_kafkas(tmp_path: Path) -> None:
    definitions = open_definitions(write_vendor_definitions(tmp_path / "vendor"))
    programs, kafkas = load_programs("everything", definitions), load_programs("everything")
    assert programs.known_versions[METADATA] == (*kafkas.known_versions[METADATA], (99, 99))
    assert programs.find(METADATA, 12, 1) >= 0
    assert programs.find(METADATA, 50, 1) == -1


# ---------------------------------------------------------------- hostile ones


def refused(path: Path, reason: str) -> None:
    """An error in one line, and soon."""
    begun = time.process_time()
    with pytest.raises(DefinitionError, match=reason) as told:
        open_definitions(path)
    assert time.process_time() - begun < 2
    assert len(str(told.value)) < 1_000
    assert "\n" not in str(told.value)


def nested(depth: int) -> list[dict[str, Any]]:
    fields: list[dict[str, Any]] = [{"name": "X", "type": "int8", "versions": "0+"}]
    for level in range(depth):
        fields = [{"name": "A", "type": f"A{level}", "versions": "0+", "fields": fields}]
    return fields


def doubling(levels: int) -> dict[str, Any]:
    """Each struct has two of the next one."""
    structs = [
        {"name": f"S{level}", "fields": [
            {"name": name, "type": f"S{level + 1}" if level < levels else "int8", "versions": "0+"} for name in "AB"
        ]}
        for level in range(levels + 1)
    ]  # fmt: skip
    return {"commonStructs": structs, "fields": [{"name": "X", "type": "S0", "versions": "0+"}]}


X = {"name": "X", "type": "int8", "versions": "0+"}


@pytest.mark.parametrize(
    ("entries", "reason"),
    [
        (doubling(30), f"more than {MOST_FIELDS:,} fields"),
        ({"fields": nested(MOST_NESTED + 1)}, "nested too deeply"),
        ({"fields": nested(240)}, "nested too deeply"),
        ({"validVersions": "0-255", "fields": [{**X, "name": f"X{n}"} for n in range(1_000)]}, "more fields and"),
        ({"validVersions": "0-99999999999999999999"}, "needs an end"),
        ({"validVersions": "9" * 5_000}, ""),
        ({"validVersions": ["0"]}, ""),
        ({"apiKey": -1}, "-1 is no apiKey"),
        ({"apiKey": True}, "True is no apiKey"),
        ({"apiKey": 1e5}, "is no apiKey"),
        ({"name": "\x1b[31m"}, "is no name"),
        ({"name": 7}, ""),
        ({"fields": [{**X, "name": "a b"}]}, "'a b' is no name"),
        ({"fields": [{**X, "type": 4}]}, ""),
        ({"fields": {"name": "X"}}, ""),
        ({"fields": 4}, ""),
        ({"fields": [{**X, "tag": 2**40, "taggedVersions": "0+"}], "flexibleVersions": "0+"}, "is no tag"),
        ({"fields": [{**X, "tag": float("inf"), "taggedVersions": "0+"}], "flexibleVersions": "0+"}, ""),
        ({"fields": [{**X, "name": n, "tag": 1, "taggedVersions": "0+"} for n in "AB"]}, "one tag"),
        ({"commonStructs": [{"name": "S", "fields": [{**X, "type": "S"}]}], "fields": [{**X, "type": "S"}]}, "itself"),
    ],
)  # fmt: skip
def test_hostile_definitions(tmp_path: Path, entries: dict[str, Any], reason: str) -> None:
    folder = tmp_path / "hostile"
    folder.mkdir()
    (folder / "VendorPingRequest.json").write_text(json.dumps({**PING_REQUEST, **entries}))
    refused(folder, rf"VendorPingRequest\.json: .*{reason}")


@pytest.mark.parametrize("text", ['"\\"' * 300_000, "/*" * 400_000, '"' * 999_999, "[" * 900_000, '{"a":' * 150_000])
def test_texts_that_make_parsers_slow(tmp_path: Path, text: str) -> None:
    path = tmp_path / "XRequest.json"
    path.write_text(text)
    refused(path, r"XRequest\.json: ")


def test_files_too_large(tmp_path: Path) -> None:
    path = tmp_path / "XRequest.json"
    path.write_bytes(b" " * (LONGEST + 1))
    refused(path, "longer than 1 MiB")
    refused(tmp_path, r"XRequest\.json: longer than 1 MiB")


def test_more_messages_than_any_kafka_has(tmp_path: Path) -> None:
    one = {**PING_REQUEST, "validVersions": "0-199", "flexibleVersions": "none",
           "fields": [{**X, "name": f"X{n}"} for n in range(20)]}  # fmt: skip
    count = MOST_PLACES // (21 * 200) + 1
    for n in range(count):
        (tmp_path / f"M{n}Request.json").write_text(json.dumps({**one, "apiKey": n + 1_000, "name": f"M{n}Request"}))
    refused(tmp_path, "more fields and versions")


def test_archives_that_are_bombs(tmp_path: Path) -> None:
    jar = archive(tmp_path / "large.jar", {"XRequest.json": b" " * (64 << 20)})
    refused(jar, r"XRequest\.json: longer than 1 MiB")
    part = b'{"validVersions": 1}' + b" " * (LONGEST - 20)
    many = archive(tmp_path / "many.jar", {f"{n}.json": part for n in range((LONGEST_ALL >> 20) + 1)})
    refused(many, "more than 32 MiB of definitions")
    whole = many.read_bytes()
    at = whole.rfind(b"PK\5\6")
    long = tmp_path / "long.jar"
    long.write_bytes(whole[: at + 12] + struct.pack("<I", 1 << 30) + whole[at + 16 :])
    refused(long, "too many files")
    twice = archive(tmp_path / "twice.jar", {"XRequest.json": "{}"})
    with pytest.warns(UserWarning, match="Duplicate"), zipfile.ZipFile(twice, "a") as file:
        file.writestr("XRequest.json", "{}")
    refused(twice, "is twice in it")


def test_damaged_archives(tmp_path: Path) -> None:
    """Whatever is changed in one, it is read or refused as damaged."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as file:
        for name, text in vendor_texts().items():
            file.writestr(name, text)
    whole, chance = buffer.getvalue(), random.Random(7)
    path = tmp_path / "damaged.jar"
    for _ in range(150):
        damaged = bytearray(whole)
        for _ in range(chance.randint(1, 4)):
            damaged[chance.randrange(4, len(damaged))] = chance.choice((0, 1, 0x7F, 0xFF, chance.randrange(256)))
        path.write_bytes(damaged[: chance.choice((len(damaged), chance.randrange(5, len(damaged))))])
        with suppress(DefinitionError):
            open_definitions(path)


def test_mutated_definitions() -> None:
    """Definitions with changed values are read, or refused with a reason."""
    chance = random.Random(11)
    values: list[Any] = [
        None, True, -1, 0, 2**31, 1e400, "", "0+", "3-1", "none", "int32", "[]int8", "[]Pong", [], {}, "\0", "9" * 99
    ]  # fmt: skip

    def mutate(value: Any) -> Any:
        if isinstance(value, dict):
            return {
                key: mutate(inner) if chance.random() < 0.9 else chance.choice(values) for key, inner in value.items()
            }
        if isinstance(value, list):
            return [mutate(inner) for inner in value] * chance.choice((1, 1, 1, 2))
        return value if chance.random() < 0.95 else chance.choice(values)

    texts = {**newer_texts(), **vendor_texts()}
    originals = [
        json.loads("".join(text.split("\n")[1:]).partition("//")[0].partition("/*")[0]) for text in texts.values()
    ]
    for _ in range(400):
        mutated = {f"{n}.json": json.dumps(mutate(each)) for n, each in enumerate(originals)}
        with suppress(DefinitionError):
            load_definitions(mutated)
