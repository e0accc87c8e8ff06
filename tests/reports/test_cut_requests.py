"""What reports say of requests that never came whole, as an end closed the connection.

A broker closes connections in the middle of large requests of "uploader", and answers small ones of "app" in the same
version. "dead" closes in the middle of a request itself, "other" uses a version that the broker does not know.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kafkatap import analyze
from tests.support.captures import pcap_bytes
from tests.support.records import Record, batch
from tests.support.tcp import ACK, FIN, RST, START_NS, Segment, encode, merge
from tests.wire.kafkatalk import API_VERSIONS, METADATA, PRODUCE, KafkaTalk, request

SECOND = 1_000_000_000
LARGE, SMALL = (batch([Record(None, b"a" * size)]) for size in (9_000, 300))
#: Bytes that come of the large requests.
CAME = 4_000


def talk_of(client: str, port: int, at: float) -> KafkaTalk:
    made = KafkaTalk(client=("10.0.0.1", port), client_id=client, time_ns=START_NS + int(at * SECOND))
    made.tcp.open()
    return made


def produce(client: str, records: bytes, version: int = 7) -> bytes:
    data = [{"Name": "orders", "PartitionData": [{"Index": 0, "Records": records}]}]
    return request(PRODUCE, version, 2, client, Acks=-1, TimeoutMs=30_000, TopicData=data)


def cut(client: str, port: int, at: float, data: bytes, end: tuple[int, int]) -> list[Segment]:
    """A connection that an end closes behind this part of a request, two seconds later if it is the client."""
    talk = talk_of(client, port, at)
    talk.exchange(API_VERSIONS, 2, 1)
    talk.tcp.send(0, data)
    talk.tcp.time_ns += 0 if end[0] else 2 * SECOND
    talk.tcp._add(end[0], end[1] | ACK)
    return talk.segments


def app(count: int, at: float) -> list[Segment]:
    """Small requests that are answered, one each second."""
    talk = talk_of("app", 40_000, at)
    for n in range(count):
        talk.tcp.time_ns = START_NS + int((at + n) * SECOND)
        data = [{"Name": "orders", "PartitionData": [{"Index": 0, "Records": SMALL}]}]
        answer = {"Responses": [{"Name": "orders", "PartitionResponses": [{"Index": 0, "BaseOffset": n}]}]}
        talk.respond(talk.request(PRODUCE, 7, n, Acks=-1, TopicData=data), **answer)
    return talk.segments


def uploader(cuts: int) -> list[list[Segment]]:
    """It learns of the cluster again and again."""
    asks = talk_of("uploader", 41_000, 0)
    for n in range(20):
        asks.exchange(METADATA, 4, n)
    whole = produce("uploader", LARGE)
    return [asks.segments, *(cut("uploader", 41_001 + n, n + 0.5, whole[:CAME], (1, RST)) for n in range(cuts))]


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    talks = [
        app(9, 0), *uploader(4), cut("dead", 42_000, 1, produce("dead", LARGE)[:1_000], (0, FIN)),
        cut("other", 43_000, 5, produce("other", SMALL, 5), (1, FIN)),
    ]  # fmt: skip
    return written(tmp_path_factory.mktemp("cut") / "cut.pcap", talks)


def written(path: Path, talks: list[list[Segment]]) -> Path:
    path.write_bytes(pcap_bytes(encode(merge(*talks)), nanoseconds=True))
    return path


def tables(path: Path, *names: str, **selection: Any) -> Any:
    return analyze(path, **selection).report(sections=names)


def unanswered(path: Path, **selection: Any) -> str:
    """The first line on requests without a response."""
    rows = tables(path, "summary", **selection).table("summary").named_rows()
    return str(next((row["text"] for row in rows if row["finding"] == "unanswered"), ""))


#: The sizes with their size fields.
WHOLE, ANSWERED = len(produce("uploader", LARGE)), len(produce("app", SMALL))
LIMIT = "; broker 10.0.0.2:9092 closed in the middle of 4 requests of 8.9 KiB or more, and answered none above 419 B"


def test_a_request_that_never_came_whole_reached_nobody(capture: Path) -> None:
    text = unanswered(capture)
    assert (WHOLE, ANSWERED) == (9_126, 419)
    assert text.startswith('6 requests have no response: Produce 6; 4 by client "uploader"; 5 never arrived whole: ')
    assert (
        "the broker closed 4 after 15.6 KiB of 35.6 KiB, the client closed 1 after 1.0 KiB of 8.9 KiB; 1 reach" in text
    )


def test_a_cut_says_nothing_of_versions(capture: Path) -> None:
    report = tables(capture, "summary")
    assert [w for w in report.warnings if "never answered" in w] == [
        "Produce v5 (1 request) was never answered by a broker that answered others. Brokers close the connection "
        "after a request of a version that they do not know."
    ]
    assert "the broker may not know Produce v5;" in unanswered(capture)


def test_of_a_selection_others_are_known_or_nothing_is_said(capture: Path) -> None:
    assert unanswered(capture, filter="client_id == other").endswith("; the broker may not know Produce v5")
    text = unanswered(capture, filter="client_id == uploader")
    assert "; none arrived whole: the broker closed after 15.6 KiB of 35.6 KiB; " in text
    assert "may not know" not in text
    assert LIMIT in text
    # Sections without the first lines learn nothing of others.
    assert not [w for w in tables(capture, "latency", filter="client_id == other").warnings if "version" in w]


def test_a_limit_needs_two_and_all_above_all_that_were_answered(capture: Path, tmp_path: Path) -> None:
    assert LIMIT in unanswered(capture)
    row = next(r for r in tables(capture, "summary").table("summary").named_rows() if r["finding"] == "unanswered")
    assert row["setting"] == "socket.request.max.bytes"
    assert "in the middle" not in unanswered(written(tmp_path / "one.pcap", [app(9, 0), *uploader(1)]))
    # The broker answers nobody behind the second one: it may have stopped.
    stop = [cut("uploader", 44_000 + n, 5, produce("uploader", LARGE)[:CAME], (1, RST)) for n in range(2)]
    assert "in the middle" not in unanswered(written(tmp_path / "stop.pcap", [app(5, 0), *stop]))
    small = [cut("ups", 44_000 + n, n, produce("ups", SMALL)[:200], (1, RST)) for n in range(4)]
    assert "in the middle" not in unanswered(written(tmp_path / "small.pcap", [app(9, 0), *small]))


def test_whose_fault_it_is(capture: Path) -> None:
    rows = tables(capture, "timeouts").table("timeouts").named_rows()
    assert {(r["client_id"], r["requests"], r["fault"], r["what"]) for r in rows} == {
        ("uploader", 4, "broker", "broker closed in mid-request (RST)"),
        ("dead", 1, "client", "client closed in mid-request (FIN)"),
    }  # "other" never came beyond a handshake: a login that failed looks the same


def test_a_client_none_of_whose_requests_of_an_api_was_answered_is_failing(capture: Path) -> None:
    rows = {row["client_id"]: row for row in tables(capture, "clients").table("clients").named_rows()}
    assert (rows["uploader"]["verdict"], rows["uploader"]["evidence"]) == ("failing", "Produce 4 of 4 failed")
    assert rows["app"]["verdict"] != "failing"


def test_a_limit_may_show_in_requests_that_came_whole(tmp_path: Path) -> None:
    """The broker reads the size alone, while the rest is on its way: three of 4 KiB or more, and it goes on."""

    def text(count: int, size: int = 9_000, answers: int = 9, name: str = "whole.pcap") -> str:
        whole = produce("uploader", batch([Record(None, b"a" * size)]))
        talks = [cut("uploader", 44_000 + n, n + 0.5, whole, (1, FIN)) for n in range(count)]
        return unanswered(written(tmp_path / name, [app(answers, 0), *talks]))

    assert "10.0.0.2:9092 closed instead of an answer to 3 requests of 8.9 KiB or more" in text(3)
    assert "instead of an answer" not in text(2)
    assert "instead of an answer" in text(3, 4_000)
    assert "instead of an answer" not in text(3, 3_900)
    assert "instead of an answer" not in text(3, answers=2)  # it answers nobody behind the third one
