"""Messages with very many fields: rows of one message are bounded, and a drain of many of them goes on in parts."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from kafkatap.dissector.drain import MOST_TAPE
from kafkatap.dissector.dtypes import MOST_ROWS
from kafkatap.engine.engine import Engine
from kafkatap.run import Run
from tests.support.captures import pcap_bytes, write_capture
from tests.support.tcp import encode
from tests.wire.harness import assert_same, decode_packets
from tests.wire.kafkatalk import METADATA, KafkaTalk


def topics(count: int, error: int) -> bytes:
    """The body of a Metadata response v0, of which each topic has an error code and no name."""
    return struct.pack("!ii", 0, count) + struct.pack("!hhi", error, 0, 0) * count


def talk_of(counts: list[int]) -> KafkaTalk:
    talk = KafkaTalk(mss=60_000)
    talk.tcp.open()
    for number, count in enumerate(counts):
        talk.respond_raw(talk.request(METADATA, 0, number), topics(count, 1 + number))
    return talk


@pytest.mark.parametrize("all_results", [True, False])
def test_a_message_has_a_bounded_number_of_rows(all_results: bool) -> None:
    talk = talk_of([2, MOST_ROWS + 10, 3])
    seen = decode_packets(encode(talk.segments), all_results=all_results)
    assert [row["response_status"] for row in seen.exchanges] == ["ok", "too_large", "ok"]
    assert seen.outcomes == ["answered"] * 3
    counts = np.bincount([row["error_code"] for row in seen.results], minlength=4)[1:].tolist()
    assert counts[0] == 2
    assert counts[2] == 3
    assert 50_000 < counts[1] <= MOST_ROWS
    limits = seen.ledger["limits"]
    assert (limits["fields"], limits["total"]) == (1, 1)


@pytest.mark.parametrize("all_results", [True, False])
def test_many_messages_at_once_are_the_same_as_one_after_another(all_results: bool) -> None:
    counts = [MOST_TAPE // 9] * 12 + [1, 0, MOST_TAPE // 5, 7]
    segments = encode(talk_of(counts).segments)
    at_once = decode_packets(segments, all_results=all_results)
    apart = decode_packets(segments, all_results=all_results, runs=[1] * len(segments))
    assert_same(at_once, apart)
    assert len(at_once.results) == sum(counts)
    assert "limits" not in at_once.ledger or not at_once.ledger["limits"]["fields"]


def test_requests_that_nothing_answers_end_with_their_part() -> None:
    """Of several connections, some end without an answer in the midst of parts."""
    many, lost = talk_of([MOST_TAPE // 4] * 7), KafkaTalk(("10.0.0.9", 40_000))
    lost.tcp.open()
    for number in range(50):
        lost.request(METADATA, 0, number)
    lost.tcp.close()
    segments = sorted([*many.segments, *lost.segments], key=lambda each: each.time_ns)
    packets = encode(segments)
    assert_same(decode_packets(packets), decode_packets(packets, runs=[1] * len(packets)))


def test_batches_of_a_drain_in_parts_are_small(tmp_path: Path) -> None:
    """Each batch has the results and facts of its own exchanges, and no more than a tape can hold."""
    packets = encode(talk_of([MOST_TAPE // 5] * 9).segments)
    path = write_capture(tmp_path / "many.pcap", pcap_bytes(packets))
    engine = Engine(all_results=True)
    batches = list(Run([str(path)], engine, block_size=64 << 20, threaded=False).batches())
    assert len(batches) >= 3
    for batch in batches:
        assert set(batch.results["exchange"].tolist()) <= set(batch.exchanges["exchange"].tolist())
        assert len(batch.results) <= MOST_TAPE
    assert sum(len(batch.results) for batch in batches) == 9 * (MOST_TAPE // 5)
