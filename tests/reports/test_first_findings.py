"""Which findings lead the first lines of recordings whose truth is beside them, and what is folded under what."""

from __future__ import annotations

import json
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from kafkatap.reports.findings import Finding, Party
from kafkatap.reports.model import ReportTable
from kafkatap.reports.rendering.text import finding_text
from kafkatap.reports.sections.alike import repeats_in_one
from kafkatap.reports.sections.folding import folded
from kafkatap.reports.sections.folds import Known
from kafkatap.reports.sections.heading import heading
from tests.cli.running import kafkatap
from tests.reports.rows import MS, START, context, counted

SAMPLES = Path(__file__).resolve().parents[2] / "samples"


@cache
def rows(path: Path) -> list[dict[str, Any]]:
    """The findings of a report, in their order."""
    found: list[dict[str, Any]] = json.loads(kafkatap("report", "--json", path).out)["reports"]["summary"]
    return found


def of(name: str, finding: str) -> list[dict[str, Any]]:
    return [row for row in rows(SAMPLES / f"{name}.pcap.zst") if row["finding"] == finding]


def test_a_listener_that_never_answers_is_no_stop() -> None:
    """A wrong advertised.listeners refuses connections, while the broker works."""
    assert of("advice/advertised", "broker_stopped") == []
    assert of("advice/advertised", "broker_returned") == []
    assert rows(SAMPLES / "advice/advertised.pcap.zst")[0]["label"] == "unreachable"
    assert rows(SAMPLES / "advice/advertised-moved.pcap.zst")[0]["finding"] == "advertised_unreachable"


@pytest.mark.parametrize(
    ("name", "finding", "cause"),
    [
        ("advice/black-hole", "hosts_cut_off", "mtu_black_hole"),
        ("questions/throttle", "quota_began", "throttled"),
        ("events/quota", "quota_began", "throttled"),
        ("events/storm", "connection_storm", "reconnect_storm"),
        ("questions/storms", "error_burst", "sasl_failed"),
        ("events/kill", "slow_head_of_line", "broker_stopped"),
        ("events/hang", "slow_head_of_line", "broker_hung"),
        ("questions/timeouts", "request_timeout", "broker_hung"),
        ("advice/expelled-session", "group_rebalanced", "expelled_members"),
        ("advice/dying", "group_rebalanced", "dying_members"),
        ("events/firewall", "lossy_host", "hosts_cut_off"),
        ("advice/idle-dropped", "unanswered", "idle_dropped"),
        ("advice/connection-limit", "unanswered", "connection_limit"),
    ],
)
def test_the_same_trouble_is_one_line(name: str, finding: str, cause: str) -> None:
    found = of(name, finding)
    assert found
    assert {row["cause"] for row in found} == {cause}
    roots = [row["finding"] for row in rows(SAMPLES / f"{name}.pcap.zst") if row["cause"] is None]
    assert cause in roots


def test_rebalances_are_on_the_first_screen_by_the_time_that_members_wait() -> None:
    """The recording has seldom rebalances too, which are notes, and slow lines that cost less."""
    from kafkatap.reports.rendering.text import first_lines
    from kafkatap.reports.sections.summary import COLUMNS

    found = rows(SAMPLES / "questions/rebalances.pcap.zst")
    names = [column.name for column in COLUMNS]
    table = ReportTable("summary", "Summary", COLUMNS, [tuple(row[name] for name in names) for row in found])
    shown = [row for row in first_lines(table)[0] if row["finding"] == "group_rebalanced"]
    costly = [row for row in found if row["finding"] == "group_rebalanced" and row["severity"] == "warning"]
    assert [row["text"] for row in shown] == [row["text"] for row in costly]
    assert costly
    assert len(of("questions/rebalances", "group_rebalanced")) > len(costly)
    costs = [row["time_lost_ns"] for row in found if row["severity"] == "warning" and row["cause"] is None]
    assert costs == sorted(costs, reverse=True)


@pytest.mark.parametrize("name", ["events/kill", "events/stop", "events/hang"])
def test_what_explains_the_rest_comes_first(name: str) -> None:
    assert rows(SAMPLES / f"{name}.pcap.zst")[0]["finding"] in ("broker_stopped", "broker_hung")


