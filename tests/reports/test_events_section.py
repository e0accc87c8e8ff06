"""The section `events` beside the brokers' logs and the clock of the script (samples/events)."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from kafkatap.reports.findings import Finding
from kafkatap.reports.sections.events import findings
from tests.support.captures import Packet, pcap_bytes, read_bytes, read_capture
from tests.support.copies import by_time, later, places, with_ids
from tests.support.group_members import GroupMember
from tests.support.section_runs import section_input
from tests.support.tcp import ACK, FIN, RST, START_NS, Segment, encode, frame, merge
from tests.wire.kafkatalk import HEARTBEAT, METADATA, MS, KafkaTalk

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "samples" / "events"
#: How far an event may be from the moment that a log or the script's clock shows.
NEAR_NS = 50_000_000
SECOND = 1_000_000_000
ADD_OFFSETS_TO_TXN, END_TXN = 25, 26
BROKER = {number: f"10.77.0.{number}:9092" for number in (1, 2, 3)}


@cache
def found(path: Path) -> tuple[Finding, ...]:
    return tuple(findings(section_input(path, "events")))


def events(scene: str, name: str = "") -> list[Finding]:
    """The events of a scene, or those of a kind."""
    return [finding for finding in found(FOLDER / f"{scene}.pcap.zst") if name in ("", finding.id)]


def only(scene: str, name: str) -> Finding:
    (finding,) = events(scene, name)
    return finding


def truth(scene: str) -> Any:
    return json.loads((FOLDER / f"{scene}.truth.json").read_text())


def step(scene: str, name: str) -> int:
    """The time of a step, ns."""
    return round(truth(scene)["steps"][name] * 1e9)


def logged(scene: str, broker: int, text: str) -> int:
    """The time of the first line of a broker's log with a text, ns."""
    return next(round(at * 1e9) for number, at, line in truth(scene)["log"] if number == broker and text in line)


def near(time: int | None, wanted: int) -> bool:
    return time is not None and abs(time - wanted) <= NEAR_NS


def roots(scene: str) -> list[str]:
    """The events that follow from no other one."""
    return [finding.id for finding in events(scene) if finding.cause is None]


@pytest.mark.parametrize(
    ("scene", "wanted"),
    [
        ("stop", ["broker_stopped"]),
        ("kill", ["broker_stopped"]),
        ("hang", ["broker_hung"]),
        ("firewall", ["hosts_cut_off"]),
        ("topics", ["topic_created", "topic_deleted"]),
        ("quota", ["quota_began"]),
        ("leak", ["connection_leak"]),
        ("storm", ["connection_storm"]),
    ],
)
def test_each_scene_has_its_events_and_no_other(scene: str, wanted: list[str]) -> None:
    assert roots(scene) == wanted


def test_a_clean_stop() -> None:
    stop, back = only("stop", "broker_stopped"), only("stop", "broker_returned")
    assert near(stop.begin, logged("stop", 1, "requested and been granted a controlled shutdown"))
    assert stop.party("broker") == BROKER[3]
    assert stop.numbers["announced"] is True
    assert stop.begin is not None
    closed_at = stop.begin + int(str(stop.numbers["closed_after_ns"]))
    assert near(closed_at, logged("stop", 3, "Stopping socket server request processors"))
    assert near(stop.end, logged("stop", 3, "The broker has been unfenced"))
    assert back.begin == stop.end
    assert back.cause == stop.key


def test_the_coordinator_moves_with_a_stop() -> None:
    moved = only("stop", "coordinator_moved")
    assert moved.party("group") == "packers"
    assert moved.numbers["from_node"] == 3
    assert moved.cause == only("stop", "broker_stopped").key
    assert step("stop", "stopped") < (moved.begin or 0) < step("stop", "ended")


def test_a_kill() -> None:
    stop = only("kill", "broker_stopped")
    assert near(stop.begin, step("kill", "killed"))
    assert stop.party("broker") == BROKER[2]
    assert stop.numbers["announced"] is False
    assert near(stop.end, logged("kill", 2, "The broker has been unfenced"))
    moved = only("kill", "leaders_moved")
    fenced = logged("kill", 1, "Fencing broker 2")
    assert 0 <= (moved.begin or 0) - fenced < 1_000_000_000  # clients ask again within a second
    assert moved.cause == stop.key


