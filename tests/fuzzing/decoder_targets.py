"""Message bodies, record batches, filter expressions and message definitions.

The machine decodes every body as the reference does. Records lie in their field or in what it decompresses to, which
is bounded. Texts that are no expression or no definition raise the declared error, and nothing else.
"""

from __future__ import annotations

import io
import json
import random
import struct
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from functools import cache
from typing import Any

import numpy as np

from kafkatap.dissector.layouts import catalog
from kafkatap.dissector.layouts.definition_files import DefinitionError, read_source
from kafkatap.dissector.layouts.definitions import load_definitions
from kafkatap.dissector.layouts.overlay import lay_message_over
from kafkatap.dissector.layouts.schema import MessageLayout
from kafkatap.dissector.programs.compiler import compile_programs
from kafkatap.dissector.programs.machine import JOB
from kafkatap.dissector.programs.profiles import PROFILES
from kafkatap.dissector.programs.tape import decode_jobs
from kafkatap.dissector.records.codecs import Bounds
from kafkatap.reports.expressions import Condition, ExpressionError, parse_expression
from kafkatap.reports.expressions.names import ALIASES, NAMES
from tests.dissector.machine_support import ALL, MESSAGES, Body, run
from tests.dissector.record_support import collect
from tests.dissector.test_machine_parity import check
from tests.reports.rows import batch, context, exchange, result
from tests.support import records
from tests.support.messages import generate_message
from tests.support.newer import newer_texts
from tests.support.records import Record
from tests.wire.mutations import changed

from .capture_targets import scratch_folder
from .target import Target

# ---------------------------------------------------------------- machine

_HEAD = struct.Struct(">HB")  #: which message and version, and how many bytes of it were not captured
_SMALL_BYTES = bytes((0, 0, 0, 0, 1, 1, 2, 3, 127, 128, 255))


def a_body(chance: random.Random) -> bytes:
    """A message and version, and a body: good, damaged or random."""
    number = chance.randrange(len(ALL))
    kind = chance.random()
    data = generate_message(*ALL[number], chance)[0]
    if kind < 0.6 and data:
        data = changed(data, chance)
    elif kind < 0.75:
        data = bytes(chance.choices(_SMALL_BYTES, k=chance.randrange(200)))
    elif kind < 0.8:
        data = generate_message(*chance.choice(ALL), chance)[0]
    return _HEAD.pack(number, chance.choice((0, 0, 0, 1, 50))) + data


def check_body(data: bytes) -> None:
    """The machine decodes a body as the reference does, and with every profile comes to an end within the body."""
    if len(data) < _HEAD.size:
        return
    number, missing = _HEAD.unpack_from(data)
    message, version = ALL[number % len(ALL)]
    body = Body(message, version, data[_HEAD.size :][:30_000], missing)
    check([body], slack=b"\xff" * 5)
    for profile in PROFILES:
        done = run([body], profile, slack=b"\x80" * 5)
        job, rows = done.jobs[0], done.rows(0)
        assert len(rows) <= 2 * len(body.data) + 300, f"{len(rows)} rows of {len(body.data)} bytes ({profile})"
        assert job["at"] <= job["end"] <= job["limit"]
        stops = rows["stop"][rows["length"] > 0]
        assert not len(stops) or int(stops.max()) <= int(job["limit"]), profile


# ---------------------------------------------------------------- records


def a_records_field(chance: random.Random) -> bytes:
    """A `records` field: batches and messages of every magic and codec, some within others, damaged."""
    data = b"".join(_some_batch(chance, 0) for _ in range(chance.choice((1, 1, 2, 4))))
    if chance.random() < 0.7:
        data = changed(data, chance)
    return bytes([chance.getrandbits(2)]) + data[:60_000]


def _some_batch(chance: random.Random, depth: int) -> bytes:
    made = [_some_record(chance) for _ in range(chance.choice((0, 1, 3, 20)))]
    magic, codec = chance.randrange(3), chance.randrange(5)
    odd: dict[str, Any] = {}
    if chance.random() < 0.3:
        odd["payload"] = records.compressed(_inner(chance, depth), codec, min(magic, 1))
    elif chance.random() < 0.2:
        odd["payload"] = changed(records.compressed(_inner(chance, depth), codec, min(magic, 1)), chance)
    if magic == 2:
        odd["count"] = chance.choice((None, None, None, 0, -1, 5, 2**31 - 1))
        odd["attributes"] = chance.choice((0, 8, 16, 32, 64, 0x7FF8))
        odd["offset"] = chance.choice((0, 5, 2**63 - 1, -(2**63)))
        if chance.random() < 0.1:
            codec = chance.choice((5, 6, 7))
        return records.batch(made, codec if "payload" in odd or codec < 5 else 0, **odd)
    codec = min(codec, 3)
    odd["wrapper_offset"] = chance.choice((None, None, 0, 2**63 - 1, -1))
    return records.message_set(made, magic, codec, attributes=chance.choice((0, 0, 8)), **odd)