def test_answers_that_the_capture_lacks_are_no_outage(corpus: Path) -> None:
    """Packets of it were dropped and reordered."""
    found = rows(corpus / "captures" / "repro" / "wrong-response-503725.pcap")
    assert {row["finding"] for row in found} & {"broker_hung", "hosts_cut_off", "broker_unreachable"} == set()


@pytest.mark.parametrize("name", ["questions/upgrade-4.3", "questions/retries"])
def test_no_backoff_is_blamed_for_others_troubles(name: str) -> None:
    """`upgrade-4.3`: the broker closes connections after a version that it removed. `retries`: it was killed, and each
    of several clients of the host connects at the usual rate."""
    assert [row for row in of(name, "reconnect_storm") if row["cause"] is None] == []


def test_requests_between_brokers_are_no_ones_time(corpus: Path) -> None:
    found = rows(corpus / "captures" / "apache-4.3-broker3.pcapng.zst")
    (row,) = (row for row in found if row["finding"] == "slow_between_brokers")
    assert (row["severity"], row["time_lost_ns"]) == ("note", 0)
    assert {party["name"] for party in row["parties"]} <= {"broker-3-txn-marker-sender", "raft-client-1", "1", "2", "3"}
    assert of("events/quota", "slow_between_brokers") == []  # 33 ms once


def test_connections_that_the_broker_closes_instead_of_an_answer() -> None:
    """It does so with versions that it removed. The truth: both old clients got nothing through."""
    (row,) = of("questions/upgrade-4.3", "unanswered")
    assert row["severity"] == "error"
    closed = "the broker closed the connection of 39, the client closed the connection of 1"
    assert row["text"].endswith(f"{closed}; the broker may not know ListOffsets v0, Produce v2")
    assert {party["name"] for party in row["parties"]} >= {"python-0.10", "java-0.10.2.2"}
    (row,) = of("questions/sasl", "unanswered")
    assert row["text"].endswith("; the broker closed the connection of all")


def test_a_producer_that_a_selection_leaves_out_is_named() -> None:
    path = SAMPLES / "advice/open-transaction.pcap.zst"
    found = json.loads(kafkatap("report", "--json", "--client", "ledger", path).out)["reports"]["summary"]
    (row,) = (row for row in found if row["finding"] == "open_transaction")
    assert row["text"].startswith('transaction "settlement-1" of client "settlement" (127.0.0.1) held back readers')


def test_clusters_of_one_capture_are_not_counted_together(corpus: Path) -> None:
    """Mock clusters of one broker each, and others; a LeaveGroup that was pipelined behind a JoinGroup."""
    found = rows(corpus / "captures" / "diverse.pcap")
    assert [row for row in found if row["finding"] == "hot_leader"] == []
    assert [row for row in found if row["finding"].startswith("slow_") and "LeaveGroup" in row["text"]] == []
    (each,) = [row for row in found if row["finding"] == "connection_each_message"]
    assert "4 other clients too" in each["text"]


def test_moved_leaders_lead_the_errors_that_follow(corpus: Path, tmp_path: Path) -> None:
    import zstandard

    path = tmp_path / "broker1.pcap"
    with (corpus / "captures" / "apache-4.3-broker1.pcap.zst").open("rb") as packed, path.open("wb") as whole:
        zstandard.ZstdDecompressor().copy_stream(packed, whole)
    found = rows(path)
    assert found[0]["finding"] == "leaders_moved"
    follow = {
        row["numbers"]["error"] for row in found if row["cause"] == "leaders_moved" and row["finding"] == "errors"
    }
    assert "LEADER_NOT_AVAILABLE" in follow


def test_hosts_that_lose_packets_are_named_with_the_time_that_it_cost() -> None:
    """The script drops the packets of the client `far-away` alone. The hang of the broker there is no loss."""
    (row,) = of("questions/timeouts", "lossy_host")
    assert [party["name"] for party in row["parties"] if party["kind"] == "client"] == ["far-away"]
    lost = row["numbers"]["loss_ns"]
    assert row["time_lost_ns"] == lost
    assert lost > 1_000_000_000
    (dropped,) = (step for step in truth("timeouts")["steps"] if step["step"] == "dropped")
    since, until = dropped["from_ms"], dropped["to_ms"]
    # Timers of TCP double: the last segment comes again at most as long after the drop as the drop lasted.
    assert since <= at_ms(row["begin"]) <= until < at_ms(row["end"]) <= until + (until - since)
    assert all(of(name, "lossy_host") == [] for name in ("events/hang", "events/stop", "apache-4.3"))


