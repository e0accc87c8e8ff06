"""Probes: comparisons on decoded fields find what a walk through the whole messages finds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kafkatap.dissector.inspection import Frames, Inspector
from kafkatap.dissector.probes import MOST, Place, Probe, Probes
from kafkatap.dissector.programs.fields import API_VERSIONS, FETCH, PRODUCE, SASL_HANDSHAKE
from kafkatap.dissector.programs.loading import load_programs
from kafkatap.dissector.programs.tape import decode_jobs
from kafkatap.engine.engine import Engine
from kafkatap.reports.batch import Batch
from kafkatap.reports.expressions import Condition, parse_expression
from kafkatap.run import Run
from tests.support.captures import pcap_bytes
from tests.support.tape_views import tree
from tests.support.tcp import encode
from tests.wire.kafkatalk import KafkaTalk

METADATA = 3


@dataclass
class Everything:
    """Keeps every message as a tree, by (exchange number, direction)."""

    trees: dict[tuple[int, int], tuple[int, dict[str, Any]]] = field(default_factory=dict)

    def look(self, frames: Frames) -> None:
        programs = load_programs("everything")
        jobs = frames.jobs.copy()
        jobs["program"] = programs.same_as(frames.programs, jobs["program"])
        rows = decode_jobs(programs, jobs, frames.buffers)
        for job in jobs[jobs["program"] >= 0]:
            slot, direction = int(job["frame"]) >> 1, int(job["frame"]) & 1
            exchange, key = int(frames.rows["exchange"][slot]), int(frames.rows["api_key"][slot])
            self.trees[exchange, direction] = key, tree(programs, rows, frames.buffers, job)


def values_at(value: Any, path: str) -> Iterator[Any]:
    """All values of a path, through arrays; null left out."""
    if isinstance(value, list):
        for each in value:
            yield from values_at(each, path)
    elif path and isinstance(value, dict):
        name, _, rest = path.partition(".")
        yield from values_at(value.get(name), rest)
    elif value is not None:
        yield value


def ran(path: Path, *inspectors: Inspector, all_results: bool = False, apis: frozenset[int] | None = None) -> Any:
    """Marks by exchange number."""
    marks: dict[int, int] = {}
    for batch in Run([str(path)], Engine(all_results=all_results, inspectors=inspectors, apis=apis)).batches():
        assert isinstance(batch, Batch)
        assert batch.marks is not None
        marks.update(zip(batch.exchanges["exchange"].tolist(), batch.marks.tolist(), strict=True))
    return marks


def equal_to(number: int) -> Callable[[Any, str], Any]:
    return lambda values, kind: values == number


def of_each(test: Callable[[bytes, str], bool]) -> Callable[[Sequence[bytes], str], Any]:
    return lambda values, kind: np.array([test(value, kind) for value in values], bool)


PROBES: list[tuple[Probe, Callable[[Any], bool]]] = [
    (Probe(frozenset({(FETCH, 0, "MaxWaitMs")}), numbers=equal_to(500)), lambda v: v == 500),
    (Probe(frozenset({(FETCH, 1, "Responses.Partitions.HighWatermark")}), numbers=lambda v, k: v > 100),
     lambda v: v > 100),
    (Probe(frozenset({(PRODUCE, 0, "TopicData.PartitionData.Index")}), numbers=equal_to(1)), lambda v: v == 1),
    (Probe(frozenset({(PRODUCE, 0, "TopicData.Name"), (METADATA, 1, "Topics.Name")}),
           texts=of_each(lambda raw, kind: b"e" in raw)), lambda v: "e" in v),
    (Probe(frozenset({(METADATA, 1, "Topics.TopicId")}),
           texts=of_each(lambda raw, kind: kind == "uuid" and raw[0] > 99)),
     lambda v: v[0] > 99),
    (Probe(frozenset({(METADATA, 1, "Topics.IsInternal")}), numbers=equal_to(1)), lambda v: v is True),
    (Probe(frozenset({(METADATA, 1, "Topics")})), lambda v: True),
    (Probe(frozenset({(METADATA, 1, "Topics.Partitions.ReplicaNodes")}), numbers=equal_to(1)), lambda v: v == 1),
    (Probe(frozenset({(PRODUCE, 0, "TransactionalId")})), lambda v: True),
    (Probe(frozenset({(SASL_HANDSHAKE, 0, "Mechanism")}), texts=of_each(lambda raw, kind: raw == b"PLAIN")),
     lambda v: v == "PLAIN"),
    (Probe(frozenset({(API_VERSIONS, 1, "ApiKeys.ApiKey")}), numbers=equal_to(1)), lambda v: v == 1),
]  # fmt: skip


@pytest.mark.parametrize("all_results", [False, True])
@pytest.mark.parametrize("name", ["apache-4.3.pcap.zst", "apache-0.10.2.pcap.zst"])
def test_probes_find_what_the_whole_messages_hold(samples: Path, name: str, all_results: bool) -> None:
    path = samples / name
    everything = Everything()
    marks = ran(path, everything, Probes([probe for probe, _ in PROBES]), all_results=all_results)
    wanted = dict.fromkeys(marks, 0)
    for (exchange, direction), (key, message) in everything.trees.items():
        for bit, (probe, holds) in enumerate(PROBES):
            for place in probe.places:
                if place[:2] == (key, direction) and any(map(holds, _values(message, place))):
                    wanted[exchange] |= 1 << bit
    assert marks == wanted
    assert sum(mark != 0 for mark in marks.values()) > 20


def _values(message: dict[str, Any], place: Place) -> Iterator[Any]:
    found = values_at(message, place[2])
    # An array of structs is there where it has an element.
    return (v for v in found if not isinstance(v, list) or v)


def test_bits_stay_with_their_exchange_and_end_with_it(tmp_path: Path) -> None:
    """Slots are used again; what was found of one exchange is not said of the next one in its slot."""
    talk = KafkaTalk()
    talk.tcp.open()
    for n in range(300):
        asked = talk.request(FETCH, 11, n, MaxWaitMs=500 if n % 3 else 100)
        talk.respond(asked)
    talk.tcp.close()
    path = tmp_path / "a.pcap"
    path.write_bytes(pcap_bytes(encode(talk.segments), nanoseconds=True))
    for apis in (None, frozenset({FETCH})):
        marks = ran(path, Probes([PROBES[0][0]]), apis=apis)
        assert list(marks.values()) == [int(n % 3 != 0) for n in range(300)]


def test_the_last_bit_is_one_too_many_is_not() -> None:
    probe = Probe(frozenset({(FETCH, 0, "MaxWaitMs")}), numbers=equal_to(500))
    Probes([probe] * MOST)
    with pytest.raises(ValueError, match="at most 64"):
        Probes([probe] * (MOST + 1))
    Probes([probe], first=MOST - 1)
    with pytest.raises(ValueError, match="not 65"):
        Probes([probe], first=MOST)


def test_64_bits_are_told_apart(samples: Path) -> None:
    text = " or ".join(f"Fetch.request.MaxWaitMs == {n}" for n in range(63)) + " or Fetch.request.MaxWaitMs == 500"
    condition = Condition(parse_expression(text))
    assert condition.probes is not None
    marks = ran(samples / "apache-4.3.pcap.zst", condition.probes)
    assert {m for m in marks.values() if m} == {1 << 63}


@pytest.mark.parametrize(
    ("text", "path", "direction", "holds"),
    [
        ("request.MaxWaitMs == 500ms", "MaxWaitMs", 0, lambda v: v == 500),
        ("request.MaxWaitMs == 500", "MaxWaitMs", 0, lambda v: v == 500),
        ("response.ErrorCode == 35", "ErrorCode", 1, lambda v: v == 35),
        ("response.ErrorCode == UNSUPPORTED_VERSION", "ErrorCode", 1, lambda v: v == 35),
        ("request.clientsoftwarename ~ '^apache'", "ClientSoftwareName", 0, lambda v: v.startswith("apache")),
        ("request.AllowAutoTopicCreation", "AllowAutoTopicCreation", 0, lambda v: v),
        ("request.TransactionalId", "TransactionalId", 0, lambda v: True),
    ],
)
def test_paths_of_every_api(samples: Path, text: str, path: str, direction: int, holds: Callable[[Any], bool]) -> None:
    everything, condition = Everything(), Condition(parse_expression(text))
    assert condition.probes is not None
    marks = ran(samples / "apache-4.3.pcap.zst", everything, condition.probes)
    wanted = {
        exchange
        for (exchange, way), (_, message) in everything.trees.items()
        if way == direction and any(map(holds, values_at(message, path)))
    }
    assert {exchange for exchange, mark in marks.items() if mark} == wanted
    assert wanted or "ErrorCode" in text or "Transactional" in text


def test_float64_is_compared_as_such() -> None:
    condition = Condition(parse_expression("request.Entries.Ops.Value > 1.5"))
    assert condition.probes is not None
    numbers = condition.probes.probes[0].numbers
    assert numbers is not None
    bits = np.array([1.0, 1.5, 1.75, -2.0, 1e9]).view(np.int64)
    assert numbers(bits, "float64").tolist() == [False, False, True, False, True]
