"""Brokers that freeze for less than a second: from rows made by hand, and beside the clock of who froze them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kafkatap.reports.findings import Finding
from tests.reports import rows as made
from tests.reports.rows import MS, exchange
from tests.support.section_runs import section_input

from . import test_events_section
from .test_slow_times import first_lines

SECOND = 1000 * MS
FOLDER = Path(__file__).resolve().parents[2] / "samples" / "events" / "freezes"
CLIENTS = (made.BILLING, made.GROUP)


def asked(at: int, ms: int, client: int = made.BILLING, **columns: Any) -> Any:
    """A Produce with acks=1, `at` ms after the start."""
    asked.number += 1  # type: ignore[attr-defined]
    return exchange(asked.number, at * MS, ms * MS, **{  # type: ignore[attr-defined]
        "api_key": 0, "api_version": 9, "acks": 1, "client_id": client, "connection": client, **columns
    })  # fmt: skip


asked.number = 0  # type: ignore[attr-defined]


def traffic(
    times: int = 3,
    ms: int = 400,
    every: int = 2000,
    clients: tuple[int, ...] = CLIENTS,
    usual: int = 2,
    step: int = 100,
    **columns: Any,
) -> list[Any]:
    """A broker that freezes once in `every` ms. `usual`: the ms of requests outside of freezes, one in `step` ms.
    `columns`: of requests that wait."""
    found = []
    for freeze in range(times):
        begin = 1000 + every * freeze
        for n, client in enumerate(clients):
            # The second one asks while the broker is frozen.
            found.append(asked(begin + 50 * n, ms - 50 * n, client, **columns))
            found += [asked(at, usual, client) for at in range(begin - 1000, begin, step)]
            found += [asked(at, usual, client) for at in range(begin + ms + 10, begin - 1000 + every, step)]
    return found


def froze(rows: list[Any]) -> dict[str, Any] | None:
    return next((row for row in first_lines(*rows) if row["finding"] == "broker_froze"), None)


def test_freezes_are_one_line_with_their_number_sum_and_span() -> None:
    found = froze(traffic(4))
    assert found is not None
    assert found["text"] == (
        "broker 10.0.0.2:9092 froze 4 times in 6.40 s, 400 ms to 400 ms each, 1.60 s in all; 2 clients of 1 host "
        "waited at once; its kernel acknowledged what came"
    )
    numbers = dict(found["numbers"])
    assert (numbers["times"], numbers["sum_freeze_ns"], numbers["requests"]) == (4, 1_600 * MS, 8)
    assert found["time_lost_ns"] == 4 * 750 * MS
    assert found["severity"] == "warning"


def test_slow_clients_follow_from_freezes() -> None:
    rows = first_lines(*traffic(4))
    assert [(row["finding"], row["cause"]) for row in rows] == [
        ("broker_froze", None), ("slow_broker", "broker_froze"),
    ]  # fmt: skip


#: What is just inside and just outside of the rule.
THRESHOLDS: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("times", {"times": 3}, {"times": 2}),
    ("clients", {}, {"clients": (made.BILLING,)}),
    ("length", {"ms": 240, "times": 9, "step": 20}, {"ms": 170, "times": 9, "step": 20}),
    ("second", {"ms": 960}, {"ms": 1_050}),
    ("slow otherwise too", {"usual": 5}, {"usual": 350, "times": 6}),
    ("noticed", {"times": 3, "ms": 260, "clients": (*CLIENTS, made.ORDERS)}, {"times": 3, "ms": 180}),
    ("acks", {"acks": 0}, {"acks": -1}),  # the second waits for followers
    ("prompt", {"api_key": 3, "acks": -32768}, {"api_key": 26, "acks": -32768}),  # Metadata, EndTxn
    ("quota", {}, {"throttle_wait_ns": 20 * MS}),
    ("loss", {"loss_ns": 20 * MS}, {"loss_ns": 260 * MS}),
    ("data", {}, {"api_key": 1, "max_wait_ms": 500}),  # long polls
]  # fmt: skip


@pytest.mark.parametrize(("inside", "outside"), [pair[1:] for pair in THRESHOLDS], ids=[pair[0] for pair in THRESHOLDS])
def test_thresholds(inside: dict[str, Any], outside: dict[str, Any]) -> None:
    assert froze(traffic(**inside)) is not None
    assert froze(traffic(**outside)) is None


def test_a_broker_that_answers_others_is_not_frozen() -> None:
    """Produce waits, for a disk or a follower, and Metadata does not."""
    rows = traffic()
    answered = [asked(1000 + 2000 * n + 200, 2, made.ORDERS, api_key=3) for n in range(3)]
    assert froze(rows + answered) is None
    assert froze(rows + answered[:1]) is None  # two freezes are left
    elsewhere = [asked(1000 + 2000 * n + 200, 2, made.ORDERS, api_key=3, broker_ip=2) for n in range(3)]
    found = froze(rows + elsewhere)
    assert found is not None
    assert found["text"].endswith("; other brokers answered meanwhile")


def test_answers_come_together() -> None:
    def released(second: int) -> dict[str, Any] | None:
        return froze([
            *traffic(clients=()), *(asked(at, 2, client) for client in CLIENTS for at in (*range(0, 1000, 100), 6500)),
            *(asked(1000 + 1500 * n, 400, made.BILLING) for n in range(3)),
            *(asked(1050 + 1500 * n, second, made.GROUP) for n in range(3)),
            *(asked(1800 + 1500 * n + at, 2, client) for n in range(3) for at in (0, 200, 400) for client in CLIENTS),
        ])  # fmt: skip

    assert released(430) is not None
    assert released(560) is None


def test_nothing_came_and_nobody_asked() -> None:
    """The capture, or all that it shows, may have been silent."""
    rows = []
    for n in range(4):
        rows += [asked(1000 + 1500 * n, 400, client) for client in CLIENTS]
        rows += [asked(1500 + 1500 * n + at, 2, client) for at in (0, 200, 400) for client in CLIENTS]
    assert froze(rows) is None
    assert froze([*rows, *(asked(1200 + 1500 * n, 200, made.ORDERS) for n in range(4))]) is not None


def found_in(scene: str) -> list[Finding]:
    return [one for one in test_events_section.found(FOLDER / f"{scene}.pcap.zst") if one.id == "broker_froze"]


def test_a_broker_that_was_stopped_ten_times() -> None:
    (found,) = found_in("freezes")
    truth = json.loads((FOLDER / "freezes.truth.json").read_text())["frozen"]
    lengths = [end - begin for begin, end in truth]
    assert found.party("broker") == "10.77.0.2:9092"
    assert found.numbers["times"] == len(truth)
    assert found.numbers["others_answered"] == len(truth)
    # What is known of a freeze begins with the first request that waits.
    least, most = (float(found.numbers[name]) / SECOND for name in ("sum_freeze_ns", "sum_silence_ns"))
    assert 0.75 * sum(lengths) <= least <= sum(lengths) <= most <= 1.3 * sum(lengths)
    assert max(lengths) - 0.1 <= float(found.numbers["longest_freeze_ns"]) / SECOND <= max(lengths) + 0.02
    assert found.begin is not None
    assert found.end is not None
    assert truth[0][0] - 0.01 <= found.begin / SECOND <= truth[0][1]
    assert abs(found.end / SECOND - truth[-1][1]) < 0.03


@pytest.mark.parametrize("scene", ["freezes-alone", "freezes-follow", "slow-broker", "slow-cluster", "far-host"])
def test_recordings_that_are_none(scene: str) -> None:
    assert found_in(scene) == []
    assert section_input(FOLDER / f"{scene}.pcap.zst", "events").context.packets > 500
