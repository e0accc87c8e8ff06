"""Messages by Kafka's own classes: random ones, and what these classes read in a frame (java/KafkaMessages.java).

`random_messages` and `read_frames` run Java with the jars of a release of kafka-clients, which Maven fetches the first
time. `capture_of` turns messages into a capture. `differences` compares a body of `kafkatap show --json` with Kafka's.
"""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from kafkatap.dissector.layouts.schema import REQUEST, RESPONSE

from .broker import BrokerError, fetch_client_jars
from .captures import pcap_bytes
from .tcp import START_NS, TcpConversation, encode, frame

PROGRAM = Path(__file__).parent / "java" / "KafkaMessages.java"
SASL_HANDSHAKE = 17
#: Keys of `kafkatap show --json` that no field has.
_NAME, _UNKNOWN = "_name", "_unknown_tags"

#: A line of the program: key, version, direction, hex, body and more.
Line = dict[str, Any]


def random_messages(release: str, seed: int, count: int, pairs: Iterable[tuple[int, int]] = ()) -> list[Line]:
    """`count` random requests and responses of each (key, version) that a release has, or of `pairs`.

    A request and its response follow each other and have one correlation id.
    """
    named = [f"{key}:{version}" for key, version in pairs]
    return list(_run(release, ["random", str(seed), str(count), *named], ""))


def read_frames(release: str, frames: Sequence[tuple[int, int, int, bytes]]) -> list[Line]:
    """What a release reads in frames: (key, version, direction, frame without its size)."""
    lines = [
        f"request {data.hex()}" if direction == REQUEST else f"response {key} {version} {data.hex()}"
        for key, version, direction, data in frames
    ]
    return list(_run(release, ["read"], "\n".join(lines)))


def _run(release: str, arguments: list[str], given: str) -> Iterator[Line]:
    jars = fetch_client_jars(release)
    command = ["java", "-Xmx512m", "-XX:+UseSerialGC", "-cp", f"{jars}/*", str(PROGRAM), *arguments]
    done = subprocess.run(command, input=given, capture_output=True, encoding="utf-8", timeout=300, check=False)
    if done.returncode:
        raise BrokerError(f"{PROGRAM.name} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    for line in done.stdout.splitlines():
        yield json.loads(line)


def capture_of(lines: Sequence[Line]) -> bytes:
    """A capture with a connection for each (key, version). A SaslHandshake has one of its own: tokens may follow it."""
    talks: dict[tuple[int, ...], TcpConversation] = {}
    for number, line in enumerate(lines):
        key = line["key"], line["version"]
        where = (*key, number // 2) if line["key"] == SASL_HANDSHAKE else key
        if where not in talks:
            at = len(talks)
            start = START_NS + at * 1_000_000_000
            talks[where] = TcpConversation(("10.0.0.1", 20_000 + at), ("10.0.0.2", 9092), time_ns=start, mss=8192)
            talks[where].open()
        data = frame(bytes.fromhex(line["hex"]))
        talks[where].send(RESPONSE if line["direction"] == "response" else REQUEST, data)
    for talk in talks.values():
        talk.close()
    return pcap_bytes(encode([segment for talk in talks.values() for segment in talk.segments]))


def error_codes(body: Any) -> list[int]:
    """All error codes of a body as Kafka's converters write it."""
    if isinstance(body, list):
        return [code for item in body for code in error_codes(item)]
    if not isinstance(body, dict):
        return []
    found: list[Any] = []
    for name, value in body.items():
        found += [value] if name.lower().endswith("errorcode") else error_codes(value)
    return found


def differences(line: Line, ours: Any) -> list[str]:
    """The differences between a body of `kafkatap show --json --records --show-secrets` and Kafka's, by path."""
    return list(_structs(line, line["body"], ours, ""))


def _structs(line: Line, theirs: Any, ours: Any, path: str) -> Iterator[str]:
    if not isinstance(ours, dict):
        yield f"{path}: {ours!r} is no struct"
        return
    mine = {name.lower(): name for name in ours if not name.endswith(_NAME) and name != _UNKNOWN}
    for name, wanted in theirs.items():
        place = f"{path}.{name}"
        if name.lower() in mine:
            yield from _values(line, wanted, ours[mine.pop(name.lower())], place)
        else:
            yield f"{place}: missing"
    for name in mine.values():
        yield f"{path}.{name}: Kafka does not have it"
    tags = [(tag["tag"], tag["base64"]) for tag in ours.get(_UNKNOWN, ())]
    wanted_tags = [(tag["tag"], tag["base64"]) for tag in line["tags"].get(path, ())]
    if tags != wanted_tags:
        yield f"{path}: unknown tags {tags!r}, not {wanted_tags!r}"


def _values(line: Line, wanted: Any, value: Any, path: str) -> Iterator[str]:
    records = line["records"].get(path)
    if records is not None:
        if (found := _records(value)) != records:
            yield f"{path}: {found!r:.300}, not {records!r:.300}"
    elif isinstance(wanted, list) and isinstance(value, list):
        if len(wanted) != len(value):
            yield f"{path}: {len(value)} elements, not {len(wanted)}"
        for number, (theirs, mine) in enumerate(zip(wanted, value, strict=False)):
            yield from _values(line, theirs, mine, f"{path}.{number}")
    elif isinstance(wanted, dict):
        yield from _structs(line, wanted, value, path)
    elif isinstance(value, dict) and "base64" in value:
        if value["base64"] != wanted:
            yield f"{path}: {value!r:.200}, not {wanted!r:.200}"
    elif isinstance(value, dict) and isinstance(wanted, str):
        yield from _nested(line, value, path)  # decoded bytes
    elif type(value) is not type(wanted) or value != wanted:
        yield f"{path}: {value!r:.200}, not {wanted!r:.200}"


def _nested(line: Line, value: dict[str, Any], path: str) -> Iterator[str]:
    """The differences in what is nested in bytes, where the program put it there; other bytes may happen to fit."""
    if path.endswith("Data") and "inner" in line:
        inner = line["inner"]
        header = {"key": value["Header"].get("ApiKey"), "version": value["Header"].get("ApiVersion")}
        if inner["direction"] == "request" and header != {"key": inner["key"], "version": inner["version"]}:
            yield f"{path}: {header!r} is not the message inside"
        for text in differences(inner, value.get("Body")):
            yield f"{path}{text}"
    elif path.endswith("Principal") and "principal" in line:
        mine = {name: inner for name, inner in value.items() if name != "Version"}
        yield from _structs({"tags": {}, "records": {}}, line["principal"], mine, path)


def _records(value: Any) -> Any:
    """Records of `kafkatap show` in the form of the program."""
    if not isinstance(value, dict) or "batches" not in value:
        return value
    batches = [[_record(record) for record in batch["Records"]] for batch in value["batches"]]
    return {"size": value["size"], "batches": batches}


def _record(record: dict[str, Any]) -> dict[str, Any]:
    headers = [{"key": header["Key"], "value": _base64(header["Value"])} for header in record.get("Headers", ())]
    return {
        "offset": record["Offset"], "timestamp": record.get("Timestamp", -1), "key": _base64(record["Key"]),
        "value": _base64(record["Value"]), "headers": headers,
    }  # fmt: skip


def _base64(value: Any) -> str | None:
    """Bytes that are shown as text, if they are text, else as base64."""
    if isinstance(value, str):
        return base64.b64encode(value.encode()).decode()
    return None if value is None else str(value["base64"])
