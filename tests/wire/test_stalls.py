"""Why a sender was silent within a message, on timelines that are exact to the nanosecond: each cause by itself."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import replace

import pytest

from kafkatap.dissector.time_parts import parts_of
from tests.support.captures import Packet
from tests.support.tcp import ACK, PSH, START_NS, Segment, encode
from tests.wire.harness import Row, check
from tests.wire.kafkatalk import MS, PRODUCE, KafkaTalk

#: Bytes of TCP and IPv4 headers before the options, and of Ethernet's.
_ETHERNET, _IP, _TCP = 14, 20, 20


def with_options(packets: Sequence[Packet], options: dict[int, bytes], windows: dict[int, int]) -> list[Packet]:
    """Packets with TCP options (padded to 4 bytes) and windows, by number."""
    made = []
    for n, packet in enumerate(packets):
        data = bytearray(packet.data)
        at = _ETHERNET + _IP
        if n in windows:
            data[at + 14 : at + 16] = struct.pack(">H", windows[n])
        if n in options:
            more = options[n] + b"\1" * (-len(options[n]) % 4)
            data[at + 12] = (_TCP + len(more)) // 4 << 4
            length = struct.unpack_from(">H", data, _ETHERNET + 2)[0]
            data[_ETHERNET + 2 : _ETHERNET + 4] = struct.pack(">H", length + len(more))
            data[at + _TCP : at + _TCP] = more
        made.append(Packet(packet.time_ns, bytes(data)))
    return made


class Timeline:
    """One connection with an exchange in its first 5 ms. Times are in ms after its start, stream offsets count from the
    second request, which is `request`."""

    def __init__(self, throttle: int = 0) -> None:
        talk = KafkaTalk(acks=False)
        talk.tcp.open()
        for n in range(2):
            asked = talk.request(PRODUCE, 7, n, Acks=1, TimeoutMs=1_000)
            self.request = talk.segments[-1].payload
            talk.respond(asked, ThrottleTimeMs=0 if n else throttle)
            self.response = talk.segments[-1].payload
        self.ahead = talk.segments[4].payload
        opening = talk.segments[:5]
        self.client, self.broker = opening[0].source, opening[0].destination
        self.next = [opening[3].seq + len(opening[3].payload), opening[4].seq + len(opening[4].payload)]
        self.segments: list[Segment] = [replace(s, time_ns=START_NS + n * MS // 10) for n, s in enumerate(opening)]
        self.options: dict[int, bytes] = {}
        self.windows: dict[int, int] = dict.fromkeys(range(5), 65_535)

    def add(
        self, ms: float, end: int, first: int, data: bytes = b"", acked: int = 0, push: bool = True,
        window: int = 65_535, options: bytes = b"",
    ) -> None:  # fmt: skip
        """A segment of the client (0) or broker (1), with data from a stream offset on."""
        ends = (self.client, self.broker) if end == 0 else (self.broker, self.client)
        flags = ACK | (PSH if push and data else 0)
        n = len(self.segments)
        self.segments.append(
            Segment(START_NS + round(ms * MS), *ends, self.next[end] + first, self.next[1 - end] + acked, flags, data)
        )
        self.windows[n] = window
        if options:
            self.options[n] = options

    def row(self) -> Row:
        """The second exchange."""
        packets = with_options(encode(self.segments), self.options, self.windows)
        [row] = [x for x in check(packets).exchanges if x["correlation_id"] == 1]
        return row

    def parts(self) -> dict[str, float]:
        """The parts of its time that are not 0, in ms."""
        return {name: ns / MS for name, ns in parts_of(self.row()).items() if ns}


def stamps(value: int, echo: int) -> bytes:
    return struct.pack(">BBBBII", 1, 1, 8, 10, value, echo)


def sack(first: int, last: int) -> bytes:
    return struct.pack(">BBBBII", 1, 1, 5, 10, first, last)


def test_nagle_with_a_delayed_ack() -> None:
    """The 4 bytes of the size go first. The rest waits 40 ms for their acknowledgement."""
    line = Timeline()
    request, end = line.request, len(line.request)
    line.add(10, 0, 0, request[:4])
    line.add(50, 1, 0, acked=4)
    line.add(50.1, 0, 4, request[4:])
    line.add(55, 1, 0, line.response, acked=end)
    row = line.row()
    assert row["nagle_ns"] == row["sender_ns"] == 40.1 * MS
    assert line.parts() == {"sender": 40.1, "broker": pytest.approx(4.9)}


def test_a_program_that_writes_a_message_in_two_parts() -> None:
    """The second part comes long after the acknowledgement of the first."""
    line = Timeline()
    request, end = line.request, len(line.request)
    line.add(10, 0, 0, request[:4])
    line.add(10.2, 1, 0, acked=4)
    line.add(90, 0, 4, request[4:])
    line.add(95, 1, 0, line.response, acked=end)
    row = line.row()
    assert (row["sender_ns"], row["nagle_ns"]) == (80 * MS, 0)


def test_a_closed_window_is_the_receivers() -> None:
    line = Timeline()
    request, end = line.request, len(line.request)
    line.add(10, 0, 0, request[:6])
    line.add(10.1, 1, 0, acked=6, window=0)
    line.add(10.2, 1, 0, acked=6, window=0)
    line.add(310, 1, 0, acked=6)
    line.add(310.1, 0, 6, request[6:])
    line.add(320, 1, 0, line.response, acked=end)
    parts = line.parts()
    assert parts["receiver"] == pytest.approx(300.1)


def _retransmitted(window: int) -> Timeline:
    """The first 6 bytes of the request are sent again, and acknowledged at once, at 30.1 ms, with this window."""
    line = Timeline()
    line.add(10, 0, 0, line.request[:6])
    line.add(10.1, 0, 6, line.request[6:12])
    line.add(30, 0, 0, line.request[:6])
    line.add(30.1, 1, 0, acked=12, window=window)
    return line


def test_a_window_that_closes_as_a_loss_ends_is_the_receivers() -> None:
    line = _retransmitted(0)
    line.add(310, 1, 0, acked=12)
    line.add(310.1, 0, 12, line.request[12:])
    line.add(320, 1, 0, line.response, acked=len(line.request))
    parts = line.parts()
    assert parts["loss"] == pytest.approx(20, abs=0.2)
    assert parts["receiver"] == pytest.approx(280, abs=0.2)


def test_a_program_that_pauses_after_a_loss() -> None:
    line = _retransmitted(65_535)
    line.add(310.1, 0, 12, line.request[12:])
    line.add(320, 1, 0, line.response, acked=len(line.request))
    parts = line.parts()
    assert parts["loss"] == pytest.approx(20, abs=0.2)
    assert parts["sender"] == pytest.approx(280, abs=0.2)


def test_a_retransmission_into_a_closed_window_is_a_probe() -> None:
    line = Timeline()
    request, end = line.request, len(line.request)
    line.add(10, 0, 0, request[:6])
    line.add(10.1, 1, 0, acked=3, window=0)
    line.add(210, 0, 3, request[3:6])
    line.add(210.1, 1, 0, acked=3, window=0)
    line.add(310, 1, 0, acked=3)
    line.add(310.1, 0, 3, request[3:6])
    line.add(310.2, 1, 0, acked=6)
    line.add(310.3, 0, 6, request[6:])
    line.add(320, 1, 0, line.response, acked=end)
    parts = line.parts()
    assert parts["receiver"] >= 200 > 101 > parts["loss"]


def test_a_mute_while_the_next_request_arrives_is_throttle_wait() -> None:
    """The broker does not read for 300 ms after the first response (KIP-219), so the window closes."""
    line = Timeline(throttle=300)
    request, end = line.request, len(line.request)
    line.add(10, 0, 0, request[:6])
    line.add(10.1, 1, 0, acked=6, window=0)
    line.add(350, 1, 0, acked=6)
    line.add(350.1, 0, 6, request[6:])
    line.add(360, 1, 0, line.response, acked=end)
    parts = line.parts()
    assert parts["throttle"] == pytest.approx(300 + 0.4 - 10)
    assert parts["receiver"] == pytest.approx(350.1 - 300 - 0.4)


def test_short_waits_for_a_tiny_window_count() -> None:
    """Each lasts 1 ms, less than a stall has to, but the window is full."""
    line = Timeline()
    request, end = line.request, len(line.request)
    step = 8
    for n, at in enumerate(range(0, end, step)):
        line.add(10 + n, 0, at, request[at : at + step], push=False)
        last = min(at + step, end)
        line.add(10.9 + n, 1, 0, acked=last, window=step)
    turns = -(-end // step)
    line.add(10 + turns, 1, 0, line.response, acked=end)
    assert line.parts()["receiver"] == pytest.approx(turns - 2, abs=0.2)


def test_a_lost_segment_costs_until_it_is_sent_again() -> None:
    """Behind the capture point: both copies were captured."""
    line = Timeline()
    request, end = line.request, len(line.request)
    line.add(10, 0, 0, request[:9])
    line.add(210, 0, 0, request[:9])
    line.add(211, 1, 0, acked=9)
    line.add(211.1, 0, 9, request[9:])
    line.add(215, 1, 0, line.response, acked=end)
    assert line.parts() == {"loss": pytest.approx(201.1), "broker": pytest.approx(3.9)}


def test_a_request_that_had_to_be_sent_again_is_at_the_broker_from_then_on() -> None:
    """A firewall dropped it for 1.5 s."""
    line = Timeline()
    request, end = line.request, len(line.request)
    for ms in (10, 210, 610, 1_510):
        line.add(ms, 0, 0, request)
    line.add(1_511, 1, 0, acked=end)
    line.add(1_530, 1, 0, line.response, acked=end)
    assert line.parts() == {"loss": 1_500, "broker": 20}


def test_an_acknowledgement_on_the_response_moves_nothing() -> None:
    line = Timeline()
    line.add(10, 0, 0, line.request)
    line.add(1_510, 1, 0, line.response, acked=len(line.request))
    assert line.parts() == {"broker": 1_500}


def test_a_retransmission_that_the_time_stamps_prove_spurious_costs_nothing() -> None:
    """The acknowledgement echoes the time stamp of the first copy (Eifel)."""
    line = Timeline()
    request, end = line.request, len(line.request)
    line.add(10, 0, 0, request, options=stamps(1_000, 1))
    line.add(210, 0, 0, request, options=stamps(1_200, 1))
    line.add(310, 1, 0, acked=end, options=stamps(9_000, 1_000))
    line.add(330, 1, 0, line.response, acked=end, options=stamps(9_020, 1_000))
    line.add(
        331, 1, len(line.response), acked=end, options=stamps(9_021, 1_000) + sack(line.next[0], line.next[0] + end)
    )
    assert line.parts() == {"broker": 320}
    [connection] = check(with_options(encode(line.segments), line.options, line.windows)).connections
    assert connection["client_retransmitted_packets"] == connection["client_spurious_retransmissions"] == 1


def test_a_report_of_duplicates_takes_a_loss_back() -> None:
    """Without time stamps D-SACK shows it."""
    line = Timeline()
    request, end = line.request, len(line.request)
    line.add(10, 0, 0, request)
    line.add(210, 0, 0, request)
    line.add(310, 1, 0, acked=end)
    line.add(311, 1, 0, acked=end, options=sack(line.next[0], line.next[0] + end))
    line.add(330, 1, 0, line.response, acked=end)
    assert line.parts() == {"broker": 320}
    [connection] = check(with_options(encode(line.segments), line.options, line.windows)).connections
    assert connection["client_spurious_retransmissions"] == 1


def test_a_response_whose_first_segment_was_lost_before_the_capture_point() -> None:
    """Its other bytes came 200 ms earlier."""
    line = Timeline()
    end = len(line.request)
    line.add(10, 0, 0, line.request)
    line.add(20, 1, 6, line.response[6:], acked=end)
    line.add(220, 1, 0, line.response[:6], acked=end)
    parts = line.parts()
    assert (parts["broker"], parts["loss"]) == (10, 200)


def _behind_a_lost_response(ms: float) -> Timeline:
    """The response ahead is lost behind the capture point, and sent again at 220 ms. The second one leaves at `ms`."""
    line = Timeline()
    ahead, end = len(line.ahead), len(line.request)
    line.add(10, 0, 0, line.request, acked=-ahead)
    line.add(10.1, 1, 0, acked=end)
    line.add(220, 1, -ahead, line.ahead, acked=end)
    line.add(220.2, 0, end)
    line.add(ms, 1, 0, line.response, acked=end)
    return line


def test_a_response_that_leaves_as_a_loss_ends_had_waited_behind_it() -> None:
    parts = _behind_a_lost_response(220.3).parts()
    assert parts["loss"] == pytest.approx(210.3)
    assert parts.get("broker", 0) == pytest.approx(0, abs=0.1)


def test_a_response_that_leaves_later_was_at_the_broker() -> None:
    assert _behind_a_lost_response(260).parts() == {"broker": 250}


@pytest.mark.parametrize(("stamp", "cause"), [(1_001, "path"), (1_080, "sender")])
def test_a_time_stamp_shows_when_a_segment_was_sent(stamp: int, cause: str) -> None:
    """A slow link in front of the capture point has a queue; a program that pauses has none."""
    line = Timeline()
    request, end = line.request, len(line.request)
    line.options |= {0: stamps(990, 0), 1: stamps(1, 990)}
    line.add(10, 0, 0, request[:4], options=stamps(1_000, 1))
    line.add(10.2, 1, 0, acked=4, options=stamps(2, 1_000))
    line.add(90, 0, 4, request[4:], options=stamps(stamp, 2))
    line.add(95, 1, 0, line.response, acked=end, options=stamps(9, stamp))
    assert line.parts() == {cause: 80, "broker": 5}
