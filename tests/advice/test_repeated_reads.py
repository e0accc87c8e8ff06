"""What readers are sent again and again: just inside and just outside of the rules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from kafkatap.dissector.facts.fact_rows import NO_NUMBER
from kafkatap.reports.advice.repeated_reads import POISON_RECORD, REFETCH
from kafkatap.reports.findings import Finding
from tests.reports.rows import GROUP, MS, START, exchange, fact

from .advice_samples import found, of, truth
from .made_input import SECOND, given_of

#: An own host, on which another member runs.
OTHER_HOST = 2
NO_OFFSET, NO_ERROR, OUT_OF_RANGE = -1, 0, 1


class Made:
    """Exchanges of readers, with their facts."""

    def __init__(self) -> None:
        self.exchanges: list[Any] = []
        self.facts: list[Any] = []

    def fetch(
        self, at: float, offset: int, base: int | None = None, records: int = 10, size: int = 1000, error: int = 0,
        replica: int = NO_NUMBER, partition: int = 0, **columns: Any,
    ) -> None:  # fmt: skip
        """A Fetch at an offset, or of an incremental session (NO_OFFSET), and the batch of its response."""
        number = self._exchange(at, 1, **{"connection": 1, **columns})
        place = {"partition": partition}
        self.facts.append(fact(number, "fetch", replica_state_id=replica))
        if offset != NO_OFFSET:
            self.facts.append(fact(number, "fetch partition", **place, offset=offset))
        self.facts.append(fact(number, "fetched partition", **place, error_code=error, high_watermark=100))
        if records:
            begin = offset if base is None else base
            self.facts.append(fact(number, "fetched batch", **place, base_offset=begin, records=records, bytes=size))

    def fetches(self, offsets: Sequence[int], seconds: float, **columns: Any) -> Made:
        """Fetches of so many seconds, from the first to the last."""
        for n, offset in enumerate(offsets):
            self.fetch(seconds * n / max(len(offsets) - 1, 1), offset, **columns)
        return self

    def commit(self, at: float, offset: int, group: int = GROUP, **columns: Any) -> Made:
        number = self._exchange(at, 8, **{"connection": 2, **columns})
        self.facts += [
            fact(number, "commit", group=group, member=group), fact(number, "commit partition", offset=offset),
            fact(number, "committed partition"),
        ]  # fmt: skip
        return self

    def _exchange(self, at: float, api: int, **columns: Any) -> int:
        number = len(self.exchanges) + 1
        self.exchanges.append(exchange(number, int(at * SECOND), api_key=api, **columns))
        return number

    def found(self) -> list[Finding]:
        order = sorted(range(len(self.exchanges)), key=lambda i: int(self.exchanges[i]["request_first"]))
        given = given_of([self.exchanges[i] for i in order], facts=self.facts)
        return [*POISON_RECORD.findings(given), *REFETCH.findings(given)]

    def ids(self) -> list[str]:
        return [finding.id for finding in self.found()]


# ------------------------------------------------------------ one offset


def test_the_recording_has_the_record_and_the_attempts_of_its_program() -> None:
    (finding,) = found("poison-record")
    given = truth("poison-record")
    # The first attempt was on a record of an earlier Fetch.
    assert (finding.id, finding.numbers["offset"]) == ("poison_record", given["offset"])
    assert f" --partition {finding.numbers['partition']} --offset {given['offset']} --max-messages 1`" in finding.remedy
    assert finding.numbers["deliveries"] == len(given["attempts_ms"]) - 1
    assert finding.time_lost_ns == pytest.approx((given["attempts_ms"][-1] - given["attempts_ms"][0]) * MS, rel=0.1)
    assert given["committed"]["charging"] == given["offset"]
    assert given["offset"] < given["end"] - int(str(finding.numbers["behind"])) <= given["offset"] + 20
    assert [(party.kind, party.name) for party in finding.parties] == [
        ("client", "charger"), ("host", "127.0.0.1"), ("group", "charging"), ("topic", "payments"),
        ("partition", "payments-0"),
    ]  # fmt: skip


def test_a_few_attempts_are_no_stand() -> None:
    assert found("poison-record-right") == ()
    assert len(truth("poison-record-right")["attempts_ms"]) == 3


def test_it_names_member_group_offset_and_what_waits() -> None:
    (finding,) = Made().fetches([37] * 5, 10).commit(0, 37).found()
    assert finding.text == (
        'client "billing" (10.0.0.1) of group "group-1" stands at offset 37 of orders-0: it was sent 5 times in 10.0 '
        "s, nothing behind it is committed, and 62 offsets wait. Its program fails on this record and goes back to it, "
        "or throws it away"
    )
    assert (finding.begin, finding.time_lost_ns) == (START, 10 * SECOND + MS)


@pytest.mark.parametrize(
    ("made", "is_named"),
    [
        (Made().fetches([37] * 5, 10).commit(0, 30), True),
        (Made().fetches([37] * 4, 10).commit(0, 30), False),
        (Made().fetches([37] * 5, 9.9).commit(0, 30), False),
        (Made().fetches([37] * 5, 10), False),  # of no group
        (Made().fetches([37] * 5, 10).commit(0, 38), True),  # librdkafka has handed it out
        (Made().fetches([37] * 5, 10).commit(5, 39), False),
        (Made().fetches([37] * 5, 10).commit(0, 30).commit(5, 60, 7, client_ip=OTHER_HOST), True),
        (Made().fetches([37, 47] * 5, 12).commit(0, 30), True),  # it is ahead, and comes back
        (Made().fetches([27, *[37] * 5], 13).commit(0, 30), True),
        (Made().fetches([37, 27] * 3, 9).commit(0, 20), False),  # goes back further: reads again
        (Made().fetches([37] * 5, 10, records=0).commit(0, 30), False),  # waits at the end
        (Made().fetches([37] * 5, 10, error=OUT_OF_RANGE).commit(0, 30), False),
        (Made().fetches([37] * 5, 10, replica=2).commit(0, 30), False),
        (Made().fetches([NO_OFFSET] * 5, 10, base=30).commit(0, 40), True),  # fetch sessions leave it out
        (Made().fetches([NO_OFFSET] * 5, 10, base=30).commit(0, 41), False),
        (Made().fetches([30, 37, *[NO_OFFSET] * 3], 12, base=30).commit(0, 37), False),
        (Made().fetches([30, 37, *[NO_OFFSET] * 4], 13, base=30).commit(0, 38), True),
        (Made().fetches([30, 37, *[NO_OFFSET] * 4], 13, base=30).commit(5, 39), False),
    ],
)
def test_stands(made: Made, is_named: bool) -> None:
    assert made.ids() == ["poison_record"] * is_named


def test_the_offset_is_the_last_one_that_the_fetch_session_has() -> None:
    """A Java client that goes back to it asks without it."""
    (finding,) = Made().fetches([30, 37, *[NO_OFFSET] * 4], 13, base=30).commit(0, 37).found()
    assert (finding.numbers["offset"], finding.numbers["deliveries"]) == (37, 5)


def test_members_with_one_name_do_not_stand_together() -> None:
    """Each of their connections is sent the offset once or twice."""
    made = Made().commit(0, 30)
    for n in range(6):
        made.fetch(2 * n, 37, connection=10 + n % 3, client_port=5000 + n % 3)
    assert made.ids() == []


# ------------------------------------------------------------ all of a partition


def test_the_recording_of_pauses_has_the_share_that_comes_again() -> None:
    made = Made().fetches([0, 10, 0] * 4, 4)
    made.fetch(5, 20)
    (finding,) = made.found()
    assert finding.id == "refetch"
    assert finding.text == (
        'client "billing" (10.0.0.1): offsets 0 to 29 of orders-0 were delivered 4.3 times, 9.8 KiB of 12.7 KiB again: '
        "it throws away what it fetched (pause and resume, seek), or reads all anew"
    )
    assert (finding.numbers["again_bytes"], finding.numbers["deliveries"]) == (10_000, 13)


@pytest.mark.parametrize(
    ("made", "is_named"),
    [
        (Made().fetches([*range(0, 40, 10)] * 3, 5), True),
        (Made().fetches([*range(0, 60, 10)] * 2, 5), False),  # reads all twice
        (Made().fetches([*range(0, 30, 10)] * 3, 5), False),  # few responses
        (Made().fetches([*range(0, 30, 10)] * 3, 5, error=OUT_OF_RANGE), False),
        (Made().fetches([*range(0, 40, 10)] * 3, 5, replica=1), False),
        (Made().fetches([10, 13, 17] * 4, 5, base=10), True),  # the same batch
        (Made().fetches([*range(0, 120, 10)], 5), False),
    ],
)
def test_again(made: Made, is_named: bool) -> None:
    assert made.ids() == ["refetch"] * is_named


def test_connections_of_one_name_are_each_for_themselves() -> None:
    made = Made()
    for n in range(3):
        made.fetches([*range(0, 40, 10)], 5, connection=10 + n)
    assert made.ids() == []


def test_open_transactions_hold_no_reader_at_an_offset() -> None:
    """Their readers wait without records."""
    assert [f.id for f in found("open-transaction") if f.id in ("refetch", "poison_record")] == []
    assert of("lagging-group", "poison_record") == []
