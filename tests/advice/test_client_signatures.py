"""Signatures of clients, groups, transactions and followers beside the truth of their recordings (samples/advice)."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkatap import analyze
from kafkatap.reports.advice.hot_leaders import led_by
from kafkatap.reports.sections.advice import findings
from tests.support.captures import pcap_bytes
from tests.support.section_runs import section_input
from tests.support.tcp import START_NS, encode, merge
from tests.wire.kafkatalk import API_VERSIONS, METADATA, PRODUCE, KafkaTalk

from .advice_samples import FOLDER, SECOND, found, lines, of, truth

MS = 1_000_000
#: The recording, the signature, and whom it is on.
PAIRS = (
    ("fetch-wait", "fetch_waits", ("client", "report")),
    ("request-timeout", "request_timeout", ("client", "report")),
    ("request-timeout", "request_timeout", ("client", "checkout")),
    ("expelled-poll", "expelled_members", ("group", "billing")),
    ("expelled-poll", "expelled_members", ("group", "shipping")),
    ("expelled-session", "expelled_members", ("group", "payments")),
    ("dying", "dying_members", ("group", "label-print")),
    ("dying", "dying_members", ("group", "customs")),
    ("held-rebalance", "held_rebalance", ("group", "routing")),
    ("held-rebalance", "held_rebalance", ("group", "invoicing")),
    ("held-rebalance", "held_rebalance", ("group", "auditing")),
    ("open-transaction", "open_transaction", ("producer", "settlement-1")),
    ("reconnects", "connection_each_message", ("client", "function")),
    ("reconnects", "connection_each_message", ("client", "idler")),
    ("reconnects", "reconnect_storm", ("host", "127.0.0.1")),
    ("slow-follower", "slow_follower", ("host", "10.77.0.3")),
    ("hot-leader", "hot_leader", ("broker", "10.77.0.1:9092")),
)
#: What is wrong in both recordings of a pair: the producer sends one record in each batch.
ALSO = {"hot-leader": {"single_records"}}


@pytest.mark.parametrize(("name", "signature", "party"), PAIRS)
def test_the_wrong_setting_is_named(name: str, signature: str, party: tuple[str, str]) -> None:
    named = [finding for finding in of(name, signature) if party in finding.parties]
    assert len(named) == 1
    assert named[0].setting
    assert named[0].remedy
    assert named[0].packets[0] > 0


@pytest.mark.parametrize("name", sorted({name for name, _, _ in PAIRS}))
def test_nothing_else_is_named_and_the_right_setting_is_silent(name: str) -> None:
    named = [finding.id for finding in found(name) if finding.id not in ALSO.get(name, ())]
    assert sorted(named) == sorted(signature for at, signature, _ in PAIRS if at == name)
    assert {finding.id for finding in found(f"{name}-right")} == ALSO.get(name, set())


def test_the_delay_of_a_reader_is_that_of_its_oldest_records() -> None:
    """`report` notes when it had each record. Records of one response come together; the first one is the oldest."""
    (finding,) = of("fetch-wait", "fetch_waits")
    arrivals: dict[int, int] = {}
    for _, produced, arrived in truth("fetch-wait")["records"]:
        arrivals.setdefault(arrived, arrived - produced)
    delays = [delay for delay in arrivals.values() if delay > 500]
    assert finding.numbers["fetches"] in (len(delays), len(delays) + 1)  # the first record came just before the timer
    assert finding.time_lost_ns == pytest.approx(sum(arrivals.values()) * MS, rel=0.05)


def test_a_timeout_is_that_of_the_clients_log() -> None:
    """The clients' log has each timeout, at which the client closes its connection."""
    log = lines("request-timeout", "client.log.tsv")
    for client, least in (("report", 1000), ("checkout", 800)):
        (finding,) = [one for one in of("request-timeout", "request_timeout") if ("client", client) in one.parties]
        logged = [at for at, text in log if f"clientId={client}" in text or f"clientId={client}," in text]
        given_up, waited = int(str(finding.numbers["given_up"])), int(str(finding.numbers["timeout_ns"]))
        assert 0.75 * len(logged) <= given_up <= len(logged)
        assert waited >= least * MS
        # The last one that was given up after that time, and the client's line about it.
        assert finding.end is not None
        assert min(abs(at - finding.end // MS) for at in logged) < 50
    assert truth("request-timeout")["reader_ms"] == 1000
    report = next(one for one in of("request-timeout", "request_timeout") if ("client", "report") in one.parties)
    assert report.numbers["timeout_ns"] == pytest.approx(1000 * MS, rel=0.05)


@pytest.mark.parametrize(
    ("waited_s", "count"),
    [
        ((1, 1, 1, 1), 4),
        ((1, 1, 1, 2, 2, 2), 0),
        ((1, 1, 1, 1, 1, 2, 2), 5),
        ((1, 1, 1, 1, 2, 2, 2), 0),  # fewer than most
    ],
)
def test_different_waits_are_not_the_same_timeout(waited_s: tuple[int, ...], count: int, tmp_path: Path) -> None:
    """Two timeouts, such as those of two clients of one name and host, are not the one between them."""
    slow = KafkaTalk(("10.0.0.8", 50_000), client_id="patient")
    slow.tcp.open()
    asked = slow.request(PRODUCE, 7, 1, Acks=1)
    slow.tcp.wait(4 * SECOND)
    slow.respond(asked)
    talks = [slow.segments]
    for n, seconds in enumerate(waited_s):
        talk = KafkaTalk(("10.0.0.9", 50_000 + n), time_ns=START_NS + n * 5 * SECOND, isn=(n, n))
        talk.tcp.open()
        talk.exchange(API_VERSIONS, 0, 1)
        talk.request(PRODUCE, 7, 2, Acks=1)
        talk.tcp.wait(seconds * SECOND)
        talk.tcp.close()
        talks.append(talk.segments)
    path = tmp_path / "timeouts.pcap"
    path.write_bytes(pcap_bytes(encode(merge(*talks))))
    named = [one for one in findings(section_input(path, "advice")) if one.id == "request_timeout"]
    assert [one.numbers["given_up"] for one in named] == [count] * bool(count)
    assert all(one.numbers["timeout_ns"] == pytest.approx(SECOND, rel=0.01) for one in named)


def test_each_expulsion_of_the_coordinators_log_is_counted() -> None:
    poll = lines("expelled-poll", "coordinator.tsv")
    session = lines("expelled-session", "coordinator.tsv")
    expected = {
        "billing": sum("Group billing" in text and "poll timeout has expired" in text for _, text in poll),
        "shipping": sum("GroupId shipping" in text and "left the consumer group" in text for _, text in poll),
        "payments": sum("has failed" in text for _, text in session),
    }
    counted = {
        finding.party("group"): finding.numbers["expulsions"]
        for name in ("expelled-poll", "expelled-session")
        for finding in of(name, "expelled_members")
    }
    for group, count in expected.items():
        # The client joins again, or not before the capture's end: then the last one is not known on the wire.
        assert counted[group] in (count, count - 1), group
    assert expected["payments"] >= 3


def test_an_open_transaction_lasts_as_long_as_the_script_held_it() -> None:
    made = truth("open-transaction")
    begun, committed = made["steps"][0][0], made["steps"][2][1]
    (finding,) = of("open-transaction", "open_transaction")
    assert finding.numbers["longest_ns"] == pytest.approx((committed - begun) * MS, rel=0.05)
    assert finding.party("client") == "settlement"
    assert finding.numbers["readers"] == 1  # dashboard reads uncommitted records
    # What the reader saw: its oldest record in the transaction waited as long.
    longest = max(arrived - produced for _, produced, arrived in made["records"]["ledger"])
    assert finding.numbers["longest_ns"] == pytest.approx(longest * MS, rel=0.05)
    held = [offset for offset, produced, arrived in made["records"]["ledger"] if arrived - produced > 300]
    assert finding.numbers["offset"] == held[0]


def test_a_followers_time_is_what_the_leader_and_the_script_say() -> None:
    made = truth("slow-follower")
    (finding,) = of("slow-follower", "slow_follower")
    stopped = sum(end - begin for begin, end in made["stops"])
    assert finding.time_lost_ns == pytest.approx(stopped * SECOND, rel=0.15)
    remote = made["columns"].index("remoteTimeMs")
    assert finding.numbers["produces"] == len(made["produces"])
    assert finding.numbers["wait_ns"] == pytest.approx(sum(row[remote] for row in made["produces"]) * MS, rel=0.15)
    assert finding.numbers["follower"] == made["follower"]
    # It is waited for shortly before, too. Its time is that of the stops.
    assert finding.begin == pytest.approx(made["stops"][0][0] * SECOND, abs=0.2 * SECOND)
    assert finding.end == pytest.approx(made["stops"][-1][1] * SECOND, abs=0.2 * SECOND)


def test_connections_are_counted_as_the_clients_made_them() -> None:
    made = truth("reconnects")
    by_client = {finding.party("client"): finding for finding in of("reconnects", "connection_each_message")}
    function, idler = by_client["function"], by_client["idler"]
    assert function.numbers["new_clients"] == 2 * made["function_producers"]  # one to bootstrap, one to the broker
    assert function.numbers["requests"] == made["function_producers"]
    assert function.setting == "client reuse"
    assert idler.setting == "connections.max.idle.ms"
    connections = analyze(FOLDER / "reconnects.pcap.zst").connections.to_pylist()
    assert idler.numbers["connections"] == sum(row["client_id"] == "idler" for row in connections)
    (storm,) = of("reconnects", "reconnect_storm")
    assert storm.numbers["refused"] == sum(row["handshake"] == "refused" for row in connections)


def test_connections_to_all_brokers_are_those_of_the_client(tmp_path: Path) -> None:
    """11 to one broker and 10 to another are 21, as in the table of clients; 9 to a third are too few to count."""
    talks = []
    for n, broker in enumerate([1] * 11 + [2] * 10 + [3] * 9):
        talk = KafkaTalk(
            ("10.0.0.9", 50_000 + n), (f"10.0.0.{broker}", 9_092), "job", time_ns=START_NS + n * SECOND, isn=(n, n)
        )
        talk.tcp.open()
        talk.exchange(API_VERSIONS, 0, 1)
        talk.exchange(PRODUCE, 7, 2)
        talk.tcp.close()
        talks.append(talk.segments)
    path = tmp_path / "brokers.pcap"
    for count in (21, 30):
        path.write_bytes(pcap_bytes(encode(merge(*talks[:count])), nanoseconds=True))
        report = analyze(path).report(sections=("clients", "advice"))
        (text,) = [row["text"] for row in report.table("advice").named_rows()]
        assert "opened 21 connections to 10.0.0.1:9092, 10.0.0.2:9092 for 21 requests" in text
        (client,) = report.table("clients").named_rows()
        assert client["connections"] == count


def test_leaders_are_those_that_the_script_assigned() -> None:
    (finding,) = of("hot-leader", "hot_leader")
    leaders = truth("hot-leader")["leaders"]["clicks"]
    assert finding.party("topic") == "clicks"
    assert (finding.numbers["led"], finding.numbers["partitions"]) == (leaders.count(1), len(leaders))


@pytest.mark.parametrize("is_hot_at_last", [False, True])
def test_the_latest_answer_names_the_leaders(is_hot_at_last: bool, tmp_path: Path) -> None:
    """Broker 1 answers once more after broker 2. Before, it led all partitions, or none of them."""
    nodes = [{"NodeId": n, "Host": f"10.0.1.{n}", "Port": 9092} for n in (1, 2, 3)]
    hot, spread = [1] * 6, [1, 2, 3, 1, 2, 3]
    answers = [spread, spread, hot] if is_hot_at_last else [hot, hot, spread]
    talks = [KafkaTalk(broker=(f"10.0.1.{n}", 9092)) for n in (1, 2)]
    for number, (at, leaders) in enumerate(zip((0, 1, 0), answers, strict=True)):
        talk = talks[at]
        if not talk.segments:
            talk.tcp.open()
        talk.tcp.time_ns = START_NS + (1 + number) * SECOND
        partitions = [{"PartitionIndex": p, "LeaderId": leader} for p, leader in enumerate(leaders)]
        topics = [{"Name": "orders", "Partitions": partitions}]
        talk.respond(talk.request(METADATA, 1, number), Brokers=nodes, Topics=topics)
    path = tmp_path / "leaders.pcap"
    path.write_bytes(pcap_bytes(encode(merge(*(talk.segments for talk in talks)))))
    given = section_input(path, "advice")
    assert [one.numbers["led"] for one in findings(given)] == [6] * is_hot_at_last
    assert led_by(given, 1, "10.0.1.1:9092") == {"orders": [*range(6)] if is_hot_at_last else [0, 3]}
