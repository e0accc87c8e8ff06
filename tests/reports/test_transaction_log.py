"""The history of a transactional id, step by step."""

from __future__ import annotations

from kafkatap.reports.section_parts.transaction_log import Producer, Transactional

OLD, NEW = Producer(1, 10), Producer(2, 20)
FENCED, CONCURRENT, NOT_COORDINATOR = 90, 51, 16
HERE, ELSEWHERE = 71, 72  # addresses of brokers


def begun(epoch: int = 0) -> Transactional:
    """An open transaction of OLD, since 100, whose coordinator was captured."""
    made = Transactional(5)
    made.init(50, OLD, 0, (7, epoch), 60_000)
    made.asked((HERE, 9092), 0)
    made.add(100, OLD, 7, epoch, 0)
    return made


def test_a_marker_after_end_is_of_the_ended_transaction() -> None:
    made = begun()
    made.end(200, OLD, True, 0, (7, 0))
    made.add(201, OLD, 7, 0, 0)
    made.marker(202, 0, 3, True, HERE)
    assert (made.committed, made.markers, made.opened, made.longest) == (1, 3, 201, 100)


def test_an_abort_marker_without_end_is_the_coordinators() -> None:
    made = begun()
    made.marker(300, 1, 1, False, HERE)
    assert (made.aborted_by_broker, made.aborted, made.timed_out_ns, made.state) == (1, 0, 200, "aborted")


def test_a_coordinator_that_was_not_captured_ends_transactions_with_markers() -> None:
    """A commit is the producer's. An abort may be anybody's."""
    for committed in (True, False):
        made = Transactional(5)
        made.add(100, OLD, 7, 0, 0)
        made.marker(160, 0, 1, committed, ELSEWHERE)
        assert (made.committed, made.aborted_elsewhere) == (int(committed), int(not committed))
        assert (made.aborted, made.aborted_by_broker, made.opened, made.longest) == (0, 0, None, 60)


def test_the_coordinator_has_moved() -> None:
    for step in ("answered", "another broker", "never"):
        made = begun()
        if step == "answered":
            made.asked((HERE, 9092), NOT_COORDINATOR)
        made.marker(300, 1, 1, False, HERE if step != "another broker" else ELSEWHERE)
        assert (made.aborted_by_broker, made.aborted_elsewhere) == ((1, 0) if step == "never" else (0, 1))


def test_a_producer_that_begins_anew_ends_what_is_open() -> None:
    made = begun()
    made.init(250, NEW, 0, (7, 2), 60_000)
    assert (made.aborted_by_broker, made.aborted_elsewhere) == (1, 0)
    made = Transactional(5)
    made.add(100, OLD, 7, 0, 0)
    made.init(250, NEW, 0, (7, 2), 60_000)
    assert (made.aborted_by_broker, made.aborted_elsewhere) == (0, 1)


def test_a_second_producer_fences_the_first() -> None:
    made = begun()
    made.init(150, NEW, CONCURRENT, (-1, -1), 60_000)
    made.marker(160, 1, 1, False, HERE)
    made.init(250, NEW, 0, (7, 2), 60_000)
    made.fail(260, OLD, FENCED)
    made.fail(270, OLD, FENCED)
    assert made.fences == [(OLD, NEW, FENCED, 260, 250)]
    assert (made.fenced, made.aborted_by_broker, made.timed_out_ns, made.owner) == (2, 1, -1, NEW)
    assert (made.state, made.failed) == ("empty", 0)


def test_a_second_producer_that_began_before_the_capture() -> None:
    made = begun()
    made.add(250, NEW, 7, 2, 0)
    made.fail(260, OLD, FENCED)
    assert made.fences == [(OLD, NEW, FENCED, 260, None)]


def test_a_producer_that_the_coordinator_fenced() -> None:
    made = begun()
    made.marker(300, 1, 1, False, HERE)
    made.end(310, OLD, True, FENCED, (7, 0))
    assert made.fences == [(OLD, None, FENCED, 310, None)]
    assert (made.state, made.committed) == ("fenced", 0)


def test_retries_while_the_coordinator_is_busy_are_no_failures() -> None:
    made = begun()
    made.end(200, OLD, True, CONCURRENT, (7, 0))
    assert (made.failed, made.opened) == (0, 100)
    made.end(210, OLD, True, 48, (7, 0))
    assert made.failed == 1
