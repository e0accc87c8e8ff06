"""A golden tree of a generated message for every version of every message; the reference and kio read it alike.

The trees lie in golden/, ten APIs a file. KAFKATAP_UPDATE=1 writes them anew.
"""

from __future__ import annotations

import difflib
import os
import random
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from kio.index import load_request_schema, load_response_schema
from kio.schema.index import api_key_map, schema_name_map
from kio.serial import entity_reader

from kafkatap.dissector.layouts.schema import REQUEST, RESPONSE, MessageLayout
from kafkatap.dissector.tree.view import Viewer
from kafkatap.show.tree_text import tree_text
from tests.dissector.machine_support import MESSAGES
from tests.dissector.test_kio_parity import compare
from tests.dissector.test_view import OPEN
from tests.dissector.view_support import check_cover, fields_of, find, frame_of, header_of, traced
from tests.support.messages import Taste, generate_message
from tests.support.reference import Traced, decode_message

FOLDER = Path(__file__).parent / "golden"
KEYS = sorted({api_key for api_key, _ in MESSAGES})
#: APIs whose trees lie in one file.
TOGETHER = 10
TASTE = Taste(tame=True, unknown_tags=False, short=True)
KIO = {REQUEST: load_request_schema, RESPONSE: load_response_schema}
VIEWER = Viewer()
WORDS = {REQUEST: "request", RESPONSE: "response"}


@cache
def golden_message(message: MessageLayout, version: int) -> bytes:
    """From the header's tags on; always the same bytes. Of a few the one that says most in little."""
    seed = (message.api_key * 2 + message.direction) * 100 + version
    made = []
    for number in range(8):
        data, value = generate_message(message, version, random.Random(f"{seed} {number}"), TASTE)
        if value.get("ClusterId", "") is not None:  # kio refuses null in a tag
            made.append(data)
    fitting = [data for data in made if len(data) <= 250]
    return max(fitting, key=len) if fitting else min(made, key=len)


def versions_of(first: int) -> Iterator[tuple[MessageLayout, int]]:
    for api_key in range(first, first + TOGETHER):
        for direction in (REQUEST, RESPONSE):
            message = MESSAGES.get((api_key, direction))
            if message is not None:
                yield from ((message, version) for version in message.versions)


def trees(first: int) -> str:
    """The text of a golden file."""
    lines: list[str] = []
    for message, version in versions_of(first):
        frame = frame_of(message, version, golden_message(message, version))
        root = VIEWER.view(frame, message.direction, message.api_key, version)
        lines += [f"# {message.name} {WORDS[message.direction]} v{version}", *tree_text(root), ""]
    return "\n".join(lines)


def check_golden(path: Path, text: str) -> None:
    if os.environ.get("KAFKATAP_UPDATE"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    wanted = path.read_text(encoding="utf-8")
    if text != wanted:
        changes = list(difflib.unified_diff(wanted.splitlines(), text.splitlines(), path.name, "now", lineterm="", n=2))
        pytest.fail("\n".join(changes[:60]))


@pytest.mark.parametrize("first", range(0, KEYS[-1] + 1, TOGETHER))
def test_trees_are_the_golden_ones(first: int) -> None:
    check_golden(FOLDER / f"{first:03}-{first + TOGETHER - 1:03}.txt", trees(first))


def test_golden_trees_are_of_every_message() -> None:
    texts = [path.read_text(encoding="utf-8") for path in FOLDER.glob("[0-9]*.txt")]
    heads = {line for text in texts for line in text.splitlines() if line.startswith("#")}
    assert len(heads) == sum(1 for _ in versions_of_all())
    assert sum(map(len, texts)) < 1_000_000


def test_the_reference_reads_the_golden_messages_alike() -> None:
    for message, version in versions_of_all():
        data = golden_message(message, version)
        frame = frame_of(message, version, data)
        root = OPEN.view(frame, message.direction, message.api_key, version)
        body = find(root, "Body")
        assert body is not None
        trace: list[Traced] = []
        wanted = decode_message(message, version, data, trace=trace)
        assert fields_of(body, frame) == wanted.value, (message.name, version)
        assert traced(body, 4 + len(header_of(message, version))) == sorted(trace), (message.name, version)
        check_cover(root, len(frame))


def test_kio_reads_the_golden_messages_alike() -> None:
    compared = 0
    for api_key in api_key_map:
        for version in schema_name_map[api_key_map[api_key]]:
            for direction, load in KIO.items():
                message = MESSAGES[api_key, direction]
                data = golden_message(message, version)
                frame = frame_of(message, version, data)
                entity, _ = entity_reader(load(api_key, version))(data[message.has_header_tags(version) :], 0)
                body = find(OPEN.view(frame, direction, api_key, version), "Body")
                assert body is not None
                where = f"{message.name} {WORDS[direction]} v{version}"
                compare(message.body, version, fields_of(body, frame), entity, where)
                compared += 1
    assert compared == 2 * 302


def versions_of_all() -> Iterator[tuple[MessageLayout, int]]:
    for first in range(0, KEYS[-1] + 1, TOGETHER):
        yield from versions_of(first)


def test_damaged_messages_give_the_golden_trees() -> None:
    """The newest version of every API, cut at some place, or with a byte changed."""
    lines: list[str] = []
    for api_key in KEYS[::3]:
        message = MESSAGES[api_key, api_key % 2]
        version = message.versions.high
        frame = frame_of(message, version, golden_message(message, version))
        at = len(frame) * 2 // 3
        changed = frame[:at] + b"\xfe" + frame[at + 1 :]
        for what, damaged in (("cut", frame[:at]), ("changed", changed)):
            root = VIEWER.view(damaged, message.direction, api_key, version)
            check_cover(root, root.length)
            lines += [f"# {message.name} {WORDS[message.direction]} v{version}, {what} at {at}", *tree_text(root), ""]
    check_golden(FOLDER / "damaged.txt", "\n".join(lines))