def _inner(chance: random.Random, depth: int) -> bytes:
    kind = chance.randrange(5)
    if kind == 0:
        return chance.randbytes(chance.choice((0, 1, 300)))
    if kind == 1:
        return bytes(chance.choice((1 << 12, 1 << 20)))
    if kind == 2 and depth < 2:
        return _some_batch(chance, depth + 1)
    return b"".join(records.encoded_record(_some_record(chance), n) for n in range(chance.randrange(6)))


def _some_record(chance: random.Random) -> Record:
    pieces = [None if chance.random() < 0.2 else chance.randbytes(chance.choice((0, 1, 9, 200))) for _ in range(3)]
    headers = tuple((b"h" * chance.randrange(3), pieces[2]) for _ in range(chance.choice((0, 0, 1, 5))))
    return Record(pieces[0], pieces[1], chance.choice((0, 1_704_067_200_000, -1, 2**63 - 1)), headers)


def check_records(data: bytes) -> None:
    """The records of a field lie within it, or within what it decompresses to under a bound."""
    if not data:
        return
    options = {"fetch": bool(data[0] & 1), "cut": bool(data[0] & 2)}
    field = data[1:]
    bounds = Bounds(absolute=4 << 20, ratio=4_096, floor=1 << 20)
    rows, collector = collect([field, field], bounds=bounds, **options)
    found = [row for row in rows if row["exchange"] == 0]
    assert [row | {"exchange": 0} for row in rows if row["exchange"] == 1] == found
    pieces = [row[name] for row in found for name in ("key", "value")]
    total = sum(len(piece) for piece in pieces if piece is not None)
    batches = {row["batch"] for row in found}
    assert total <= len(field) + len(batches) * bounds.of(len(field))
    assert len(found) <= len(field) + len(batches) * bounds.of(len(field))
    assert collector.tally.records == sum(row["status"] == "ok" for row in rows)


# ---------------------------------------------------------------- filters

_OPERATORS = ("==", "!=", "<", "<=", ">", ">=", "~", "!~", "in", "not in", "=", "", "===", "&", "|")
_VALUES = (
    "Fetch", "1", "0x1F", "-1", "1_000", "50ms", "1.5 s", "10GiB", "1e9", "9" * 40, "'text'", '"a\\x41\\u00e9"', "null",
    "NONE", "3", "2026-11-21", "15:10:39.5", "2026-11-21 15:10:39Z", "10.0.0.1", "10.0.0.1:9092", "[::1]:9092", ":9092",
    "true", "'^[a-z]+$'", "'('", "'a{99999}'", "(1, 2)", "('a', null)", "()", "é", "\x1b[31m", "\ud800", "nan",
    "99999999999999999999999999999999ms", "0.0000000000000001", "9999-12-31", "0000-00-00", "24:60:60",
)  # fmt: skip
_PATHS = ("Fetch.Topics.Partitions", "Topics", "Fetch.Topics.Topic", "*.ErrorCode", "Produce.request.Acks", "a.b.c.d")


def an_expression(chance: random.Random) -> bytes:
    """An expression of names, operators and values in any order, damaged."""

    def some(depth: int) -> str:
        kind = chance.random()
        if depth > 4 or kind < 0.55:
            name = chance.choice(
                (chance.choice(sorted((*NAMES, *ALIASES))), chance.choice(_PATHS), chance.choice(_VALUES))
            )
            return f"{name} {chance.choice(_OPERATORS)} {chance.choice(_VALUES)}"
        if kind < 0.7:
            return f"not {some(depth + 1)}"
        if kind < 0.8:
            return "(" * chance.choice((1, 2, 90, 200)) + some(depth + 1) + ")" * chance.choice((1, 2, 90, 200))
        return f"{some(depth + 1)} {chance.choice(('and', 'or', '&&', '||', 'xor', ','))} {some(depth + 1)}"

    text = chance.choice(("not ", "!", "(")) * 4_000 if chance.random() < 0.01 else some(0)
    raw = text.encode("utf-8", "surrogatepass")
    return changed(raw, chance) if raw and chance.random() < 0.5 else raw


@cache
def _hand_made() -> tuple[Any, Any]:
    rows = [exchange(0), exchange(1, api_key=0, acks=1), exchange(2, outcome=2, api_key=3)]
    made = batch(rows, [result(0), result(1, 6), result(1, 3, partition=4)])
    return made._replace(marks=np.array([0, 1, 2**64 - 1], np.uint64)), context()


def check_expression(data: bytes) -> None:
    """A text is an expression, which selects the same rows as its text does again, or an error with its place."""
    text = data.decode("utf-8", "replace")
    try:
        expression = parse_expression(text, utc=True)
        condition = Condition(expression.at(1_795_236_239 * 10**9))
    except ExpressionError as error:
        str(error)
        return
    rows, names = _hand_made()
    assert list(condition.select(rows, names)) == list(condition.select(rows, names))
    assert condition.api_keys is None or all(type(key) is int for key in condition.api_keys)


