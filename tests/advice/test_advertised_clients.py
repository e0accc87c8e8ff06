"""An advertised address that clients of one host, or of several, cannot reach: how often is known of hosts alone."""

from __future__ import annotations

from typing import Any

from kafkatap.reports.advice.advertised import ADVERTISED
from kafkatap.reports.connection_words import H_REFUSED
from kafkatap.reports.findings import Finding
from tests.reports.rows import BILLING, GROUP, MS, START, STRINGS, connection, exchange, fact

from .made_input import found

HOST = len(STRINGS)
UNREACHED = "10.0.0.9"


def unreachable(*hosts: int) -> list[Finding]:
    """Two clients, on these hosts, are told an address to which three connects of each host fail."""
    who = [*zip((BILLING, GROUP), hosts, strict=True)]
    rows = [exchange(n, n * MS, api_key=3, client_id=name, client_ip=ip) for n, (name, ip) in enumerate(who)]
    facts = [fact(n, "metadata broker", node=2, host=HOST, port=9092) for n in range(len(rows))]
    connects: list[Any] = [
        connection(client_id=-1, client_ip=ip, broker_ip=2, handshake=H_REFUSED, first=START + n * MS)
        for ip in sorted(set(hosts)) for n in range(3)
    ]  # fmt: skip
    return found(
        ADVERTISED, rows, connects, facts, strings=[*STRINGS, UNREACHED.encode()],
        addresses=["10.0.0.1", "10.0.0.2", UNREACHED, "10.0.0.4"],
    )  # fmt: skip


def test_clients_of_one_host_are_one_line() -> None:
    (one,) = unreachable(0, 0)
    assert one.text == (
        '10.0.0.9:9092, which the broker advertises to client "billing", client "group-1" of 10.0.0.1, cannot be '
        "reached: 3 refused of 3 connects"
    )
    assert {party.name for party in one.parties if party.kind == "client"} == {"billing", "group-1"}
    assert one.numbers["refused"] == 3


def test_each_host_has_connects_of_its_own() -> None:
    made = unreachable(0, 3)
    assert [one.numbers["refused"] for one in made] == [3, 3]
    assert [one.party("client") for one in made] == ["billing", "group-1"]
