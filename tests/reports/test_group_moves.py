"""The section `groups` where groups expel members, and where their coordinator moves: against coordinators' logs."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from functools import cache

from kafkatap.reports.groups.group import groups_of
from tests.support.section_runs import QUESTIONS, Row, section_input, section_rows

MS = 1_000_000
#: From the coordinator's line to a rebalance's start or end: answers wait for the log, clients for their heartbeat.
NEAR_MS = 700


@cache
def rows(name: str) -> dict[str, list[Row]]:
    return section_rows(QUESTIONS / f"{name}.pcap.zst", "groups")


@cache
def expelled() -> dict[str, list[int]]:
    """When the coordinator dropped members, or they left because of their poll timeout: ms, by group."""
    found: dict[str, list[int]] = defaultdict(list)
    for line in (QUESTIONS / "expulsions.coordinator.tsv").read_text().splitlines():
        at, text = line.split("\t", 1)
        if re.search(r"on heartbeat expiration|session expired|explicit `LeaveGroup`|left the consumer group", text):
            group = re.search(r"rebalance group (\w+)|GroupId (\w+)", text)
            assert group is not None
            found[group[1] or group[2]].append(int(at))
    found["stock"].pop()  # it closes at the end
    found["billing"].pop()  # the capture ends before its next request
    return found


def test_each_expulsion_of_the_log_is_found() -> None:
    """A poll timeout is the client's request; a session timeout is noticed when the member is back."""
    given = section_input(QUESTIONS / "expulsions.pcap.zst", "groups")
    causes = {"billing": "session timeout", "shipping": "session timeout", "payments": "poll timeout",
              "returns": "leave", "stock": "leave"}  # fmt: skip
    found = {group.name: group.history for group in groups_of(given) if group.history is not None}
    assert set(found) == set(expelled()) == set(causes)
    for group, history in found.items():
        assert [x.cause for x in history.expulsions] == [causes[group]] * len(expelled()[group])
        assert all(x.back is not None for x in history.expulsions)
        late = 5000 if causes[group] == "session timeout" else NEAR_MS
        for expulsion, at in zip(history.expulsions, expelled()[group], strict=True):
            assert at - NEAR_MS < expulsion.time / MS < at + late


def test_no_rebalance_after_an_expulsion_is_a_join() -> None:
    triggers: dict[str, Counter[str]] = defaultdict(Counter)
    for row in rows("expulsions")["rebalances"]:
        triggers[row["group"]][row["trigger"]] += 1
    assert triggers == {
        "billing": {"join": 1, "session timeout": 1},
        "shipping": {"join": 2, "session timeout": 4},  # the other member hears of it, then it joins again
        "payments": {"join": 1, "poll timeout": 4},
        "returns": {"join": 1, "rejoin": 2},
        "stock": {"join": 1, "rejoin": 2},
    }


def steps() -> list[tuple[int, str, str]]:
    truth = json.loads((QUESTIONS / "elsewhere.truth.json").read_text())
    return [tuple(step) for step in truth["steps"]]


def epochs() -> dict[int, int]:
    """When the coordinator computed the assignment of each epoch of `shipping`: ms by epoch."""
    from datetime import datetime

    found = {}
    for line in json.loads((QUESTIONS / "elsewhere.truth.json").read_text())["logs"]:
        number = re.search(r"GroupId shipping\] Computed a new target assignment for epoch (\d+)", line)
        if number is not None:
            stamp = datetime.strptime(line[2:25] + " +0000", "%Y-%m-%d %H:%M:%S,%f %z")
            found[int(number[1])] = round(stamp.timestamp() * 1000)
    return found


def test_a_rebalance_ends_before_the_coordinator_moves() -> None:
    shipping = [row for row in rows("elsewhere-groups")["rebalances"] if row["group"] == "shipping"]
    moves = [at for at, step, what in steps() if step == "move" and what.startswith("groups")]
    computed = epochs()
    assert {row["generation"] for row in shipping} == set(computed)
    for row in shipping:
        assert row["end"] / MS < computed[row["generation"]] + 2 * NEAR_MS, row
        assert not any(row["start"] / MS < at < row["end"] / MS for at in moves), row


def test_members_that_close_leave_though_their_answers_are_late() -> None:
    closed = {what: at for at, step, what in steps() if step == "close" and what.startswith("shipping")}
    left = {row["who"]: row for row in rows("elsewhere-groups")["rebalances"] if row["trigger"] == "leave"}
    assert set(left) == set(closed)
    for client, row in left.items():
        assert abs(row["start"] / MS - closed[client]) < NEAR_MS
    triggers = {row["trigger"] for row in rows("elsewhere-groups")["rebalances"]}
    assert triggers == {"join", "leave"}


def test_lag_is_stale_once_the_coordinator_has_moved_away() -> None:
    """kafka-consumer-groups asks the other broker, which has the commits since."""
    truth = json.loads((QUESTIONS / "elsewhere.truth.json").read_text())
    moves = [(at, step) for at, step, what in steps() if what == "groups to 1"]
    began, ended = (max(at for at, step in moves if step == name) for name in ("move", "moved"))
    found = rows("elsewhere-groups")
    assert {row["group"] for row in found["group_lag"]} == {"shipping", "billing"}
    for table in ("groups", "group_lag"):
        for row in found[table]:
            assert began - NEAR_MS < row["known_until"] / MS < ended + NEAR_MS
    words = [line.split() for line in truth["offsets"] if "orders" in line]
    known = {(line[0], int(line[2])): int(line[3]) for line in words}
    behind = [known[row["group"], row["partition"]] - row["committed"] for row in found["group_partitions"]]
    assert min(behind) >= 0 < max(behind)


def test_lag_is_not_stale_while_the_coordinator_is_here() -> None:
    for name in ("groups", "rebalances", "expulsions"):
        assert {row["known_until"] for row in rows(name)["groups"]} == {None}
