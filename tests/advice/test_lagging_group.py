"""A group that falls behind is named with the lag that kafka-consumer-groups shows; others are not."""

from __future__ import annotations

import numpy as np
import pytest

from kafkatap.reports.advice.open_transactions import cause_of
from kafkatap.reports.batch import Context
from kafkatap.reports.findings import ERROR, WARNING, Finding, Party
from kafkatap.reports.groups.group import Group, groups_of
from kafkatap.reports.groups.group_events import CLASSIC
from kafkatap.reports.groups.group_lag import ASSIGNMENT, Latest, PartitionLag
from kafkatap.reports.groups.group_rebalances import History, Member
from kafkatap.reports.groups.lag_in_time import CommitsFallBack, FallBack, commits_fall_back, fall_back, growth_per_s
from kafkatap.reports.sections.advice import findings
from kafkatap.reports.sections.folding import folded
from kafkatap.reports.sections.folds import Known
from tests.support.section_runs import QUESTIONS, section_input, section_rows

from .advice_samples import FOLDER, SECOND, found, of, truth

START = 1_800_000_000 * SECOND
#: The records that come in 2 s, and are sent together.
BATCH = 40
MS = 1_000_000


def test_the_lag_is_that_of_the_tool() -> None:
    (finding,) = found("lagging-group")
    given = truth("lagging-group")
    described = {(group, partition): rest for group, _, partition, *rest in given["described"]}
    committed, end, lag = described["fulfilment", 0]
    numbers = finding.numbers
    position = int(str(numbers["position"]))
    assert finding.id == "lagging_group"
    assert committed <= position <= committed + BATCH  # what the reader has fetched, and not worked on
    assert (numbers["lag"], numbers["lag_all"]) == (end - position, end - position)
    assert (numbers["partition"], numbers["partitions"], numbers["partitions_read"]) == (0, 1, 2)
    assert f'"fulfilment" is {end - position} records ' in finding.text
    seconds = (given["end_ms"] - given["record_ms"][0]) / 1000
    assert numbers["falls_back_per_s"] == pytest.approx(lag / seconds, rel=0.15)
    assert finding.party("group") == "fulfilment"
    assert finding.party("client") == "fulfilment-1"


def test_the_time_behind_is_that_of_the_oldest_record_that_was_not_read() -> None:
    (finding,) = found("lagging-group")
    given = truth("lagging-group")
    produced = given["record_ms"][int(str(finding.numbers["position"])) - given["backlog"]]
    behind_ns = int(str(finding.numbers["behind_ns"]))
    # The end was captured for the last time between the last record and the end. The producer sends each 2 s.
    assert (given["record_ms"][-1] - produced) * MS - 2 * SECOND <= behind_ns <= (given["end_ms"] - produced) * MS


def test_groups_that_keep_up_catch_up_or_commit_seldom_are_not_named() -> None:
    """`nightly` is still far behind, and `archive` has committed nothing; in the second recording all read."""
    for name in ("lagging-group", "lagging-group-right"):
        described = {(group, partition): lag for group, _, partition, *_, lag in truth(name)["described"]}
        assert described["archive", 0] > 400
        assert {finding.party("group") for finding in found(name)} <= {"fulfilment"}
    assert found("lagging-group-right") == ()
    nightly = {(group, partition): lag for group, _, partition, *_, lag in truth("lagging-group")["described"]}
    assert nightly["nightly", 0] > 100


@pytest.mark.parametrize("name", ["groups", "elsewhere-groups"])
def test_groups_in_short_recordings_are_not_named(name: str) -> None:
    """Lag of a few seconds, of members that left, and of a coordinator that moved away."""
    given = section_input(QUESTIONS / f"{name}.pcap.zst", "advice")
    assert any(lag.lag or lag.committed_lag for group in given.once(groups_of) for lag in group.lag)
    assert "lagging_group" not in [finding.id for finding in findings(given)]


def test_a_reader_that_an_open_transaction_holds_has_it_as_its_cause() -> None:
    given = section_input(FOLDER / "open-transaction.pcap.zst", "advice")
    (transaction,) = of("open-transaction", "open_transaction")
    held = int(str(transaction.numbers["offset"]))
    ledger = ("127.0.0.1", "ledger")
    assert cause_of(given, ledger, ("orders", 0, held)) == transaction.key
    assert cause_of(given, ledger, ("orders", 0, held + 1)) is None
    assert cause_of(given, ("127.0.0.1", "dashboard"), ("orders", 0, held)) is None