@pytest.mark.parametrize("seconds", [4.6, 6.0, 8.0])
def test_requests_behind_one_that_waits_for_the_killed_broker_are_no_hang(seconds: float, tmp_path: Path) -> None:
    """The others hold Produce requests with acks=all, and with them all that follows on these connections."""
    packets = read_capture(FOLDER / "kill.pcap.zst").packets
    path = tmp_path / "cut.pcap"
    until = packets[0].time_ns + int(seconds * 1e9)
    path.write_bytes(pcap_bytes([packet for packet in packets if packet.time_ns <= until]))
    assert {finding.id for finding in found(path)} & {"broker_stopped", "broker_hung"} == {"broker_stopped"}


def test_a_process_that_hangs() -> None:
    hang = only("hang", "broker_hung")
    assert near(hang.begin, step("hang", "hung"))
    assert near(hang.end, step("hang", "continued"))
    assert hang.party("broker") == BROKER[3]
    assert hang.numbers["is_acknowledged"] is True
    assert hang.time_lost_ns > 10_000_000_000
    # tcpdump has 143 requests to it meanwhile, 127 of them on one connection: those behind others are no waits.
    assert "; requests of 4 clients waited on 5 connections; " in hang.text


def test_a_firewall_between_two_hosts() -> None:
    cut = only("firewall", "hosts_cut_off")
    assert near(cut.begin, step("firewall", "dropped"))
    assert cut.party("host") == "10.77.0.22"
    assert cut.party("broker") == BROKER[2]
    # The next try of TCP comes at most as long after the rule has gone as the rule was there.
    dropped, passed = step("firewall", "dropped"), step("firewall", "passed")
    assert passed <= (cut.end or 0) <= passed + (passed - dropped)


def test_an_outage_says_what_of_its_time_was_not_captured(tmp_path: Path) -> None:
    """A file of a ring that is gone: the broker may have returned meanwhile."""
    data = read_bytes(FOLDER / "kill.pcap.zst")
    head, packets, at = data[:24], [], 24
    while at < len(data):
        size = 16 + int.from_bytes(data[at + 8 : at + 12], "little")
        packets.append(data[at : at + size])
        at += size
    half, later = len(packets) // 2, len(packets) * 3 // 4
    files = [tmp_path / "1.pcap", tmp_path / "2.pcap"]
    for path, part in zip(files, (packets[:half], packets[later:]), strict=True):
        path.write_bytes(head + b"".join(part))
    made = findings(section_input(files, "events"))
    (stop,) = (finding for finding in made if finding.id == "broker_stopped")
    assert stop.text.endswith("; works again after 14.7 s; 5.06 s of that time was not captured")
    assert "not captured" not in only("kill", "broker_stopped").text


def test_a_topic_comes_and_goes() -> None:
    for name, done in (("topic_created", "created"), ("topic_deleted", "deleted")):
        event = only("topics", name)
        assert event.party("topic") == "refunds"
        assert step("topics", f"before_{done}") < (event.begin or 0) < step("topics", done)


def test_a_quota_begins_to_bite() -> None:
    event = only("quota", "quota_began")
    assert event.party("client") == "greedy"
    assert (event.begin or 0) > step("quota", "before_quota")


def test_a_leak() -> None:
    event = only("leak", "connection_leak")
    assert event.party("client") == "inventory"
    assert event.numbers["open"] == 24  # the clients that the script made
    assert step("leak", "leak_began") < (event.begin or 0)
    assert event.end is None


def test_a_storm() -> None:
    event = only("storm", "connection_storm")
    assert event.party("client") == "reconnector"
    assert event.numbers["connections"] == 40
    assert step("storm", "before_storm") < (event.begin or 0) < (event.end or 0) < step("storm", "storm_ended")


def test_every_event_has_a_packet_of_its_time() -> None:
    """The first packet of an event is at most a second before it, or after it."""
    from kafkatap import analyze

    for scene in ("stop", "kill", "hang", "firewall", "topics", "quota"):
        rows = analyze(FOLDER / f"{scene}.pcap.zst").exchanges.select(["request_packet_first", "request_first"])
        times = dict(zip(*(rows[name].to_pylist() for name in rows.column_names), strict=True))
        for event in events(scene):
            if event.id in ("broker_hung", "hosts_cut_off"):
                assert event.packets[0] in times, event


