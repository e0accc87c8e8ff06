"""Messages with very many fields: rows of one message are bounded, and a drain of many of them goes on in parts."""

from __future__ import annotations

import struct
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kafkatap.dissector.drain import MOST_TAPE
from kafkatap.dissector.dtypes import MOST_ROWS, OK
from kafkatap.engine.engine import Engine
from kafkatap.run import Run
from tests.support.captures import Packet, pcap_bytes, write_capture
from tests.support.tcp import encode
from tests.wire.harness import batches_of, decode_packets
from tests.wire.kafkatalk import METADATA, PRODUCE, KafkaTalk

Array = np.ndarray[Any, Any]


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


def tables(
    packets: Sequence[Packet], all_results: bool, runs: Sequence[int] | None = None
) -> tuple[Array, Array, dict[str, dict[str, int]]]:
    """Exchanges and results as arrays, in the order of their numbers, and the ledger. As dicts they would be many."""
    engine = Engine(all_results=all_results)
    batches = batches_of(pcap_bytes(packets, nanoseconds=True), engine, runs)
    found = [np.concatenate([getattr(batch, name) for batch in batches]) for name in ("exchanges", "results")]
    exchanges, results = (rows[np.argsort(rows["exchange"], kind="stable")] for rows in found)
    return exchanges, results, Run((), engine).context().ledger


@pytest.mark.parametrize("all_results", [True, False])
def test_many_messages_at_once_are_the_same_as_one_after_another(all_results: bool) -> None:
    counts = [MOST_TAPE // 9] * 12 + [1, 0, MOST_TAPE // 5, 7]
    packets = encode(talk_of(counts).segments)
    at_once, apart = (tables(packets, all_results, runs) for runs in (None, [1] * len(packets)))
    assert np.array_equal(at_once[0], apart[0])
    assert np.array_equal(at_once[1], apart[1])
    assert at_once[2] == apart[2]
    assert len(at_once[1]) == sum(counts)
    assert not at_once[2].get("limits", {}).get("fields")


def test_requests_that_nothing_answers_end_with_their_part() -> None:
    """Of several connections, some end without an answer in the midst of parts."""
    many, lost = talk_of([MOST_TAPE // 4] * 7), KafkaTalk(("10.0.0.9", 40_000))
    lost.tcp.open()
    for number in range(50):
        lost.request(METADATA, 0, number)
    lost.tcp.close()
    packets = encode(sorted([*many.segments, *lost.segments], key=lambda each: each.time_ns))
    at_once, apart = (tables(packets, True, runs) for runs in (None, [1] * len(packets)))
    for first, second in zip(at_once[:2], apart[:2], strict=True):
        assert len(first) == len(second)
        assert np.array_equal(*(np.sort(rows.view(f"V{rows.itemsize}")) for rows in (first, second)))
    assert at_once[2] == apart[2]


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


def produce(partitions: list[int]) -> tuple[bytes, bytes]:
    """The bodies of a Produce request v0 and of its response, whose partitions come in the opposite order."""
    head = struct.pack("!ih1si", 1, 1, b"t", len(partitions))
    asked = b"".join(struct.pack("!iI", each, each % 7) + bytes(each % 7) for each in partitions)
    answered = b"".join(struct.pack("!ihq", each, 1, 5) for each in reversed(partitions))
    return struct.pack("!hi", 1, 1000) + head + asked, head + answered


def produced(count: int) -> tuple[float, Array]:
    """The processor time of two Produce exchanges with so many partitions, of which some come twice; their results."""
    numbers = [(each * 7919) % count for each in range(count)] + [5] * (count // 12)
    talk = KafkaTalk(mss=60_000)
    talk.tcp.open()
    for number in range(2):
        asked, answered = produce(numbers)
        talk.respond_raw(talk.request_raw(PRODUCE, 0, number, asked), answered)
    packets, begun = encode(talk.segments), time.process_time()
    exchanges, results, _ = tables(packets, True)
    took = time.process_time() - begun
    assert exchanges["response_status"].tolist() == [OK, OK]
    assert len(results) == 2 * len(numbers)
    return took, results


def test_partitions_of_a_produce_request_are_found_in_linear_time() -> None:
    """Each result of the response has the bytes of its partition. All are not compared with all."""
    few, _ = produced(7_500)
    many, results = produced(60_000)
    assert np.array_equal(results["bytes"], results["partition"] % 7)
    assert many < 20 * few + 0.3
