"""Requests that nothing will answer count when that is foreseeable, once; totals are those of a report in the end."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kafkatap.engine.selection import Selection
from kafkatap.reports.build import build_report
from tests.support.tcp import START_NS, Segment, merge
from tests.wire.kafkatalk import FETCH, MS, KafkaTalk, small_talk

from .metered import by_name
from .support import SECOND
from .test_monitor import WANTED, reported
from .watched import Seen, answering, sending, ticking


def assert_same_as_report(seen: Seen, path: Path) -> None:
    seen.monitor.finish()
    made = build_report(seen.monitor.windows.start, seen.monitor.context(), by="topic")
    wanted, context = reported(path, "topic")
    for name in WANTED:
        assert made.table(name).rows == wanted.table(name).rows
    assert seen.monitor.context().ledger == context.ledger


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "x.pcap"


def test_requests_without_acks_count_at_once(path: Path) -> None:
    """100 a second for five seconds; none of them is waiting."""
    talk = sending(500)
    seen = Seen(path, merge(talk.segments, ticking(7)))
    for second in seen.seconds():
        sent = min(100 * second, 500)
        for by, name in (("api", "Produce"), ("client", "sensor"), ("topic", "orders"), ("broker", "10.0.0.2:9092")):
            others = seen.counted("api", "ApiVersions") if by == "broker" else 1 if by == "client" else 0
            assert sent - 12 <= seen.counted(by, name) - others <= sent
        assert seen.monitor.status.waiting == 0
    assert second == 7
    assert_same_as_report(seen, path)


@pytest.mark.parametrize("after", [2 * MS, 700 * MS, 2_300 * MS])
def test_a_broker_may_answer_all_the_same(path: Path, after: int) -> None:
    """At once, and so late that the request counts as one without a reply first. No metric ever falls."""
    talk = answering(8, after, 30 * MS)
    seen = Seen(path, merge(talk.segments, ticking(4 + 8 * after // SECOND)))
    before: dict[tuple[str, ...], float] = {}
    foretold = 0
    for _ in seen.seconds():
        requests = {
            point.labels: point.value for point in by_name(seen.metrics, seen.monitor)["kafkatap_requests_total"].points
        }
        assert all(requests[labels] >= value for labels, value in before.items())
        before = requests
        foretold = max(foretold, int(seen.monitor.windows.start.groups.value_rows()[:, 1].sum()))
    assert (foretold > 0) == (after > SECOND // 2)
    assert seen.counted("api", "Produce") == 8
    assert_same_as_report(seen, path)


@pytest.mark.parametrize("end", ["fin", "reset by client", "reset by broker"])
def test_unanswered_requests_count_when_their_connection_ends(path: Path, end: str) -> None:
    talk = KafkaTalk(client_id="app")
    talk.tcp.open()
    for number in range(3):
        talk.request(FETCH, 4, number)
    talk.tcp.wait(1_250 * MS)
    if end == "fin":
        talk.tcp.close()
    else:
        talk.tcp.reset(1 if "broker" in end else 0)
    seen = Seen(path, merge(talk.segments, ticking(4)))
    for second in seen.seconds():
        closed = second > 1
        assert seen.monitor.status.waiting == (0 if closed else 3)
        assert seen.monitor.status.connections == (1 if closed else 2)
        assert seen.counted("client", "app", "unanswered") == (3 if closed else 0)
    assert second == 4
    assert_same_as_report(seen, path)


def test_requests_under_way_are_never_unanswered(path: Path) -> None:
    """They wait on an open connection until the capture ends: then they are in flight."""
    talk = KafkaTalk(client_id="app")
    talk.tcp.open()
    for number in range(3):
        talk.request(FETCH, 4, number)
    seen = Seen(path, merge(talk.segments, ticking(4)))
    for _ in seen.seconds():
        assert seen.monitor.status.waiting == 3
        assert seen.counted("client", "app", "unanswered") == 0
    assert_same_as_report(seen, path)
    requests = seen.monitor.engine.ledger()["requests"]
    assert (requests["in_flight"], requests["unanswered"]) == (3, 0)


def test_a_response_may_follow_a_reset(path: Path) -> None:
    """As seen at the client, where packets of the broker were under way."""
    talk = KafkaTalk(client_id="app")
    talk.tcp.open()
    asked = talk.request(FETCH, 4, 1)
    talk.tcp.reset(0)
    talk.tcp.wait(1_500 * MS)
    talk.respond(asked)
    seen = Seen(path, merge(talk.segments, ticking(4)))
    counted = [seen.counted("client", "app", "unanswered") for _ in seen.seconds()]
    assert counted == [1, 0, 0, 0]
    assert_same_as_report(seen, path)


def test_a_connection_is_there_once_it_is_answered(path: Path) -> None:
    """Neither SYNs that nobody answers nor refused ones are connections."""
    dead, refused = KafkaTalk(client=("10.0.0.3", 1)), KafkaTalk(client=("10.0.0.4", 1))
    for talk in (dead, refused):
        talk.tcp.open()
    silent = KafkaTalk(client=("10.0.0.5", 1))
    silent.tcp.open()
    answer = refused.tcp.segments[1]
    rst = Segment(answer.time_ns, answer.source, answer.destination, 0, answer.ack, 0x14)
    segments = merge(dead.segments[:1], [refused.segments[0], rst], silent.segments, ticking(3))
    seen = Seen(path, segments)
    assert [seen.monitor.status.connections for _ in seen.seconds()] == [2, 2, 2]


def test_names_may_be_forgotten_meanwhile(path: Path) -> None:
    """Numbers of strings change while provisional rows are open."""
    talk = answering(4, 1_700 * MS, 30 * MS)
    seen = Seen(path, merge(talk.segments, ticking(9)))
    monitor = seen.monitor
    monitor.limits = type(monitor.limits)(strings=1, text=1, addresses=1)
    for _ in seen.seconds():
        pass
    assert_same_as_report(seen, path)


@pytest.mark.parametrize(
    ("expression", "count"), [("outcome == no_reply_expected", 0), ("latency > 1s", 4), ("api == Produce", 4)]
)
def test_a_filter_judges_both_rows(path: Path, expression: str, count: int) -> None:
    talk = answering(4, 1_700 * MS, 30 * MS)
    seen = Seen(path, merge(talk.segments, ticking(9)), Selection.of(filter=expression))
    for _ in seen.seconds():
        pass
    seen.monitor.finish()
    assert seen.counted("api", "Produce") == count
    assert not np.any(seen.monitor.windows.start.groups.value_rows()[:, :6] < 0)


def test_a_reset_forgets_what_was_foretold(path: Path) -> None:
    """What counted before is not subtracted from counts that start anew."""
    talk = answering(4, 1_700 * MS, 30 * MS)
    seen = Seen(path, merge(talk.segments, ticking(9)))
    for second in seen.seconds():
        if second == 3:
            seen.monitor.reset()
    seen.monitor.finish()
    assert not np.any(seen.monitor.windows.start.groups.value_rows()[:, :6] < 0)
    assert seen.counted("api", "Produce") == 3


def test_a_closed_connection_is_not_among_the_open_ones(path: Path) -> None:
    talks = [small_talk(2, client=(f"10.0.1.{n}", 40_000), time_ns=START_NS + n * 20 * MS) for n in range(1, 100)]
    seen = Seen(path, merge(*(talk.segments for talk in talks), ticking(4)))
    assert [seen.monitor.status.connections for _ in seen.seconds()][1:] == [1, 1, 1]
