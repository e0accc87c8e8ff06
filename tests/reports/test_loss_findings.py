"""`overlapping`: which captures have packets of the same time as others."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kafkatap.reports.batch import FileInfo
from kafkatap.reports.sections.loss_findings import overlapping

MS = 1_000_000
BEGIN = 1_795_000_000_000 * MS
TIMES = st.integers(0, 12).map(lambda half: BEGIN + half * MS // 2)


def capture(first: int | None, last: int | None) -> FileInfo:
    return FileInfo("c.pcap", "pcap", 0, 1, 1, first=first, last=last)


@given(st.lists(st.tuples(TIMES, TIMES).map(sorted), max_size=8))
def test_captures_that_overlap_any_other(spans: list[list[int]]) -> None:
    files = [capture(first, last) for first, last in spans]
    wanted = [
        one for number, one in enumerate(files)
        if any(min(one.last, other.last) - max(one.first, other.first) > MS  # type: ignore[type-var,operator]
               for place, other in enumerate(files) if place != number)
    ]  # fmt: skip
    assert sorted(overlapping([*files, capture(None, None)])) == sorted(wanted)


def test_50_000_captures_of_an_hour_each() -> None:
    """Of five hosts. Comparing each with all others would take minutes."""
    hour = 3600 * 1000 * MS
    files = [capture(BEGIN + n * hour, BEGIN + (n + 1) * hour) for n in range(10_000)] * 5
    assert len(overlapping(files)) == 50_000
    assert overlapping(files[:10_000]) == []
