"""The order of single messages, limits on their number, and the facts that the second pass adds to each."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kafkatap.dissector.dtypes import EXCHANGE, NO_TIME
from kafkatap.dissector.inspection import Frames
from kafkatap.dissector.programs.loading import load_programs
from kafkatap.dissector.programs.machine import JOB
from kafkatap.engine.engine import Engine
from kafkatap.engine.read_options import AS_USUAL, ReadOptions
from kafkatap.engine.selection import Selection, TimeWindow
from kafkatap.reports.literals import Moment
from kafkatap.selected_messages.message import Message, Messages
from kafkatap.selected_messages.message_collector import MessageCollector
from kafkatap.selected_messages.message_index import index_messages, message_ids, message_times
from kafkatap.selected_messages.messages import read_messages
from tests.support.captures import pcap_bytes
from tests.support.tcp import START_NS, Segment, encode, lose, merge
from tests.wire.kafkatalk import METADATA, KafkaTalk, body, request, response, small_talk


def write(folder: Path, segments: Iterable[Segment]) -> str:
    path = folder / "a.pcap"
    path.write_bytes(pcap_bytes(encode(segments)))
    return str(path)


def each_of(parts: Iterable[Messages]) -> list[Message]:
    return [message for part in parts for message in part.each()]


def messages_of(path: str, frames: bool = False, **options: Any) -> list[Message]:
    index = index_messages([path], **options)
    messages = each_of(read_messages(index, AS_USUAL, MessageCollector(index.ids, frames)))
    assert [m.id for m in messages] == index.ids.tolist()
    return messages


def test_equal_times_are_in_the_order_of_the_exchanges(tmp_path: Path) -> None:
    talks = [small_talk(4, client=("10.0.0.1", 40_000 + n), step_ns=0) for n in range(3)]
    messages = messages_of(write(tmp_path, merge(*(talk.segments for talk in talks))))
    assert len(messages) == 24
    assert {m.time for m in messages} == {START_NS}
    assert [m.id for m in messages] == sorted(m.id for m in messages)


def test_times_rule_across_connections(tmp_path: Path) -> None:
    talks = [small_talk(5, client=("10.0.0.1", 40_000 + n), time_ns=START_NS + n * 333_000) for n in range(3)]
    messages = messages_of(write(tmp_path, merge(*(talk.segments for talk in talks))))
    wanted = [row[f"{side}_first"] for talk in talks for row in talk.wanted for side in ("request", "response")]
    assert [m.time for m in messages] == sorted(wanted)
    assert len({m.client for m in messages[:6]}) > 1


def test_a_message_is_as_late_as_its_first_byte_that_was_seen() -> None:
    rows = np.zeros(4, EXCHANGE)
    rows["exchange"] = (10, 11, 12, 13)
    rows["request_first"] = (5, NO_TIME, NO_TIME, 1)
    rows["request_last"] = (6, 7, NO_TIME, 2)
    rows["response_first"] = (8, NO_TIME, 3, 1)
    rows["response_last"] = (9, 12, 4, 1)
    jobs = np.zeros(6, JOB)
    jobs["frame"] = (0, 1, 2, 3, 4, 5)
    none = np.zeros(0, np.uint8)
    frames = Frames(jobs, load_programs("line"), rows, np.zeros(4), (none, none, none), np.zeros(4, np.uint64))
    assert message_times(frames).tolist() == [5, 8, 7, 12, NO_TIME, 3]
    assert message_ids(frames).tolist() == [20, 21, 22, 23, 24, 25]


def test_gaps_cost_their_messages_alone(tmp_path: Path) -> None:
    talk = small_talk(9, mss=40)
    whole = messages_of(write(tmp_path, talk.segments), True)
    assert len(whole) == 18
    data = [n for n, s in enumerate(talk.segments) if len(s.payload) == 40]
    for lost in data[3::9]:
        messages = messages_of(write(tmp_path, lose(talk.segments, lost)), True)
        times = [m.time for m in messages]
        assert times == sorted(times)
        assert len(messages) >= 15
        same = {m.time: m.frame for m in whole}
        kept = [m for m in messages if m.status == "ok"]
        assert len(kept) >= 15
        for m in kept:
            assert same[m.time] == m.frame
        for m in messages:
            assert len(m.frame) + m.missing == m.size + 4


@pytest.mark.parametrize(("first", "last", "kept"), [
    (3, None, slice(0, 3)), (None, 4, slice(6, 10)), (0, None, slice(0, 0)), (None, 0, slice(0, 0)),
    (7, 2, slice(5, 7)), (99, None, slice(0, 10)), (None, 99, slice(0, 10)),
])  # fmt: skip
def test_the_first_and_the_last(tmp_path: Path, first: int | None, last: int | None, kept: slice) -> None:
    path = write(tmp_path, small_talk(5).segments)
    whole = [m.id for m in messages_of(path)]
    assert len(whole) == 10
    index = index_messages([path], first=first, last=last)
    assert index.total == 10
    assert index.ids.tolist() == whole[kept]
    assert [m.id for m in each_of(read_messages(index, AS_USUAL, MessageCollector(index.ids)))] == whole[kept]


def test_directions_and_spans_of_time(tmp_path: Path) -> None:
    talk = small_talk(5)
    path = write(tmp_path, talk.segments)
    whole = messages_of(path)
    assert [m.id for m in messages_of(path, directions=(1,))] == [m.id for m in whole if m.is_response]
    start, end = whole[2].time, whole[6].time
    between = messages_of(path, selection=Selection(window=TimeWindow(Moment(start), Moment(end))))
    assert [m.id for m in between] == [m.id for m in whole[2:6]]
    later = TimeWindow(Moment(10**12, after_first=True), Moment(10**13, after_first=True))
    assert messages_of(path, selection=Selection(window=later)) == []


def test_outcomes_are_known_of_requests(tmp_path: Path) -> None:
    talk = KafkaTalk()
    talk.tcp.open()
    talk.exchange(METADATA, 1, 1)
    talk.request(METADATA, 1, 2)
    messages = messages_of(write(tmp_path, talk.segments))
    assert [(m.column("correlation_id"), m.is_response, m.outcome) for m in messages] == [
        (1, False, "answered"), (1, True, "answered"), (2, False, "in_flight")]  # fmt: skip


def test_what_lies_in_an_envelope_is_known_of_its_response(tmp_path: Path) -> None:
    talk = KafkaTalk()
    talk.tcp.open()
    talk.exchange(METADATA, 1, 1)
    inner = request(44, 1, 77, "admin")[4:]
    asked = [talk.request(58, 0, n, RequestData=inner, RequestPrincipal=None, ClientHostAddress=b"") for n in (2, 3)]
    short = talk.request_raw(58, 0, 4, body(58, 0, 0, RequestData=b"\0\x2c")[:5])
    for each in (*asked, short):
        talk.respond(each, ResponseData=response(44, 1, 77)[4:])
    path = write(tmp_path, talk.segments)
    messages = messages_of(path, True, directions=(1,))
    assert [m.enveloped for m in messages] == [None, (44, 1), (44, 1), None]
    one = messages_of(path, True, directions=(1,), last=2)
    assert [m.enveloped for m in one] == [(44, 1), None]


def test_frames_are_those_of_the_wire(tmp_path: Path) -> None:
    talk = small_talk(6, mss=30)
    sent = b"".join(s.payload for s in talk.segments if s.source == talk.client)
    came = b"".join(s.payload for s in talk.segments if s.source == talk.broker)
    messages = messages_of(write(tmp_path, talk.segments), True)
    assert b"".join(m.frame for m in messages if not m.is_response) == sent
    assert b"".join(m.frame for m in messages if m.is_response) == came
    assert {m.missing for m in messages} == {0}


def test_a_hint_of_the_port_goes_to_both_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, read, made = write(tmp_path, small_talk(3).segments), ReadOptions((9092,)), list[ReadOptions]()

    def make(read: ReadOptions, **options: Any) -> Engine:
        made.append(read)
        return Engine(read, **options)

    monkeypatch.setattr("kafkatap.selected_messages.message_index.Engine", make)
    monkeypatch.setattr("kafkatap.selected_messages.messages.Engine", make)
    index = index_messages([path], read)
    assert len(each_of(read_messages(index, read, MessageCollector(index.ids)))) == 6
    assert made == [read, read]
