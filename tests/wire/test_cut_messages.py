"""Messages that the end of their connection, or of the capture, cuts: exchanges with their announced sizes.

What is expected of a message is computed from its bytes and from where it is cut, never from what is tested.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

from kafkatap import analyze
from kafkatap.dissector.dtypes import CLOSED_BY
from kafkatap.engine.engine import Engine
from kafkatap.engine.read_options import ReadOptions
from kafkatap.reports.counting.counts import ReportCounts
from tests.cli.running import kafkatap
from tests.support.captures import pcap_bytes
from tests.support.records import Record, batch
from tests.support.tcp import ACK, FIN, RST, Segment, encode, merge
from tests.wire.harness import Decoded, batches_of, check
from tests.wire.kafkatalk import FETCH, HEARTBEAT, METADATA, PRODUCE, KafkaTalk, raw_request, request, response

#: How a connection ends: who closes it (0: the client), and with which flag. None: the capture ends.
ENDS: dict[str, tuple[int, int] | None] = {
    "client's FIN": (0, FIN), "client's RST": (0, RST), "broker's FIN": (1, FIN), "broker's RST": (1, RST),
    "open": None,
}  # fmt: skip
#: Bytes of a request's header: up to the correlation_id; with the client_id "app".
FIXED, HEADER = 12, 17
RECORDS = batch([Record(None, b"a" * 900) for _ in range(3)])


def produce(acks: int = 1, client_id: str = "app") -> bytes:
    data = [{"Name": name, "PartitionData": [{"Index": 0, "Records": RECORDS}]} for name in ("orders", "refunds")]
    return request(PRODUCE, 7, 2, client_id, Acks=acks, TimeoutMs=30_000, TopicData=data)


def talk_with(data: bytes, end: str, *, by: int = 0, port: int = 40_000, is_first: bool = False) -> KafkaTalk:
    """A connection that ends with these bytes of an end (0: the client)."""
    talk = KafkaTalk(client=("10.0.0.1", port))
    talk.tcp.open()
    if not is_first:
        talk.exchange(METADATA, 4, 1)
    if by:
        talk.request(FETCH, 11, 2, MaxWaitMs=500)
    talk.tcp.send(by, data)
    close(talk, end)
    return talk


def close(talk: KafkaTalk, end: str) -> None:
    if (closing := ENDS[end]) is not None:
        talk.tcp._add(closing[0], closing[1] | ACK)


def last_row(seen: Decoded) -> dict[str, Any]:
    """The row of the request with correlation_id 2."""
    (row,) = [x for x in seen.exchanges if x["correlation_id"] == 2]
    return row


def data_times(segments: list[Segment], port: int, payload: bytes) -> tuple[int, int]:
    """The times of the segments of an end with the first and the last byte of what it sent last."""
    sent = [s for s in segments if s.source[1] == port and s.payload]
    rest, first = len(payload), 0
    for segment in reversed(sent):
        first, rest = segment.time_ns, rest - len(segment.payload)
        if rest <= 0:
            break
    return first, sent[-1].time_ns


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("count", [FIXED - 1, FIXED, HEADER - 1, HEADER, HEADER + 9, 3_000, -1])
def test_a_request_that_is_cut(end: str, count: int) -> None:
    whole = produce()
    sent = whole[:count]
    talk = talk_with(sent, end)
    seen = check(encode(talk.segments))
    payload = seen.ledger["payload bytes"]
    if len(sent) < FIXED:  # its header cannot be read
        assert [x["correlation_id"] for x in seen.exchanges] == [1]
        assert payload["skipped"] == len(sent)
        return
    row, closing = last_row(seen), ENDS[end]
    assert (row["api_key"], row["api_version"], row["request_bytes"]) == (PRODUCE, 7, len(whole) - 4)
    assert row["request_cut_bytes"] == len(whole) - len(sent)
    assert row["client_id"] == ("app" if count < 0 or count >= HEADER else None)
    assert (row["request_first"], row["request_last"]) == data_times(talk.segments, 40_000, sent)
    assert row["request_status"] == "incomplete"
    assert row["outcome"] == ("in_flight" if closing is None else "unanswered")
    assert row["closed_by"] == (-1 if closing is None else CLOSED_BY.index("client" if closing[0] == 0 else "broker"))
    assert row["waited_ns"] == talk.segments[-1].time_ns - row["request_last"]
    assert payload["kafka_frames"] == payload["total"]


@pytest.mark.parametrize("end", ENDS)
def test_acks_0_is_no_excuse_for_a_request_that_is_cut(end: str) -> None:
    row = last_row(check(encode(talk_with(produce(acks=0)[:2_000], end).segments)))
    assert (row["acks"], row["outcome"]) == (0, "in_flight" if ENDS[end] is None else "unanswered")


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("count", [7, 8, 12, 1_000])
def test_a_response_that_is_cut(end: str, count: int) -> None:
    """The client has no answer; the part that came is known."""
    partitions = [{"PartitionIndex": 0, "Records": RECORDS}]
    whole = response(FETCH, 11, 2, ThrottleTimeMs=70, Responses=[{"Topic": "orders", "Partitions": partitions}])
    talk = talk_with(whole[:count], end, by=1)
    seen = check(encode(talk.segments))
    row, payload = last_row(seen), seen.ledger["payload bytes"]
    assert row["outcome"] == ("in_flight" if ENDS[end] is None else "unanswered")
    if count < 8:
        assert (row["response_bytes"], payload["skipped"], seen.ledger["responses"]["cut"]) == (-1, count, 0)
        return
    assert (row["response_bytes"], row["response_cut_bytes"]) == (len(whole) - 4, len(whole) - count)
    assert (row["response_first"], row["response_last"]) == data_times(talk.segments, 9_092, whole[:count])
    assert row["response_status"] == "incomplete"
    assert row["throttle_time_ms"] == (70 if count >= 12 else -(2**31))
    assert seen.ledger["responses"] == {
        "matched": 1, "out_of_order": 0, "cut": 1, "orphan": 0, "sasl_tokens": 0, "header_not_captured": 0,
        "seen_twice": 0, "total": 2,
    }  # fmt: skip
    assert payload["kafka_frames"] == payload["total"]


def test_requests_behind_a_cut_response() -> None:
    talk = talk_with(b"", "open", by=1)
    talk.request(HEARTBEAT, 1, 3)
    talk.tcp.send(1, response(FETCH, 11, 2)[:9])
    close(talk, "broker's RST")
    seen = check(encode(talk.segments))
    assert sorted((x["correlation_id"], x["outcome"], x["response_bytes"] > 0) for x in seen.exchanges) == [
        (1, "answered", True), (2, "unanswered", True), (3, "unanswered", False),
    ]  # fmt: skip


def test_a_gap_that_never_closes() -> None:
    """Bytes are missing inside a request, and its end never comes."""
    whole = produce()
    talk = talk_with(whole[:2_000], "open")
    talk.tcp.skip(0, 500)
    talk.tcp.send(0, whole[2_500:3_000])
    close(talk, "broker's RST")
    row = last_row(check(encode(talk.segments)))
    assert (row["request_bytes"], row["request_cut_bytes"]) == (len(whole) - 4, len(whole) - 3_000)
    assert (row["outcome"], row["request_status"]) == ("unanswered", "incomplete")


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("count", [HEADER, HEADER + 10, HEADER + 16, 2_000, -1])
def test_a_connection_with_nothing_else(end: str, count: int) -> None:
    """It is Kafka by its first request if enough of the body came."""
    seen = check(encode(talk_with(produce()[:count], end, is_first=True).segments))
    is_found = count < 0 or count >= HEADER + 16
    assert [c["protocol"] for c in seen.connections] == ["kafka" if is_found else "unknown"]
    assert [x["api_key"] for x in seen.exchanges] == [PRODUCE] * is_found


@pytest.mark.parametrize(
    "data",
    [
        raw_request(PRODUCE, 7, 2, bytes(400), "\x01\x02"),  # a name that is no text
        raw_request(PRODUCE, 7, 2, bytes(400), ""),
        raw_request(PRODUCE, 7, 2, b"\x7f\xff\xff\xff" * 40),  # a body that is none
        raw_request(500, 0, 2, bytes(400)),
    ],
)
def test_no_connection_is_kafka_for_less(data: bytes) -> None:
    for end in ENDS:
        seen = check(encode(talk_with(data[:200], end, is_first=True).segments))
        assert (seen.exchanges, [c["protocol"] for c in seen.connections]) != ([], ["kafka"])
        assert seen.exchanges == []


def test_memory_and_sums_are_of_what_came(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that announces 100 MB, of which 1 kB comes."""
    head = struct.pack(">hhii", -1, 1, 30_000, 1)
    content = head + struct.pack(">h", 6) + b"orders" + struct.pack(">iii", 1, 0, 99_999_900)
    whole = raw_request(PRODUCE, 7, 2, content)
    data = struct.pack(">i", 100_000_000) + whole[4:] + bytes(1_000)
    engine, counts = Engine(ReadOptions()), ReportCounts()
    capture = pcap_bytes(encode(talk_with(data, "open").segments), nanoseconds=True)
    held, finish = [], engine.finish
    monkeypatch.setattr(engine, "finish", lambda: held.append(engine.dissector.pool_used) or finish())
    batches = batches_of(capture, engine)
    for one in batches:
        counts.add(one)
    row = next(x for one in batches for x in one.exchanges if x["correlation_id"] == 2)
    assert (int(row["request_bytes"]), int(row["request_cut_bytes"])) == (100_000_000, 100_000_004 - len(data))
    first = len(request(METADATA, 4, 1)) - 4
    assert counts.total("request_bytes") == first + len(data) - 4
    assert 0 < held[0] <= 16_384


