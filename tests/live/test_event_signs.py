"""When live capture looks for events: not in seconds that can have none, and no more than the governor grants."""

from __future__ import annotations

import gc
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from kafkatap.engine.engine import Engine
from kafkatap.live import event_signs
from kafkatap.live.event_watch import EventWatch
from kafkatap.live.governor import Allowance, Governor
from kafkatap.live.monitor import Monitor
from kafkatap.reports.findings import Finding
from kafkatap.reports.section_parts.registry import counted_sections, needs_of
from kafkatap.reports.section_parts.section import SectionInput
from kafkatap.reports.sections.event_timeline import Seen
from tests.support.captures import pcap_bytes
from tests.support.tcp import ACK, RST, START_NS, Segment, encode, merge
from tests.wire.kafkatalk import API_VERSIONS, MS, PRODUCE, KafkaTalk, SentRequest

from .support import SECOND, FileSource
from .watched import TOPIC, ticking

OUTAGES = {"broker_stopped", "broker_hung", "broker_unreachable"}
UP, HUNG, DEAD, LOST = range(4)
#: When a state of a broker begins.
States = Sequence[tuple[int, int]]


def monitor_over(path: Path, governor: Governor | None = None) -> tuple[Monitor, FileSource]:
    source = FileSource(str(path))
    engine = Engine(**needs_of(None)._asdict())
    return Monitor(
        source, engine, clock=source.clock, sections=counted_sections(None), governor=governor or Governor(watch=None)
    ), source  # fmt: skip


