"""What a stream keeps of open flows, and which captures come too late for them."""

from __future__ import annotations

import pytest

from kafkatap.captures.capture_points import ReadPoint
from kafkatap.splits.checkpoint import FlowSpan, added_spans, is_at_several_points, late_since, read_until

MS = 1_000_000


def span(first: int, last: int, point: int = 0) -> FlowSpan:
    """A flow that has packets all over a capture, ms."""
    return FlowSpan(first * MS, last * MS, first * MS, last * MS, point)


def test_spans_without_a_gap_are_joined_and_the_latest_are_kept() -> None:
    assert added_spans([]) == ()
    assert added_spans([span(50, 60), span(10, 20), span(20, 30)]) == (span(10, 30), span(50, 60))
    assert added_spans([span(10, 50), span(20, 30)]) == (span(10, 50),)
    assert added_spans([span(10, 50), span(20, 30, 1)]) == (span(20, 30, 1), span(10, 50))
    many = added_spans(span(10 * n, 10 * n) for n in range(100))
    assert len(many) == 16
    assert many[-1] == span(990, 990)


@pytest.mark.parametrize(
    ("seen", "wanted"),
    [
        ((90, 95), None),  # goes on
        ((79, 95), None),  # goes on, with time stamps that step back
        ((40, 60), 80),  # between two captures that were read
        ((30, 60), 80),  # begins right behind the first of them
        ((20, 29), None),  # captured at the other end of the connection
        ((25, 100), None),
        ((75, 90), None),
        ((2, 9), 80),  # before all
    ],
)
def test_a_capture_is_late_if_its_connections_were_read_further(seen: tuple[int, int], wanted: int | None) -> None:
    before = {b"a": (span(10, 30), span(70, 80)), b"b": (span(1, 2),)}
    times = {b"a": span(*seen), b"b": span(5, 6), b"new": span(1, 2)}
    assert late_since(times, before) == (None if wanted is None else wanted * MS)


def test_few_packets_in_captures_that_overlap_are_of_several_points() -> None:
    one = FlowSpan(500 * MS, 500 * MS, 0, 9_000 * MS)
    assert is_at_several_points(FlowSpan(501 * MS, 501 * MS, 100 * MS, 8_000 * MS), [one])
    assert not is_at_several_points(FlowSpan(1_501 * MS, 1_501 * MS, 100 * MS, 8_000 * MS), [one])
    assert not is_at_several_points(FlowSpan(501 * MS, 501 * MS, 8_999 * MS, 9_900 * MS), [one])


def test_points_that_are_behind() -> None:
    ahead, behind = ReadPoint("a", 0, 60), ReadPoint("b", 0, 55)
    assert read_until([]) is None
    assert read_until([ahead]) is None
    assert read_until([ahead, behind]) == 55
    assert read_until([ahead, behind], 4) is None
    assert read_until([ReadPoint("a", 150, 200), behind]) is None  # no more will come of it
