"""Facts have what a slow walk through the whole messages finds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kafkatap.dissector.dtypes import NO_INT32
from kafkatap.dissector.facts.fact_rows import NO_NUMBER
from kafkatap.dissector.facts.sasl_messages import user_of
from kafkatap.dissector.layouts.catalog import load_messages
from kafkatap.dissector.programs.fact_kinds import (
    BATCH,
    BATCH_SAMPLE,
    KINDS,
    NUMBER_OF,
    NUMBERS,
    PRINCIPAL,
    TEXTS,
    FactKind,
    FieldPath,
    columns_of,
    paths,
)
from kafkatap.dissector.programs.fields import FieldTable, number_fields
from kafkatap.dissector.programs.roles import R_PARTITION, R_TOPIC_ID, R_TOPIC_NAME
from kafkatap.engine.engine import Engine
from kafkatap.reports.batch import Batch
from kafkatap.run import Run
from tests.conftest import ROOT
from tests.dissector.test_probes import Everything
from tests.support.captures import pcap_bytes, read_capture, write_capture
from tests.support.damage import cut, numbered, packets_of
from tests.support.tcp import encode
from tests.wire.kafkatalk import KafkaTalk

FIND_COORDINATOR = 10
SAMPLES = (
    "apache-4.3.pcap.zst", "apache-2.8.pcap.zst", "apache-0.10.2.pcap.zst", "apache-0.8.2.pcap.zst",
    "live-4.4.pcap.zst",
)  # fmt: skip
#: Topic, topic id and partition around an element.
Place = tuple[Any, Any, Any]
NOWHERE: Place = (None, None, None)
Row = tuple[Any, ...]


def table() -> FieldTable:
    return number_fields(load_messages())


def _placed(fields: FieldTable, message: tuple[int, int], path: str, element: dict[str, Any], around: Place) -> Place:
    """Topic, topic id and partition of an element, from its own plain fields or else from around it."""
    found = list(around)
    for name, value in element.items():
        number = fields.find.get((*message, f"{path}.{name}" if path else name))
        if number is None or isinstance(value, (list, dict)) or value is None:
            continue
        role = fields[number].role
        if role == R_TOPIC_NAME:
            found[0] = value.encode("utf-8", "surrogateescape")
        elif role == R_TOPIC_ID:
            found[1] = value if any(value) else None
        elif role == R_PARTITION:
            found[2] = value
    return found[0], found[1], found[2]


def elements(
    fields: FieldTable, kind: FactKind, whole: dict[str, Any], path: str = "", around: Place = NOWHERE
) -> Iterator[tuple[Any, Place]]:
    """The elements of a kind in a message, with their places. Plain items have the place of what is around them."""
    message = kind.api_key, kind.direction
    assert isinstance(kind.element, str)
    if path == kind.element:
        yield whole, (_placed(fields, message, path, whole, around) if path else NOWHERE)
        return
    here = _placed(fields, message, path, whole, around) if path else around
    rest = kind.element[len(path) + 1 :] if path else kind.element
    value: Any = whole
    below = path
    while rest:
        name, _, rest = rest.partition(".")
        below = f"{below}.{name}" if below else name
        value = value.get(name) if isinstance(value, dict) else None
        if isinstance(value, list):
            for item in value:
                if kind.items and below == kind.element:
                    yield item, here
                else:
                    yield from elements(fields, kind, item, below, here)
            return
        if value is None:
            return


def elements_of(fields: FieldTable, kind: FactKind, whole: dict[str, Any]) -> Iterator[tuple[Any, Place]]:
    for path in paths(kind.element):
        yield from elements(fields, kind._replace(element=path), whole)


def value_at(element: Any, path: FieldPath) -> Any:
    """The value at a path, or the first one of several; of an array its first item."""
    for each in paths(path):
        value = element
        for name in each.split("."):
            value = value.get(name) if isinstance(value, dict) else None
        if value is not None:
            return value[0] if isinstance(value, list) and isinstance(path, tuple) else value
    return None


def as_row(kind: FactKind, element: Any, place: Place) -> Row:
    """The values of a row: numbers, texts, error, place."""

    def number(value: Any) -> int:
        return NO_NUMBER if value is None else int(value)

    def text(value: Any) -> bytes | None:
        return value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value

    if kind.items:
        own = (number(element),) if kind.items == "number" else (text(element),)
        return (*own, 0, *place)
    numbers = [number(value_at(element, path)) for path in kind.numbers.values()]
    if kind.length:
        array = value_at(element, kind.length)
        numbers.append(-1 if array is None else len(array))
    texts = (text(value_at(element, path)) for path in kind.texts.values())
    error = value_at(element, kind.error) if kind.error else 0
    return (*numbers, *texts, error or 0, *place)


def facts_of(engine: Engine, batches: Iterator[Batch]) -> dict[tuple[int, int], list[Row]]:
    """The rows of facts, by exchange and kind."""
    found: dict[tuple[int, int], list[Row]] = defaultdict(list)

    def text(number: Any) -> bytes | None:
        return engine.dissector.string(int(number)) if number >= 0 else None

    for batch in batches:
        assert batch.facts is not None
        assert set(batch.facts["exchange"].tolist()) <= set(batch.exchanges["exchange"].tolist())
        for fact in batch.facts:
            kind = int(fact["kind"])
            own = [
                int(fact[column]) if column.startswith("v") else text(fact[column])
                for column in columns_of(kind).values()
            ]
            partition = int(fact["partition"])
            place = (text(fact["topic"]), text(fact["topic_id"]), None if partition == NO_INT32 else partition)
            found[int(fact["exchange"]), kind].append((*own, int(fact["error_code"]), *place))
    return found


@pytest.mark.parametrize("name", SAMPLES)
def test_facts_are_what_the_whole_messages_have(name: str) -> None:
    everything = Everything()
    engine = Engine(inspectors=(everything,), facts=range(BATCH), problems=False)
    batches = [batch for batch in Run([str(ROOT / "samples" / name)], engine).batches() if isinstance(batch, Batch)]
    statuses = {
        int(x["exchange"]): (int(x["request_status"]), int(x["response_status"]))
        for batch in batches for x in batch.exchanges
    }  # fmt: skip
    found, fields = facts_of(engine, iter(batches)), table()
    compared = 0
    for (exchange, direction), (api_key, whole) in everything.trees.items():
        if exchange not in statuses or statuses[exchange][direction] > 1:
            continue
        for number, kind in enumerate(KINDS[:BATCH]):
            if (kind.api_key, kind.direction) != (api_key, direction):
                continue
            wanted = [as_row(kind, element, place) for element, place in elements_of(fields, kind, whole)]
            assert found.get((exchange, number), []) == wanted, (exchange, kind)
            compared += len(wanted)
    assert compared > 300


def test_each_kind_names_fields_that_exist() -> None:
    fields = table()
    for number, kind in enumerate(KINDS[:BATCH]):
        named: list[FieldPath] = [*kind.numbers.values(), *kind.texts.values(), *([kind.error] if kind.error else [])]
        named += [f"{kind.length}#"] if kind.length else []
        own = [path for path in paths(kind.element) if path]
        for path in [path for each in named for path in kind.fields(each)] + own:
            assert (kind.api_key, kind.direction, path) in fields.find, (kind.name, path)
        assert len(kind.numbers) <= NUMBERS
        assert len(kind.texts) <= TEXTS
        assert len(columns_of(number)) == len(kind.numbers) + len(kind.texts) + bool(kind.items) + bool(kind.length)
    assert len({kind.name for kind in KINDS}) == len(KINDS) < 224


def test_batches_add_up_to_the_records_of_results() -> None:
    """Records of Produce requests by their batches, and by the engine's results."""
    engine = Engine(all_results=True, facts=(BATCH, BATCH_SAMPLE))
    records = bytes_ = of_results = bytes_of_results = samples = 0
    for batch in Run([str(ROOT / "samples/apache-4.3.pcap.zst")], engine).batches():
        assert isinstance(batch, Batch)
        assert batch.facts is not None
        produced = batch.exchanges["exchange"][(batch.exchanges["api_key"] == 0) & (batch.exchanges["outcome"] == 0)]
        facts = batch.facts[np.isin(batch.facts["exchange"], produced)]
        rows = facts[facts["kind"] == BATCH]
        records += int(rows["v1"].sum())
        bytes_ += int(rows["v0"].sum())
        results = batch.results[np.isin(batch.results["exchange"], produced) & (batch.results["bytes"] >= 0)]
        of_results += int(results["records"].sum())
        bytes_of_results += int(results["bytes"].sum())
        sampled = facts[facts["kind"] == BATCH_SAMPLE]
        samples += len(sampled)
        assert (sampled["v1"] >= sampled["v0"] // 50).all()
        assert (sampled["v3"] == 0).all()
    assert (records, bytes_) == (of_results, bytes_of_results)
    assert samples > 3


@pytest.mark.parametrize(
    ("token", "user"),
    [
        (b"\0alice\0secret", (b"PLAIN", b"alice")),
        (b"admin\0alice\0secret", (b"PLAIN", b"alice")),
        (b"n,,n=bob,r=nonce", (b"SCRAM", b"bob")),
        (b"n,a=x,n=b=2Co=3Db,r=nonce", (b"SCRAM", b"b,o=b")),
        (b"c=biws,r=nonce,p=proof", None),
        (b"n,,\x01auth=Bearer token\x01\x01", None),
        (b"", None),
        (b"n,,r=nonce", None),
    ],
)
def test_only_the_user_leaves_a_token(token: bytes, user: tuple[bytes, bytes] | None) -> None:
    assert user_of(token) == user


def test_no_fact_has_a_secret() -> None:
    """No field of a kind is one that the product treats as secret, and of SASL tokens only user names are kept."""
    from kafkatap.dissector.layouts.secrets import may_be_secret

    for kind in KINDS[:BATCH]:
        for path in (each for named in (*kind.numbers.values(), *kind.texts.values()) for each in kind.fields(named)):
            assert not may_be_secret(kind.api_key, kind.direction, path), (kind.name, path)
    assert KINDS[PRINCIPAL].api_key < 0


def test_cut_batches_are_not_sampled(tmp_path: Path) -> None:
    """The end of a batch that the snap length cut is not there, so its checksum says nothing."""
    packets = packets_of(cut(numbered(read_capture(ROOT / "samples/apache-4.3.pcap.zst").packets), 400))
    path = write_capture(tmp_path / "cut.pcap", pcap_bytes(packets))
    samples = 0
    for batch in Run([str(path)], Engine(all_results=True, facts=(BATCH, BATCH_SAMPLE))).batches():
        assert isinstance(batch, Batch)
        assert batch.facts is not None
        sampled = batch.facts[batch.facts["kind"] == BATCH_SAMPLE]
        samples += len(sampled)
        assert not sampled["v3"].any()
    assert samples


def test_items_of_arrays_have_room(tmp_path: Path) -> None:
    """More distinct texts in one message than a new table of strings has room for."""
    keys = [f"group-{number}" for number in range(150_000)]
    talk = KafkaTalk(("10.0.0.1", 20_000), ("10.0.1.1", 9_092))
    talk.tcp.open()
    talk.exchange(18, 0, 1)
    talk.respond(talk.request(FIND_COORDINATOR, 4, 2, CoordinatorKeys=keys))
    path = write_capture(tmp_path / "keys.pcap", pcap_bytes(encode(talk.tcp.segments)))
    kind = NUMBER_OF["find coordinator key"]
    engine = Engine(all_results=True, facts=(kind,))
    rows = facts_of(engine, (batch for batch in Run([str(path)], engine).batches() if isinstance(batch, Batch)))
    found = [row[0] for key, of_kind in rows.items() if key[1] == kind for row in of_kind]
    assert found == [key.encode() for key in keys]
