"""Brokers that do not answer in order: late answers are paired, and counted."""

from __future__ import annotations

import random
import struct
from pathlib import Path

from kafkatap.engine.engine import Engine
from kafkatap.reports.build import build_report
from kafkatap.reports.counting.counts import ReportCounts
from kafkatap.reports.model import Report
from kafkatap.run import Run
from tests.support.captures import pcap_bytes
from tests.support.tcp import encode, lose, merge
from tests.wire.harness import check
from tests.wire.kafkatalk import API_VERSIONS, HEARTBEAT, METADATA, PRODUCE, KafkaTalk, assert_exchanges, body
from tests.wire.test_kafka import opened


def answered(talk: KafkaTalk, order: list[int], count: int) -> None:
    asked = [talk.request(METADATA, 4, n, Topics=[{"Name": f"topic-{n}"}]) for n in range(count)]
    for n in order:
        talk.respond(asked[n], Topics=[{"Name": f"topic-{n}"}], ControllerId=n)


def test_answers_out_of_order_are_paired() -> None:
    for order, late in (([1, 0], 1), ([2, 1, 0], 2), ([1, 2, 0, 3], 1), ([3, 0, 2, 1], 3)):
        talk = opened()
        answered(talk, order, len(order))
        talk.respond(talk.request(HEARTBEAT, 0, 50))
        talk.tcp.close()
        seen = check(encode(talk.segments))
        assert_exchanges(seen, talk.wanted)
        assert seen.ledger["responses"]["out_of_order"] == late
        assert seen.ledger["responses"]["orphan"] == 0


def test_any_order() -> None:
    chance = random.Random(4)
    talk = opened()
    order = list(range(40))
    chance.shuffle(order)
    answered(talk, order, 40)
    talk.tcp.close()
    assert_exchanges(check(encode(talk.segments)), talk.wanted)


def test_a_request_that_is_never_answered() -> None:
    """It waits to the end, and hinders no other one."""
    talk = opened()
    answered(talk, [1, 2, 3], 4)
    for n in range(10, 30):
        talk.respond(talk.request(HEARTBEAT, 0, n))
    talk.tcp.close()
    seen = check(encode(talk.segments))
    assert_exchanges(seen, talk.wanted)
    assert seen.ledger["requests"]["unanswered"] == 1
    assert seen.ledger["responses"]["out_of_order"] == 0


def test_so_many_wait_at_most() -> None:
    """Of 200 requests that were passed, 64 are kept: the rest is over, and late answers to these are orphans."""
    talk = opened()
    answered(talk, [*range(200, 210), *range(200)], 210)
    talk.tcp.close()
    seen = check(encode(talk.segments))
    assert len(seen.exchanges) == 210 + seen.ledger["responses"]["orphan"]
    assert seen.ledger["responses"]["out_of_order"] == 64


def test_acks_0_is_not_waited_for() -> None:
    talk = opened()
    talk.request(PRODUCE, 7, 1, Acks=0).row["outcome"] = "no_reply_expected"
    talk.respond(talk.request(HEARTBEAT, 0, 2))
    talk.tcp.close()
    seen = check(encode(talk.segments))
    assert_exchanges(seen, talk.wanted)


def test_a_lost_answer_is_lost() -> None:
    talk = opened(acks=False)
    answered(talk, [0, 1, 2, 3], 4)
    talk.tcp.close()
    data = [n for n, s in enumerate(talk.segments) if s.payload]
    seen = check(encode(lose(talk.segments, data[5])))
    assert sorted(seen.outcomes) == ["answered"] * 3 + ["response_lost"]
    assert seen.ledger["responses"]["out_of_order"] == 0


def report(path: Path, talks: list[KafkaTalk]) -> Report:
    path.write_bytes(pcap_bytes(encode(merge(*(talk.segments for talk in talks))), nanoseconds=True))
    run, counts = Run([str(path)], Engine(tables=False)), ReportCounts()
    for batch in run.batches():
        counts.add(batch)
    return build_report(counts, run.context())


def warnings(path: Path, talks: list[KafkaTalk]) -> tuple[str, ...]:
    return report(path, talks).warnings


def test_a_broker_that_closes_after_an_unknown_version(tmp_path: Path) -> None:
    """The report names the version; not one that is answered on another connection, nor of a broker that is silent."""
    talks = []
    for n, (key, version, answers) in enumerate(((METADATA, 40, 1), (METADATA, 4, 2), (METADATA, 4, 1))):
        talk = KafkaTalk(client=("10.0.0.1", 41_000 + n))
        talk.tcp.open()
        for k in range(answers):
            talk.respond(talk.request((HEARTBEAT, METADATA)[k], (0, 4)[k], k))
        talk.request_raw(key, version, 7, body(METADATA, 4, 0))
        talk.tcp.close(1)
        talks.append(talk)
    silent = KafkaTalk(client=("10.0.0.1", 42_000), broker=("10.0.0.3", 9_092))
    silent.tcp.open()
    silent.request(PRODUCE, 7, 1, Acks=1)
    silent.tcp.close(1)
    found = [text for text in warnings(tmp_path / "a.pcap", [*talks, silent]) if "never answered" in text]
    assert len(found) == 1
    assert found[0].startswith("Metadata v40 (1 request) was never answered by a broker that answered others.")


def test_answers_out_of_order_are_said(tmp_path: Path) -> None:
    talk = opened()
    answered(talk, [1, 0, 3, 2], 4)
    talk.tcp.close()
    said = [text for text in warnings(tmp_path / "a.pcap", [talk]) if "out of order" in text]
    assert len(said) == 1
    assert said[0].startswith("2 responses")


def test_answers_out_of_order_are_no_loss(tmp_path: Path) -> None:
    talk = opened()
    answered(talk, [1, 0], 2)
    talk.tcp.close()
    assert [row[0] for row in report(tmp_path / "a.pcap", [talk]).findings.rows] == ["none"]


def test_a_broker_that_does_not_know_the_version_of_api_versions(tmp_path: Path) -> None:
    """It answers in version 0, with error 35, whatever the request's version is."""
    talk = opened()
    for version in (3, 9):
        asked = talk.request_raw(API_VERSIONS, version, version, b"\0\4abc\0042.0\0")
        talk.respond_raw(asked, struct.pack(">hi3h", 35, 1, API_VERSIONS, 0, 2))
    talk.tcp.close()
    seen = check(encode(talk.segments))
    assert_exchanges(seen, talk.wanted)
    assert {(x["response_status"], *x["errors"]) for x in seen.exchanges} == {("ok", 35)}
    assert not [text for text in warnings(tmp_path / "a.pcap", [talk]) if "never answered" in text]