@pytest.fixture(scope="module")
def refused(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A client of which the broker cuts off every Produce request."""
    talks = [talk_with(produce(client_id="uploader")[:2_000], "broker's RST", port=41_000 + n) for n in range(12)]
    path = tmp_path_factory.mktemp("cut") / "refused.pcap"
    path.write_bytes(pcap_bytes(encode(merge(*(talk.segments for talk in talks))), nanoseconds=True))
    return path


def test_a_client_whose_requests_are_all_cut_is_failing(refused: Path) -> None:
    report = analyze(refused).report()
    clients = {row["client_id"]: row for row in report.table("clients").named_rows()}
    assert clients["uploader"]["verdict"] == "failing"
    (_, note) = analyze(refused).report(sections=("slowest",)).table("slowest").notes
    assert note == "12 requests have no response, and no row here: see timeouts."
    assert "12 requests have no response: Produce 12" in kafkatap("report", refused).out
    assert "not parsed" not in kafkatap("report", refused).out


def test_show_and_records(refused: Path) -> None:
    shown = kafkatap("show", "--api", "Produce", refused).out
    assert shown.count("cut off before its end") == 12
    assert "captured" not in shown + kafkatap("show", "--api", "Produce", "--tree", refused).out
    assert "orders" in shown
    assert "refunds" not in shown  # its name had not come
    tree = kafkatap("show", "--api", "Produce", "-n", "1", "--json", refused).out
    assert '"orders"' in tree
