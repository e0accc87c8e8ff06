"""The first screen on troubles that people reported in public (samples/reports): it names who, what and the setting."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.cli.running import kafkatap

FOLDER = Path(__file__).resolve().parents[2] / "samples" / "reports"
#: Findings on the first screen.
SHOWN = 4
#: By capture: what one of its first lines has to say, with its setting and remedy; what no line may say.
TRUTHS: dict[str, tuple[Sequence[str], Sequence[str]]] = {
    "aborts": (["ledger-1", '"ledger" (127.0.0.1)', "the last 8 of 12", "9.16 s", "dead letter topic"], []),
    "offsets-set": (["ops-admin", '"search"', "posts-2 from 7,824 to 0", "no member"], ["lagging"]),
    "paused-partition": (
        ['"dispatch" (127.0.0.1)', 'group "dispatch"', "jobs-1", "fetches others", "resume() that is missing"],
        ["well"],
    ),
    "unstable-offsets": (
        ['"settler-2" (10.77.0.21)', 'group "settlement"', "payments-0", '"settlement-1"', "transaction.timeout.ms"],
        ["well"],
    ),
    "http-http-server": (["10.88.0.9:8080", "HTTP server", "bootstrap.servers"], ["lost"]),
    "plaintext-to-tls-mixed": (["10.88.0.11", "10.88.0.1:9093", "TLS", "security.protocol"], ["lost"]),
    "idle-reset": (["notifier", "RST", "45.0 s", "10.88.0.1:9092", "connections.max.idle.ms"], ["broker closed"]),
    "inconsistent-protocol": (["INCONSISTENT_GROUP_PROTOCOL", "worker-new", "partition.assignment.strategy"], []),
    "invalid-timestamp": (["filebeat", "orders", "nanoseconds", "Timestamp 1795882120476091302"], ["clock"]),
    "no-key": (["account-writer", "accounts", "Compacted topic cannot accept message without key"], []),
    "not-coordinator": (["NOT_COORDINATOR", '"reader"', "until the end", "do not agree who coordinates"], ["retried"]),
    "one-broker-rf3": (["xtdb-node", "Metadata names 1 broker", "offsets.topic.replication.factor"], ["retried"]),
    "minbytes0-small": (["emqx-consumer", "767 a second", "fetch.min.bytes=0", "Set `fetch.min.bytes` to 1"], []),
    "nat-twice": (["10.96.0.10:9092", "10.88.0.1:9097", "NAT", "43 requests"], []),
    "refetch": (
        ["etl", "offsets 0 to 87 of big2-0", "222 KiB of 266 KiB again", "pause", "max.partition.fetch.bytes"],
        ["well"],
    ),
    "request-too-big": (["uploader", "14 requests of 29.4 KiB", "socket.request.max.bytes"], ["not arrive"]),
    "sequence": (["OUT_OF_ORDER_SEQUENCE_NUMBER", "eos-writer", "there twice"], []),
    "static-twins": (['"billing-a" (127.0.0.1)', '"billing-b" (127.0.0.1)', '"billing-0"', "host or pod"], []),
    "topic-recreated-4200": (["INCONSISTENT_TOPIC_ID", "franz-reader", "again", "Start the client anew"], []),
}


#: Nothing is wrong with what was captured, once it is counted once.
COUNTED_ONCE = ("nat-twice",)


@cache
def first_lines(name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(kafkatap("report", "--json", capture(name)).out)["reports"]["summary"]
    return found


def capture(name: str) -> Path:
    return FOLDER / f"{name}.pcap.zst"


@pytest.mark.parametrize("name", TRUTHS)
def test_the_first_screen_has_the_answer(name: str) -> None:
    wanted, misleading = TRUTHS[name]
    lines = [" ".join(str(row[c]) for c in ("text", "setting", "remedy")) for row in first_lines(name)[:SHOWN]]
    assert any(all(word in line for word in wanted) for line in lines), lines
    well = [row["label"] for row in first_lines(name) if row["label"] == "all well"]
    assert not well or name in COUNTED_ONCE
    for word in misleading:
        assert all(word not in f"{row['label']} {row['text']}" for row in first_lines(name)[:1])
