"""Reports over captures with very many clients, groups or brokers take time and memory in proportion to them."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kafkatap.__main__ import main
from kafkatap.reports.section_parts.section import SectionInput
from tests.support.captures import pcap_bytes
from tests.support.tcp import Segment, encode, merge
from tests.wire.kafkatalk import HEARTBEAT, JOIN_GROUP, METADATA, KafkaTalk

SECOND = 1_000_000_000


def one_talk() -> KafkaTalk:
    talk = KafkaTalk(mss=60_000, acks=False)
    talk.tcp.open()
    talk.exchange(METADATA, 1, 0)
    talk.tcp.wait(2 * SECOND)
    return talk


def throttled_clients(count: int) -> list[Segment]:
    """Each client is throttled once."""
    talk = one_talk()
    for n in range(count):
        talk.respond(talk.request(HEARTBEAT, 1, n, client_id=f"client-{n}"), ThrottleTimeMs=2000)
    return talk.tcp.segments


def rebalanced_groups(count: int) -> list[Segment]:
    """Each group has two generations of two members."""
    talk = one_talk()
    for n in range(count):
        for generation in (1, 2):
            asked = talk.request(JOIN_GROUP, 2, n, GroupId=f"group-{n}", ProtocolType="consumer")
            talk.respond(asked, GenerationId=generation, Leader="a", Members=[{"MemberId": "a"}, {"MemberId": "b"}])
    return talk.tcp.segments


def brokers(count: int, is_hung: bool = False) -> list[Segment]:
    """Each broker answers a client. `is_hung`: and answers it again after a silence."""
    talks = []
    for n in range(count):
        address = f"11.0.{n >> 8}.{n & 255}"
        talk = KafkaTalk(client=("10.0.0.1", 1024 + n), broker=(address, 9092), acks=False)
        talk.tcp.wait(n * 1_000_000)
        talk.tcp.open()
        talk.exchange(METADATA, 1, 0)
        if is_hung:
            talk.tcp.wait(SECOND)
            asked = talk.request(METADATA, 1, 1)
            talk.tcp.wait(9 * SECOND)
            talk.respond(asked)
        talks.append(talk.tcp.segments)
    return merge(*talks)


def hung_brokers(count: int) -> list[Segment]:
    return brokers(count, is_hung=True)


def resending_pairs(count: int, brokers: int | None = None) -> list[Segment]:
    """Each host of a client sends a request again to its broker, after a silence. `brokers`: to one of so many."""
    talks = []
    for n in range(count):
        client, broker = (f"{at >> 8}.{at & 255}" for at in (n, n % (brokers or count)))
        talk = KafkaTalk(client=(f"12.0.{client}", 40_000), broker=(f"11.0.{broker}", 9092))
        talk.tcp.wait(n * 1_000_000)
        talk.tcp.open()
        talk.exchange(METADATA, 1, 0)
        talk.tcp.acks = False
        asked = talk.request(METADATA, 1, 1)
        sent = talk.tcp.segments[-1].payload
        for _ in range(3):
            talk.tcp.wait(SECOND)
            talk.tcp.overlap(0, len(sent), sent)
        talk.respond(asked)
        talks.append(talk.tcp.segments)
    return merge(*talks)


def cut_hosts(count: int) -> list[Segment]:
    """The path of all hosts to two brokers is broken."""
    return resending_pairs(count, 2)


def stopped_brokers(count: int) -> list[Segment]:
    """Each broker closes two connections, on which requests wait."""
    talks = []
    for n in range(2 * count):
        talk = KafkaTalk(client=("10.0.0.1", 1024 + n), broker=(f"11.0.{n >> 9}.{n >> 1 & 255}", 9092), acks=False)
        talk.tcp.wait(n * 1_000_000)
        talk.tcp.open()
        talk.exchange(METADATA, 1, 0)
        talk.request(METADATA, 1, 1)
        talk.tcp.wait(9 * SECOND)
        talk.tcp.reset(1)
        talks.append(talk.tcp.segments)
    return merge(*talks)


class Counted(np.ndarray[Any, Any]):
    """An array that adds up the rows of all arrays that are made of it."""

    rows = 0

    def __array_finalize__(self, made_of: object) -> None:
        Counted.rows += self.size


@pytest.mark.parametrize("made", [hung_brokers, resending_pairs, cut_hosts, stopped_brokers])
def test_rows_that_events_read_do_not_grow_with_the_square(
    made: Callable[[int], list[Segment]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("keys", "values"):
        columns = getattr(SectionInput, name)
        monkeypatch.setattr(SectionInput, name, lambda given, form, columns=columns: {
            name: values.view(Counted) for name, values in columns(given, form).items()
        })  # fmt: skip
    events = SectionInput.events
    monkeypatch.setattr(SectionInput, "events", lambda given, section: events(given, section).view(Counted))
    read = []
    for count in (250, 2000):
        capture = tmp_path / f"{count}.pcap"
        capture.write_bytes(pcap_bytes(encode(made(count))))
        Counted.rows = 0
        assert main(["report", str(capture), "--sections", "events", "-n", "1"]) == 0
        read.append(Counted.rows)
    assert 0 < read[1] < 16 * read[0], read


@pytest.mark.parametrize(
    ("made", "count"),
    [
        (throttled_clients, 60_000), (rebalanced_groups, 16_000), (brokers, 8_000), (hung_brokers, 8_000),
        (resending_pairs, 8_000),
    ],
)  # fmt: skip
def test_time_does_not_grow_with_the_square(made: Callable[[int], list[Segment]], count: int, tmp_path: Path) -> None:
    spent = []
    for some in (count // 8, count):
        capture = tmp_path / f"{some}.pcap"
        capture.write_bytes(pcap_bytes(encode(made(some))))
        before = time.process_time()
        assert main(["report", str(capture), "--sections", "summary,events,advice", "-n", "1"]) == 0
        spent.append(time.process_time() - before)
    assert spent[1] < 3 + 10 * spent[0], spent


def test_a_cluster_of_many_nodes_is_kept_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    talk = one_talk()
    for n in range(3000):
        listed = [{"NodeId": n, "Host": f"host-{n}", "Port": 9092}]
        topic = {"Name": f"topic-{n % 600}", "Partitions": [{"PartitionIndex": 0, "LeaderId": n}]}
        talk.respond(talk.request(METADATA, 1, n), Brokers=listed, Topics=[topic])
    capture = tmp_path / "metadata.pcap"
    capture.write_bytes(pcap_bytes(encode(talk.tcp.segments)))
    tracemalloc.start()
    try:
        assert main(["report", str(capture), "--sections", "advice"]) == 0
        assert tracemalloc.get_traced_memory()[1] < 100_000_000
    finally:
        tracemalloc.stop()


def test_brokers_of_one_side_are_compared_in_one_pass(tmp_path: Path) -> None:
    capture = tmp_path / "brokers.pcap"
    capture.write_bytes(pcap_bytes(encode(brokers(14_000))))
    before = time.process_time()
    assert main(["compare", str(capture), "--split", "+5s", "-n", "1"]) == 0
    assert time.process_time() - before < 20