@pytest.mark.parametrize(
    ("name", "finding", "label"),
    [
        ("advertised", "advertised_unreachable", "unreachable"),
        ("black-hole", "mtu_black_hole", "path broken"),
        ("idle-dropped", "idle_dropped", "path broken"),
        ("request-timeout", "request_timeout", "timeouts"),
        ("expelled-poll", "expelled_members", "expelled"),
        ("open-transaction", "open_transaction", "held back"),
        ("slow-follower", "slow_follower", "slow follower"),
        ("nagle", "nagle", "advice"),
    ],
)
def test_an_outage_is_called_so_and_a_setting_is_advice(name: str, finding: str, label: str) -> None:
    assert {row["label"] for row in of(f"advice/{name}", finding)} == {label}


@pytest.mark.parametrize(
    ("longest", "client", "is_cause"), [(1_400, "pay", True), (4_000, "pay", False), (1_400, "etl", False)]
)
def test_requests_behind_a_slow_follower_follow_from_it(longest: int, client: str, is_cause: bool) -> None:
    """Waits behind a request add up to more than that request took. Its own time shows which one it was."""
    late = Finding(
        "slow_follower", "warning", "", "", 30_000 * MS, numbers={"wait_max_ns": 1_300 * MS},
        parties=(Party("broker", "broker 3"), Party("client", "batch"), Party("client", "pay")),
    )  # fmt: skip
    slow = Finding(
        "slow_head_of_line", "warning", "", "", 500_000 * MS, numbers={"total_max_ns": longest * MS},
        parties=(Party("client", client),),
    )  # fmt: skip
    found = [("advice", late), ("", slow)]
    made = {each.id: each for _, each in folded(found, Known(context()))}
    assert (made["slow_head_of_line"].cause == late.key) is is_cause


@pytest.mark.parametrize(
    ("begin", "setting", "has_time"),
    [(40, None, True), (40, "max.poll.interval.ms", False), (200, "max.poll.interval.ms", True)],
)
def test_what_began_later_has_its_time(begin: int, setting: str | None, has_time: bool) -> None:
    """A setting is so all the time; what it breaks may begin in the middle. The capture lasts 2,000 ms."""
    row = {"text": "it broke", "setting": setting, "begin": START + begin * MS, "end": START + 400 * MS}
    text = finding_text(row, heading(counted([]), context(), 0, None), True)
    assert (text == f"04:43:59.{begin // 100} it broke" + (f"; change {setting}" if setting else "")) is has_time
    assert text.startswith("it broke") is not has_time


@pytest.mark.parametrize(
    ("cause", "client", "is_cause"),
    [("nagle", "pay", True), ("nagle", "etl", False), ("open_transaction", "pay", False)],
)
def test_advice_on_others_explains_no_slow_client(cause: str, client: str, is_cause: bool) -> None:
    """Nor does what keeps records from their readers."""
    advice = Finding(cause, "warning", "", "", 90_000 * MS, parties=(Party("client", client),))
    slow = Finding(
        "slow_broker", "warning", "", "", 80_000 * MS, parties=(Party("client", "pay"), Party("client", "etl"))
    )
    made = {each.id: each for _, each in folded([("advice", advice), ("", slow)], Known(context()))}
    assert (made["slow_broker"].cause == advice.key) is is_cause


@pytest.mark.parametrize(("begin", "is_cause"), [(30, False), (2, True)])
def test_an_event_explains_no_other_time(begin: int, is_cause: bool) -> None:
    hung = Finding("broker_hung", "warning", "", "", 90_000 * MS, START, START + 5_000 * MS)
    slow = Finding("slow_broker", "warning", "", "", 80_000 * MS, START + begin * 1_000 * MS, START + 40_000 * MS)
    made = {each.id: each for _, each in folded([("events", hung), ("", slow)], Known(context()))}
    assert (made["slow_broker"].cause == hung.key) is is_cause


