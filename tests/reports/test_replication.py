"""The section `replication` beside the leader's own request log (samples/questions/make_replication.py).

The log's remoteTimeMs is the wait for followers, from the end of the append (localTimeMs) on. The section sees no
append, so its wait is compared with the sum of both. What is left is Kafka's queues between its threads, and the time
between a thread's clock and the wire, on a machine of two cores.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard

from kafkatap import analyze
from kafkatap.dissector.dtypes import ANSWERED, NO_TIME, UNANSWERED
from kafkatap.reports.batch import Array, Context
from kafkatap.reports.section_parts.event_rows import EVENT
from kafkatap.reports.section_parts.follower_waits import READ_BY, Waits, waits_of
from tests.support.captures import pcap_bytes
from tests.support.records import Record, batch
from tests.support.section_runs import section_input, section_rows
from tests.support.tcp import encode
from tests.wire.kafkatalk import MS, PRODUCE, KafkaTalk

FOLDER = Path(__file__).resolve().parents[2] / "samples" / "questions"
#: Kinds of events of the section.
WRITTEN, FETCH, POSITION = 1, 2, 3
CAPTURE = FOLDER / "replication.pcap.zst"


@pytest.fixture(scope="module")
def truth() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FOLDER / "replication.truth.json").read_text())
    return found


@pytest.fixture(scope="module")
def joined(truth: dict[str, Any]) -> list[dict[str, Any]]:
    """Each Produce with acks=all: the row of the log, our wait and follower, and when it began and ended (s)."""
    produces = [dict(zip(truth["columns"], row, strict=True)) for row in truth["produces"]]
    log = {(row["client"], row["correlation_id"]): row for row in produces}
    given = section_input(CAPTURE, "replication")
    exchanges = {row["exchange"]: row for row in analyze(CAPTURE).exchanges.to_pylist()}
    found = []
    for topic, waits in waits_of(given.events(READ_BY), given.context):
        assert topic == "orders"
        for at, key in enumerate(waits.events["exchange"].tolist()):
            row = exchanges[key]
            end = row["response_first"].timestamp()
            found.append({
                "log": log[f"{row['client_ip']}:{row['client_port']}", row["correlation_id"]],
                "wait_ms": waits.wait_ns[at] / 1e6, "own_ms": waits.own_ns[at] / 1e6,
                "follower": int(waits.follower[at]), "is_left": bool(waits.is_left[at]),
                "begin": end - row["broker_ns"] / 1e9, "end": end,
            })  # fmt: skip
    return found


def test_answers_with_an_error_count_in_the_times_of_writers(tmp_path: Path) -> None:
    """Ten requests take 200 ms, and two more fail after 30 s: these are what takes the time."""
    talk = KafkaTalk(("10.0.0.9", 50_000), client_id="orders-service", step_ns=0)
    talk.tcp.open()
    for n in range(12):
        data = [{"Name": "orders", "PartitionData": [{"Index": 0, "Records": batch([Record(None, b"v")])}]}]
        asked = talk.request(PRODUCE, 7, n, Acks=-1, TimeoutMs=30_000, TopicData=data)
        failed = n in (4, 8)
        talk.tcp.wait(30_000 * MS if failed else 200 * MS)
        answer = {"Index": 0, "ErrorCode": 7 if failed else 0, "BaseOffset": -1 if failed else n}
        talk.respond(asked, Responses=[{"Name": "orders", "PartitionResponses": [answer]}])
        talk.tcp.wait(MS)
    path = tmp_path / "timed-out.pcap"
    path.write_bytes(pcap_bytes(encode(talk.segments), nanoseconds=True))
    (row,) = analyze(path).report(sections=("replication",)).table("replication_writers").named_rows()
    assert (row["client_id"], row["topic"], row["produces"], row["failed"]) == ("orders-service", "orders", 12, 2)
    assert (row["broker_p50_ns"], row["broker_max_ns"]) == (200 * MS, 30_000 * MS)
    assert row["finding"] == "failed (REQUEST_TIMED_OUT): 96.8 % of the time"


def test_every_request_with_acks_all_has_a_wait(truth: dict[str, Any], joined: list[dict[str, Any]]) -> None:
    wanted = {p[2] for p in truth["produces"] if p[-1] == -1}
    assert {row["log"]["correlation_id"] for row in joined} == wanted


def test_waits_are_those_of_the_leader(joined: list[dict[str, Any]]) -> None:
    ours = np.array([row["wait_ms"] for row in joined])
    theirs = np.array([row["log"]["localTimeMs"] + row["log"]["remoteTimeMs"] for row in joined])
    difference = ours - theirs
    assert abs(np.median(difference)) < 1
    assert np.percentile(np.abs(difference), 90) < 5
    assert np.abs(difference).max() < 30
    assert abs(ours.sum() / theirs.sum() - 1) < 0.05


def test_long_waits_are_charged_to_the_follower_that_was_stopped(
    truth: dict[str, Any], joined: list[dict[str, Any]]
) -> None:
    compared = 0
    for row in joined:
        during = {
            follower: min(until, row["end"]) - max(since, row["begin"])
            for follower, since, until in truth["stops"]
            if since < row["end"] and until > row["begin"]
        }
        if during and row["log"]["remoteTimeMs"] > 60:
            assert row["follower"] == max(during, key=lambda follower: during[follower])
            assert row["own_ms"] > 0.5 * row["wait_ms"]
            compared += 1
    assert compared >= 10


def test_the_follower_that_left_the_in_sync_replicas(truth: dict[str, Any], joined: list[dict[str, Any]]) -> None:
    assert any("Shrinking ISR from 1,2,3 to 1,2" in line for line in truth["in_sync"])
    left = [row for row in joined if row["is_left"]]
    assert [row["follower"] for row in left] == [3]
    assert left[0]["log"]["remoteTimeMs"] > 3000  # replica.lag.time.max.ms


def test_tables() -> None:
    tables = section_rows(CAPTURE, "replication")
    followers = tables["replication"]
    assert [(row["follower"], row["address"], row["topic"]) for row in followers] == [
        (3, "10.77.0.3", "orders"),
        (2, "10.77.0.2", "orders"),
    ]
    assert sum(row["charged"] for row in followers) == 406
    assert sum(row["wait_share"] for row in followers) == pytest.approx(1)
    (writer,) = tables["replication_writers"]
    assert (writer["client_id"], writer["produces"]) == ("checkout", 406)
    assert writer["finding"].startswith("follower 3: ")


def test_a_capture_without_followers() -> None:
    tables = section_rows(FOLDER / "upgrade-4.3.pcap.zst", "replication")
    assert tables["replication"] == []
    assert {row["finding"] for row in tables["replication_writers"]} == {"no follower was captured"}


def written(begin: int, end: int, offset: int) -> Array:
    """A Produce with acks=all that ends at an offset. Times are in ms."""
    row = event(WRITTEN, end, offset)
    row["v1"], row["exchange"] = begin * MS, offset
    return row


def fetched(at: int, follower: int, offset: int, answered: int | None, connection: int = 0) -> list[Array]:
    """A Fetch of a follower, on its usual connection if none is named. `answered`: None: its connection was closed."""
    rows = [event(FETCH, at, 0), event(POSITION, at, offset)]
    for row in rows:
        row["v1"], row["v2"] = follower, NO_TIME if answered is None else answered * MS
        row["connection"], row["outcome"] = connection or follower, UNANSWERED if answered is None else ANSWERED
    return rows


def event(kind: int, time: int, offset: int) -> Array:
    row = np.zeros(1, EVENT)
    row["kind"], row["time"], row["v0"], row["topic_id"] = kind, time * MS, offset, -1
    return row


def only(*events: Array) -> Waits:
    """The waits of the only partition."""
    rows = np.concatenate(sorted(events, key=lambda row: int(row["time"][0])))
    ((topic, waits),) = waits_of(rows, Context(strings=(b"orders",)))
    assert topic == "orders"
    return waits


def test_the_last_follower_is_charged() -> None:
    """Follower 2 has its Fetch at the leader until 12 ms, and is back at 15 ms; follower 3 is back at 30 ms."""
    waits = only(
        *fetched(1, 2, 0, 12), *fetched(15, 2, 1, 500), *fetched(2, 3, 0, 10), *fetched(30, 3, 1, 500),
        written(10, 31, 1),
    )  # fmt: skip
    assert waits.follower.tolist() == [3]
    assert (waits.wait_ns / MS).tolist() == (waits.own_ns / MS).tolist() == [20]
    assert not waits.is_left.any()
    assert waits.is_slow.all()


@pytest.mark.parametrize("is_back", [True, False])
def test_a_follower_that_is_away_is_not_slow(is_back: bool) -> None:
    """It was killed at 5 ms, and either comes back on another connection or is removed from the in-sync replicas."""
    killed = [*fetched(0, 3, 0, 1), *fetched(2, 3, 1, None)]
    back = fetched(200, 3, 2, 500, connection=9) if is_back else []
    waits = only(
        *fetched(0, 2, 0, 1), *fetched(2, 2, 1, 11), *fetched(12, 2, 2, 500), *killed, *back,
        written(1, 3, 1), written(10, 201, 2),
    )  # fmt: skip
    assert waits.follower.tolist()[1] == 3
    assert waits.wait_ns[1] >= 190 * MS
    assert waits.is_slow.tolist() == [True, False]


def test_the_only_follower_that_is_there_is_not_slow() -> None:
    """Follower 3 is removed at 30 ms. Then there is none to compare follower 2 with."""
    waits = only(
        *fetched(1, 3, 0, 10), *fetched(11, 3, 1, None), *fetched(1, 2, 0, 12), *fetched(15, 2, 1, 20),
        *fetched(25, 2, 2, 60), *fetched(90, 2, 3, 500), written(10, 16, 1), written(20, 30, 2), written(50, 91, 3),
    )  # fmt: skip
    assert waits.follower.tolist() == [2, 3, 2]
    assert waits.is_slow.tolist() == [True, False, False]


def test_nobody_is_charged_for_what_nobody_fetched() -> None:
    waits = only(*fetched(1, 2, 0, 12), written(10, 31, 1))
    assert (waits.follower.tolist(), waits.wait_ns.tolist(), waits.is_left.tolist()) == ([-1], [0], [False])


def test_a_wait_has_a_part_of_the_leader() -> None:
    """The leader holds the follower's Fetch from 1 ms to 16 ms: of the wait from 10 ms to 20 ms 6 ms are its own."""
    waits = only(*fetched(1, 2, 0, 16), *fetched(20, 2, 1, 500), written(10, 21, 1))
    assert (waits.wait_ns[0] / MS, waits.own_ns[0] / MS) == (10, 4)


