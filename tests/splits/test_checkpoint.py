"""What a stream keeps of open flows, and which captures come too late for them."""

from __future__ import annotations

import pytest

from kafkatap.splits.checkpoint import added_spans, late_since

MS = 1_000_000


def test_spans_that_overlap_are_joined_and_the_latest_are_kept() -> None:
    assert added_spans([]) == ()
    assert added_spans([(50, 60), (10, 20), (20, 30)]) == ((10, 30), (50, 60))
    assert added_spans([(10, 50), (20, 30)]) == ((10, 50),)
    many = added_spans((n, n) for n in range(100))
    assert len(many) == 16
    assert many[-1] == (99, 99)


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
    before = {b"a": ((10 * MS, 30 * MS), (70 * MS, 80 * MS)), b"b": ((1 * MS, 2 * MS),)}
    times = {b"a": (seen[0] * MS, seen[1] * MS), b"b": (5 * MS, 6 * MS), b"new": (1, 2)}
    assert late_since(times, before) == (None if wanted is None else wanted * MS)
