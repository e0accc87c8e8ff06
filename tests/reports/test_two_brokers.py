"""Hangs, lag and rebalances beside the clock of the script, the clients' own times and the brokers' logs
(samples/events/two-brokers)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kafkatap.reports.findings import Finding
from kafkatap.reports.groups.group import groups_of
from kafkatap.reports.model import as_number
from kafkatap.reports.sections.advice import findings as advice
from tests.cli.running import kafkatap
from tests.support.section_runs import section_input, section_rows

from . import test_events_section
from .test_events_section import NEAR_NS, near

SECOND = 1_000_000_000
FOLDER = test_events_section.FOLDER / "two-brokers"
BROKERS = {"10.91.0.1:9092", "10.91.0.2:9092"}


def events(scene: str, name: str) -> list[Finding]:
    return [one for one in test_events_section.found(FOLDER / f"{scene}.pcap.zst") if one.id == name]


def truth(scene: str) -> Any:
    return test_events_section.truth(f"two-brokers/{scene}")


def step(scene: str, name: str) -> int:
    return test_events_section.step(f"two-brokers/{scene}", name)


def of(scene: str, name: str) -> Finding:
    given = section_input(FOLDER / f"{scene}.pcap.zst", "advice")
    (finding,) = [one for one in given.once(advice) if one.id == name]
    return finding


def summary(scene: str) -> list[dict[str, Any]]:
    """The findings of the whole report."""
    done = kafkatap("report", "--json", FOLDER / f"{scene}.pcap.zst")
    found: list[dict[str, Any]] = json.loads(done.out)["reports"]["summary"]
    return found


def test_the_only_broker_still_hangs_at_the_end() -> None:
    """Its kernel acknowledges what clients send, and that it got copies of it (D-SACK): nobody is cut off."""
    (hang,) = events("still-hung", "broker_hung")
    assert near(hang.begin, step("still-hung", "hung"))
    assert hang.end is None
    assert events("still-hung", "hosts_cut_off") == []


def test_both_brokers_hang() -> None:
    hangs = events("both-hung", "broker_hung")
    assert {hang.party("broker") for hang in hangs} == BROKERS
    for hang in hangs:
        assert near(hang.begin, step("both-hung", "hung"))
        assert near(hang.end, step("both-hung", "continued"))
    lost = sum(hang.time_lost_ns for hang in hangs) / SECOND
    assert lost == pytest.approx(truth("both-hung")["slow_s"], rel=0.03)  # as the clients measure it


def test_a_hang_that_nobody_noticed_at_once_has_two_bounds() -> None:
    hang = events("follower-hung", "broker_hung")[0]
    true = step("follower-hung", "continued") - step("follower-hung", "hung")
    least, most = (int(as_number(hang.numbers[name])) for name in ("least_ns", "silence_ns"))
    assert least - NEAR_NS <= true <= most
    assert " hung for 5.47 s to 5.97 s" in hang.text
    assert hang.time_lost_ns / SECOND == pytest.approx(truth("follower-hung")["slow_s"], rel=0.03)


def test_waits_behind_a_stalled_request_are_no_advice() -> None:
    """The broker that hung is a follower: acks=all waits for it at the leader."""
    rows = [row for row in summary("slow-follower") if 'client "web20"' in str(row["text"])]
    single = next(row for row in rows if row["finding"] == "single_records")
    assert as_number(single["time_lost_ns"]) < 5 * SECOND  # 4m 15s of these waits began in the stall
    assert single["cause"] is None
    assert of("slow-follower", "single_records").time_lost_ns == single["time_lost_ns"]
    slow = next(row for row in summary("slow-follower") if str(row["finding"]).startswith("slow_"))
    assert slow["cause"] is None
    assert as_number(slow["time_lost_ns"]) > 100 * SECOND


def test_commits_of_a_reader_that_prefetches_fall_back() -> None:
    given, lagging = truth("prefetched"), of("prefetched", "lagging_group")
    (_, topic, partition, _, end, lag), = given["described"]  # fmt: skip
    row = next(row for row in section_rows(FOLDER / "prefetched.pcap.zst", "groups")["group_partitions"])
    assert (row["topic"], row["partition"]) == (topic, partition)
    assert as_number(row["high_watermark"]) >= end
    growth = given["produced_per_s"] - given["consumed_per_s"]
    # The tool asked up to 2 s before the end of the capture.
    assert lag <= as_number(lagging.numbers["lag"]) <= lag + 2 * growth
    assert lagging.numbers["falls_back_per_s"] == pytest.approx(growth, rel=0.1)
    assert row["lag_growth_per_s"] == pytest.approx(growth, rel=0.1)
    assert lagging.numbers["is_of_commits"] is True
    assert lagging.numbers["is_fetched"] is True
    assert row["lag"] == 0


def test_a_quota_is_why_a_group_falls_behind() -> None:
    lagging = of("quota-lag", "lagging_group")
    assert lagging.party("client") == "fetchy"
    assert lagging.setting == "consumer_byte_rate, request_percentage"
    assert {event.party("client") for event in events("quota-lag", "quota_began")} == set(truth("quota-lag")["quotas"])
    rows = {row["finding"]: row for row in summary("quota-lag")}
    assert rows["lagging_group"]["cause"] == "throttled"
    assert 'group "g-f21"' in str(rows["throttled"]["text"])


def test_a_frozen_member_is_timed_out() -> None:
    given = section_input(FOLDER / "frozen.pcap.zst", "groups")
    (group,) = given.once(groups_of)
    last = group.rebalances[-1]
    assert (last.trigger, last.who, last.number) == ("session timeout", "f-froze", 3)
    assert near(last.start, test_events_section.logged("two-brokers/frozen", 2, "has failed, removing it"))
    assert near(last.end, test_events_section.logged("two-brokers/frozen", 2, "Assignment received"))
    assert last.stop is not None
    assert last.stop >= last.end - last.start
    rows = {row["finding"]: row for row in summary("frozen")}
    assert rows["errors"]["cause"] == "group_rebalanced"
    assert rows["group_rebalanced"]["text"].endswith(
        "cause: session timeout of f-froze; no heartbeat for 8.78 s; partitions without a living member for 8.79 s"
    )
