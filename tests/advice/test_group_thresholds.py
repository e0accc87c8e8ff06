"""Signatures of members of groups just inside and just outside of their thresholds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from kafkatap.reports.advice.expulsions import EXPULSIONS
from kafkatap.reports.advice.open_transactions import OPEN_TRANSACTIONS
from kafkatap.reports.findings import Finding
from tests.reports.rows import FORMULA, GROUP, MS, ORDERS, ORDERS_ID, START, STRINGS, VERSION, exchange, fact, result

from .made_input import SECOND, found

#: Reasons of LeaveGroup, behind the other strings.
POLL, OTHER_REASON, NO_REASON = len(STRINGS), len(STRINGS) + 1, -1
MEMBER = VERSION
JOIN, HEARTBEAT, LEAVE = 11, 12, 13


class Talk:
    """Requests of members of a group with their facts and errors."""

    def __init__(self) -> None:
        self.rows: list[Any] = []
        self.facts: list[Any] = []
        self.results: list[Any] = []

    def _ask(self, at: int, api: int, **columns: Any) -> int:
        number = len(self.rows)
        self.rows.append(exchange(number, at, MS, **({"api_key": api, "connection": 1} | columns)))
        return number

    def join(self, at: int, poll_ms: int = 10_000, **columns: Any) -> None:
        number = self._ask(at, JOIN, **columns)
        asked = {"group": GROUP, "member": MEMBER, "session_timeout_ms": 5_000, "rebalance_timeout_ms": poll_ms}
        self.facts += [fact(number, "join group", **asked), fact(number, "joined group", member=MEMBER)]

    def leave(self, at: int, reason: int, **columns: Any) -> None:
        number = self._ask(at, LEAVE, **columns)
        self.facts.append(fact(number, "leave group", group=GROUP))
        self.facts.append(fact(number, "leaving member", member=MEMBER, reason=reason))

    def refused(self, at: int, code: int, **columns: Any) -> None:
        number = self._ask(at, HEARTBEAT, **columns)
        self.facts.append(fact(number, "heartbeat", group=GROUP, member=MEMBER))
        self.facts.append(fact(number, "heartbeat answer", error_code=code))
        self.results.append(result(number, code))


# ------------------------------------------------------------ members that are expelled


def expelled(
    count: int = 3, reason: int = POLL, code: int = 0, stay_ms: int = 9_000, back: int = 3, link: int = 1,
    clients: tuple[int, ...] = (0,), is_known: bool = True, **columns: Any,
) -> list[Finding]:  # fmt: skip
    """Of a member that leaves (or is told that it is out, with an error code) again and again, some time after it
    joined, and joins again 2 s later. `back`: so often. `link`: the connection of that."""
    talk, at = Talk(), 0
    for n in range(count):
        who = {"client_id": clients[n % len(clients)], "client_ip": clients[n % len(clients)] and 2}
        if is_known:
            talk.join(at, **who)
        if code:
            talk.refused(at + stay_ms * MS, code, **who)
        else:
            talk.leave(at + stay_ms * MS, reason, **who)
        at += (stay_ms + 2_000) * MS
        if n < back:
            talk.join(at, connection=link, **who)
        at += SECOND
    strings = [*STRINGS, b"consumer poll timeout has expired.", b"the consumer is being closed"]
    return found(EXPULSIONS, talk.rows, (), talk.facts, talk.results, strings=strings)


@pytest.mark.parametrize(
    ("options", "how"),
    [
        ({}, "poll"),
        ({"count": 2}, None),
        ({"back": 2}, "poll"),  # the reason says it
        ({"back": 0, "count": 1}, None),
        ({"reason": OTHER_REASON}, None),
        ({"reason": NO_REASON, "stay_ms": 9_001}, "poll"),  # nine tenths of the poll timeout
        ({"reason": NO_REASON, "stay_ms": 9_000}, None),
        ({"reason": NO_REASON, "stay_ms": 9_001, "link": 2}, None),
        ({"reason": NO_REASON, "stay_ms": 9_001, "back": 2}, None),  # it may have ended
        ({"reason": NO_REASON, "is_known": False}, None),  # since when is it a member?
        ({"reason": NO_REASON, "is_known": False, "count": 4, "back": 4}, "poll"),
        ({"code": 25}, "session"),
        ({"code": 110}, "session"),
        ({"code": 25, "back": 2}, "session"),
        ({"code": 25, "count": 2}, None),
        ({"code": 82}, None),
        ({"code": 27}, None),
    ],
)
def test_thresholds_of_expulsions(options: dict[str, Any], how: str | None) -> None:
    named = expelled(**options)
    assert [one.numbers["how"] for one in named] == ([how] if how else [])
    for one in named:
        back = min(options.get("back", 3), 3)
        assert one.numbers["expulsions"] == 3
        assert one.time_lost_ns == one.numbers["out_ns"] == back * (2 * SECOND + MS)
        assert one.numbers["timeout_ms"] == (10_000 if how == "poll" else 5_000)
        assert (
            f"lost members 3 times, as they {'did not poll' if how == 'poll' else 'sent no heartbeat'} in time"
            in one.text
        )
        assert one.setting.startswith("max.poll" if how == "poll" else "session")
        assert one.remedy.startswith("Raise `max.poll" if how == "poll" else "Raise `session")


def test_expulsions() -> None:
    (one,) = expelled(5, clients=(ORDERS, 0, 0), back=4)
    assert one.text == (
        'group "group-1" lost members 5 times, as they did not poll in time (max.poll.interval.ms=10,000): client '
        '"billing" and 1 more; out for 8.00 s in total'
    )
    assert one.numbers["clients"] == 2
    assert (one.begin, one.end) == (START + 9 * SECOND, START + 57 * SECOND)
    assert one.packets == (4, 10, 16, 22, 28)
    (one,) = expelled(clients=(-1,))
    assert ": clients without client_id; out for" in one.text


# ------------------------------------------------------------ open transactions

PRODUCER = FORMULA


def reads(
    times: Sequence[int], stable: int = 40, end: int = 45, isolation: int = 1, first: int = 0, **columns: Any
) -> tuple[list[Any], list[Any]]:
    """Fetches of a reader at some ms, with the last stable offset and the high watermark. `first`: of their numbers."""
    place = {name: columns.pop(name) for name in ("partition", "topic", "topic_id") if name in columns}
    rows = [exchange(first + n, at * MS, MS, **columns) for n, at in enumerate(times)]
    numbers = range(first, first + len(times))
    return rows, [one for n in numbers for one in (
        fact(n, "fetch", isolation_level=isolation),
        fact(n, "fetched partition", stable_offset=stable, high_watermark=end, **place),
    )]  # fmt: skip


def writes(at: int, offset: int = 40, number: int = 50, **columns: Any) -> tuple[list[Any], list[Any]]:
    """A batch of a transaction at an offset."""
    values = {"attributes": 0x10, "producer_id": 7, "error_code": 0} | columns
    place = {"partition": values.pop("partition", 0), "topic": values.pop("topic", ORDERS)}
    return [exchange(number, at * MS, MS, api_key=0, client_id=ORDERS)], [
        fact(number, "produce", transactional_id=PRODUCER),
        fact(number, "batch", attributes=values["attributes"], producer_id=values["producer_id"], **place),
        fact(number, "produced partition", base_offset=offset, error_code=values["error_code"], **place),
    ]


def open_transactions(*parts: tuple[list[Any], list[Any]]) -> list[Finding]:
    rows, facts = [row for part in parts for row in part[0]], [one for part in parts for one in part[1]]
    return found(OPEN_TRANSACTIONS, rows, (), facts, sections=("advice", "transactions"))


UNKNOWN = "a transaction of an unknown producer"
OF_ORDERS = 'transaction "=cmd|\' /C calc\'!A0" of client "orders" (10.0.0.1)'


@pytest.mark.parametrize(
    ("parts", "who", "held_ms"),
    [
        ((reads([0, 999]),), UNKNOWN, 1_000),
        ((reads([0, 998]),), None, 0),
        ((reads([0, 2_000], isolation=0),), None, 0),
        ((reads([0, 2_000], end=40),), None, 0),
        ((reads([0, 2_000], stable=-1),), None, 0),
        ((reads([0, 2_000], stable=0),), UNKNOWN, 2_001),
        ((reads([0, 2_000]), writes(-500)), OF_ORDERS, 2_001),
        ((reads([0, 2_000]), writes(1_001)), OF_ORDERS, 1_000),  # since it is written
        ((reads([0, 2_000]), writes(1_002)), None, 0),
        ((reads([0, 2_000]), writes(-500, 41)), UNKNOWN, 2_001),
        ((reads([0, 2_000]), writes(-500, partition=1)), UNKNOWN, 2_001),
        ((reads([0, 2_000]), writes(-500, attributes=0)), UNKNOWN, 2_001),
        ((reads([0, 2_000]), writes(-500, producer_id=-1)), UNKNOWN, 2_001),
        ((reads([0, 2_000]), writes(-500, error_code=3)), UNKNOWN, 2_001),
    ],
)
def test_thresholds_of_open_transactions(parts: Any, who: str | None, held_ms: int) -> None:
    named = open_transactions(*parts)
    assert bool(named) == (who is not None)
    for one in named:
        assert one.text.startswith(f"{who} holds back 1 reader of committed records for ")
        assert one.text.endswith("it is still open")
        assert one.time_lost_ns == one.numbers["longest_ns"] == held_ms * MS
        assert (one.begin, one.end) == (START + (2_001 * MS - held_ms * MS if "orders" in who else 0), None)
        assert one.packets == (2,)


@pytest.mark.parametrize(
    ("written", "topic"),
    [
        ([writes(-500)], "orders"),
        ([writes(-500), writes(2_002, number=51, topic=GROUP)], "orders"),  # the reader was there before
        ([writes(-500), writes(-400, number=51, topic=GROUP)], None),  # which one is it?
        ([writes(-500, 41)], None),
        ([writes(-500, partition=1)], None),
        ([writes(2_002)], None),
    ],
)
def test_topics_that_readers_name_by_their_id(written: list[Any], topic: str | None) -> None:
    """Metadata with both was not captured."""
    (one,) = open_transactions(reads([0, 2_000], topic=-1, topic_id=ORDERS_ID), *written)
    assert (one.party("producer") is not None) == (topic is not None)
    assert topic is None or one.party("topic") == topic


def test_open_transactions() -> None:
    """Of two readers, one of which reads two partitions; the stable offset of one moves on."""
    parts = (
        reads([100, 3_000]),
        reads([0, 2_000], 41, 47, first=10, partition=1), reads([5_000], 42, first=20, partition=1),
        reads([0, 1_500], client_id=GROUP, client_ip=2, first=30), writes(-900), writes(-800, 41, 60, partition=1),
    )  # fmt: skip
    (one,) = open_transactions(*parts)
    assert one.text == (
        f"{OF_ORDERS} held back readers of committed records 2 times, up to 2.90 s and 5 offsets: client "
        '"billing" (10.0.0.1) and 1 more on orders-0 and 1 more; one is still open'
    )
    assert one.numbers == {
        "held_ns": 6_403 * MS, "longest_ns": 2_901 * MS, "holds": 3, "offsets": 5, "offset": 40, "readers": 2,
        "partitions": 2, "producer_id": 7,
    }  # fmt: skip
    assert (one.begin, one.end, one.packets) == (START, None, (2,))
    assert [party.name for party in one.parties] == [
        "=cmd|' /C calc'!A0", "orders", "10.0.0.1", "billing", "10.0.0.1", "group-1", "10.0.0.9", "orders",
    ]  # fmt: skip
    (one,) = open_transactions(parts[1], parts[2], parts[5])
    assert "held back 1 reader of committed records for 2.00 s" in one.text
    assert (one.end, "abort" in one.remedy.partition("costs")[2]) == (START + 2_001 * MS, False)
