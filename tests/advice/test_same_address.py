"""Nodes that advertise one address: just inside and just outside of the rule."""

from __future__ import annotations

from typing import Any

import pytest

from kafkatap.reports.advice.same_address import SAME_ADDRESS
from kafkatap.reports.findings import Finding
from tests.reports.rows import BILLING, GROUP, MARKUP, exchange, fact

from .advice_samples import found, truth
from .made_input import SECOND, given_of

#: Names of hosts are any strings.
HOST, OTHER = GROUP, MARKUP
Answer = tuple[float, list[tuple[int, int, int]]]


def findings(*answers: Answer, **columns: Any) -> list[Finding]:
    """On Metadata answers at some seconds, with nodes, hosts and ports."""
    exchanges, facts = [], []
    for number, (at, nodes) in enumerate(answers, 1):
        exchanges.append(exchange(number, int(at * SECOND), api_key=3, client_id=BILLING, **columns))
        facts += [fact(number, "metadata broker", node=node, host=host, port=port) for node, host, port in nodes]
    return list(SAME_ADDRESS.findings(given_of(exchanges, facts=facts)))


SAME = [(1, HOST, 9092), (3, OTHER, 9092), (2, HOST, 9092)]
RIGHT = [(1, HOST, 9092), (2, HOST, 9093), (3, OTHER, 9092)]


def test_it_names_nodes_and_address() -> None:
    (finding,) = findings((0, SAME), (1, SAME))
    assert finding.text == (
        "nodes 1 and 2 advertise the same address, group-1:9092, in 2 Metadata answers of 10.0.0.2:9092: what clients "
        "send to one of them, another one gets"
    )
    assert [(party.kind, party.name) for party in finding.parties] == [
        ("broker", "group-1:9092"), ("broker", "10.0.0.2:9092"),
    ]  # fmt: skip


def test_the_recording_has_what_both_brokers_advertise() -> None:
    (finding,) = found("same-address")
    (address,) = set(truth("same-address")["advertised"].values())
    assert (finding.party("broker"), finding.numbers["nodes"]) == (address, 2)
    assert found("same-address-right") == ()
    assert len(set(truth("same-address-right")["advertised"].values())) == 2


@pytest.mark.parametrize(
    ("answers", "is_named"),
    [
        ([(0, SAME)], True),
        ([(0, RIGHT)], False),
        ([(0, RIGHT), (1, SAME)], True),
        ([(0, SAME), (1, RIGHT)], False),  # it came back with another id
        ([(0, [(1, HOST, 9092)]), (1, [(2, HOST, 9092)])], False),  # one after the other
        ([(0, [(1, HOST, -1), (2, HOST, -1)])], False),
    ],
)
def test_thresholds(answers: list[Answer], is_named: bool) -> None:
    assert bool(findings(*answers)) == is_named
