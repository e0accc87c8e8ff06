"""The section `topics` beside what Kafka's own tools and parsers say (samples/questions/make_groups.py, the corpus)."""

from __future__ import annotations

import csv
import json
import re
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

from kafkatap.engine.selection import Selection
from kafkatap.reports.batch import uuid_text
from kafkatap.reports.literals import Moment
from kafkatap.reports.sections.topic_counts import WRITES
from kafkatap.reports.sections.topic_readers import topics_in
from kafkatap.reports.sections.topics import _Topic, findings
from tests.support.captures import pcap_bytes
from tests.support.record_talk import produce
from tests.support.records import Record, batch
from tests.support.section_runs import rows, section_input, section_rows, section_tables
from tests.support.tcp import encode
from tests.wire.kafkatalk import PRODUCE, KafkaTalk

Rows = list[dict[str, Any]]

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@pytest.fixture(scope="module")
def groups(samples: Path) -> tuple[Rows, Rows]:
    """The rows of both tables for the sample `groups`."""
    tables = section_tables([samples / "questions" / "groups.pcap.zst"], "topics")
    return rows(tables["topics"]), rows(tables["topic_clients"])


@pytest.fixture(scope="module")
def truth(samples: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((samples / "questions" / "groups.truth.json").read_text())
    return found


@pytest.fixture(scope="module")
def described(samples: Path) -> list[list[str]]:
    """The lines of the last `kafka-consumer-groups --describe --offsets`: group, topic, partition, committed, end,
    lag, member, host, client."""
    text = (samples / "questions" / "groups.describe.txt").read_text()
    (last,) = re.findall(r"# quiet: --offsets.*?\n(.*?)\n# ", text, re.DOTALL)
    lines = [line.split() for line in last.splitlines()]
    return [line for line in lines if len(line) == 9 and line[0] != "GROUP"]


def test_who_writes_and_reads(groups: tuple[Rows, Rows], truth: dict[str, Any]) -> None:
    expected = {
        (topic, verb, client)
        for client, said in truth["clients"].items()
        for verb in ("writes", "reads")
        for topic in said.get(verb, ())
    }
    assert {(row["topic"], row["role"], row["client_id"]) for row in groups[1]} == expected


def test_groups_of_readers(groups: tuple[Rows, Rows], truth: dict[str, Any]) -> None:
    for row in groups[1]:
        if row["role"] == "reads":
            group = truth["clients"][row["client_id"]]["group"]
            assert row["group"] == group
            assert row["evidence"] == (None if group is None else "assignment")


def test_an_idle_reader_counts(groups: tuple[Rows, Rows]) -> None:
    """Its first Fetch lists the topic, and all others list nothing."""
    topics = {row["topic"]: row for row in groups[0]}
    assert (topics["idle"]["consumers"], topics["idle"]["producers"], topics["idle"]["partitions"]) == (1, 0, 2)
    (idle,) = (row for row in groups[1] if row["client_id"] == "idle-watcher")
    assert (idle["partitions"], idle["requests"], idle["records"], idle["lag"]) == (2, 1, 0, 0)
    assert idle["idle_requests"] > 20
    assert idle["certainty"] is None


def test_lag_is_what_the_tool_prints(groups: tuple[Rows, Rows], described: list[list[str]]) -> None:
    expected: Counter[tuple[str, str]] = Counter()
    for group, topic, _, _, _, lag, *_ in described:
        expected[group, topic] += int(lag)
    found: Counter[tuple[str, str]] = Counter()
    for row in groups[1]:
        if row["group"] is not None:
            found[row["group"], row["topic"]] += row["committed_lag"]
    assert set(found) == set(expected)
    assert dict(found) == dict(expected)
    assert expected["slow", "orders"] > 100


def test_records_in_are_the_ends_of_the_log(groups: tuple[Rows, Rows], described: list[list[str]]) -> None:
    """The sample has everything that was ever written."""
    ends = {(topic, partition): int(end) for _, topic, partition, _, end, *_ in described}
    expected: Counter[str] = Counter()
    for (topic, _), end in ends.items():
        expected[topic] += end
    assert {row["topic"]: row["in_records"] for row in groups[0]} == dict(expected)


def test_positions_of_readers(groups: tuple[Rows, Rows], truth: dict[str, Any], described: list[list[str]]) -> None:
    """The end less what `KafkaConsumer.position` returned."""
    ends = {f"{topic}-{partition}": int(end) for _, topic, partition, _, end, *_ in described}
    for client, positions in truth["positions"].items():
        parts = dict(part.split("=") for part in positions.split())
        expected = sum(ends[name] - int(offset) for name, offset in parts.items())
        assert sum(row["lag"] for row in groups[1] if row["client_id"] == client and row["role"] == "reads") == expected


def test_a_capture_that_begins_later(samples: Path, truth: dict[str, Any]) -> None:
    """The sessions are unknown then. Readers of new records are found, and an idle reader by its commits."""
    late = Selection.of(start=Moment(truth["snapshots"][0]["from_ms"] * 1_000_000))
    tables = section_tables([samples / "questions" / "groups.pcap.zst"], "topics", selection=late)
    found = rows(tables["topic_clients"])
    readers = {(row["topic"], row["client_id"]): row for row in found if row["role"] == "reads"}
    assert "began before the capture" in readers["idle", "idle-watcher"]["certainty"]
    assert readers["idle", "idle-watcher"]["group"] == "watchers"
    assert readers["orders", "slow-reader"]["group"] == "slow"
    assert readers["orders", "slow-reader"]["evidence"] == "commit"


@pytest.mark.parametrize("name", ["apache-2.8.pcap.zst", "apache-4.3-broker1.pcap.zst", "mtu1500.pcap.zst"])
def test_batches_and_records_beside_kafkas_classes(corpus: Path, name: str) -> None:
    """By direction, topic, magic and codec. Of batches with a wrong checksum the truth counts no records."""
    captures = corpus / "captures"
    expected: dict[tuple[str, ...], list[int]] = defaultdict(lambda: [0, 0])
    damaged = set()
    with (captures / f"{name.partition('.pcap')[0]}.records.tsv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE):
            key = row["direction"], row["topic"], row["magic"], row["codec"].split(",")[0]
            expected[key][0] += int(row["batches"])
            expected[key][1] += 0 if "control" in row["codec"] else int(row["records"])
            if int(row["bad_crc"]):
                damaged.add(key)
    given = section_input([captures / name], ["topics"])
    context = given.context
    found: dict[tuple[str, ...], list[int]] = defaultdict(lambda: [0, 0])
    counted = {**given.keys("topics.batches"), **given.values("topics.batches")}
    columns = {name: column.tolist() for name, column in counted.items()}
    for i, role in enumerate(columns["role"]):
        topic_id = columns["topic_id"][i]
        topic = uuid_text(context.strings[topic_id]) if topic_id >= 0 else context.text(columns["topic"][i])
        direction = "produce" if role == WRITES else "fetch"
        key = direction, str(topic), str(columns["magic"][i]), CODECS[columns["codec"][i]]
        found[key][0] += columns["batches"][i]
        found[key][1] += columns["records"][i]
    newest = {key for key in expected if key[2] == "2"}
    assert newest
    assert {key for key in found if key[2] == "2"} == newest
    for key in newest:
        assert found[key][0] == expected[key][0], key
        if key not in damaged:
            assert found[key][1] == expected[key][1], key


def test_findings() -> None:
    topic = _Topic()
    assert findings(topic) == []
    topic.first, topic.last = 0, 10 * 10**9
    topic.batches[WRITES], topic.records[WRITES], topic.bytes[WRITES] = 1000, 1200, 200_000
    topic.codecs[WRITES][0] = 200_000
    assert findings(topic) == ["100 batches/s of 1.2 records, 200 B: linger.ms too low?"]
    topic.records[WRITES] = 100_000
    topic.bytes[WRITES] = topic.codecs[WRITES][0] = 100 << 20
    assert findings(topic) == ["100 MiB uncompressed"]
    topic.magics[WRITES], topic.old_readers = {2}, {3: "old (10.0.0.1)", 1: "older (10.0.0.1)"}
    topic.far_future, topic.farthest, topic.sampled, topic.damaged = 3, 7_200_000, 9, 2
    assert findings(topic)[:4] == [
        "2 of 9 sampled batches with a wrong checksum",
        "3 batches stamped in the future, up to 2h 00m off",
        "down-conversion: older (10.0.0.1) reads with Fetch 1 (magic 0)",
        "down-conversion: old (10.0.0.1) reads with Fetch 3 (magic 1)",
    ]


def test_old_formats(samples: Path) -> None:
    """Kafka 0.10.2: clients write message sets of magic 1, whose records are not countable if compressed."""
    tables = section_tables([samples / "apache-0.10.2.pcap.zst"], "topics")
    written = [row for row in rows(tables["topics"]) if row["in_bytes"]]
    assert written
    assert {row["magic"] for row in written} <= {"0", "1", "0, 1"}
    assert all("refuses" in row["finding"] for row in written)


def test_topics_in_assignments() -> None:
    def encoded(*topics: tuple[bytes, int]) -> bytes:
        parts = (len(n).to_bytes(2) + n + c.to_bytes(4) + bytes(4 * c) for n, c in topics)
        return b"\0\1" + len(topics).to_bytes(4) + b"".join(parts) + b"\xff\xff\xff\xff"

    whole = encoded((b"orders", 3), (b"audit", 0))
    assert list(topics_in(whole)) == ["orders", "audit"]
    assert list(topics_in(b"")) == []
    for end in range(len(whole)):
        assert list(topics_in(whole[:end])) in ([], ["orders"], ["orders", "audit"])
    assert list(topics_in(b"\0\1\x7f\xff\xff\xff" + b"\xff" * 40)) == []


def test_share_groups_read(samples: Path) -> None:
    """ShareFetch names its group, and its records count as read."""
    tables = section_tables([samples / "questions" / "rebalances.pcap.zst"], "topics")
    shared = [row for row in rows(tables["topic_clients"]) if row["evidence"] == "share fetch"]
    assert shared
    assert all(row["role"] == "reads" and row["group"] for row in shared)
    assert all("down-conversion" not in (row["finding"] or "") for row in rows(tables["topics"]))


@pytest.mark.parametrize("name", ["retries", "transactions"])
def test_refused_and_resent_records_are_apart_from_appended_ones(samples: Path, name: str) -> None:
    """The broker's log has the records that were appended, and no others."""
    with open(samples / "questions" / f"{name}.log.tsv", newline="") as lines:
        logged: Counter[str] = Counter()
        for row in csv.DictReader(lines, delimiter="\t"):
            if not row["control"]:
                logged[row["topic"]] += int(row["records"])
    found = {
        row["topic"]: row
        for row in rows(section_tables([samples / "questions" / f"{name}.pcap.zst"], "topics")["topics"])
    }
    assert {topic: row["appended_records"] for topic, row in found.items()} == logged
    resent = {topic: row["resent_records"] for topic, row in found.items() if row["resent_records"]}
    refused = {topic: row["refused_records"] for topic, row in found.items() if row["refused_records"]}
    if name == "retries":  # the script cuts two responses of these clients, and then kills the broker
        assert (resent["orders"], resent["audit"], refused) == (2, 2, {})
        assert set(resent) == {"orders", "audit", "payments", "shipments"}
    else:  # the second record of the fenced producer
        assert (resent, refused) == ({}, {"refunds": 1})


@pytest.mark.parametrize("version", [0, 3, 9, 13])
def test_what_writers_wait_for(version: int, tmp_path: Path) -> None:
    """acks by client and topic, and answers that min.insync.replicas explains: 19 and 20."""
    talk, topic_id = KafkaTalk(), bytes(range(16))
    talk.tcp.open()
    for number, (acks, error) in enumerate(((-1, 0), (-1, 19), (-1, 20), (-1, 3), (1, 0), (0, 0), (1, 0))):
        data = [{"Index": n, "Records": batch([Record(b"k", b"v")])} for n in range(2)]
        topics = [{"Name": "orders", "TopicId": topic_id, "PartitionData": data}]
        asked = talk.request(PRODUCE, version, number, Acks=acks, TopicData=topics)
        if acks:
            answers = [{"Index": n, "ErrorCode": error} for n in range(2)]
            talk.respond(asked, Responses=[{"Name": "orders", "TopicId": topic_id, "PartitionResponses": answers}])
    path = tmp_path / "x.pcap"
    path.write_bytes(pcap_bytes(encode(talk.segments)))
    (row,) = section_rows(path, "topics")["topic_clients"]
    assert (row["role"], row["requests"], row["acks"], row["too_few_replicas"]) == ("writes", 7, "all 4, 0 1, 1 2", 4)


@pytest.mark.parametrize(("acks", "appended"), [((0, 0), None), ((0, 1), None), ((1, 1), 2)])
def test_what_was_appended_with_acks_0_is_not_known(
    acks: tuple[int, ...], appended: int | None, tmp_path: Path
) -> None:
    talk = KafkaTalk()
    talk.tcp.open()
    for number, each in enumerate(acks):
        produce(talk, number, 9, batch([Record(b"k", b"v")]), acks=each)
    path = tmp_path / "x.pcap"
    path.write_bytes(pcap_bytes(encode(talk.segments)))
    (row,) = section_rows(path, "topics")["topics"]
    assert (row["in_records"], row["appended_records"]) == (2, appended)


def test_acks_of_real_clients(groups: tuple[Rows, Rows]) -> None:
    writers = [row for row in groups[1] if row["role"] == "writes"]
    assert {row["acks"] for row in writers} == {"all"}
    assert not any(row["too_few_replicas"] for row in writers)
    assert {row["acks"] for row in groups[1] if row["role"] != "writes"} == {None}