def test_requests_that_wait_until_a_follower_is_removed() -> None:
    """Follower 3 was in time once. Then two requests wait until it is removed at 100 ms, and a later one does not."""
    waits = only(
        *fetched(1, 2, 0, 10), *fetched(11, 2, 1, 20), *fetched(21, 2, 2, 30), *fetched(31, 2, 3, 120),
        *fetched(121, 2, 4, 600), *fetched(1, 3, 0, 10), *fetched(12, 3, 1, 700), *fetched(700, 3, 4, 900),
        written(10, 13, 1), written(20, 100, 2), written(30, 101, 3), written(120, 122, 4),
    )  # fmt: skip
    assert waits.follower.tolist() == [3, 3, 3, 2]
    assert waits.is_left.tolist() == [False, True, True, False]
    assert (waits.wait_ns / MS).tolist() == [2, 80, 71, 1]


def test_many_followers_are_bounded() -> None:
    fetches = [row for follower in range(500) for row in fetched(1, follower, 0, 2)]
    assert len(only(*fetches, written(10, 20, 1)).followers) == 32


def test_waits_on_a_crowded_cluster(corpus: Path) -> None:
    """Three brokers and two dozen clients on two cores, some of them stopped meanwhile.

    A request may wait for long before a broker reads it, which its log does not know, and threads wait for each other.
    So single waits differ, and the sums by a tenth.
    """
    captures = corpus / "captures"
    capture = captures / "apache-4.3-broker1.pcap.zst"
    data = (
        zstandard.ZstdDecompressor()
        .decompressobj()
        .decompress((captures / "apache-4.3-broker1.request.log.zst").read_bytes())
    )
    log = {}
    for line in data.decode().splitlines():
        if '"requestApiKeyName":"PRODUCE"' in line:
            entry = json.loads(line[line.find("{") : line.rfind("}") + 1])
            client = entry["connection"].split("-")[1]
            log[client, entry["requestHeader"]["correlationId"]] = entry
    exchanges = {row["exchange"]: row for row in analyze(capture).exchanges.to_pylist()}
    given = section_input(capture, "replication")
    longest: dict[int, int] = {}
    for _, waits in waits_of(given.events(READ_BY), given.context):
        for key, wait in zip(waits.events["exchange"].tolist(), waits.wait_ns.tolist(), strict=True):
            longest[key] = max(longest.get(key, 0), wait)
    pairs = []
    for key, wait in longest.items():
        row = exchanges[key]
        if row["broker_ip"] == "10.77.0.1":  # the host of the capture and the log
            entry = log[f"{row['client_ip']}:{row['client_port']}", row["correlation_id"]]
            pairs.append((wait / 1e6, entry["requestQueueTimeMs"] + entry["localTimeMs"] + entry["remoteTimeMs"]))
    ours, theirs = np.array(pairs).T
    assert len(pairs) > 500
    assert abs(np.median(ours - theirs)) < 1
    assert np.percentile(np.abs(ours - theirs), 80) < 20
    assert abs(ours.sum() / theirs.sum() - 1) < 0.1