#: What is known to have happened in captures of others, from their descriptions and their brokers' and clients' logs.
OTHERS = {
    "questions/timeouts": ["broker_hung"],  # SIGSTOP for 5 s
    "questions/retries": ["broker_stopped"],  # the broker is killed and started again
    "questions/storms": ["connection_storm", "error_burst", "connection_storm", "connection_storm"],
    "questions/replication": [],
    "questions/tcp": [],
    "questions/groups": [],
    "questions/transactions": [],
    "questions/zones": [],
    "live-4.4": ["topic_created"],
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_captures_have_the_events_that_happened_in_them(name: str) -> None:
    seen = [event.id for event in found(ROOT / "samples" / f"{name}.pcap.zst") if event.cause is None]
    quiet = ("group_rebalanced", "quota_began")
    assert [kind for kind in seen if kind not in quiet] == OTHERS[name]


def test_packets_that_were_sent_again_before_a_hang_are_no_sign_of_the_network(tmp_path: Path) -> None:
    """As on a busy host: clients repeat requests before the broker hangs, to the end."""
    capture, hung = read_capture(FOLDER / "hang.pcap.zst"), step("hang", "hung")
    (link,) = capture.link_types
    packets = [p for p in capture.packets if p.time_ns < hung + 6_000_000_000]
    requests = [p for p in packets if p.time_ns < hung - 400_000_000 and _goes_to(p, link, 9092)]
    again = with_ids(by_time([*packets, *later(requests, 200_000_000)]), link)
    for name, written in (("once", packets), ("again", again)):
        (tmp_path / name).write_bytes(pcap_bytes(written, link))
    wanted = [event.id for event in found(tmp_path / "once")]
    assert "broker_hung" in wanted
    assert [event.id for event in found(tmp_path / "again")] == wanted


def _goes_to(packet: Packet, link: int, port: int) -> bool:
    """Whether a packet has TCP data for a port."""
    at = places(packet.data, link)
    return at is not None and at.end > at.payload and packet.data[at.tcp + 2 : at.tcp + 4] == port.to_bytes(2)


def test_a_hang_as_truth_says() -> None:
    """SIGSTOP of another recording: its steps are in ms."""
    (hang,) = (event for event in found(ROOT / "samples/questions/timeouts.pcap.zst") if event.id == "broker_hung")
    steps = json.loads((ROOT / "samples/questions/timeouts.truth.json").read_text())["steps"]
    stopped = next(one for one in steps if one["step"] == "stopped")
    assert (hang.end or 0) // 1_000_000 - stopped["to_ms"] < 50
    assert hang.begin is not None
    assert hang.begin // 1_000_000 <= stopped["from_ms"]


def test_a_static_member_that_comes_back_is_no_rebalance() -> None:
    """The coordinator's log: generation 2 of `payments` is stable with 2 members, 7 s before till-1 is replaced, and
    generation 3 with one."""
    mine = [f for f in found(ROOT / "samples/questions/rebalances.pcap.zst") if f.parties[0].name == "payments"]
    event, alone = mine
    assert event.end is not None
    assert abs(event.end - 1795389681389 * 1_000_000) <= NEAR_NS
    assert abs((alone.end or 0) - 1795389706135 * 1_000_000) <= NEAR_NS  # the other member leaves
    assert "rebalanced 2 times (generations 1 to 2) within 4." in event.text
    assert event.text.endswith(", 2 members")


def test_captures_are_small() -> None:
    for path in FOLDER.glob("*.zst"):
        assert path.stat().st_size <= 40_000, path
        assert read_bytes(path)


def rebalanced(tmp_path: Path, generations: int, wait_ns: int) -> list[Finding]:
    """Two members that wait in each rebalance. The first one makes the group grow."""
    members = [GroupMember(name, name, host, 5000 + host, 1) for host, name in enumerate("ab", 1)]
    for number in range(1, generations + 1):
        for member in members:
            member.talk.time_ns = START_NS + (1 + 5 * number) * 1_000_000_000
            member.join(number, 1, wait_ns=wait_ns)
    path = tmp_path / "group.pcap"
    path.write_bytes(pcap_bytes(encode(merge(*(member.talk.segments for member in members)))))
    return [finding for finding in findings(section_input(path, "events")) if finding.id == "group_rebalanced"]


def test_rebalances_that_repeat_cost_the_time_that_members_wait(tmp_path: Path) -> None:
    (finding,) = rebalanced(tmp_path, 4, 500_000_000)
    assert (finding.numbers["rebalances"], finding.severity) == (4, "warning")
    assert finding.time_lost_ns == pytest.approx(3 * 2 * 500_000_000, rel=0.02)
    assert "waited for each other for 3.01 s in total" in finding.text


@pytest.mark.parametrize(("before", "is_event"), [(1, False), (2, True)])
def test_a_member_that_is_left_alone_was_interrupted(before: int, is_event: bool, tmp_path: Path) -> None:
    """Long after the generation in which the group had another member."""
    members = [GroupMember(name, name, host, 5000 + host, 1) for host, name in enumerate("ab"[:before], 1)]
    for member in members:
        member.join(1, 1)
    members[0].talk.wait(60 * SECOND)
    members[0].join(2, 61)
    path = tmp_path / "group.pcap"
    path.write_bytes(pcap_bytes(encode(merge(*(member.talk.segments for member in members)))))
    found = [event for event in findings(section_input(path, "events")) if event.id == "group_rebalanced"]
    assert [event.numbers["first_number"] for event in found if event.numbers["last_number"] == 2] == [2] * is_event


@pytest.mark.parametrize(("generations", "wait_ns"), [(3, 2_000_000_000), (6, 20_000_000)])
def test_few_rebalances_and_short_ones_are_usual(tmp_path: Path, generations: int, wait_ns: int) -> None:
    (finding,) = rebalanced(tmp_path, generations, wait_ns)
    assert (finding.severity, finding.time_lost_ns) == ("note", 0)


def of_talks(path: Path, *talks: Sequence[Segment]) -> list[Finding]:
    """The events of a capture of some connections."""
    path.write_bytes(pcap_bytes(encode(merge(*talks))))
    return findings(section_input(path, "events"))


@pytest.mark.parametrize(("quiet_s", "is_named"), [(4, False), (6, True)])
def test_errors_that_began_before_the_capture_are_no_burst(quiet_s: int, is_named: bool, tmp_path: Path) -> None:
    """Errors may have come before, within the pause that ends a burst."""
    talk = KafkaTalk()
    talk.tcp.open()
    talk.exchange(HEARTBEAT, 1, 0)
    talk.tcp.wait(quiet_s * SECOND)
    for number in range(1, 21):
        talk.exchange(HEARTBEAT, 1, number, ErrorCode=25)
        talk.tcp.wait(SECOND // 5)
    found = of_talks(tmp_path / "x.pcap", talk.segments)
    assert [event.numbers["codes"] for event in found if event.id == "error_burst"] == [20] * is_named


@pytest.mark.parametrize(("ends", "codes"), [(0, [100]), (12, [20]), (20, [])])
def test_transactions_that_wait_for_the_one_before_are_usual(ends: int, codes: list[int], tmp_path: Path) -> None:
    """Until transactions end no more. `ends`: one each second."""
    talk = KafkaTalk()
    talk.tcp.open()
    talk.exchange(HEARTBEAT, 1, 0)
    talk.tcp.wait(6 * SECOND)
    for number in range(100):
        if number % 5 == 0 and number // 5 < ends:
            talk.exchange(END_TXN, 1, 500 + number)
        talk.exchange(ADD_OFFSETS_TO_TXN, 1, 100 + number, ErrorCode=51)
        talk.tcp.wait(SECOND // 5)
    found = of_talks(tmp_path / "x.pcap", talk.segments)
    assert [event.numbers["codes"] for event in found if event.id == "error_burst"] == codes


def polls(client: int, broker: int, lost: bool, apart_ns: int) -> list[Segment]:
    """Requests for 20 s, those of each connection `apart_ns` after those of another one. `lost`: the one of the 10th
    second has to be sent again, and arrives 3 s later."""
    ends = (f"10.0.0.{client}", 40_000 + broker), (f"10.0.1.{broker}", 9092)
    talk = KafkaTalk(*ends, time_ns=START_NS + (2 * client + broker) * apart_ns, acks=False)
    talk.tcp.open()
    for number in range(100):
        asked = talk.request(METADATA, 1, number)
        if lost and number == 50:
            sent = talk.segments[-1]
            talk.segments.extend(replace(sent, time_ns=sent.time_ns + ms * 1_000_000) for ms in (200, 600, 1400, 3000))
            talk.tcp.wait(3 * SECOND)
        talk.respond(asked)
        talk.tcp.wait(SECOND // 5)
    return talk.segments


@pytest.mark.parametrize("apart_ns", [0, 10_000_000])
@pytest.mark.parametrize(
    ("lost", "wanted"),
    [
        ({(1, 1), (2, 1)}, ["broker_unreachable"]),
        ({(1, 1), (1, 2), (2, 1), (2, 2)}, []),  # the path that all share: no broker is named, nor any host
        ({(1, 1)}, ["hosts_cut_off"]),
    ],
)
def test_a_broker_is_not_reached_if_others_are(
    lost: set[tuple[int, int]], wanted: list[str], apart_ns: int, tmp_path: Path
) -> None:
    talks = [polls(client, broker, (client, broker) in lost, apart_ns) for client in (1, 2) for broker in (1, 2)]
    found = of_talks(tmp_path / "x.pcap", *talks)
    assert [event.id for event in found if event.cause is None] == wanted


@pytest.mark.parametrize(("closed", "is_stop"), [(1, False), (2, False), (3, False), (4, True)])
def test_a_broker_that_stops_closes_most_of_its_connections(closed: int, is_stop: bool, tmp_path: Path) -> None:
    """Of 6, with a request on each. Then nobody asks for 3 s."""
    talks = []
    for number in range(6):
        talk = KafkaTalk(("10.0.0.1", 40_000 + number), time_ns=START_NS + number * 10_000_000)
        talk.tcp.open()
        talk.exchange(METADATA, 1, 1)
        talk.tcp.wait(SECOND)
        if number >= 6 - closed:
            talk.request(METADATA, 1, 2)
            talk.tcp.close(1)
        else:
            talk.exchange(METADATA, 1, 2)
            talk.tcp.wait(3 * SECOND)
            talk.exchange(METADATA, 1, 3)
        talks.append(talk.segments)
    found = of_talks(tmp_path / "x.pcap", *talks)
    assert ("broker_stopped" in [event.id for event in found]) is is_stop


@pytest.mark.parametrize(("closed", "is_stop"), [(1, False), (2, True)])
def test_a_single_connection_that_a_broker_closes_is_no_stop(closed: int, is_stop: bool, tmp_path: Path) -> None:
    """Nor with a SYN later that is not answered. It may have been idle for too long."""
    talks = [KafkaTalk(("10.0.0.1", 40_000 + number)) for number in range(closed + 1)]
    for talk in talks[:-1]:
        talk.tcp.open()
        talk.exchange(METADATA, 1, 1)
        talk.tcp.close(1)
    talks[-1].tcp.wait(SECOND)
    talks[-1].tcp.open()
    (syn, *_) = talks[-1].segments
    unanswered = [replace(syn, time_ns=syn.time_ns + seconds * SECOND) for seconds in (0, 1, 3)]
    found = of_talks(tmp_path / "x.pcap", *(talk.segments for talk in talks[:-1]), unanswered)
    assert ("broker_stopped" in [event.id for event in found]) is is_stop


def refused(client: int, broker: int, begin_s: float, end_s: float) -> list[Segment]:
    """Tries to connect, each answered by RST."""
    found = []
    for number in range(round((end_s - begin_s) * 2)):
        talk = KafkaTalk((f"10.0.0.{client}", 50_000 + number), (f"10.0.1.{broker}", 9092))
        talk.tcp.wait(round((begin_s + number / 2) * SECOND))
        talk.tcp.open()
        syn = talk.segments[0]
        ends = {"source": syn.destination, "destination": syn.source}
        found += [syn, replace(syn, time_ns=syn.time_ns + MS, seq=0, ack=syn.seq + 1, flags=RST | ACK, **ends)]
    return found


def asks(
    client: str, broker: int, *spans: tuple[float, float], name: str = "app", closes: bool = False
) -> list[Segment]:  # fmt: skip
    """Metadata each 0.2 s in some times, on a connection for each. `closes`: with RST, at the end of the first one."""
    found = []
    for number, (begin_s, end_s) in enumerate(spans):
        talk = KafkaTalk((client, 40_000 + 10 * broker + number), (f"10.0.1.{broker}", 9092), client_id=name)
        talk.tcp.wait(round(begin_s * SECOND))
        talk.tcp.open()
        nodes = [{"NodeId": n, "Host": f"10.0.1.{n}", "Port": 9092} for n in (1, 2)]
        for each in range(round((end_s - begin_s) * 5)):
            talk.exchange(METADATA, 1, each, Brokers=nodes)
            talk.tcp.wait(SECOND // 5)
        if closes and number == 0:
            talk.request(METADATA, 1, 999)
            talk.tcp.reset(1)
        found += talk.segments
    return found


@pytest.mark.parametrize(
    ("name", "until", "wanted"),
    [
        ("broker-1-fetcher-0", 30, "broker_unreachable"),
        ("broker-1-fetcher-0", 10.3, "broker_stopped"),
        ("broker-2-fetcher-0", 30, "broker_stopped"),  # of another broker at the same address
        ("mirror", 30, "broker_stopped"),
    ],
)
def test_a_broker_whose_own_requests_go_on_did_not_stop(name: str, until: float, wanted: str, tmp_path: Path) -> None:
    """A firewall refuses all connections to it by RST for 8 s, those that are open too."""
    talks = [asks(f"10.0.0.{client}", 1, (0, 10), (18, 30), closes=True) for client in (1, 2)]
    talks += [refused(client, 1, 10.1, 18) for client in (1, 2)]
    talks += [asks("10.0.1.1", 2, (0, until), name=name), asks("10.0.0.3", 2, (0, 30))]
    found = [event for event in of_talks(tmp_path / "x.pcap", *talks) if event.cause is None]
    assert [(event.id, event.numbers["refused"]) for event in found] == [(wanted, 32)]
    assert ("its own requests to other brokers went on" in found[0].text) is (wanted == "broker_unreachable")


@pytest.mark.parametrize(
    ("tries_s", "others_s", "is_event"), [(8, 30, True), (0.5, 30, False), (8, 10, False), (8, 11, False)]
)
def test_a_host_that_a_broker_refuses_while_it_answers_others_is_cut_off(
    tries_s: float, others_s: float, is_event: bool, tmp_path: Path
) -> None:
    talks = [asks("10.0.0.1", 1, (0, 10), (18, 30)), refused(1, 1, 10.1, 10.1 + tries_s)]
    talks += [asks("10.0.0.2", 1, (0, others_s))]
    found = [event for event in of_talks(tmp_path / "x.pcap", *talks) if event.id == "hosts_cut_off"]
    assert [(e.parties[0].name, e.numbers["connections"]) for e in found] == [("10.0.0.1", 16)] * is_event
    assert all("16 connections refused by RST; the broker answered other hosts" in event.text for event in found)


@pytest.mark.parametrize(("is_lost", "wanted"), [(False, ["broker_hung"]), (True, ["broker_unreachable"])])
def test_what_was_sent_again_earlier_on_a_connection_says_nothing_of_a_hang(
    is_lost: bool, wanted: list[str], tmp_path: Path
) -> None:
    """Two clients give up during the hang, and the broker answers when they are gone. `is_lost`: their requests are not
    acknowledged."""
    talks = [asks("10.0.0.3", 2, (0, 40))]
    for client in (1, 2):
        talk = KafkaTalk((f"10.0.0.{client}", 40_000), ("10.0.1.1", 9092))
        talk.tcp.open()
        for number in range(100):
            talk.tcp.acks = number != 50
            asked = talk.request(METADATA, 1, number)
            if number == 50:
                sent = talk.segments[-1]
                talk.segments.extend(replace(sent, time_ns=sent.time_ns + ms * MS) for ms in (100, 200, 300))
                talk.tcp.wait(400 * MS)
            talk.respond(asked)
            talk.tcp.wait(SECOND // 5)
        talk.tcp.acks = not is_lost
        talk.request(METADATA, 1, 999)
        if is_lost:
            sent = talk.segments[-1]
            talk.segments.extend(replace(sent, time_ns=sent.time_ns + s * SECOND) for s in (1, 3))
        talk.tcp.wait(6 * SECOND)
        ack = talk.tcp.next[1]
        fin = replace(sent, time_ns=talk.tcp.time_ns, seq=talk.tcp.next[0], ack=ack, flags=FIN | ACK, payload=b"")
        talk.segments.append(fin)
        if not is_lost:
            talk.tcp.acks = False
            talk.tcp.wait(3 * SECOND)
            answer = frame(struct.pack("!i", 999) + bytes(2000))
            talk.tcp.send(1, answer[:74])
            talk.tcp.reset(0)
        talks.append(talk.segments)
    found = of_talks(tmp_path / "x.pcap", *talks)
    assert [event.id for event in found if event.cause is None] == wanted
