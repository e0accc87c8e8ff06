"""Idle connections that a device on the path drops: what names them, and what else sends copies in vain."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest

from kafkatap.dissector.dtypes import ANSWERED, IN_FLIGHT, NO_TIME, ORPHAN_RESPONSE, UNANSWERED
from kafkatap.reports.batch import Array
from kafkatap.reports.connection_columns import CONNECTION_ROW
from kafkatap.reports.connection_words import H_COMPLETE, H_NOT_CAPTURED, P_KAFKA
from kafkatap.reports.findings import Finding
from kafkatap.reports.section_parts.section import SectionInput
from kafkatap.reports.section_parts.section_counts import SectionCounts
from kafkatap.reports.sections.advice import findings
from tests.reports.rows import START, batch, context, counted, exchange

from .advice_samples import SECOND, found, truth

NUMBER_OF_ONE = 100


class Sent(NamedTuple):
    """A connection: when its requests were sent, in seconds; from which one on they are stuck, and until when copies of
    them are sent."""

    at: Sequence[float]
    stuck: float | None = None
    copies_until: float = 0.0
    client: int = 0
    host: int = 0


#: A client that writes each 15 s and whose connections are dropped after 10 s; it waits for 5 s, and connects again.
DROPPED = (Sent([0.0, 15.0], 15.0, 45.0), Sent([20.0, 35.0], 35.0, 50.0), Sent([40.0]))
BUSY = Sent([float(at) for at in range(50)])


def ns(seconds: float) -> int:
    return int(seconds * SECOND)


def exchanges_of(number: int, sent: Sent) -> list[Any]:
    return [
        exchange(
            NUMBER_OF_ONE * number + i, ns(at), connection=number, client_id=sent.client, client_ip=sent.host,
            api_key=0, outcome=ANSWERED if sent.stuck is None or at < sent.stuck else IN_FLIGHT,
        )
        for i, at in enumerate(sent.at)
    ]  # fmt: skip


def connection_of(number: int, sent: Sent, **columns: Any) -> Any:
    row = np.zeros(1, CONNECTION_ROW)[0]
    last = sent.at[-1] if sent.stuck is None else sent.copies_until
    values = {
        "connection": number, "client_id": sent.client, "client_ip": sent.host, "broker_ip": 1, "broker_port": 9092,
        "protocol": P_KAFKA, "first": START + ns(sent.at[0]), "last": START + ns(last), "closed_at": -1,
        "closed_by": -1, "reset_by": -1, "exchanges": len(sent.at),
    }  # fmt: skip
    if sent.stuck is not None:
        values |= {
            "client_lost_bytes": 104, "client_unacknowledged_bytes": 104, "client_lost_at": values["last"],
            "client_retransmitted_packets": 7, "unanswered": 1,
        }  # fmt: skip
    for name, value in (values | columns).items():
        row[name] = value
    return row


def dropped(rows: Sequence[Any], connections: Sequence[Any], runs: int = 1, most: int = 1000) -> list[Finding]:
    """The findings on exchanges that several runs read, each a part of them."""
    ordered = sorted(rows, key=lambda row: int(row["response_last"]))
    total = SectionCounts(("first-lines",), most, lambda: 0)
    for run in range(runs):
        part = SectionCounts(("first-lines",), most, lambda: 0)
        for one in np.array_split(np.arange(len(ordered)), 2 * runs)[2 * run : 2 * run + 2]:
            part.add(batch([ordered[i] for i in one]))
            part.finish()
        total.merge(part)
    table: Array = np.zeros(len(connections), CONNECTION_ROW)
    for i, row in enumerate(connections):
        table[i] = row
    total.add_connections(table)
    made = findings(SectionInput(total, counted(list(rows)), context(), {}))
    return [finding for finding in made if finding.id == "idle_dropped"]


def of(*sent: Sent, runs: int = 1) -> list[Finding]:
    rows = [row for number, one in enumerate(sent) for row in exchanges_of(number, one)]
    return dropped(rows, [connection_of(number, one) for number, one in enumerate(sent)], runs)


def test_the_sample_has_what_the_firewall_and_the_clients_say() -> None:
    (finding,) = found("idle-dropped")
    given, right = truth("idle-dropped"), truth("idle-dropped-right")
    timeout = given["idle_timeout_s"] * SECOND
    shortest, passed = finding.numbers["shortest_pause_ns"], finding.numbers["passed_pause_ns"]
    assert int(str(passed)) < timeout < int(str(shortest))
    hurt = [given["clients"][name]["latency_ms"][0] for name in ("point-of-sale", "loyalty")]
    assert finding.time_lost_ns == pytest.approx(sum(hurt) * 1e6, rel=0.05)
    assert {party.name for party in finding.parties if party.kind == "client"} == {"point-of-sale", "loyalty"}
    assert given["packets_dropped"] > 3 * int(str(finding.numbers["connections"])) > right["packets_dropped"] == 0


@pytest.mark.parametrize("runs", [1, 3])
def test_the_line_has_pauses_and_times(runs: int) -> None:
    (finding,) = of(*DROPPED, BUSY, runs=runs)
    assert finding.text == (
        'idle connections are dropped on the path without a RST: 2 of client "billing" (10.0.0.1) to 10.0.0.2:9092, '
        "after pauses of 15.0 s. 2 requests were sent again and again, never acknowledged, and given up after up to "
        "5.00 s; connections that pause less than 6.00 s go on, and new ones work at once"
    )
    assert (finding.begin, finding.time_lost_ns) == (START + ns(15), ns(10))
    assert (finding.numbers["requests"], finding.numbers["unanswered"]) == (2, 0)  # they are in flight


def test_longer_pauses_that_do_no_harm_are_in_the_line() -> None:
    (finding,) = of(*DROPPED, BUSY, Sent([1.0, 10.0, 19.0]))
    assert "pauses of up to 9.00 s do no harm" in finding.text


@pytest.mark.parametrize(
    ("others", "is_named"),
    [
        ((), False),  # nobody else: the host may be gone
        ((BUSY,), True),
        ((BUSY, Sent([5.0, 25.0])), False),  # a pause of 20 s did no harm
        ((Sent([0.0, 16.0], host=2), BUSY), True),  # but on another path
        ((BUSY, Sent([30.0, 32.0], 32.0, 40.0)), False),  # one that did not pause is stuck, too
        ((Sent([float(at) for at in range(15)]),), False),  # others stop when these are stuck
    ],
)
def test_other_connections_decide(others: tuple[Sent, ...], is_named: bool) -> None:
    first, second, _ = DROPPED
    apart = (first, second._replace(at=(35.0 - 15.0 - 0.001, 35.0)))
    assert bool(of(*apart, *others)) is is_named if others else of(first, DROPPED[1]._replace(at=(0.0, 35.0))) == []


@pytest.mark.parametrize(
    "sent",
    [
        (DROPPED[0], BUSY),  # one
        (Sent([0.0, 15.0], 15.0, 45.0), Sent([0.0, 14.0], 14.0, 45.0), BUSY),  # a client that was cut off once
        (Sent([0.0, 15.0], 15.0, 15.5), Sent([20.0, 35.0], 35.0, 35.5), BUSY),  # too few copies
        (Sent([11.0, 15.0], 15.0, 45.0), Sent([31.0, 35.0], 35.0, 45.0), BUSY),  # they were in use
    ],
)
def test_less_is_no_evidence(sent: tuple[Sent, ...]) -> None:
    assert of(*sent) == []


def test_several_clients_at_once_are_evidence() -> None:
    one, other = Sent([0.0, 15.0], 15.0, 45.0), Sent([0.0, 14.0], 14.0, 45.0, client=3)
    (finding,) = of(one, other, BUSY)
    assert finding.numbers["clients"] == 2


@pytest.mark.parametrize(
    ("others", "is_named"),
    [
        ((Sent([32.0, 32.5], 32.5, 33.4),), True),  # too short to say
        ((Sent([32.0, 32.5], 32.5, 33.5),), False),
        ((Sent([0.0, 1.0], 1.0, 14.0),), True),  # before the first one is dropped
        ((Sent([46.0, 47.0], 47.0, 49.0),), False),
        ((Sent([50.0, 51.0], 51.0, 55.0),), True),  # after the last one
        ((Sent([25.0, 45.0]),), False),  # a pause that did no harm
        ((Sent([36.0, 52.0]),), True),  # it began when all were dropped
    ],
)
def test_what_else_is_stuck_decides(others: tuple[Sent, ...], is_named: bool) -> None:
    assert bool(of(*DROPPED, BUSY, *others)) == is_named


@pytest.mark.parametrize(
    ("sent", "is_named"),
    [
        ((Sent([0.0, 15.0], 15.0, 16.0), Sent([20.0, 35.0], 35.0, 36.0)), True),  # copies for a second
        ((Sent([0.0, 15.0], 15.0, 16.0), Sent([20.0, 35.0], 35.0, 35.999)), False),
        ((Sent([0.0, 15.0], 15.0, 45.0), Sent([0.0, 16.0], 16.0, 45.0), Sent([30.0, 46.0], 46.0, 50.0)), True),
        ((Sent([0.0, 15.0], 15.0, 45.0), Sent([20.0, 40.0], 40.0, 45.0), Sent([3.0, 19.0])), False),  # 16 s passed
    ],
)
def test_thresholds(sent: tuple[Sent, ...], is_named: bool) -> None:
    assert bool(of(*sent, BUSY)) == is_named


def test_hosts_with_the_same_timeout_are_one_finding() -> None:
    """A host that loses one connection only, and one that has another timeout."""
    other = BUSY._replace(host=2, client=3)
    also = (Sent([0.0, 15.5], 15.5, 45.0, client=3, host=2), other)
    (one,) = of(*DROPPED, BUSY, *also, Sent([1.0, 10.0, 17.0]), Sent([1.0, 8.0], host=2, client=3))
    assert (one.numbers["connections"], one.numbers["clients"], one.numbers["passed_pause_ns"]) == (3, 2, ns(8.999))
    assert (one.numbers["waited_max_ns"], one.numbers["replaced"]) == (ns(29.5), 2)
    assert one.text.endswith("pauses of up to 9.00 s do no harm, and 2 new ones work at once")
    slower = [Sent([-5.0, 15.0], 15.0, 30.0, 3, 2), Sent([5.0, 35.0], 35.0, 50.0, 3, 2), other]
    both = of(*DROPPED, BUSY, *slower, Sent([1.0, 19.0], host=2, client=3))
    assert [one.numbers["shortest_pause_ns"] for one in both] == [ns(19.999), ns(14.999)]


@pytest.mark.parametrize(
    "columns",
    [
        {"client_lost_bytes": 0},
        {"reset_by": 1},
        {"closed_by": 1, "closed_at": START + ns(46)},
        {"last": START + ns(49)},  # a packet after the last copy
        {"client_retransmitted_packets": 2},
        {"exchanges": 3},  # a selection left one out: its pause is not known
    ],
)
def test_a_sign_of_life_is_another_matter(columns: dict[str, Any]) -> None:
    sent = (*DROPPED, BUSY)
    rows = [row for number, one in enumerate(sent) for row in exchanges_of(number, one)]
    plain = [connection_of(number, one, client_retransmitted_packets=3) for number, one in enumerate(sent)]
    assert len(dropped(rows, plain)) == 1
    assert dropped(rows, [connection_of(0, sent[0], **columns), *plain[1:]]) == []


def late(number: int, asked: float, answered: float) -> Any:
    """A request that the broker answers late."""
    wait = ns(answered - asked)
    return exchange(
        number, ns(asked), wait, connection=number // NUMBER_OF_ONE, api_key=11, response_bytes=96, outcome=ANSWERED
    )


@pytest.mark.parametrize(("unacknowledged", "is_named"), [(100, True), (99, False)])
def test_answers_of_a_broker_get_lost_as_well(unacknowledged: int, is_named: bool) -> None:
    """Recorded at the broker: it answers after 15 s, and its copies are not acknowledged."""
    rows = [late(0, 1.0, 16.0), late(NUMBER_OF_ONE, 21.0, 36.0), *exchanges_of(2, BUSY)]
    lost = {"broker_retransmitted_packets": 5, "broker_unacknowledged_bytes": unacknowledged}
    ends = [
        connection_of(0, Sent([1.0]), last=START + ns(30), **lost),
        connection_of(1, Sent([21.0]), last=START + ns(49), **lost),
        connection_of(2, BUSY),
    ]
    found_here = dropped(rows, ends)
    assert bool(found_here) is is_named
    if is_named:
        assert found_here[0].numbers["shortest_pause_ns"] == ns(15)


def test_an_answer_that_took_long_and_arrived_is_a_pause_that_did_no_harm() -> None:
    rows = [row for number, one in enumerate((*DROPPED, BUSY)) for row in exchanges_of(number, one)]
    ends = [connection_of(number, one) for number, one in enumerate((*DROPPED, BUSY))]
    quiet = connection_of(5, Sent([2.0]))
    assert dropped([*rows, late(5 * NUMBER_OF_ONE, 2.0, 22.0)], [*ends, quiet]) == []
    assert len(dropped([*rows, late(5 * NUMBER_OF_ONE, 2.0, 14.0)], [*ends, quiet])) == 1


def test_an_answer_without_its_request_counts_as_traffic() -> None:
    """Its connection did not pause for 15 s."""
    sent = (*DROPPED, BUSY, Sent([2.0, 20.0]))
    rows = [row for number, one in enumerate(sent) for row in exchanges_of(number, one)]
    ends = [connection_of(number, one) for number, one in enumerate(sent)]
    assert dropped(rows, ends) == []
    orphan = exchange(999, ns(11), connection=len(sent) - 1, outcome=ANSWERED)
    orphan["outcome"], orphan["total_ns"] = ORPHAN_RESPONSE, 0
    orphan["request_first"] = orphan["request_last"] = NO_TIME
    assert len(dropped([*rows, orphan], ends)) == 1


def test_counts_that_were_dropped_hide_pauses() -> None:
    """With room for few connections, there is no finding of pauses that may have had traffic in them."""
    sent = (*DROPPED, BUSY, *(Sent([at + 0.5]) for at in range(48)))
    rows = [row for number, one in enumerate(sent) for row in exchanges_of(number, one)]
    ends = [connection_of(number, one) for number, one in enumerate(sent)]
    assert len(dropped(rows, ends)) == 1
    assert dropped(rows, ends, most=8) == []


def test_outcomes_of_lost_requests_are_alike() -> None:
    """Whether the capture ends while the client waits changes nothing."""
    sent = (*DROPPED, BUSY)
    rows = [row for number, one in enumerate(sent) for row in exchanges_of(number, one)]
    for row in rows:
        row["outcome"] = UNANSWERED if row["outcome"] == IN_FLIGHT else row["outcome"]
    (finding,) = dropped(rows, [connection_of(number, one) for number, one in enumerate(sent)])
    assert finding.numbers["unanswered"] == 2


@pytest.mark.parametrize(
    ("handshake", "since", "is_named"),
    [
        (H_NOT_CAPTURED, 30.0, True),
        (H_COMPLETE, 30.0, False),  # it began with what got lost, so it did not pause
        (H_NOT_CAPTURED, 12.0, False),  # other packets came before
        (H_NOT_CAPTURED, 4.0, False),  # the capture is too short to say
    ],
)
def test_connections_that_were_open_before_the_capture(handshake: int, since: float, is_named: bool) -> None:
    """They carried nothing since its begin: a pause of at least that."""
    sent = (Sent([since], since, since + 15.0), Sent([10.0, 25.0], 25.0, 45.0, client=3), BUSY)
    rows = [row for number, one in enumerate(sent) for row in exchanges_of(number, one)]
    first = START + ns(since if since != 12.0 else 11.0)
    open_before = connection_of(0, sent[0], handshake=handshake, first=first)
    found_here = dropped(rows, [open_before, *(connection_of(n, sent[n]) for n in (1, 2))])
    assert bool(found_here) is is_named
    if is_named:
        assert found_here[0].begin == START + ns(25)
        assert "after pauses of 15.0 s to 30.0 s or more" in found_here[0].text
