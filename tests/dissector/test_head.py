"""The profile HEAD: of bodies that are not asked for no more is read than what tells about other exchanges."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kafkatap.dissector import dtypes as r
from kafkatap.dissector.layouts.schema import REQUEST
from kafkatap.dissector.programs.fields import FETCH, JOIN_GROUP, PRODUCE, SHARE_FETCH
from kafkatap.dissector.programs.program import Programs
from kafkatap.engine.engine import Engine
from kafkatap.run import Run
from tests.dissector.machine_support import ALL, Body, programs, run
from tests.support.captures import pcap_bytes
from tests.support.messages import generate_message
from tests.support.tcp import encode
from tests.wire.kafkatalk import KafkaTalk, body

SUMMARY_AND_HEAD: Programs = programs("summary").only_for(frozenset((PRODUCE,)), programs("head"))


#: What the head of a request has, by api_key: how long a broker may hold it.
WAITS = {
    PRODUCE: ("TimeoutMs",), FETCH: ("MaxWaitMs", "MinBytes"), SHARE_FETCH: ("MaxWaitMs", "MinBytes"),
    JOIN_GROUP: ("RebalanceTimeoutMs", "SessionTimeoutMs"),
}  # fmt: skip


def test_the_head_gives_throttle_times_and_waits_and_nothing_else() -> None:
    messages = [(Body(message, version, generate_message(message, version, seed)[0]), seed)
                for message, version in ALL for seed in range(3)]  # fmt: skip
    bodies = [each for each, _ in messages]
    head, whole = run(bodies, "head"), run(bodies, "summary")
    assert (head.jobs["status"] == r.OK).all()
    throttled = 0
    for number, each in enumerate(bodies):
        is_request = each.message.direction == REQUEST
        names = WAITS.get(each.message.api_key, ()) if is_request else ("ThrottleTimeMs",)
        wanted = [
            int(row["value"]) for row in whole.rows(number) if whole.programs.fields[int(row["field"])].path in names
        ]
        assert [int(row["value"]) for row in head.rows(number)] == wanted
        throttled += len(wanted) * (not is_request)
    assert throttled > 300


def test_what_follows_the_head_is_not_looked_at() -> None:
    message = next(m for m, _ in ALL if (m.api_key, m.direction) == (FETCH, 1))
    for version in range(1, message.versions.high + 1):
        data, value = generate_message(message, version, version)
        short = bytes(1) * (version in message.flexible) + struct.pack(">i", value["ThrottleTimeMs"])
        for content, missing in ((data, 0), (short, len(data)), (short + b"\xff" * 50, 0)):
            found = run([Body(message, version, content, missing)], "head")
            assert int(found.jobs["status"][0]) == r.OK
            assert [int(row["value"]) for row in found.rows(0)] == [value["ThrottleTimeMs"]]


def test_each_program_of_two_profiles_is_that_of_its_own_message() -> None:
    summary, head, both = programs("summary"), programs("head"), SUMMARY_AND_HEAD
    for message, version in ALL:
        place = (message.api_key, version, message.direction)
        first = both.find(*place)
        whole = message.api_key == PRODUCE
        own, offset = (summary, 0) if whole else (head, len(summary.code))
        assert first == own.find(*place) + offset
        assert both.same_as(summary, np.array([summary.find(*place)])).tolist() == [first]
        assert summary.same_as(both, np.array([first])).tolist() == [summary.find(*place)]
    assert both.same_as(summary, np.array([-1])).tolist() == [-1]


def damaged_fetches() -> KafkaTalk:
    """A connection on which every Fetch body is damaged behind its throttle time, which mutes what comes next."""
    talk = KafkaTalk()
    talk.tcp.open()
    for n in range(0, 20, 2):
        asked = talk.request(FETCH, 11, n, MaxWaitMs=500)
        talk.respond_raw(asked, struct.pack(">i", 1 if n % 4 else 0) + b"\x7f\xff" * 30)
        asked = talk.request(
            PRODUCE, 7, n + 1, Acks=-1, TopicData=[{"Name": "orders", "PartitionData": [{"Index": 3}]}]
        )
        partition = {"Index": 3, "ErrorCode": 6 if n % 3 else 0}
        answer = body(PRODUCE, 7, 1, Responses=[{"Name": "orders", "PartitionResponses": [partition]}])
        talk.respond_raw(asked, answer)
    talk.tcp.close()
    return talk


def exchanges(path: Path, apis: frozenset[int] | None, all_results: bool) -> tuple[Any, Any]:
    """The rows of exchanges and results. Strings have equal numbers in two runs with equal strings."""
    engine = Engine(all_results=all_results, apis=apis)
    batches = list(Run([str(path)], engine).batches())
    rows, results = (np.concatenate([getattr(b, name) for b in batches]) for name in ("exchanges", "results"))
    texts = [b"" if text is None else text for text in engine.strings]
    numbers = np.array([*(zlib.crc32(text) >> 1 for text in texts), -1], np.int32)
    for table, names in ((rows, r.EXCHANGE_STRINGS), (results, r.RESULT_STRINGS)):
        for name in names:
            table[name] = numbers[table[name]]
    return rows, results


@pytest.mark.parametrize("all_results", [False, True])
def test_fetch_bodies_are_not_walked_where_produce_is_asked_for(tmp_path: Path, all_results: bool) -> None:
    path = tmp_path / "a.pcap"
    path.write_bytes(pcap_bytes(encode(damaged_fetches().segments), nanoseconds=True))
    whole, whole_results = exchanges(path, None, all_results)
    head, head_results = exchanges(path, frozenset((PRODUCE,)), all_results)
    fetches, others = whole["api_key"] == FETCH, whole["api_key"] == PRODUCE
    assert (fetches.sum(), others.sum()) == (10, 10)
    assert (whole["response_status"][fetches] == r.MALFORMED).all()
    assert (head["response_status"][fetches] == r.OK).all()
    assert (whole["throttle_time_ms"][fetches] == head["throttle_time_ms"][fetches]).all()
    assert whole["throttle_wait_ns"][others].any(), "a mute window is to be waited for"
    assert (whole[others] == head[others]).all()
    numbers = whole["exchange"][others]
    of_produce = np.isin(whole_results["exchange"], numbers)
    assert of_produce.any()
    assert (whole_results[of_produce] == head_results[np.isin(head_results["exchange"], numbers)]).all()


@pytest.mark.parametrize("capture", ["apache-4.3-broker1", "apache-0.10.2"])
@pytest.mark.parametrize("api_key", [PRODUCE, FETCH, 3, 36])
def test_rows_that_are_asked_for_stay_the_same(corpus: Path, capture: str, api_key: int) -> None:
    path = corpus / "captures" / f"{capture}.pcap.zst"
    for all_results in (False, True):
        whole, whole_results = exchanges(path, None, all_results)
        head, head_results = exchanges(path, frozenset((api_key,)), all_results)
        asked = whole["api_key"] == api_key
        assert asked.any() or api_key == 36
        assert len(head) == len(whole)
        for name in whole.dtype.names:
            assert (whole[name][asked] == head[name][asked]).all(), name
        numbers = whole["exchange"][asked]
        wanted, found = (x[np.isin(x["exchange"], numbers)] for x in (whole_results, head_results))
        assert len(wanted) == len(found)
        assert (wanted == found).all()