# ---------------------------------------------------------------- definitions

_ODD_VALUES: tuple[Any, ...] = (
    None, True, -1, 0, 2**31, 2**63, 1.5, "", "0+", "none", "5-3", "0-99999999", "0-2147483647", "-1", "a-b", [], {},
    [[]], "[]int32", "[]", "[][]int8", "struct", "FetchTopic", "uuid", "records", "\x1b[31m", "x" * 300, "topicName",
)  # fmt: skip
_WORDS = (
    "apiKey",
    "type",
    "name",
    "validVersions",
    "flexibleVersions",
    "fields",
    "versions",
    "nullableVersions",
    "tag",
    "taggedVersions",
    "entityType",
    "commonStructs",
    "latestVersionUnstable",
)


def a_definition(chance: random.Random) -> bytes:
    """One of a newer Kafka's definitions, changed as JSON or as text."""
    text = chance.choice(sorted(newer_texts().values()))
    if chance.random() < 0.75:
        found, _ = json.JSONDecoder().raw_decode(text, text.index("{"))
        for _ in range(chance.choice((1, 1, 2, 5))):
            _change(found, chance)
        text = json.dumps(found)
        if chance.random() < 0.05:
            text = text.replace('"fields": [', '"fields": [' * 3_000, 1)
    raw = text.encode()
    raw = changed(raw, chance) if chance.random() < 0.4 else raw
    return _archive(raw, chance) if chance.random() < 0.2 else raw


def _archive(text: bytes, chance: random.Random) -> bytes:
    """A damaged jar with a definition, which may unpack to much more than it has. All its times are 1980."""
    made, kind = io.BytesIO(), chance.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2))
    files = {"common/message/FetchRequest.json": text}
    if chance.random() < 0.2:
        files["common/message/FetchResponse.json"] = b'"validVersions"' + bytes(3 << 20)
    if chance.random() < 0.3:
        files[chance.choice(("../../etc/x.json", "/x.json", "a" * 300 + ".json", "x.class"))] = text
    with zipfile.ZipFile(made, "w") as jar:
        for name, content in files.items():
            jar.writestr(zipfile.ZipInfo(name), content, kind)
    return changed(made.getvalue(), chance) if chance.random() < 0.8 else made.getvalue()


def _change(found: Any, chance: random.Random) -> None:
    """Change something somewhere in a definition. What is put in is a copy: neither the definition nor the values for
    the next inputs may hold what changes later."""
    while True:
        inner = [v for v in (found.values() if isinstance(found, dict) else found) if isinstance(v, (dict, list)) and v]
        if not inner or chance.random() < 0.3:
            break
        found = chance.choice(inner)
    if isinstance(found, list):
        found.insert(chance.randrange(len(found) + 1), deepcopy(chance.choice((*found, chance.choice(_ODD_VALUES)))))
        return
    name = chance.choice((*found, chance.choice(_WORDS)))
    if chance.random() < 0.3:
        found.pop(name, None)
    else:
        found[name] = deepcopy(chance.choice(_ODD_VALUES))


@contextmanager
def _names_kept() -> Iterator[None]:
    try:
        yield
    finally:
        catalog.forget_names()


def _texts(data: bytes) -> Mapping[str, str | bytes]:
    """The definitions of an archive, or the one that the input is."""
    if not data.startswith(b"PK"):
        return {"a.json": data}
    path = scratch_folder() / "definitions.jar"
    path.write_bytes(data)
    return read_source(path).texts


def check_definition(data: bytes) -> None:
    """A definition is refused with the declared error, or its programs decode any body to an end."""
    with _names_kept():
        try:
            own = load_definitions(_texts(data))
        except DefinitionError as error:
            str(error)
            return
        for (key, direction), layout in own.items():
            old = MESSAGES.get((key, direction))
            for message in {layout, layout if old is None else lay_message_over(old, layout)}:
                _check_layout(message)


def _check_layout(message: MessageLayout) -> None:
    for profile in PROFILES.values():
        try:
            programs = compile_programs({(message.api_key, message.direction): message}, profile)
        except ValueError:
            return
        chance = random.Random(1)
        version = chance.choice(list(message.versions))
        buffer = np.frombuffer(bytes(chance.choices(_SMALL_BYTES, k=300)), np.uint8).copy()
        jobs = np.zeros(1, JOB)
        jobs["end"] = jobs["limit"] = len(buffer)
        jobs["program"] = programs.find(message.api_key, version, message.direction)
        tape = decode_jobs(programs, jobs, (buffer,), None)
        assert len(tape) < 100_000


DECODER_TARGETS = (
    Target("machine", a_body, check_body, seconds=0.5),
    Target("records", a_records_field, check_records, seconds=1.0),
    Target("filters", an_expression, check_expression, seconds=1.0),
    Target("definitions", a_definition, check_definition, seconds=1.0),
)