READER = (Party("client", "fulfilment-1"), Party("host", "10.0.0.7"))
LAG = Finding("lagging_group", WARNING, "advice", "", 60 * SECOND, START, parties=(Party("group", "g"), *READER))
SLOW = Finding("slow_network", WARNING, "slow", "", 60 * SECOND, START, parties=READER[:1])


@pytest.mark.parametrize(
    ("other", "parties", "is_cause"),
    [
        ("mtu_black_hole", READER, True),
        ("mtu_black_hole", (READER[0], Party("host", "10.0.0.8")), False),
        ("throttled", READER[:1], True),
        ("throttled", (Party("client", "fulfilment-2"),), False),
        ("nagle", READER, False),
    ],
)
def test_what_keeps_the_client_from_reading_is_the_cause(
    other: str, parties: tuple[Party, ...], is_cause: bool
) -> None:
    cause = Finding(other, ERROR, "advice", "", SECOND, START, parties=parties)
    found = folded([("advice", cause), ("advice", LAG)], Known(Context()))
    assert [finding.cause for _, finding in found] == [None, cause.key if is_cause else None]


def test_lag_explains_no_slow_client() -> None:
    found = folded([("advice", LAG), ("latency", SLOW)], Known(Context()))
    assert [finding.cause for _, finding in found] == [None, None]


# ------------------------------------------------------------ readers that are made


def curve(values: np.ndarray) -> list[Latest]:
    """A value for each second."""
    return [Latest(START + second * SECOND, int(value)) for second, value in enumerate(values)]


def read(positions: np.ndarray, ends: np.ndarray) -> FallBack | None:
    position, end = int(positions[-1]), int(ends[-1])
    lag = PartitionLag("g", "t", 0, None, None, 0, position, START, end, (None, "c"), ASSIGNMENT)
    return fall_back(lag, curve(positions), curve(ends)[::-1])


SECONDS = np.arange(101)


def test_a_reader_that_stops() -> None:
    """It reads 20 records each second until it stops after 40 s."""
    fall = read(np.minimum(SECONDS, 40) * 20, SECONDS * 20)
    assert fall == FallBack(60 * SECOND, False, START + 40 * SECOND, START + 100 * SECOND, 1200, 1200.0)
    assert fall is not None
    assert (fall.records_per_s, fall.appended_per_s, fall.fallen_ns) == (20, 20, 60 * SECOND)


def test_a_reader_of_half_the_records() -> None:
    fall = read(SECONDS * 10, SECONDS * 20)
    assert fall == FallBack(50 * SECOND, False, START, START + 100 * SECOND, 1000, 2000.0)


def test_a_reader_that_was_behind_before_the_capture() -> None:
    fall = read(SECONDS * 10, 5000 + SECONDS * 20)
    assert fall is not None
    assert (fall.behind_ns, fall.is_at_least, fall.records) == (100 * SECOND, True, 1000)


def test_ends_far_apart_are_not_estimated() -> None:
    """Nothing is captured for 96 s, then 500 records are there: of the 96 s before, 4 may count."""
    ends = [Latest(START, 100), Latest(START + 96 * SECOND, 600), Latest(START + 100 * SECOND, 600)]
    lag = PartitionLag("g", "t", 0, None, None, 0, 100, START, 600, (None, "c"), ASSIGNMENT)
    fall = fall_back(lag, [Latest(START + n * SECOND, 100) for n in (0, 50, 100)], ends)
    assert fall is not None
    assert fall.behind_ns == 8 * SECOND


@pytest.mark.parametrize(
    "positions",
    [
        5000 + SECONDS * 30 - 4000,  # catches up
        5000 + SECONDS * 20 - 600,  # stays as far behind
        5000 + (SECONDS + 1) // 25 * 500,  # reads all that is there each 25 s
        5000 + np.maximum(SECONDS * 40 - 2400, np.minimum(SECONDS * 10, 400)),  # fell back, and catches up since
        5000 + SECONDS * 20,  # keeps up
    ],
)
def test_readers_that_do_not_fall_back(positions: np.ndarray) -> None:
    assert read(np.minimum(positions, 5000 + SECONDS * 20), 5000 + SECONDS * 20) is None


# ------------------------------------------------------------ growth


def grown(positions: np.ndarray, ends: np.ndarray) -> float | None:
    position, end = int(positions[-1]), int(ends[-1])
    lag = PartitionLag("g", "t", 0, None, None, 0, position, START, end, (None, "c"), ASSIGNMENT)
    return growth_per_s(lag, curve(positions), curve(ends)[::-1])


def test_growth_is_that_of_the_lag() -> None:
    assert grown(SECONDS * 10, SECONDS * 20) == pytest.approx(10)
    assert grown(SECONDS * 20, SECONDS * 20) == 0
    assert grown(SECONDS * 30, 1000 + SECONDS * 20) == pytest.approx(-10)
    assert grown(SECONDS[:5] * 10, SECONDS[:5] * 20) is None  # 4 s
    assert grown(SECONDS * 0, SECONDS * 0) == 0


