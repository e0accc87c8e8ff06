"""What follows from what: each row of the table of causes, and what is just outside of it."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import kafkatap.reports
from kafkatap.dissector.dtypes import UNANSWERED
from kafkatap.reports import kinds
from kafkatap.reports.advice.catalogue import CATALOGUE
from kafkatap.reports.batch import Context
from kafkatap.reports.findings import ERROR, NOTE, WARNING, Finding, Party
from kafkatap.reports.sections.folding import folded, known_of
from kafkatap.reports.sections.folds import FOLDS, Fold, Kinds, Known
from tests.reports.rows import context, counted, exchange

SECOND = 1_000_000_000
START = 1_700_000_000 * SECOND
CONTEXT = Context(first=START, last=START + 1000 * SECOND)
ADVICE = frozenset(signature.id for signature in CATALOGUE)


def made(
    name: str, on: str = "", span: tuple[float | None, float | None] = (100, 110), lost: float = 1, **more: Any
) -> Finding:
    """A finding. `on`: `client=a host=b`; `span`: seconds of its begin and end; `lost`: seconds."""
    parties = tuple(Party(*each.split("=")) for each in on.split())
    begin, end = (None if at is None else START + int(at * SECOND) for at in span)
    severity = more.pop("severity", WARNING)
    return Finding(name, severity, name, name, int(lost * SECOND), begin, end, more, (), parties)


def found(*findings: Finding) -> list[tuple[str, Finding]]:
    known = ADVICE | kinds.EVENT_KINDS | {*kinds.FINDINGS, kinds.LOSSY}
    assert {f.id for f in findings} <= known
    return [
        (kinds.ADVICE if f.id in ADVICE else kinds.EVENTS if f.id in kinds.EVENT_KINDS else "", f) for f in findings
    ]  # fmt: skip


class Example(NamedTuple):
    """An effect and its cause that a row puts together, and others of it that it does not: each is put in the place of
    the effect, or of the cause, with the same id."""

    effect: Finding
    cause: Finding
    outside: Sequence[Finding]
    known: Known = Known(CONTEXT)


OUT = made("broker_hung", "broker=b:1", (100, 110))
A, B = "client=a", "client=b"
EXAMPLES: Sequence[Example] = (
    Example(made("broker_returned", "broker=b:1", (110, None), 0), OUT,
            [made("broker_returned", "broker=b:1", (111, None), 0),
             made("broker_returned", "broker=c:1", (110, None))]),
    Example(made("leaders_moved", "", (120, 121), 0), OUT,
            [made("leaders_moved", "", (120.1, 121), 0), made("leaders_moved", "", (98.9, 121), 0)]),
    Example(made("error_burst", "error=X", (99, 130), code=6), OUT,
            [made("error_burst", "error=X", (99, 130), code=3), made("error_burst", "error=X", (121, 130), code=6)]),
    Example(made("connection_storm", A, (99, 130), refused=1), OUT,
            [made("connection_storm", A, (99, 130), refused=0)]),
    Example(made("isr_shrank", "", (120, 121), 0), made("leaders_moved"), [made("isr_shrank", "", (120.1, 121), 0)]),
    Example(made("error_burst", "error=X", (120, 130), code=6), made("leaders_moved"),
            [made("error_burst", "error=X", (120, 130), code=3)]),
    Example(made("leaders_moved", "broker=b:1", (120, 121), 0),
            made("errors", "broker=b:1", error="KAFKA_STORAGE_ERROR"),
            [made("leaders_moved", "broker=c:1", (120, 121), 0), made("leaders_moved", "broker=b:1", (120.1, 121), 0),
             made("errors", "broker=b:1", error="UNKNOWN_SERVER_ERROR")]),
    Example(made("error_burst", "error=LEADER_NOT_AVAILABLE", (120, 130), code=5),
            made("errors", "broker=b:1", error="KAFKA_STORAGE_ERROR"),
            [made("error_burst", "error=LEADER_NOT_AVAILABLE", (120.1, 130), code=5),
             made("error_burst", "error=NOT_COORDINATOR", (120, 130), code=16)]),
    Example(made("lagging_group", "group=g client=a"), made("dying_members", "group=g"),
            [made("lagging_group", "group=h client=a")]),
    Example(made("lagging_group", "group=g client=a topic=t"), made("offsets_set", "group=g client=ops topic=t"),
            [made("lagging_group", "group=g client=a topic=u"), made("lagging_group", "group=h client=a topic=t")]),
    Example(made("lagging_group", "group=g client=a topic=t"), made("poison_record", "client=a group=g topic=t"),
            [made("lagging_group", "group=g client=a topic=u"), made("lagging_group", "group=h client=a topic=t")]),
    Example(made("refetch", "client=a"), made("expelled_members", "group=g client=a"), [made("refetch", "client=b")]),
    Example(made("held_rebalance", "group=g client=a", how="dead"), made("dying_members", "group=g client=a"),
            [made("held_rebalance", "group=g client=a", how="left"),
             made("held_rebalance", "group=g client=b", how="dead"),
             made("held_rebalance", "group=h client=a", how="dead")]),
    Example(made("held_rebalance", "group=g client=a", how="removed"), made("expelled_members", "group=g client=a"),
            [made("held_rebalance", "group=g client=a", how="joined")]),
    Example(made("one_connection", A), made("single_records", A), [made("one_connection", B)]),
    Example(made("mtu_black_hole", A), made("idle_dropped", A), [made("mtu_black_hole", B)]),
    Example(made("slow_network", f"{A} {B}"), made("lossy_host", "host=h client=a"),
            [made("slow_network", f"{B} {A}"), made("slow_broker", f"{A} {B}")]),
    Example(made("slow_head_of_line", "client=a broker=b:1", ahead_broker_share=0.5),
            made("slow_broker", "broker=b:1 client=c"),
            [made("slow_head_of_line", "client=a broker=b:1", ahead_broker_share=0.4),
             made("slow_head_of_line", "client=a broker=c:1", ahead_broker_share=0.5),
             made("slow_head_of_line", A, ahead_broker_share=0.5),
             made("slow_head_of_line", "client=a broker=b:1", (120.1, 130), ahead_broker_share=0.5),
             made("slow_broker", "client=c broker=b:1")]),
    Example(made("slow_broker", A, lost=1), made("throttled", f"{A} {B}", lost=1.1),
            [made("slow_broker", A, lost=1.1), made("slow_broker", "client=c"), made("slow_between_brokers", "")]),
    Example(made("slow_client", A, lost=2), made("nagle", A, lost=1),
            [made("slow_client", A, lost=2.1), made("slow_client", B, lost=2),
             made("slow_client", f"{B} {A}", lost=2)]),
    Example(made("slow_client", "client=a broker=b:1", (90, 99), lost=2),
            made("broker_hung", "broker=b:1 client=a", lost=1),
            [made("slow_client", "client=a broker=b:1", (90, 98.9), lost=2), made("slow_client", B, lost=2),
             made("slow_client", "client=a broker=b:1", lost=2.1),
             made("slow_client", "client=a broker=b:1", (120.1, 130), lost=2)]),
    Example(made("slow_head_of_line", A, lost=9, total_max_ns=20), made("slow_follower", A, wait_max_ns=10),
            [made("slow_head_of_line", A, lost=9, total_max_ns=21),
             made("slow_head_of_line", B, lost=9, total_max_ns=20)]),
    Example(made("slow_head_of_line", A, (300, 310), 9, total_max_ns=20),
            made("broker_hung", "broker=b:1 client=a", longest_wait_ns=10),
            [made("slow_head_of_line", A, (300, 310), 9, total_max_ns=21),
             made("slow_head_of_line", f"{B} {A}", (300, 310), 9, total_max_ns=20)]),
    Example(made("slow_broker", A, (120, 500), 9, is_in_outages=True), OUT,
            [made("slow_broker", A, (120.1, 500), 9, is_in_outages=True), made("slow_broker", A, (120, 500), 9)]),
    Example(made("slow_broker", A, lost=9, api="SaslAuthenticate"), made("sasl_failed", A, error="X"),
            [made("slow_broker", A, lost=9, api="Fetch"),
             made("slow_broker", f"{A} {B}", lost=9, api="SaslAuthenticate")]),
    Example(made("errors", f"{A} topic=t", error="OFFSET_OUT_OF_RANGE"),
            made("position_reset", f"{A} topic=t", records=1),
            [made("errors", f"{A} topic=t", error="X"), made("errors", f"{A} topic=u", error="OFFSET_OUT_OF_RANGE")]),
    Example(made("errors", A, (120, 130), error="UNKNOWN_MEMBER_ID"),
            made("group_rebalanced", f"group=g {A}", severity=NOTE, timed_out=1),
            [made("errors", A, (120.1, 130), error="UNKNOWN_MEMBER_ID"), made("errors", A, error="X"),
             made("errors", B, error="UNKNOWN_MEMBER_ID")]),
    Example(made("errors", A, (500, 600), error="X", codes=10), made("broker_stopped", "broker=b:1 error=X", X_codes=5),
            [made("errors", A, (98.9, 600), error="X", codes=10), made("errors", A, (500, 600), error="X", codes=11),
             made("errors", A, (500, 600), error="Y", codes=1)]),
    Example(made("errors", A, error="FENCED_INSTANCE_ID"), made("same_instance", f"group=g {A} {B}"),
            [made("errors", A, error="X"), made("errors", f"{A} client=c", error="FENCED_INSTANCE_ID")]),
    *(
        Example(made("errors", f"{A} topic=t", (120, 130), error=code), made(event, on, end, severity=NOTE),
                [made("errors", f"{A} topic=t", (120.1, 130), error=code),
                 made("errors", f"{A} topic=t", error="X"), *no])
        for event, on, end, code, no in (
            ("same_address", "broker=b:1", (100, 110), "NOT_LEADER_OR_FOLLOWER", []),
            ("leaders_moved", "broker=b:1", (100, 110), "NOT_LEADER_OR_FOLLOWER", []),
            ("coordinator_moved", "group=g", (110, None), "NOT_COORDINATOR", []),
            ("group_rebalanced", "group=g", (100, 110), "REBALANCE_IN_PROGRESS", []),
            ("topic_created", "topic=t", (110, None), "UNKNOWN_TOPIC_OR_PARTITION",
             [made("errors", f"{A} topic=u", (120, 130), error="UNKNOWN_TOPIC_OR_PARTITION")]),
            ("topic_deleted", "topic=t", (110, None), "UNKNOWN_TOPIC_ID",
             [made("errors", A, (120, 130), error="UNKNOWN_TOPIC_ID")]),
        )
    ),
    Example(made("errors", f"{A} topic=x", (101, 130), error="UNKNOWN_TOPIC_ID", is_by_id=True),
            made("topic_deleted", "topic=t", (100, None), severity=NOTE),
            [made("errors", f"{A} topic=x", (101.1, 130), error="UNKNOWN_TOPIC_ID", is_by_id=True),
             made("errors", f"{A} topic=x", (101, 130), error="UNKNOWN_TOPIC_ID")]),
    Example(made("errors", "topic=t", (99, 130), error="NOT_LEADER_OR_FOLLOWER", codes=3),
            made("errors", "topic=t topic=u", error="KAFKA_STORAGE_ERROR", codes=1),
            [made("errors", "topic=v", (99, 130), error="NOT_LEADER_OR_FOLLOWER"),
             made("errors", "topic=t", (98.9, 130), error="NOT_LEADER_OR_FOLLOWER"),
             made("errors", "topic=t", (99, 130), error="X")]),
    Example(made("errors", A, (101, 130), error="INVALID_TXN_STATE", codes=3),
            made("errors", f"{A} {B}", (100, 110), error="PRODUCER_FENCED", codes=1),
            [made("errors", A, (100, 130), error="INVALID_TXN_STATE"), made("errors", A, (101, 130), error="X"),
             made("errors", "client=c", (101, 130), error="INVALID_TXN_STATE")]),
    Example(made("open_transaction", f"producer=p {A}", (90, 100)),
            made("errors", A, (110, 111), error="PRODUCER_FENCED", codes=1),
            [made("open_transaction", f"producer=p {A}", (90, 99.9)),
             made("open_transaction", f"producer=p {B}", (90, 100)),
             made("errors", A, (110, 111), error="INVALID_TXN_STATE", codes=1)]),
    Example(made("aborted_transactions", f"producer=p {A}", aborts=8),
            made("errors", A, codes=4, error="X", severity=ERROR),
            [made("aborted_transactions", f"producer=p {A}", aborts=9),
             made("aborted_transactions", f"producer=p {B}", aborts=8),
             made("aborted_transactions", f"producer=p {A}", (120.1, 130), aborts=8),
             made("errors", A, codes=4, error="X")]),
    Example(made("connection_each_message", A, connections=40),
            made("errors", A, error="X", codes=10, severity=ERROR),
            [made("connection_each_message", A, connections=41),
             made("connection_each_message", B, connections=40)]),
    Example(made("unanswered", "", unanswered=10), made("idle_dropped", A, unanswered=5),
            [made("unanswered", "", unanswered=11)]),
    Example(made("unanswered", "", unanswered=10), made("connection_limit", A, unanswered=5),
            [made("unanswered", "", unanswered=11)]),
    Example(made("unanswered", "", unanswered=10), made("session_expired", A, unanswered=5),
            [made("unanswered", "", unanswered=11)]),
    Example(made("unanswered", "", unanswered=10), made("broker_stopped", "broker=b:1"), [],
            Known(CONTEXT, {"b:1": 5, "c:1": 5})),
    Example(made("reconnect_storm", A), made("idle_dropped", f"{A} {B}"), [made("reconnect_storm", f"{A} client=c")]),
    Example(made("connection_each_message", A), made("connection_limit", f"{A} {B}"),
            [made("connection_each_message", f"{A} client=c")]),
    Example(made("request_flood", A, api="Metadata", requests=10), made("errors", A, error="X", codes=5),
            [made("request_flood", A, api="Metadata", requests=11), made("request_flood", A, api="Fetch", requests=10),
             made("request_flood", B, api="Metadata", requests=10)]),
    Example(made("quota_began", A), made("throttled", f"{B} {A}"), [made("quota_began", "client=c")]),
    Example(made("connection_storm", A), made("reconnect_storm", f"{B} {A}"), [made("connection_storm", "client=c")]),
    Example(made("error_burst", "error=X", code=3), made("errors", "", error="X"),
            [made("error_burst", "error=Y", code=3)]),
    Example(made("hosts_cut_off", "host=h broker=b:1"), made("mtu_black_hole", "client=a host=h"),
            [made("hosts_cut_off", "host=i broker=b:1")]),
    Example(made("group_rebalanced", "group=g", (120, 130)), made("dying_members", "group=g"),
            [made("group_rebalanced", "group=g", (120.1, 130)), made("group_rebalanced", "group=h"),
             made("group_rebalanced", "group=g", (90, 98.9))]),
    Example(made("lossy_host", "host=h", (300, 310), lost=2), made("hosts_cut_off", "host=h", lost=1),
            [made("lossy_host", "host=h", (300, 310), lost=2.1), made("lossy_host", "host=i", lost=2)]),
    Example(made("lossy_host", "host=h", (99, 120), lost=9), made("hosts_cut_off", "host=h", lost=1),
            [made("lossy_host", "host=h", (99, 120.1), lost=9), made("lossy_host", "host=h", (98.9, 120), lost=9)]),
    Example(made("lagging_group", "group=g", (700, None)), made("held_rebalance", "group=g", (800, 950), how="joined"),
            [made("lagging_group", "group=g", (600, None)), made("lagging_group", "group=h", (700, None))]),
    Example(made("lagging_group", "group=g client=a host=h"), made("mtu_black_hole", "client=a host=h"),
            [made("lagging_group", "group=g client=a host=i"), made("lagging_group", "group=g client=b host=h")]),
    Example(made("unread_partition", "group=g client=a host=h"), made("hosts_cut_off", "host=h"),
            [made("unread_partition", "group=g client=a host=i"),
             made("unread_partition", "group=g client=a host=h", (120.1, 130))]),
    Example(made("lagging_group", "group=g client=a host=h"), made("throttled", A),
            [made("lagging_group", "group=g client=b host=h")]),
    Example(made("lagging_group", "group=g client=a host=h"), made("request_timeout", "client=a host=h", wait_ns=1),
            [made("lagging_group", "group=g client=a host=i"), made("lagging_group", "group=g client=b host=h"),
             made("request_timeout", "client=a host=h")]),
    Example(made("group_rebalanced", "group=g", (99, 120), by="a"), made("request_timeout", A),
            [made("group_rebalanced", "group=g", (99, 120), by="b"), made("group_rebalanced", "group=g", (99, 120)),
             made("group_rebalanced", "group=g", (120.1, 130), by="a")]),
    Example(made("request_timeout", "client=a broker=b:1", (99, 120), 9), made("broker_hung", "broker=b:1"),
            [made("request_timeout", "client=a broker=b:1", (98.9, 120), 9),
             made("request_timeout", "client=a broker=b:1", (99, 120.1), 9),
             made("request_timeout", "client=a broker=c:1", (99, 120), 1)]),
    Example(made("one_connection", "client=a broker=b:1", lost=2), made("broker_froze", "broker=b:1", lost=1),
            [made("one_connection", "client=a broker=b:1", lost=2.1),
             made("one_connection", "client=a broker=c:1", lost=2)]),
    Example(made("broker_froze", "broker=b:1", (99, 120), 9), made("broker_hung", "broker=b:1"),
            [made("broker_froze", "broker=b:1", (98.9, 120), 9), made("broker_froze", "broker=b:1", (99, 120.1), 9),
             made("broker_froze", "broker=c:1", (99, 120), 1)]),
)  # fmt: skip


def cause_of(effect: Finding, cause: Finding, known: Known, folds: Sequence[Fold] = FOLDS) -> object:
    """What the effect follows from, with the ids of findings."""
    for _, one in folded(found(effect, cause), known, folds):
        if one.cause is not None:
            return (one.id, one.cause[0])
    return None


@pytest.mark.parametrize("row", range(len(FOLDS)))
def test_a_row_puts_findings_together_and_no_other_does(row: int) -> None:
    effect, cause, outside, known = EXAMPLES[row]
    fold = FOLDS[row]
    assert kinds.kind_of(effect) in fold.effects
    assert isinstance(fold.causes, Kinds) or kinds.kind_of(cause) in fold.causes
    assert cause_of(effect, cause, known) == (effect.id, cause.id)
    assert cause_of(effect, cause, known, [*FOLDS[:row], *FOLDS[row + 1 :]]) is None, "another row does it as well"
    for other in outside:
        assert cause_of(other, cause, known) is None, other
    if not outside:  # what is known, and not the findings, decides
        assert cause_of(effect, cause, Known(CONTEXT, {"b:1": 4, "c:1": 5})) is None


def test_a_row_for_each_example() -> None:
    assert len(EXAMPLES) == len(FOLDS)


@pytest.mark.parametrize(("event", "is_cause"), [("quota_began", False), ("group_rebalanced", False), ("storm", None)])
def test_events_and_advice_that_make_no_request_slow(event: str, is_cause: bool | None) -> None:
    if is_cause is None:
        for advice in (
            "lagging_group", "unread_partition", "poison_record", "open_transaction", "unstable_offsets",
            "aborted_transactions", "fetch_waits", "dying_members", "held_rebalance", "offsets_set",
        ):  # fmt: skip
            assert cause_of(made("slow_client", A), made(advice, A), Known(CONTEXT)) is None
    else:
        assert cause_of(made("slow_client", A), made(event, A), Known(CONTEXT)) is None


def test_a_deleted_topic_names_who_fails_on_it() -> None:
    deleted = made("topic_deleted", "topic=t", (100, None), severity=NOTE)
    codes = {"error": "UNKNOWN_TOPIC_OR_PARTITION", "codes": 30}
    for severity, said in ((ERROR, 'topic_deleted; client "a", client "b" failed 30 times on it; for 29.0 s'),
                           (NOTE, "topic_deleted")):  # fmt: skip
        failing = made("errors", f"topic=t {A} {B}", (101, 130), severity=severity, **codes)
        lines = {one.id: one for _, one in folded(found(failing, deleted), Known(CONTEXT))}
        assert lines["topic_deleted"].text == said
        assert lines["errors"].cause == deleted.key


def test_what_followed_is_in_the_line_of_the_cause() -> None:
    late = [made("lagging_group", f"group={g} client=a host=h") for g in ("g", "g2")]
    quota = made("quota_began", A, (150, 160))
    throttled = made("throttled", A, (0, 900))
    lines = {f.id: f for _, f in folded(found(*late, quota, throttled), Known(CONTEXT))}
    assert lines["throttled"].text == 'throttled; behind: group "g" of client "a", "g2" of client "a"'
    assert (lines["throttled"].begin, lines["throttled"].end) == (quota.begin, quota.end)
    assert {lines[name].cause for name in ("lagging_group", "quota_began")} == {lines["throttled"].key}


@pytest.mark.parametrize(
    ("changed", "is_told"),
    [
        ({}, True),
        ({"span": (101, 105.9)}, False),
        ({"severity": WARNING}, False),
        ({"Produce_codes": 0, "Fetch_codes": 115}, False),
        ({"cause": "leaders_moved"}, False),  # no outage
    ],
)
def test_writes_that_fail_in_an_outage_are_in_its_line(changed: dict[str, Any], is_told: bool) -> None:
    name = "NOT_ENOUGH_REPLICAS"
    cause = made(changed.pop("cause", "broker_stopped"), f"broker=b:1 error={name}", (100, 140), **{f"{name}_codes": 9})
    more = {"span": (101, 106), "severity": ERROR, "Produce_codes": 9, "error": name, "code": 19, "codes": 9} | changed
    error = made("errors", "client=pay-api topic=payments topic=refunds", **more)
    (_, line), (_, folded_error) = folded(found(cause, error), Known(CONTEXT))
    told = (
        'Produce of client "pay-api" to topic payments, refunds failed meanwhile: NOT_ENOUGH_REPLICAS 9 times for 5.00 '
        "s (fewer replicas are in sync than min.insync.replicas, so nothing is written with acks=all)"
    )
    assert line.text == cause.text + (f"; {told}" if is_told else "")
    assert folded_error.cause == line.key


def test_the_largest_of_several_causes() -> None:
    hung, cut = made("broker_hung", "broker=b:1", lost=1), made("broker_stopped", "broker=b:1", lost=3)
    slow = made("slow_broker", "client=a broker=b:1", lost=8)
    (*_, (_, one)) = folded(found(hung, cut, slow), Known(CONTEXT))
    assert one.cause == cut.key  # 4 s of 8: none has half alone


@pytest.mark.parametrize(
    ("effect", "causes", "chosen"),
    [
        (made("errors", A, error="OFFSET_OUT_OF_RANGE"),
         [made("position_reset", A, (n, n), records=n) for n in (1, 3, 2)], 1),
        (made("unanswered", unanswered=9), [made("idle_dropped", A, (n, n), unanswered=n) for n in (2, 5, 3)], 1),
        (made("unanswered", unanswered=9), [made("broker_hung", f"broker={b}:1") for b in "cba"], 1),
        (made("slow_client", f"{A} {B}", lost=9),
         [made("nagle", B, lost=5), made("fetch_waits", A), made("nagle", A, lost=4)], 0),
        (made("lossy_host", "host=h", (300, 310), lost=4),
         [made("hosts_cut_off", "host=h", (n, n + 1), lost=n / 100) for n in (50, 90, 70)], 0),
        (made("errors", "topic=t", error="X", codes=9),
         [made("broker_hung", f"broker={n}:1", (n, n), X_codes=3) for n in (120, 101, 90)], 1),
    ],
)  # fmt: skip
def test_the_one_of_several_causes(effect: Finding, causes: Sequence[Finding], chosen: int) -> None:
    """By records, requests or time; on the client that lost most; the first one, where an effect names no party."""
    causes = [cause._replace(parties=(*cause.parties, Party("error", "X"))) for cause in causes]
    (*_, (_, one)) = folded(found(*causes, effect), Known(CONTEXT, {"b:1": 3, "c:1": 2, "a:1": 1}))
    assert one.cause == causes[chosen].key


NEVER = (None, None)


@pytest.mark.parametrize(
    ("effect", "cause", "is_effect"),
    [
        (made("slow_client", A, NEVER), made("broker_hung", A), True),  # without a time: in any time
        (made("slow_client", A), made("broker_hung", A, NEVER), True),
        (made("slow_client", "client=a broker=c:1"), made("broker_hung", "broker=b:1"), False),
        (made("slow_client", A), made("broker_hung", "broker=b:1"), True),  # it is not known at which broker
        (made("slow_between_brokers", "client=a broker=b:1"), made("broker_hung", "broker=b:1 client=z"), True),
        (made("errors", A, NEVER, error="NOT_LEADER_OR_FOLLOWER"), made("leaders_moved"), False),
        (made("errors", A, error="NOT_LEADER_OR_FOLLOWER"), made("leaders_moved", "", NEVER), False),
        (made("errors", A, (900, 901), error="NOT_LEADER_OR_FOLLOWER"), made("leaders_moved", "", (100, None)), True),
        (made("request_timeout", "broker=b:1", NEVER, 9), made("broker_hung", "broker=b:1"), False),
        (made("request_timeout", "broker=b:1", lost=9), made("broker_hung", "broker=b:1", NEVER), False),
        (made("request_timeout", "broker=b:1", (900, 901), 2), made("broker_hung", "broker=b:1"), True),
        (made("request_timeout", "broker=b:1", (900, 901), 0), made("broker_hung", "broker=b:1", lost=0), False),
        (made("slow_head_of_line", A, (900, 901)), made("slow_follower", A, lost=0), False),
        (made("errors", A, (99, 101), error="X", codes=2), made("broker_stopped", "error=X", X_codes=1), True),
        (made("errors", A, (500, 501), error="X", codes=2),
         made("broker_stopped", "error=X", X_codes=1, severity=NOTE), False),
        (made("reconnect_storm", A), made("idle_dropped", A), True),
        (made("errors", "topic=t", NEVER, error="NOT_LEADER_OR_FOLLOWER", codes=3),
         made("errors", "topic=t", NEVER, error="KAFKA_STORAGE_ERROR", codes=1), True),
    ],
)  # fmt: skip
def test_findings_without_times_and_numbers(effect: Finding, cause: Finding, is_effect: bool) -> None:
    assert cause_of(effect, cause, Known(CONTEXT)) == ((effect.id, cause.id) if is_effect else None)


def test_a_cause_that_a_finding_has_stays() -> None:
    held, other = made("open_transaction", "producer=p"), made("throttled", A)
    lag = made("lagging_group", "group=g client=a")._replace(cause=held.key)
    *_, (_, one) = folded(found(held, other, lag), Known(CONTEXT))
    assert one.cause == held.key


def test_requests_without_a_response_by_broker() -> None:
    lost = [exchange(n, outcome=UNANSWERED, broker_port=9092 + n % 2) for n in range(5)]
    known = known_of(counted([*lost, exchange(9)]), context())
    assert sorted(known.unanswered.values()) == [2, 3]
    assert {name.rpartition(":")[2] for name in known.unanswered} == {"9092", "9093"}


def test_codes_that_followed_are_in_the_line_that_says_why() -> None:
    disk = made("errors", "topic=t", (100, 101), error="KAFKA_STORAGE_ERROR", codes=1)
    after = [made("errors", "topic=t", (101, 101 + n), error=code, codes=n)
             for n, code in ((5, "NOT_LEADER_OR_FOLLOWER"), (2, "LEADER_NOT_AVAILABLE"))]  # fmt: skip
    (_, line), *_ = folded(found(disk, *after), Known(CONTEXT))
    assert line.text == "errors; 5 NOT_LEADER_OR_FOLLOWER, 2 LEADER_NOT_AVAILABLE followed; for 6.00 s"
    assert (line.begin, line.end) == (disk.begin, after[0].end)


def test_a_broker_that_ends_as_its_disk_is_full_has_its_events_under_that_line() -> None:
    disk = made("errors", "broker=b:1 topic=t", (100, 101), error="KAFKA_STORAGE_ERROR", codes=3)
    stop = made("broker_stopped", "broker=b:1", (102, None))
    burst = made("error_burst", "error=KAFKA_STORAGE_ERROR", (100, 101), code=56)
    moved = made("leaders_moved", "broker=b:1", (103, 104), 0)
    lines = {f.id: f.cause for _, f in folded(found(stop, burst, moved, disk), Known(CONTEXT))}
    assert lines == {
        "errors": None, "broker_stopped": disk.key, "error_burst": disk.key, "leaders_moved": stop.key
    }  # fmt: skip


def test_requests_in_flight_follow_from_the_outage_of_their_broker_in_their_time() -> None:
    outages = [made("hosts_cut_off", "broker=b:1", (90, 99)), made("broker_hung", "broker=b:1", (100, 110)),
               made("broker_hung", "broker=c:1", (101, 110))]  # fmt: skip
    lost = made("unanswered", f"{A} broker=b:1", (105, 109), unanswered=0, on_their_way=1)
    assert folded(found(*outages, lost), Known(CONTEXT))[-1][1].cause == outages[1].key
    other = made("unanswered", f"{A} broker=d:1", (105, 109), unanswered=0, on_their_way=1)
    assert folded(found(*outages, other), Known(CONTEXT))[-1][1].cause is None


def test_a_cause_that_is_left_out_is_none() -> None:
    ((_, one),) = folded(found(made("broker_returned")._replace(cause=OUT.key)), Known(CONTEXT))
    assert one.cause is None


def test_nothing_follows_from_itself() -> None:
    """By kinds: else findings could be folded under each other, and none would be shown."""
    follows: dict[str, set[str]] = {}
    for fold in FOLDS:
        whole = {kinds.ADVICE: ADVICE, kinds.EVENTS: kinds.EVENT_KINDS}
        causes = fold.causes
        names = whole[causes.section] - {*causes.without} if isinstance(causes, Kinds) else {*causes}
        for effect in fold.effects:
            follows.setdefault(effect, set()).update(names - {effect} if effect == kinds.ERRORS else names)

    def reach(name: str, seen: frozenset[str]) -> None:
        assert name not in seen, f"{name} follows from itself: {sorted(seen)}"
        for cause in follows.get(name, ()):
            reach(cause, seen | {name})

    for name in follows:
        reach(name, frozenset())


def test_all_kinds_of_events_are_known() -> None:
    """Else no test asks for a recording of a new one, and the documents do not name it."""
    folder = Path(kafkatap.reports.__file__).resolve().parent / "sections"
    calls = [node for path in folder.glob("event_*.py") for node in ast.walk(ast.parse(path.read_text()))]
    made = {
        str(call.args[0].value) for call in calls
        if isinstance(call, ast.Call) and getattr(call.func, "id", None) == "Rule"
        and isinstance(call.args[0], ast.Constant)
    }  # fmt: skip
    assert made == kinds.EVENT_KINDS
    document = (Path(__file__).resolve().parents[2] / "docs" / "live-metrics.md").read_text()
    assert {f"`{name}`" for name in made - kinds.AT_END} - {*re.findall("`[a-z_]+`", document)} == set()


def test_an_id_stands_only_where_its_findings_are_made_and_in_the_tables() -> None:
    """Else a kind of finding that is renamed, or new, is forgotten somewhere. Words that also name columns are not
    looked for."""
    roots = (Path(kafkatap.__file__).parent, Path(kafkatap.reports.__file__).resolve().parent)
    words = {
        "throttled",
        "unanswered",
        "encrypted",
        "lost",
        "none",
        "not_decoded",
        "nagle",
        "errors",
        "retried",
        "leaders_moved",
    }
    texts = {path: ast.parse(path.read_text()) for root in roots for path in root.rglob("*.py")}
    ids: dict[str, set[str]] = {}
    for path, tree in texts.items():
        for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
            name = getattr(call.func, "id", None)
            first = call.args[0] if call.args else None
            if (
                name in ("Finding", "Rule", "Signature")
                and isinstance(first, ast.Constant)
                and isinstance(first.value, str)
            ):
                ids.setdefault(first.value, set()).add(path.name)
    assert len(ids) > 40
    for path, tree in texts.items():
        if path.name not in ("kinds.py", "kind_meanings.py", "folds.py") and "doctor" not in path.parts:
            for node in ast.walk(tree):
                if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in ids.keys() - words:
                    assert path.name in ids[node.value], f"{path.name}: {node.value}"
