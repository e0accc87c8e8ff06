"""Random messages by the classes of kafka-clients: kafkatap shows and counts what they hold, field by field.

Kafka 4.4's classes have 309 (key, version) pairs. With --long there are five messages of each instead of one, and the
other pairs come from the classes of 3.9.
"""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

from kafkatap import analyze
from kafkatap.dissector.layouts.schema import REQUEST, RESPONSE
from tests.dissector.machine_support import ALL
from tests.dissector.test_view import OPEN
from tests.dissector.view_support import fields_of, find
from tests.support.broker import NEWEST_KAFKA, missing_compiler
from tests.support.kafka_clients import Line, capture_of, differences, error_codes, random_messages
from tests.support.reference import UNKNOWN_TAGS

OLDER_KAFKA = "3.9.1"
PAIRS = {(message.api_key, version) for message, version in ALL}
DIRECTIONS = {"request": REQUEST, "response": RESPONSE}
#: A throttle time that is null in tables.
NO_TIME = -(2**31)


@pytest.fixture(autouse=True)
def java() -> None:
    if why := missing_compiler():
        pytest.skip(why)


def pairs_of(lines: list[Line]) -> set[tuple[int, int]]:
    return {(line["key"], line["version"]) for line in lines}


def test_messages_of_the_newest_release(tmp_path: Path) -> None:
    lines = random_messages(NEWEST_KAFKA, 44, 1)
    assert len(pairs_of(lines)) == 309
    check(lines, tmp_path)


@pytest.mark.long
def test_messages_of_every_version(tmp_path: Path) -> None:
    lines = random_messages(NEWEST_KAFKA, 45, 5)
    lines += random_messages(OLDER_KAFKA, 39, 5, sorted(PAIRS - pairs_of(lines)))
    assert pairs_of(lines) == PAIRS
    check(lines, tmp_path)
    check_trees(lines)


def check(lines: list[Line], folder: Path) -> None:
    """`show` and the tables have what Kafka's classes read."""
    assert not [line["error"] for line in lines if "error" in line]
    assert not any(line["left"] for line in lines)
    per_pair = Counter(identity(line) for line in lines)
    assert len(set(per_pair.values())) == 1
    path = folder / "random.pcap"
    path.write_bytes(capture_of(lines))
    check_fields(lines, path)
    check_tables(lines, path)


def check_fields(lines: list[Line], capture: Path) -> None:
    """`show` prints every field."""
    command = [sys.executable, "-m", "kafkatap", "show", "--json", "--records", "--show-secrets", str(capture)]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", timeout=300, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    shown = [json.loads(text) for text in done.stdout.splitlines()]
    assert [identity(line) for line in lines] == [(m["api_key"], m["api_version"], m["direction"]) for m in shown]
    wrong = []
    for line, message in zip(lines, shown, strict=True):
        assert message["status"] == "ok", identity(line)
        assert message["header"].get("_unknown_tags", []) == sized(line["header_tags"]), identity(line)
        if line["direction"] == "request":
            assert message["header"].get("ClientId") == line["client_id"], identity(line)
        wrong += [(identity(line), text) for text in differences(line, message["body"])]
    assert not wrong, wrong[:20]


def identity(line: Line) -> tuple[int, int, str]:
    return line["key"], line["version"], line["direction"]


def sized(tags: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Tags as `show` prints them."""
    return [{**tag, "size": len(decoded(tag["base64"]))} for tag in tags]


def decoded(text: str) -> bytes:
    """Bytes, or a uuid: its base64 has other characters and no padding."""
    return base64.b64decode(text.replace("-", "+").replace("_", "/") + "==")


def check_trees(lines: list[Line]) -> None:
    """Trees have every byte: what is nested in byte fields has the bytes of the field, too."""
    for line in lines:
        data = bytes.fromhex(line["hex"])
        frame = len(data).to_bytes(4, "big") + data
        body = find(OPEN.view(frame, DIRECTIONS[line["direction"]], line["key"], line["version"]), "Body")
        assert body is not None
        assert not list(differences_in_bytes(line["body"], fields_of(body, frame))), identity(line)


def differences_in_bytes(wanted: Any, value: Any, path: str = "") -> Any:
    if isinstance(wanted, dict):
        mine = {name.lower(): inner for name, inner in value.items() if name != UNKNOWN_TAGS}
        for name, inner in wanted.items():
            yield from differences_in_bytes(inner, mine[name.lower()], f"{path}.{name}")
    elif isinstance(wanted, list):
        for number, (inner, item) in enumerate(zip(wanted, value, strict=True)):
            yield from differences_in_bytes(inner, item, f"{path}.{number}")
    elif isinstance(value, bytes) and not path.lower().endswith("records") and decoded(wanted) != value:
        yield path


def check_tables(lines: list[Line], capture: Path) -> None:
    """The tables have every error code and throttle time."""
    analysis = analyze(capture)
    exchanges = analysis.exchanges.sort_by("request_packet_first").to_pylist()
    codes = defaultdict(list)
    for row in analysis.results.select(["exchange", "error_code"]).to_pylist():
        codes[row["exchange"]].append(row["error_code"])
    assert len(exchanges) == len(lines) // 2
    for row, request, response in zip(exchanges, lines[::2], lines[1::2], strict=True):
        where = identity(response)
        assert (row["api_key"], row["api_version"], row["outcome"]) == (*where[:2], "answered")
        assert (row["request_status"], row["response_status"]) == ("ok", "ok"), where
        assert row["client_id"] == request["client_id"], where
        wanted = error_codes(response["body"])
        counts = {entry["code"]: entry["count"] for entry in row["errors"] or ()}
        assert counts == Counter(code for code in wanted if code), where
        throttle = response["body"].get("throttleTimeMs", NO_TIME)
        assert row["throttle_time_ms"] == (None if throttle == NO_TIME else throttle), where
        assert Counter(codes[row["exchange"]]) == Counter(wanted), where