def test_what_was_before_a_reset_says_nothing_of_speed() -> None:
    """It keeps up, is set back to 0 after 40 s, and reads twice as fast as records come; or half as fast. A step back
    of less than half the lag at the end is none."""
    again, ends = SECONDS - 40, 1000 + SECONDS * 20
    fast, slow = (np.where(again < 0, ends, again * speed) for speed in (40, 10))
    assert read(fast, ends) is None
    assert grown(fast, ends) == pytest.approx(-20)
    assert grown(slow, ends) == pytest.approx(10)
    fall = read(slow, ends)
    assert fall is not None
    assert (fall.since, fall.records_per_s) == (START + 40 * SECOND, 10)
    assert commits(fast, ends, 5) is None
    falling = commits(slow, ends, 5)
    assert isinstance(falling, CommitsFallBack)
    assert falling.fall.records_per_s == pytest.approx(10)
    small = read(SECONDS * 10 - np.where(again < 0, 0, 400), SECONDS * 20)
    assert small is not None
    assert small.since == START


def test_growth_agrees_with_the_tool() -> None:
    """`kafka-consumer-groups --describe` at the end; the positions of `fulfilment` began at the ends."""
    given = truth("lagging-group")
    seconds = (given["end_ms"] - given["record_ms"][0]) / 1000
    described = {(group, partition): lag for group, _, partition, *_, lag in given["described"]}
    rows = {row["group"]: row for row in section_rows(FOLDER / "lagging-group.pcap.zst", "groups")["groups"]}
    falls = float(str(rows["fulfilment"]["lag_growth_per_s"]))
    assert falls == pytest.approx(described["fulfilment", 0] / seconds, rel=0.2)
    assert float(str(rows["nightly"]["lag_growth_per_s"])) < 0
    assert rows["archive"]["lag_growth_per_s"] == 0


# ------------------------------------------------------------ commits


def commits(offsets: np.ndarray, ends: np.ndarray, each: int, until: int = 100, is_read: bool = True) -> object:
    """What is found of a group that commits each `each` seconds, until a time."""
    every = curve(offsets)[each : until + 1 : each]
    return commits_fall_back(every, [time for time, _ in every], curve(ends), is_read)


@pytest.mark.parametrize("each", [1, 5, 20, 30])
def test_commits_of_groups_that_keep_up_do_not_fall_back(each: int) -> None:
    assert commits(SECONDS * 20, SECONDS * 20, each) is None


def test_commits_that_fall_back() -> None:
    found = commits(SECONDS * 10, SECONDS * 20, 5)
    assert isinstance(found, CommitsFallBack)
    assert (found.lag, found.is_stopped) == (1000, False)
    assert found.fall.behind_ns == 50 * SECOND
    assert found.fall.records_per_s == pytest.approx(10)
    # Behind by less than two of its longest intervals.
    assert commits(SECONDS * 10, SECONDS * 20, 30) is None


def test_a_reader_that_closes_with_the_writer_was_a_member_all_along() -> None:
    """`Member.left`, ns: it left when the last end was known, or before."""
    history = History(CLASSIC)
    history.members = {
        name: Member(name, "c", "10.0.0.1", left=left) for name, left in (("a", None), ("b", START), ("c", START - 1))
    }
    group = Group("g", history)
    assert [group.is_member_at(name, START) for name in ("a", "b", "c")] == [True, True, False]


@pytest.mark.parametrize(("first", "is_named"), [(2, True), (4, True), (5, False)])
def test_the_least_growth_of_commits(first: int, is_named: bool) -> None:
    """They are 10 s behind after 20 s. Since the first one, the lag grew by 9 s of records, 8 s or 7.5 s."""
    every = curve(SECONDS[:21] * 10)[first:]
    found = commits_fall_back(every, [time for time, _ in every], curve(SECONDS[:21] * 20), True)
    assert bool(found) == is_named


def test_commits_that_stop() -> None:
    """After 50 s: no end of commits that come each 20 s, but one of those that come each 5 s."""
    found = commits(SECONDS * 20, SECONDS * 20, 5, until=50)
    assert isinstance(found, CommitsFallBack)
    assert (found.lag, found.is_stopped, found.fall.behind_ns) == (1000, True, 50 * SECOND)
    assert commits(SECONDS * 20, SECONDS * 20, 20, until=60) is None
    assert commits(SECONDS * 20, SECONDS * 20, 5, until=50, is_read=False) is None