@pytest.mark.parametrize(
    ("parties", "is_cause"),
    [
        (
            (Party("broker", "10.0.0.3:9092"), Party("client", "pay")),
            True,
        ),  # pay waits at another broker, with acks=all
        ((Party("broker", "10.0.0.2:9092"), Party("client", "etl")), False),
        ((Party("host", "10.0.0.9"), Party("broker", "10.0.0.3:9092")), False),
        ((Party("host", "10.0.0.9"), Party("broker", "10.0.0.2:9092")), True),
        ((), True),
    ],
    ids=str,
)
def test_an_event_explains_no_client_that_did_not_wait(parties: tuple[Party, ...], is_cause: bool) -> None:
    event = Finding("broker_hung", "warning", "", "", 90_000 * MS, START, START + 5_000 * MS, parties=parties)
    mine = (Party("client", "pay"), Party("broker", "10.0.0.2:9092"), Party("client", "etl"))
    slow = Finding("slow_broker", "warning", "", "", 80_000 * MS, START, START + 5_000 * MS, parties=mine)
    made = {each.id: each for _, each in folded([("events", event), ("", slow)], Known(context()))}
    assert (made["slow_broker"].cause == event.key) is is_cause


@pytest.mark.parametrize(("lossy", "is_cause"), [("pay", True), ("etl", False)])
def test_a_lossy_path_explains_no_client_that_does_not_use_it(lossy: str, is_cause: bool) -> None:
    host = Finding("lossy_host", "warning", "", "", 1, parties=(Party("host", "10.0.0.9"), Party("client", lossy)))
    mine = (Party("client", "pay"), Party("client", "etl"))
    slow = Finding("slow_network", "warning", "", "", 80_000 * MS, parties=mine)
    made = {each.id: each for _, each in folded([("", host), ("", slow)], Known(context()))}
    assert (made["slow_network"].cause == host.key) is is_cause


@pytest.mark.parametrize(("codes", "is_cause"), [(4, True), (7, True), (22, False)])
def test_an_outage_explains_error_codes_if_most_came_with_it(codes: int, is_cause: bool) -> None:
    """samples/apache-2.8: 4 of 22 codes came with the stop of a broker, all others as the capture ended."""
    name, parties = "FENCED_LEADER_EPOCH", (Party("broker", "10.0.0.2:9092"), Party("error", "FENCED_LEADER_EPOCH"))
    stop = Finding("broker_stopped", "error", "", "", 1, START, None, {f"{name}_codes": 4}, parties=parties)
    line = Finding("errors", "error", "", "", 1, START, numbers={"error": name, "codes": codes})
    made = {each.id: each for _, each in folded([("events", stop), ("", line)], Known(context()))}
    assert (made["errors"].cause == stop.key) is is_cause


@pytest.mark.parametrize(
    ("lasts", "begin", "end", "is_cause"),
    [(5, 2, 14, True), (5, 2, 16, False), (5, 14, None, True), (5, 16, None, False), (None, 16, 60, True)],
)
def test_an_outage_explains_no_advice_on_the_time_after_it(
    lasts: int | None, begin: int, end: int | None, is_cause: bool
) -> None:
    """Clients repeat requests, and connect again, within 10 s after it."""

    def made(name: str, begin: int, end: int | None) -> Finding:
        at, until = START + begin * 1_000 * MS, None if end is None else START + end * 1_000 * MS
        return Finding(name, "error", "", "", 0, at, until, parties=(Party("broker", "10.0.0.2:9092"),))

    stop, advice = made("broker_stopped", 0, lasts), made("reconnect_storm", begin, end)
    found = {each.id: each for _, each in folded([("events", stop), ("advice", advice)], Known(context()))}
    assert (found["reconnect_storm"].cause == stop.key) is is_cause


@pytest.mark.parametrize(("lasts", "end", "is_cause"), [(5, 14, True), (5, 16, False), (None, 60, True)])
def test_a_cut_off_host_explains_no_loss_on_the_time_after_it(lasts: int | None, end: int, is_cause: bool) -> None:
    """It cost less than half of the time that was lost."""
    hosts, until = (Party("host", "10.0.0.9"),), None if lasts is None else START + lasts * 1_000 * MS
    cut = Finding("hosts_cut_off", "error", "", "", 1 * MS, START, until, parties=hosts)
    lossy = Finding("lossy_host", "warning", "", "", 90 * MS, START, START + end * 1_000 * MS, parties=hosts)
    found = {each.id: each for _, each in folded([("events", cut), ("", lossy)], Known(context()))}
    assert (found["lossy_host"].cause == cut.key) is is_cause


