"""Members that wait for offsets of an open transaction: just inside and outside of the rule, and in a recording."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kafkatap.dissector.dtypes import KIND_PARTITION
from kafkatap.reports.advice.unstable_offsets import UNSTABLE_OFFSETS
from kafkatap.reports.findings import Finding
from kafkatap.reports.sections.advice import findings
from tests.reports.rows import FORMULA, GROUP, HOSTILE, MARKUP, MS, START, VERSION, exchange, fact, result
from tests.support.section_runs import section_input

from .made_input import SECOND, given_of

FETCH_OFFSETS, COMMIT, END = 9, 28, 26
UNSTABLE = 88
SAMPLES = Path(__file__).resolve().parents[2] / "samples"


def found(
    seconds: float = 1, committed: tuple[tuple[float, int], ...] = ((1, VERSION),), ended: float | None = None,
    group: int = GROUP, partition: int = 0, code: int = UNSTABLE,
) -> list[Finding]:  # fmt: skip
    """A member of `group` is refused from 2 s on. `committed`: when which transactions were told of offsets of the
    group GROUP; `ended`: when those of VERSION ended."""
    rows: list[Any] = []
    facts: list[Any] = []
    results = []
    for number, (at, name) in enumerate(committed):
        rows.append(exchange(number, int(at * SECOND), MS, api_key=COMMIT, client_id=HOSTILE, connection=1))
        facts.append(fact(number, "transaction commit", transactional_id=name, group=GROUP, producer_id=7))
        facts.append(fact(number, "transaction commit partition", partition=0, offset=20))
    for number, at in ((10, 2.0), (11, 2.0 + seconds)):
        rows.append(exchange(number, int(at * SECOND), 0, api_key=FETCH_OFFSETS, api_version=9, connection=2))
        facts.append(fact(number, "offset fetch group", group=group))
        results.append(result(number, code, kind=KIND_PARTITION, partition=partition))
    if ended is not None:
        rows.append(exchange(20, int(ended * SECOND), 0, api_key=END, client_id=HOSTILE, connection=1))
        facts.append(
            fact(20, "end transaction", transactional_id=VERSION, producer_id=7, producer_epoch=1, committed=1)
        )
        facts.append(fact(20, "ended transaction", error_code=0))
    rows.sort(key=lambda row: int(row["request_first"]))
    return list(UNSTABLE_OFFSETS.findings(given_of(rows, facts=facts, results=results)))


def test_it_names_the_member_the_offsets_and_the_transaction() -> None:
    (one,) = found()
    assert one.text.startswith(
        'client "billing" (10.0.0.1) waited 1.00 s for the offsets of group "group-1" on orders-0: '
    )
    assert 'transaction "2.3.0" of client ' in one.text
    assert one.text.endswith(" holds them back")
    assert (one.begin, one.end, one.time_lost_ns) == (START + 2 * SECOND, None, SECOND)
    (ended,) = found(ended=3.5)
    assert ended.text.endswith(" held them back")
    assert ended.end == START + 3 * SECOND


@pytest.mark.parametrize(
    "changed",
    [
        {"seconds": 0.99},
        {"code": 14},
        {"group": MARKUP},
        {"partition": 1},
        {"committed": ()},
        {"committed": ((2.1, VERSION),)},  # it was told of them later
        {"committed": ((1, VERSION), (1, FORMULA))},  # one of two
        {"ended": 1.5},
    ],
)
def test_just_outside(changed: dict[str, Any]) -> None:
    assert found(**changed) == []


def test_a_recording_of_a_member_that_begins_while_a_transaction_is_open() -> None:
    """The script held it open for 9.08 s, and the second member began within 0.1 s."""
    given = section_input(SAMPLES / "reports" / "unstable-offsets.pcap.zst", "advice")
    (one,) = (finding for finding in findings(given) if finding.id == UNSTABLE_OFFSETS.id)
    assert 'transaction "settlement-1" of client "settler" (10.77.0.21) held them back' in one.text
    assert 8 * SECOND < one.time_lost_ns < 9.1 * SECOND
