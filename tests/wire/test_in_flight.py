"""Requests under way when the capture ends: which of them are in flight, and who closed the connection of the others.

The expected outcome of each request is computed from when it was sent, what its body lets the broker wait, and how its
connection ends: never from what is tested.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kafkatap import analyze
from kafkatap.dissector.dtypes import CLOSED_BY, LATE_NS
from kafkatap.engine.engine import Engine
from kafkatap.engine.read_options import ReadOptions
from kafkatap.run import Run
from tests.support.captures import pcap_bytes
from tests.support.tcp import ACK, FIN, RST, START_NS, Segment, encode, merge
from tests.ways.reports import assert_same, one_engine, over_splits
from tests.wire.harness import Decoded, check
from tests.wire.kafkatalk import FETCH, HEARTBEAT, JOIN_GROUP, METADATA, PRODUCE, SYNC_GROUP, KafkaTalk

S = 1_000_000_000
CREATE_TOPICS = 19
#: When all captures here end: the last packet of a connection with nothing else to show.
END = START_NS + 1_000 * S


def clock() -> KafkaTalk:
    """A connection whose last packet, an ACK, comes at END."""
    talk = opened(("10.0.9.9", 50_000))
    talk.tcp.wait(END - talk.tcp.time_ns)
    talk.tcp._add(0, ACK)
    return talk


def opened(client: tuple[str, int]) -> KafkaTalk:
    talk = KafkaTalk(client=client, acks=True)
    talk.tcp.open()
    talk.exchange(METADATA, 4, 1)
    return talk


def close_by(end: int, flag: int) -> Callable[[KafkaTalk], None]:
    return lambda talk: talk.tcp._add(end, flag | ACK)


def wait_only(talk: KafkaTalk) -> None:
    pass


def lose_answer(talk: KafkaTalk) -> None:
    """The response is in a gap that its acknowledgement shows."""
    talk.tcp.skip(1, 200)
    talk.tcp._add(0, ACK)


def begin_answer(talk: KafkaTalk) -> None:
    """The first bytes of the response."""
    talk.tcp.send(1, b"\0\0\1\0" + b"\0\0\0\7" + bytes(40))


def then(*steps: Callable[[KafkaTalk], None]) -> Callable[[KafkaTalk], None]:
    def run(talk: KafkaTalk) -> None:
        for step in steps:
            step(talk)

    return run


@dataclass
class Case:
    """A request that waits for `waited` seconds when the capture ends, and its expected outcome."""

    api: int
    version: int
    values: dict[str, Any]
    waited: float
    outcome: str
    closed_by: str | None = None
    after: Callable[[KafkaTalk], None] = wait_only


LATE = LATE_NS / S
CASES = {
    "metadata, just in time": Case(METADATA, 4, {}, LATE - 1, "in_flight"),
    "metadata, late": Case(METADATA, 4, {}, LATE + 1, "unanswered"),
    "fetch within its wait": Case(FETCH, 11, {"MaxWaitMs": 60_000}, 60 + LATE - 1, "in_flight"),
    "fetch beyond its wait": Case(FETCH, 11, {"MaxWaitMs": 60_000}, 60 + LATE + 1, "unanswered"),
    "produce, acks=all": Case(PRODUCE, 7, {"Acks": -1, "TimeoutMs": 40_000}, 40 + LATE - 1, "in_flight"),
    "produce, flexible": Case(PRODUCE, 9, {"Acks": 1, "TimeoutMs": 40_000}, 40 + LATE - 1, "in_flight"),
    "produce, late": Case(PRODUCE, 7, {"Acks": 1, "TimeoutMs": 40_000}, 40 + LATE + 1, "unanswered"),
    "produce, acks=0": Case(PRODUCE, 7, {"Acks": 0, "TimeoutMs": 40_000}, 5, "no_reply_expected"),
    "join": Case(JOIN_GROUP, 5, {"RebalanceTimeoutMs": 300_000}, 300 + LATE - 1, "in_flight"),
    "join, late": Case(JOIN_GROUP, 5, {"RebalanceTimeoutMs": 300_000}, 300 + LATE + 1, "unanswered"),
    "join before rebalance timeouts": Case(JOIN_GROUP, 0, {"SessionTimeoutMs": 90_000}, 90 + LATE - 1, "in_flight"),
    "join before them, late": Case(JOIN_GROUP, 0, {"SessionTimeoutMs": 90_000}, 90 + LATE + 1, "unanswered"),
    "create topics": Case(CREATE_TOPICS, 4, {"timeoutMs": 50_000}, 50 + LATE - 1, "in_flight"),
    "negative wait": Case(PRODUCE, 7, {"Acks": -1, "TimeoutMs": -1}, LATE - 1, "in_flight"),
    "client's FIN": Case(FETCH, 11, {"MaxWaitMs": 500}, 3, "unanswered", "client", close_by(0, FIN)),
    "client's RST": Case(FETCH, 11, {"MaxWaitMs": 500}, 3, "unanswered", "client", close_by(0, RST)),
    "broker's FIN": Case(FETCH, 11, {"MaxWaitMs": 500}, 3, "unanswered", "broker", close_by(1, FIN)),
    "broker's RST": Case(METADATA, 4, {}, 3, "unanswered", "broker", close_by(1, RST)),
    "lost in a gap": Case(METADATA, 4, {}, 3, "response_lost", None, lose_answer),
    "begun": Case(METADATA, 4, {}, 3, "in_flight", None, begin_answer),
    "begun long ago": Case(METADATA, 4, {}, LATE + 3, "response_lost", None, begin_answer),
    "begun, then reset": Case(METADATA, 4, {}, 3, "unanswered", "client", then(begin_answer, close_by(0, RST))),
    "begun, then broken off": Case(METADATA, 4, {}, 3, "unanswered", "broker", then(begin_answer, close_by(1, RST))),
}  # fmt: skip


def port_of(number: int) -> int:
    return 41_000 + number


def talk_of(case: Case, number: int) -> KafkaTalk:
    talk = opened(("10.0.0.1", port_of(number)))
    sent_at = END - int(case.waited * S)
    talk.tcp.wait(sent_at - talk.tcp.time_ns)
    talk.request(case.api, case.version, 7, **case.values)
    case.after(talk)
    return talk


def segments() -> list[Segment]:
    return merge(clock().segments, *(talk_of(case, n).segments for n, case in enumerate(CASES.values())))


def expected() -> dict[int, tuple[str, str | None]]:
    return {port_of(n): (case.outcome, case.closed_by) for n, case in enumerate(CASES.values())}


def found_in(seen: Decoded) -> dict[int, tuple[str, str | None]]:
    """By port, the outcome of the last request, and who closed its connection."""
    return {
        x["client_port"]: (x["outcome"], None if x["closed_by"] < 0 else CLOSED_BY[x["closed_by"]])
        for x in seen.exchanges
        if x["correlation_id"] == 7
    }


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("in_flight") / "cases.pcap"
    made.write_bytes(pcap_bytes(encode(segments()), nanoseconds=True))
    return made


def test_each_case_however_it_is_cut() -> None:
    """`check` decodes in many ways, and demands that ledger and rows agree."""
    names = dict(zip(expected(), CASES, strict=True))
    seen = check(encode(segments()))
    found, wanted = found_in(seen), expected()
    assert {names[port]: row for port, row in found.items()} == {names[port]: row for port, row in wanted.items()}

    for x in seen.exchanges:
        case = CASES[names[x["client_port"]]] if x["correlation_id"] == 7 else None
        if case is None or case.outcome == "no_reply_expected":
            assert (x["closed_by"], x["waited_ns"]) == (-1, -1), x
        elif case.closed_by is None:  # until the capture ended
            assert x["waited_ns"] == END - x["request_last"] == case.waited * S
        else:  # until the connection was closed, which is the last segment of each
            assert (
                x["waited_ns"] == talk_of(case, x["client_port"] - port_of(0)).segments[-1].time_ns - x["request_last"]
            )


def test_a_sync_group_waits_as_long_as_its_join_said() -> None:
    """Its body names no wait. Of a connection without a JoinGroup before, none is known."""
    for joined, waited, outcome in ((120, 149, "in_flight"), (120, 151, "unanswered"), (None, 149, "unanswered")):
        talk = opened(("10.0.0.1", 41_000))
        talk.tcp.wait(END - (waited + 1) * S - talk.tcp.time_ns)
        if joined is not None:
            talk.respond(talk.request(JOIN_GROUP, 5, 3, RebalanceTimeoutMs=joined * 1_000), GenerationId=1)
        talk.tcp.wait(END - waited * S - talk.tcp.time_ns)
        talk.request(SYNC_GROUP, 3, 7, GenerationId=1)
        seen = check(encode(merge(clock().segments, talk.segments)))
        assert found_in(seen) == {41_000: (outcome, None)}


def test_the_limit_is_an_option(path: Path) -> None:
    """A shorter one makes fewer requests in flight: what waits for 29 s is late after 5 s."""
    late = 5 * S
    outcomes = {}
    for batch in Run([str(path)], Engine(ReadOptions(late=late))).batches():
        outcomes |= dict(zip(batch.exchanges["client_port"].tolist(), batch.exchanges["outcome"].tolist(), strict=True))
    names = dict(zip(expected(), CASES, strict=True))
    in_flight = {names[port] for port, outcome in outcomes.items() if outcome == 2}
    assert in_flight == {"begun"}  # it waits for 3 s; the others for 29 s, or 29 s beyond what their bodies say


def test_tables_filters_and_heading(path: Path) -> None:
    whole = analyze(path)
    rows = [row for row in whole.exchanges.to_pylist() if row["correlation_id"] == 7]
    assert {row["client_port"]: (row["outcome"], row["closed_by"]) for row in rows} == expected()
    wanted = sum(case.outcome == "in_flight" for case in CASES.values())
    assert len(analyze(path, filter="outcome == in_flight").exchanges) == wanted
    closed = sum(case.closed_by == "client" for case in CASES.values())
    assert len(analyze(path, filter="closed_by == client").exchanges) == closed
    heading = whole.report().heading
    assert dict(zip([column.name for column in heading.columns], heading.rows[0], strict=True))["in_flight"] == wanted
    heading = whole.report(options={"late": 5 * S}).heading
    assert dict(zip([column.name for column in heading.columns], heading.rows[0], strict=True))["in_flight"] == 1


@pytest.mark.parametrize("count", [2, 6])
def test_a_split_is_not_the_end_of_the_capture(path: Path, count: int) -> None:
    assert_same(over_splits([path], count), one_engine([path]))


def test_an_answer_in_a_later_file_is_an_answer(tmp_path: Path) -> None:
    """One run over rotated files: only the end of the last one is the end of the capture."""
    talk = opened(("10.0.0.1", 41_000))
    asked = talk.request(HEARTBEAT, 1, 7)
    cut = len(talk.segments)
    talk.tcp.wait(20 * S)
    talk.respond(asked)
    talk.request(HEARTBEAT, 1, 8)
    paths = []
    for n, part in enumerate((talk.segments[:cut], talk.segments[cut:])):
        paths.append(tmp_path / f"{n}.pcap")
        paths[-1].write_bytes(pcap_bytes(encode(part), nanoseconds=True))
    rows = {row["correlation_id"]: row["outcome"] for row in analyze(paths).exchanges.to_pylist()}
    assert rows == {1: "answered", 7: "answered", 8: "in_flight"}
    alone = {row["correlation_id"]: row["outcome"] for row in analyze(paths[0]).exchanges.to_pylist()}
    assert alone == {1: "answered", 7: "in_flight"}
