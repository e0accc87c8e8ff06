"""Brokers that do not answer in order: late answers are paired, and counted."""

from __future__ import annotations

import random

from tests.support.tcp import encode, lose
from tests.wire.harness import check
from tests.wire.kafkatalk import HEARTBEAT, METADATA, PRODUCE, KafkaTalk, assert_exchanges
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
