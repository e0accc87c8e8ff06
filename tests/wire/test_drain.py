"""A drain that comes back for room goes on where it was, and the topics of requests come with their exchanges."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kafkatap.engine.engine import Engine
from kafkatap.reassembly.assembler import Assembler
from kafkatap.reports.batch import Batch
from kafkatap.reports.counting.counts import ReportCounts
from tests.support.tcp import encode
from tests.wire.harness import assert_same, decode_packets, run_lengths
from tests.wire.kafkatalk import METADATA, KafkaTalk, add_exchanges, assert_exchanges


class Batches(Engine):
    """An engine that keeps its batches."""

    def __init__(self, all_results: bool = True, **options: Any) -> None:
        super().__init__(all_results=all_results, assembler=Assembler(turns=3), **options)
        self.batches: list[Batch] = []

    def dissect(self, *args: Any) -> Any:
        for batch in super().dissect(*args):
            self.batches.append(batch)
            yield batch


def named(first: int, count: int, **values: int) -> list[dict[str, Any]]:
    return [{"Name": f"topic-{n}", **values} for n in range(first, first + count)]


def many_topics() -> KafkaTalk:
    """Requests with more topics than any table has room for at first, answered in one go; the last is not answered."""
    talk = KafkaTalk()
    talk.tcp.open()
    add_exchanges(talk, 2)
    sent = [talk.request(METADATA, 4, 10 + n, Topics=named(900 * n, 900)) for n in range(4)]
    for n, asked in enumerate(sent[:3]):
        talk.respond(asked, Topics=named(900 * n, 900, ErrorCode=3), ControllerId=1)
    talk.tcp.close()
    return talk


def topics_of(engine: Batches) -> dict[int, list[str]]:
    """The names of topics by the exchanges' correlation ids, in their order."""
    found: dict[int, list[str]] = {}
    for batch in engine.batches:
        assert batch.topics is not None
        numbers = batch.topics["exchange"]
        assert np.all(np.diff(numbers) >= 0)
        ids = dict(batch.exchanges[["exchange", "correlation_id"]].tolist())
        for number, topic, _ in batch.topics.tolist():
            found.setdefault(ids[number], []).append((engine.strings[topic] or b"").decode())
    return found


def test_topics_come_with_their_exchanges() -> None:
    talk = many_topics()
    packets = encode(talk.segments)
    engine = Batches()
    seen = decode_packets(packets, engine=engine)
    assert_exchanges(seen, talk.wanted)
    found = topics_of(engine)
    assert {n: found[10 + n] for n in range(4)} == {
        n: [f"topic-{k}" for k in range(900 * n, 900 * n + 900)] for n in range(4)
    }
    for runs in run_lengths(len(packets), splits=3):
        again = Batches()
        assert_same(decode_packets(packets, runs=runs, engine=again), seen, runs)
        assert topics_of(again) == found


def test_topics_are_dropped_where_detail_is_shed() -> None:
    packets = encode(many_topics().segments)
    engine = Batches()
    engine.set_detail(False)
    decode_packets(packets, engine=engine)
    assert all(batch.topics is None for batch in engine.batches)


@pytest.mark.parametrize("failed", [150, 400, 900, 1_500, 4_000])
def test_names_stay_when_responses_with_errors_are_read_once_more(failed: int) -> None:
    """The second look at responses with error codes needs more room than the first, in which the names were found."""
    talk = KafkaTalk()
    talk.tcp.open()
    topic_id = bytes(range(16))
    talk.exchange(METADATA, 12, 1, Topics=[{"TopicId": topic_id, "Name": "orders"}])
    talk.exchange(METADATA, 4, 2, Topics=named(0, failed, ErrorCode=3))
    talk.tcp.close()
    engine = Batches(all_results=False)
    seen = decode_packets(encode(talk.segments), engine=engine)
    assert len([row for row in seen.results if row["error_code"] == 3]) == failed
    names = {engine.strings[number]: engine.strings[name] for number, name in engine.dissector.topic_names.items()}
    assert names[topic_id] == b"orders"


@pytest.mark.parametrize("by_topic", [False, True])
def test_counts_grow_in_the_middle_of_a_batch(by_topic: bool) -> None:
    engine = Batches()
    decode_packets(encode(many_topics().segments), engine=engine)
    counts, alone = ReportCounts(by_topic=by_topic), ReportCounts(by_topic=by_topic)
    for batch in engine.batches:
        counts.add(batch)
        for n in range(len(batch.exchanges)):
            alone.add(batch.picked(np.arange(len(batch.exchanges)) == n))
    counts.finish()
    alone.finish()
    assert len(counts.topics) == (3_600 + 1 if by_topic else 0)
    assert len(counts.errors) == 2_700
    for one, other in ((counts.groups, alone.groups), (counts.topics, alone.topics), (counts.errors, alone.errors)):
        assert np.array_equal(one.key_rows(), other.key_rows())
        assert np.array_equal(one.value_rows(), other.value_rows())
