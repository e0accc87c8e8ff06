"""What became of record batches, from the counts of their copies."""

from __future__ import annotations

import numpy as np
import pytest

from kafkatap.reports.counting.count_table import EMPTY, MAX, MIN
from kafkatap.reports.section_parts.batch_copies import what_became

MS = 1_000_000
START = 1_795_000_000 * 1_000 * MS
#: One idempotent batch that was sent once and acknowledged.
USUAL = {
    "copies": 1, "answered": 1, "in_flight": 0, "unanswered": 0, "failed": 0, "min_offset": 7, "max_offset": 7,
    "first": START, "last": START, "first_end": START + 5 * MS, "min_connection": 1, "max_connection": 1,
    "error_code": 0, "records": 3, "producer_id": 4, "crc": 99,
}  # fmt: skip
NEVER = {"answered": 0, "min_offset": EMPTY[MIN], "max_offset": EMPTY[MAX], "first_end": EMPTY[MIN]}
#: A second copy, on another connection, 400 ms later.
AGAIN = {"copies": 2, "last": START + 400 * MS, "max_connection": 2}
PLAIN = {"producer_id": -1}


def fate(**changes: int) -> str | None:
    row = {name: np.array([value], np.int64) for name, value in (USUAL | changes).items()}
    chosen, fates = what_became(row, row)
    assert len(chosen) == len(fates)
    return fates[0] if fates else None


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, None),
        (AGAIN | {"answered": 2}, "deduplicated"),
        (AGAIN | {"answered": 2, "max_offset": 8}, "duplicated"),
        (AGAIN | PLAIN | {"answered": 2, "max_offset": 8}, "duplicated"),
        (AGAIN | {"failed": 1, "error_code": 46}, "deduplicated"),
        (AGAIN | {"failed": 1, "error_code": 6}, "acknowledged by a retry"),
        (AGAIN | {"unanswered": 1}, "acknowledged by a retry"),
        (AGAIN | PLAIN | {"unanswered": 1}, "acknowledged, perhaps twice in the log"),
        (NEVER | {"unanswered": 1}, "never acknowledged"),
        (NEVER | AGAIN | {"unanswered": 2}, "never acknowledged"),
        (NEVER | {"failed": 1, "error_code": 47}, "refused"),
        (NEVER | {"in_flight": 1}, None),  # it may still be acknowledged, or its retry
        (NEVER | AGAIN | {"unanswered": 1, "in_flight": 1}, None),
        (NEVER | AGAIN | {"failed": 1, "error_code": 6, "in_flight": 1}, None),
        (AGAIN | {"in_flight": 1}, "acknowledged by a retry"),
        (NEVER, None),  # its response was not captured
        (AGAIN | {"answered": 2, "crc": -1}, None),  # rows that were added up
    ],
)
def test_fates(changes: dict[str, int], expected: str | None) -> None:
    assert fate(**changes) == expected


def test_a_request_that_a_proxy_passes_on_is_no_retry() -> None:
    """Both connections of the proxy are in the capture: the second copy begins before the first is answered."""
    assert fate(**AGAIN | {"answered": 2, "last": START + MS}) is None
    assert fate(**AGAIN | {"answered": 2, "last": START + 4 * MS, "first_end": START + 3 * MS}) == "deduplicated"


def test_equal_batches_of_a_plain_producer_on_one_connection_are_no_retry() -> None:
    """Records with the same content and timestamps, one after the other."""
    again = AGAIN | PLAIN | {"answered": 2, "max_offset": 8, "max_connection": 1}
    assert fate(**again) is None
    assert fate(**again | {"answered": 1, "unanswered": 1}) == "acknowledged, perhaps twice in the log"
