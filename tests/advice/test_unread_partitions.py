"""Members that leave a partition unread: just inside and just outside of the rule."""

from __future__ import annotations

from typing import Any

import pytest

from kafkatap.dissector.dtypes import UNANSWERED
from kafkatap.dissector.facts.fact_rows import NO_NUMBER
from kafkatap.reports.advice.lagging_groups import LAGGING_GROUPS
from kafkatap.reports.advice.unread_partitions import UNREAD_PARTITIONS
from kafkatap.reports.findings import Finding
from tests.reports.rows import BILLING, GROUP, MS, START, VERSION, exchange, fact

from .made_input import SECOND, given_of

MEMBER, OTHER_GROUP = VERSION, BILLING
_PRODUCE, _FETCH, _COMMIT, _HEARTBEAT, _LEAVE = 0, 1, 8, 12, 13
UNREAD, READ = 1, 0


class Made:
    """Two partitions with a record each 0.5 s, from 0 to `until`; and a member that reads both until `stops`, and then
    only partition 0. The last answer on the other comes at 5.001 s if it stops at 5 s."""

    def __init__(self, until: float = 20, stops: float = 5, grows: bool = True, commits: bool = True) -> None:
        self.exchanges: list[Any] = []
        self.facts: list[Any] = []
        for n in range(int(until * 2) + 1):
            at, ended = n / 2, int(stops * 2)
            end = n + 1 if grows else min(n, ended) + 1
            self.write(at, READ, n)
            self.write(at, UNREAD, end - 1)
            self.read(at + 0.1, READ, n)
            if n <= ended:
                self.read(at, UNREAD, n)
            if n % 6 == 0:
                self.beat(at + 0.1)
                if commits:
                    self.commit(at + 0.2, UNREAD, min(n, ended))
        self.beat(until)

    def _ask(self, at: float, api: int, **columns: Any) -> int:
        number = len(self.exchanges) + 1
        self.exchanges.append(exchange(number, int(at * SECOND), api_key=api, **({"connection": 1} | columns)))
        return number

    def write(self, at: float, partition: int, offset: int) -> Made:
        number = self._ask(at, _PRODUCE, client_id=-1, connection=2)
        self.facts += [
            fact(number, "batch", partition=partition, records=1),
            fact(number, "produced partition", partition=partition, base_offset=offset, error_code=0),
        ]
        return self

    def read(self, at: float, partition: int, offset: int, preferred: int = NO_NUMBER, **columns: Any) -> Made:
        number = self._ask(at, _FETCH, **columns)
        self.facts += [
            fact(number, "fetch", replica_id=-1, replica_state_id=NO_NUMBER),
            fact(number, "fetch partition", partition=partition, offset=offset),
        ]
        return self.told(number, partition, offset, preferred)

    def told(self, number: int, partition: int, end: int, preferred: int = NO_NUMBER) -> Made:
        """What a response says of a partition."""
        self.facts.append(
            fact(number, "fetched partition", partition=partition, high_watermark=end, error_code=0,
                 preferred_replica=preferred)
        )  # fmt: skip
        return self

    def session(self, at: float, end: int) -> Made:
        """A Fetch of a session that names no partition; its response has the unread one."""
        number = self._ask(at, _FETCH)
        self.facts.append(fact(number, "fetch", replica_id=-1, replica_state_id=NO_NUMBER))
        return self.told(number, UNREAD, end)

    def commit(self, at: float, partition: int, offset: int) -> Made:
        number = self._ask(at, _COMMIT, connection=3)
        self.facts += [
            fact(number, "commit", group=GROUP, member=MEMBER),
            fact(number, "commit partition", partition=partition, offset=offset),
            fact(number, "committed partition", partition=partition, error_code=0),
        ]
        return self

    def beat(self, at: float, group: int = GROUP) -> Made:
        number = self._ask(at, _HEARTBEAT, connection=3)
        self.facts += [
            fact(number, "heartbeat", group=group, member=MEMBER), fact(number, "heartbeat answer", error_code=0)
        ]  # fmt: skip
        return self

    def leave(self, at: float) -> Made:
        number = self._ask(at, _LEAVE, connection=3)
        self.facts += [fact(number, "leave group", group=GROUP), fact(number, "leaving member", member=MEMBER)]
        return self

    def found(self, signature: Any = UNREAD_PARTITIONS) -> list[Finding]:
        order = sorted(range(len(self.exchanges)), key=lambda i: int(self.exchanges[i]["request_first"]))
        given = given_of([self.exchanges[i] for i in order], facts=self.facts)
        return list(signature.findings(given))


def test_the_line_names_group_member_partition_time_and_lag() -> None:
    (one,) = Made().found()
    assert one.text == (
        'client "billing" (10.0.0.1) of group "group-1" has not fetched orders-1 for 15.0 s, though it fetches others: '
        "28 records behind, 2.1 more each second"
    )
    assert (one.begin, one.end) == (START + 5 * SECOND + MS, START + 20 * SECOND)
    assert [(party.kind, party.name) for party in one.parties] == [
        ("group", "group-1"), ("client", "billing"), ("host", "10.0.0.1"), ("topic", "orders"),
    ]  # fmt: skip
    assert one.setting.startswith("resume()")


def test_a_member_that_fetches_nothing_hangs() -> None:
    made = Made()
    gone = {
        int(e["exchange"]) for e in made.exchanges if e["api_key"] == _FETCH and e["request_first"] > START + 6 * SECOND
    }
    made.exchanges = [e for e in made.exchanges if int(e["exchange"]) not in gone]
    made.facts = [f for f in made.facts if int(f["exchange"]) not in gone]
    (one,) = [each for each in made.found() if each.numbers["partition"] == UNREAD or each.numbers["partitions"] == 2]
    assert "though it sends heartbeats" in one.text
    assert one.numbers["partitions"] == 2


@pytest.mark.parametrize(
    ("made", "is_named"),
    [
        (Made(until=17), True),
        (Made(until=16), False),  # the last commit that goes further is of 6.2 s
        (Made(until=15.5, stops=4.5, commits=False), True),
        (Made(until=14, stops=4.5, commits=False), False),
        (Made(grows=False), False),
        (Made().read(19, UNREAD, 10), False),
        (Made().read(4, UNREAD, 8, preferred=2), False),
        (Made().commit(19, UNREAD, 20), False),  # it reads elsewhere
        (Made().session(19, 30), False),
        (Made().read(5.2, UNREAD, 10, outcome=UNANSWERED), False),
        (Made().beat(10, OTHER_GROUP), False),  # of which group is the reader?
        (Made().leave(20), True),
        (Made().leave(14), False),
    ],
)
def test_thresholds(made: Made, is_named: bool) -> None:
    assert bool(made.found()) == is_named


def test_it_is_not_named_twice() -> None:
    assert Made().found(LAGGING_GROUPS) == []
