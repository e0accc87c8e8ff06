"""Offsets of a group that somebody set back: just inside and outside of the rule."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from kafkatap.reports.advice.offsets_set import OFFSETS_SET
from kafkatap.reports.findings import Finding, Party
from tests.reports.rows import BILLING, GROUP, HOSTILE, MARKUP, MS, START, exchange, fact

from .made_input import SECOND, given_of

OFFSET_COMMIT, NO_GENERATION = 8, -1


class Commit(NamedTuple):
    second: float
    offset: int
    generation: int = 3
    client: int = BILLING
    group: int = GROUP
    partition: int = 0
    error: int = 0


def tool(second: float, offset: int, **columns: int) -> Commit:
    return Commit(second, offset, **{"generation": NO_GENERATION, "client": HOSTILE, **columns})


def found(*commits: Commit) -> list[Finding]:
    rows, facts = [], list[Any]()
    for number, one in enumerate(sorted(commits)):
        rows.append(exchange(number, int(one.second * SECOND), MS, api_key=OFFSET_COMMIT, client_id=one.client))
        facts.append(fact(number, "commit", group=one.group, generation=one.generation))
        facts.append(fact(number, "commit partition", partition=one.partition, offset=one.offset))
        facts.append(fact(number, "committed partition", partition=one.partition, error_code=one.error))
    return list(OFFSETS_SET.findings(given_of(rows, facts=facts)))


MEMBER = Commit(1, 1000)


def test_it_names_who_set_them_back_and_how_far() -> None:
    (one,) = found(MEMBER, Commit(2, 1100), Commit(2.1, 40, partition=1), tool(6, 200), tool(6.1, 0, partition=1))
    assert one.text.endswith(
        ', which is no member, set the offsets of group "group-1" back: orders-0 from 1,100 to 200 and 1 more; 940 '
        "records before what its members had committed"
    )
    assert (one.begin, one.end) == (START + 6 * SECOND + MS, START + 6 * SECOND + 101 * MS)
    assert {Party("group", "group-1"), Party("topic", "orders")} <= set(one.parties)
    assert one.numbers["records"] == 940


@pytest.mark.parametrize(("offset", "is_named"), [(900, True), (901, False), (1100, False)])
def test_how_many_records(offset: int, is_named: bool) -> None:
    assert bool(found(MEMBER, tool(6, offset))) == is_named


@pytest.mark.parametrize(
    "commits",
    [
        (tool(6, 0),),  # what was before is not known
        (MEMBER, tool(6, 0, group=MARKUP)),
        (MEMBER, tool(6, 0, partition=1)),
        (MEMBER, tool(6, 0, error=25)),
        (MEMBER, tool(6, 0, generation=4)),  # a member that goes back by itself
        (MEMBER, tool(3, 1000), tool(6, 0)),  # it sets what it had set itself
        (Commit(1, 1000, NO_GENERATION), tool(6, 0)),  # nobody was a member
        (tool(0.5, 0), MEMBER),
        (MEMBER, tool(6, 0, client=BILLING)),  # the client itself, which has left
    ],
)
def test_just_outside(commits: tuple[Commit, ...]) -> None:
    assert found(*commits) == []