def events(path: Path, governor: Governor | None = None) -> list[tuple[int, Finding]]:
    """The events with the second in which they came."""
    monitor, source = monitor_over(path, governor)
    watch, found = monitor.events, list[tuple[int, Finding]]()
    assert watch is not None
    end_second = watch.end_second

    def noted(engine: Engine, seconds: int = 1, clock: int = 0) -> list[Finding]:
        new = end_second(engine, seconds, clock)
        found.extend((source.now // SECOND, finding) for finding in new)
        return new

    watch.end_second = noted  # type: ignore[method-assign]
    while not source.over:
        source.wait(0.1)
        monitor.step()
    return found


def counting_looks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A number for each look, from now on."""
    looks, look = list[int](), EventWatch._look

    def counted(watch, *what):  # type: ignore[no-untyped-def]
        looks.append(len(looks))
        return look(watch, *what)

    monkeypatch.setattr(EventWatch, "_look", counted)
    return looks


def state_at(states: States, time: int) -> tuple[int, int]:
    """The state of a broker, and when the next one begins."""
    after = [begin for begin, _ in states if begin > time]
    return next(state for begin, state in reversed(states) if begin <= time), min(after, default=1 << 62)


def life(chance: random.Random, host: int, broker: int, states: States, end: int, noise: float) -> Iterator[Segment]:
    """All that a client and its broker send: it connects again whenever the broker closes or refuses. `noise`: how
    often something happens without an outage."""
    time, port = START_NS + chance.randrange(SECOND), 40_000
    pace = chance.choice((20, 100, 300, 2500 if noise else 100)) * MS
    while time < end:
        port += 1
        talk = KafkaTalk(
            client=(f"10.0.2.{host}", port),
            broker=(f"10.0.1.{broker}", 9092),
            client_id=f"app-{host % 3}",
            time_ns=time,
        )
        if state_at(states, time)[0] == DEAD:
            talk.tcp.open()
            syn = talk.segments[0]
            yield syn
            yield replace(
                syn, time_ns=syn.time_ns + MS, source=syn.destination, destination=syn.source, seq=0, ack=syn.seq + 1,
                flags=RST | ACK,
            )  # fmt: skip
            time += 700 * MS
            continue
        talk.tcp.open()
        talk.exchange(API_VERSIONS, 0, 0)
        for number in range(1, 10_000):
            talk.tcp.wait(chance.randrange(pace // 2, 2 * pace))
            now = talk.tcp.time_ns
            state, until = state_at(states, now)
            if now >= end or (chance.random() < noise / 3):
                break
            if state == DEAD:
                talk.tcp.reset(1)
                break
            asked = talk.request(PRODUCE, 3, number, Acks=1, TimeoutMs=1000, TopicData=TOPIC)
            if state == LOST:
                sent = talk.segments[-2]
                talk.segments.pop()
                for later in (200, 600, 1400, 3000, 6200):
                    if now + later * MS < until:
                        talk.segments.append(replace(sent, time_ns=now + later * MS))
            if state in (HUNG, LOST):
                talk.tcp.time_ns = max(until, now) + chance.randrange(50 * MS)
                if state_at(states, talk.tcp.time_ns)[0] == DEAD:
                    continue
            elif chance.random() < noise:
                talk.tcp.wait(chance.choice((30, 150, 700, 1500)) * MS)
            code = 6 if chance.random() < noise else 0
            talk.respond(
                asked, ThrottleTimeMs=500 * (chance.random() < noise),
                Responses=[{"Name": "orders", "PartitionResponses": [{"Index": 0, "ErrorCode": code}]}],
            )  # fmt: skip
        if chance.random() < 0.7:
            talk.tcp.close(chance.randrange(2))
        yield from (segment for segment in talk.segments if segment.time_ns < end)
        time = max(talk.tcp.time_ns, time) + chance.randrange(1, 500) * MS


def scene(seed: int, seconds: int = 40) -> list[Segment]:
    """Clients of three brokers that hang, die, and are not reached, at random times. Half of the scenes have noise."""
    chance, end = random.Random(seed), START_NS + seconds * SECOND
    noise = 0.03 * (seed % 2)
    lives = list[list[Segment]]()
    for broker in range(1, 4):
        states = [(0, UP)]
        time = START_NS + chance.randrange(2, 20) * SECOND
        while time < end:
            states += [(time, chance.choice((HUNG, DEAD, LOST)))]
            time += chance.randrange(300, 7000) * MS
            states += [(time, UP)]
            time += chance.randrange(500, 25_000 if noise else 60_000) * MS
        for n in range(chance.choice((1, 2, 5))):
            lives.append(sorted(life(chance, 10 * broker + n, broker, states, end, noise), key=lambda s: s.time_ns))
    return merge(*lives, ticking(seconds) if chance.random() < 0.7 else [])


@pytest.mark.parametrize("seed", [*range(6), *(pytest.param(n, marks=pytest.mark.long) for n in range(6, 100))])
def test_no_look_is_missed(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.pcap"
    path.write_bytes(pcap_bytes(encode(scene(seed))))
    looks = counting_looks(monkeypatch)
    found = events(path)
    few = len(looks)
    with monkeypatch.context() as always:
        always.setattr(event_signs.Signs, "are_there", lambda *_: True)
        wanted = events(path)
    assert found == wanted
    every = len(looks) - few
    assert few < every or seed % 2
    if seed < 6:
        assert wanted


def quiet_clients(count: int, broker: str = "10.0.0.7") -> list[KafkaTalk]:
    """Clients that ask a broker ten times a second, in the first 6 s, on connections that stay open."""
    talks = [KafkaTalk(client=(f"10.0.3.{n}", 40_000), broker=(broker, 9092), client_id="app") for n in range(count)]
    for talk in talks:
        talk.tcp.open()
        for number in range(60):
            talk.exchange(API_VERSIONS, 0, number)
            talk.tcp.wait(100 * MS)
    return talks


def asks(talks: Sequence[KafkaTalk], number: int) -> list[SentRequest]:
    return [talk.request(PRODUCE, 3, number, Acks=1, TimeoutMs=1000, TopicData=TOPIC) for talk in talks]


def hangs(talks: Sequence[KafkaTalk]) -> None:
    """Requests wait to the end, and nothing else happens."""
    asks(talks, 100)


def stops(talks: Sequence[KafkaTalk]) -> None:
    """A broker closes connections on which requests wait, and nothing else happens."""
    asks(talks, 100)
    for talk in talks:
        talk.tcp.close(1)


def returns(talks: Sequence[KafkaTalk]) -> None:
    """It does so to most clients, and answers the others after a while."""
    stops(talks[1:])
    talks[0].tcp.wait(9 * SECOND)
    talks[0].exchange(API_VERSIONS, 0, 101)


def is_not_acknowledged(talks: Sequence[KafkaTalk]) -> None:
    """A host does not get what a broker sends, on one connection; on another one it talks to it for a while."""
    (asked,) = asks(talks[:1], 100)
    talks[0].acks = talks[0].tcp.acks = False
    talks[0].respond(asked, Responses=[])
    sent = talks[0].segments[-1]
    for later in (200, 600, 1400, 3000, 6200):
        talks[0].segments.append(replace(sent, time_ns=sent.time_ns + later * MS))
    beside = KafkaTalk(client=("10.0.3.0", 40_001), broker=("10.0.0.7", 9092), client_id="app", time_ns=sent.time_ns)
    beside.tcp.open()
    for number in range(70):
        beside.exchange(API_VERSIONS, 0, number)
        beside.tcp.wait(100 * MS)
    talks[0].segments[:] = merge(talks[0].segments, beside.segments)


@pytest.mark.parametrize(
    ("happens", "wanted"),
    [
        (hangs, ["broker_hung"]),
        (stops, ["broker_stopped"]),
        (returns, ["broker_stopped", "broker_returned"]),
        (is_not_acknowledged, ["hosts_cut_off"]),
    ],
)
def test_a_single_sign_is_enough(
    happens: Callable[[Sequence[KafkaTalk]], None], wanted: Sequence[str], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    talks = quiet_clients(4)
    happens(talks)
    path = tmp_path / "x.pcap"
    path.write_bytes(pcap_bytes(encode(merge(*(talk.segments for talk in talks), ticking(20)))))
    found = events(path)
    assert [finding.id for _, finding in found] == wanted
    monkeypatch.setattr(event_signs.Signs, "are_there", lambda *_: True)
    assert found == events(path)


def test_idle_hosts_need_no_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers of a broker that answers all the time, idle connections, and a request that waits are no signs."""
    talks = [KafkaTalk(client=(f"10.0.1.{n}", 40_000), client_id="idle") for n in range(1, 50)]
    for n, talk in enumerate(talks):
        talk.tcp.open()
        talk.exchange(API_VERSIONS, 0, 0)
        talk.tcp.wait((6 + n // 10) * SECOND)
        talk.exchange(API_VERSIONS, 0, 1)
    talks[0].request(PRODUCE, 3, 2, Acks=1, TimeoutMs=1000, TopicData=TOPIC)
    path = tmp_path / "x.pcap"
    path.write_bytes(pcap_bytes(encode(merge(*(talk.segments for talk in talks), ticking(20)))))
    looks = counting_looks(monkeypatch)
    assert events(path) == []
    assert len(looks) <= 5  # while connections begin


def test_a_look_leaves_nothing_in_memory(tmp_path: Path) -> None:
    talks = quiet_clients(4)
    returns(talks)
    path = tmp_path / "x.pcap"
    path.write_bytes(pcap_bytes(encode(merge(*(talk.segments for talk in talks), ticking(20)))))
    gc.collect()
    gc.disable()
    try:
        found = events(path)
        alive = [each for each in gc.get_objects() if isinstance(each, SectionInput | Seen)]
    finally:
        gc.enable()
    assert found
    assert not alive


def test_what_was_spent_is_saved_again() -> None:
    time, allowance = [0.0], Allowance(0.03, clock=lambda: time[0])

    def spend(seconds: float) -> None:
        with allowance.spending():
            time[0] += seconds

    spend(5)  # the first one loads modules
    assert not allowance.is_spent
    spend(0.2)
    assert not allowance.is_spent  # ten seconds were saved
    spend(0.2)
    assert allowance.is_spent
    allowance.save(3)
    assert allowance.is_spent
    allowance.save(1)
    assert not allowance.is_spent
    spend(60)
    allowance.save(15)
    assert allowance.is_spent  # whatever it took, it waits for no longer than that
    allowance.save(1)
    assert not allowance.is_spent
    allowance.save(1000)
    spend(0.31)
    assert allowance.is_spent


def test_looks_that_cost_too_much_come_less_often_and_the_status_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.pcap"
    path.write_bytes(pcap_bytes(encode(scene(1))))
    time, looks, late = [0.0], list[int](), list[int]()
    governor = Governor()
    governor.watch = Allowance(0.03, clock=lambda: time[0])
    look = EventWatch._look

    def slow(watch, engine, *more):  # type: ignore[no-untyped-def]
        time[0] += 0.12
        looks.append(engine.latest)
        return look(watch, engine, *more)

    with monkeypatch.context() as slowed:
        slowed.setattr(EventWatch, "_look", slow)
        slowed.setattr(event_signs.Signs, "are_there", lambda *_: True)
        monitor, source = monitor_over(path, governor)
        while not source.over:
            source.wait(0.1)
            monitor.step()
            late.append(monitor.status.events_late)
        gaps = [round((b - a) / SECOND) for a, b in pairwise(looks)]
        assert gaps[0] == 1
        assert set(gaps[-5:]) <= {3, 4, 5}
        assert late[5] == 0
        assert late[-1] in (2, 3, 4)
        governor.watch = Allowance(0.03, clock=lambda: time[0])
        found = events(path, governor)
    # What the rules take the first sign of a broken path for, they know better later.
    outages = [
        {(finding.id, finding.begin) for at, finding in each if at < source.now // SECOND - 5 and finding.id in OUTAGES}
        for each in (events(path), found)
    ]
    assert outages[0]
    assert outages[0] <= outages[1]
