"""Whether a transaction that holds readers back is still open, whatever is selected: by its marker, or by readers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kafkatap import analyze
from kafkatap.reports.advice.open_transactions import _finding, _Hold
from kafkatap.reports.findings import Finding
from kafkatap.reports.section_parts.section import SectionInput
from kafkatap.reports.sections.advice import findings
from tests.reports.rows import BILLING, MARKUP
from tests.support.captures import pcap_bytes
from tests.support.records import TRANSACTIONAL, Record, batch
from tests.support.section_runs import section_input
from tests.support.tcp import encode, merge
from tests.wire.kafkatalk import BROKER, FETCH, PRODUCE, KafkaTalk

from .made_input import given_of

INIT_PRODUCER, ADD_PARTITIONS, MARKERS = 22, 24, 27
SECOND = 1_000_000_000
TOPIC, TX = "pay", "tx-forget"
MARKER, MOVED_ON, BOTH, NEITHER = "marker", "moved on", "both", "neither"


def capture(folder: Path, end: str) -> Path:
    """`forgetful` leaves a transaction open; `reader` is held. After 5 s the coordinator writes the marker, and
    the reader gets on. `end`: what of it was captured."""
    hosts = {"forgetful": "10.0.0.1", "reader": "10.0.0.1", "sender": BROKER[0]}
    who = [KafkaTalk((host, 40_000 + n), BROKER, name) for n, (name, host) in enumerate(hosts.items())]
    forgetful, reader, sender = who
    for talk in who:
        talk.tcp.open()
    asked = forgetful.request(INIT_PRODUCER, 1, 1, TransactionalId=TX, TransactionTimeoutMs=3000)
    forgetful.respond(asked, ProducerId=7, ProducerEpoch=0)
    asked = forgetful.request(
        ADD_PARTITIONS, 1, 2, V3AndBelowTransactionalId=TX, V3AndBelowProducerId=7, V3AndBelowProducerEpoch=0,
        V3AndBelowTopics=[{"Name": TOPIC, "Partitions": [0]}],
    )  # fmt: skip
    results = [{"PartitionIndex": 0, "PartitionErrorCode": 0}]
    forgetful.respond(asked, ResultsByTopicV3AndBelow=[{"Name": TOPIC, "ResultsByPartition": results}])
    field = batch([Record(b"k", b"v")], attributes=TRANSACTIONAL, producer=(7, 0, 0))
    data = [{"Name": TOPIC, "PartitionData": [{"Index": 0, "Records": field}]}]
    asked = forgetful.request(PRODUCE, 5, 3, Acks=-1, TransactionalId=TX, TopicData=data)
    forgetful.respond(asked, Responses=[{"Name": TOPIC, "PartitionResponses": [{"Index": 0, "BaseOffset": 40}]}])
    for second in range(8):
        reader.tcp.time_ns = reader.time_ns + (second + 1) * SECOND
        stable = 42 if second > 4 and end in (MOVED_ON, BOTH) else 40
        partition = {"PartitionIndex": 0, "HighWatermark": 41 if stable == 40 else 42, "LastStableOffset": stable}
        asked = reader.request(FETCH, 10, second, IsolationLevel=1)
        reader.respond(asked, Responses=[{"Topic": TOPIC, "Partitions": [partition]}])
    sender.tcp.time_ns = sender.time_ns + 5 * SECOND + SECOND // 2
    if end in (MARKER, BOTH):
        marker = {"ProducerId": 7, "ProducerEpoch": 0, "Topics": [{"Name": TOPIC, "PartitionIndexes": [0]}]}
        sender.respond(sender.request(MARKERS, 0, 1, Markers=[marker]))
    path = folder / "talk.pcap"
    path.write_bytes(pcap_bytes(encode(merge(*(talk.tcp.segments for talk in who))), nanoseconds=True))
    return path


def held(given: SectionInput) -> Finding:
    (finding,) = (each for each in findings(given) if each.id == "open_transaction")
    return finding


@pytest.mark.parametrize("end", [MARKER, MOVED_ON, BOTH])
def test_a_hold_ends_with_the_marker_or_as_readers_get_on(tmp_path: Path, end: str) -> None:
    finding = held(section_input(capture(tmp_path, end), "advice"))
    assert finding.end is not None
    assert 4 * SECOND <= finding.end - (finding.begin or 0) < 6 * SECOND
    assert "held back 1 reader" in finding.text
    assert ("the coordinator aborted it" in finding.text) is (end != MOVED_ON)
    assert "open" not in finding.text
    assert "kafka-transactions.sh" not in finding.remedy


def test_offsets_are_those_of_all_partitions() -> None:
    """Of one reader and transaction: another reader of the same ones counts no offset twice."""
    hold = _Hold((BILLING, 0), ("pay", 0, 40), "pay", 0, 5 * SECOND, True, False, 1000, 1)
    holds = [hold, hold._replace(place=("pay", 1, 7), records=39), hold._replace(reader=(MARKUP, 0), records=900)]
    finding = _finding(given_of([]), None, holds)
    assert "2 readers of committed records for 5.00 s and 1,039 offsets: " in finding.text
    assert " on pay-0 and 1 more" in finding.text
    assert finding.numbers["offsets"] == 1039


def test_a_transaction_without_an_end_is_open(tmp_path: Path) -> None:
    finding = held(section_input(capture(tmp_path, NEITHER), "advice"))
    assert finding.end is None
    assert finding.text.endswith("it is still open")
    assert "kafka-transactions.sh" in finding.remedy


SELECTIONS: dict[str, dict[str, Any]] = {
    "writer": {"client": ["forgetful"]}, "reader": {"client": ["reader"]}, "topic": {"topic": [TOPIC]},
    "sender": {"client": ["sender"]}, "other topic": {"topic": ["other"]},
}  # fmt: skip


@pytest.mark.parametrize("name", SELECTIONS)
def test_a_selection_changes_no_state(tmp_path: Path, name: str) -> None:
    """It leaves out rows and findings on others."""
    report = analyze(capture(tmp_path, BOTH), **SELECTIONS[name]).report(sections=["summary", "transactions"])
    found = {row["finding"]: row for row in report.table("summary").named_rows()}
    if name in ("sender", "other topic"):
        assert "open_transaction" not in found
        assert all(row["label"] != "all well" for row in found.values())
    else:
        assert str(found["open_transaction"]["text"]).endswith("the coordinator aborted it")
    rows = report.table("transactions").named_rows()
    if name in ("writer", "topic"):
        (row,) = rows
        assert (row["state"], row["aborted_by_broker"], row["open_ns"], row["client_id"]) == (
            "aborted", 1, None, "forgetful",
        )  # fmt: skip


@pytest.mark.parametrize(("since", "until", "is_there"), [("+3s", "+4s", True), ("+7s", "+8s", False)])
def test_windows_within_and_after_a_transaction(tmp_path: Path, since: str, until: str, is_there: bool) -> None:
    report = analyze(capture(tmp_path, BOTH), start=since, end=until).report(sections=["summary", "transactions"])
    found = [row["finding"] for row in report.table("summary").named_rows()]
    assert ("open_transaction" in found) is is_there
    assert [row["state"] for row in report.table("transactions").named_rows()] == ["aborted"] * is_there


def test_states_without_produce_are_unknown(tmp_path: Path) -> None:
    """What begins transactions of the second protocol is not read then."""
    report = analyze(capture(tmp_path, NEITHER), api=["InitProducerId"]).report(sections=["transactions"])
    (row,) = report.table("transactions").named_rows()
    assert (row["state"], row["open_ns"], row["finding"]) == ("unknown", None, None)