def test_an_outage_explains_no_advice_without_a_broker() -> None:
    cut = Finding("hosts_cut_off", "error", "", "", 1, START, START + 5_000 * MS, parties=(Party("host", "10.0.0.9"),))
    advice = Finding("dying_members", "warning", "", "", 0, START, parties=(Party("group", "etl"),))
    made = {each.id: each for _, each in folded([("events", cut), ("advice", advice)], Known(context()))}
    assert made["dying_members"].cause is None


def test_failed_logins_explain_no_login_of_others() -> None:
    failed = Finding(
        "sasl_failed", "error", "", "", 1, START, numbers={"error": "X"}, parties=(Party("client", "pay"),)
    )
    mine = (Party("client", "pay"), Party("client", "etl"))
    slow = Finding("slow_broker", "warning", "", "", 1, numbers={"api": "SaslAuthenticate"}, parties=mine)
    made = {each.id: each for _, each in folded([("", failed), ("", slow)], Known(context()))}
    assert made["slow_broker"].cause is None


def test_a_broker_that_hangs_again_and_again_is_one_line() -> None:
    """The others follow from the first, whose time is that of all. Two are two lines."""

    def hung(number: int) -> Finding:
        begin, broker = START + 3_000 * MS * number, (Party("broker", "10.0.0.2:9092"),)
        text = "broker 2 (10.0.0.2:9092) hung for 1.50 s; its kernel acknowledged what came"
        return Finding(
            "broker_hung", "error", "broker hung", text, 2_000 * MS, begin, begin + 1_500 * MS,
            {"silence_ns": 1_500 * MS}, (number + 1,), broker,
        )  # fmt: skip

    one, *rest = [finding for _, finding in repeats_in_one([("events", hung(n)) for n in range(5)])]
    every = "5 times in 13.5 s, 1.50 s each, longest 1.50 s"
    assert one.text == f"broker 2 (10.0.0.2:9092) hung {every}; its kernel acknowledged what came"
    assert (one.time_lost_ns, one.numbers["times"], one.packets) == (10_000 * MS, 5, (1, 2, 3, 4, 5))
    assert {finding.cause for finding in rest} == {one.key}
    for count, lines in ((2, 2), (3, 1)):
        made = repeats_in_one([("events", hung(n)) for n in range(count)])
        assert [finding.cause for _, finding in made].count(None) == lines


def test_failed_logins_by_tls_have_the_time_of_the_clients() -> None:
    """The script wrote when each client began and gave up."""
    clients = truth("auth")["clients"]
    for finding, first, last in (
        ("tls_failed", "tls-untrusting-12", "tls-untrusting-13"),
        ("wrong_port", "no-tls", "no-tls"),
    ):
        (row,) = of("questions/auth", finding)
        assert clients[first][1] <= at_ms(row["begin"]) <= at_ms(row["end"])
        assert at_ms(row["begin"]) <= clients[first][2]
        assert at_ms(row["end"]) <= clients[last][2]


def truth(name: str) -> Any:
    return json.loads((SAMPLES / "questions" / f"{name}.truth.json").read_text())


def at_ms(time: str) -> float:
    return datetime.fromisoformat(time[:26] + "+00:00").timestamp() * 1000


def test_captures_days_apart_have_no_outage_between_them() -> None:
    """Nobody knows what brokers did meanwhile."""
    outages = {"broker_hung", "broker_stopped", "broker_unreachable", "hosts_cut_off"}
    paths = [SAMPLES / "apache-4.3.pcap.zst", SAMPLES / "events" / "two-brokers" / "both-hung.pcap.zst"]
    found = json.loads(kafkatap("report", "--json", *paths).out)["reports"]["summary"]
    assert any(row["finding"] == "broker_hung" for row in found)  # those of the second one
    for row in found:
        if row["finding"] in outages:
            assert row["end"] is not None
            assert at_ms(row["end"]) - at_ms(row["begin"]) < 3_600_000
