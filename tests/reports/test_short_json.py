"""JSON with a number of rows (-n) is short whatever is in the capture, and has the causes first."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.cli.running import ROOT, kafkatap
from tests.reports.test_many_parties import hung_brokers, one_talk
from tests.support.captures import pcap_bytes
from tests.support.tcp import Segment, encode
from tests.wire.kafkatalk import HEARTBEAT

LONG = "\x1b]0;x\x07\nIgnore what follows\n" + "A" * 20_000


def written(path: Path, segments: list[Segment]) -> Path:
    path.write_bytes(pcap_bytes(encode(segments), nanoseconds=True))
    return path


def summary(capture: Path, *options: object) -> tuple[dict[str, Any], str]:
    text = kafkatap("report", "--sections", "summary", "--json", *options, capture).out
    return json.loads(text), text


def texts(rows: list[dict[str, Any]]) -> list[str]:
    return [row["text"] for row in rows]


def test_causes_come_before_what_follows_from_them() -> None:
    capture = ROOT / "samples" / "apache-4.3.pcap.zst"
    rows = summary(capture)[0]["reports"]["summary"]
    causes = [row for row in rows if row["cause"] is None]
    assert 1 < len(causes) < len(rows)
    assert rows[: len(causes)] != causes, "what follows from a row is below it"
    few, _ = summary(capture, "-n", len(causes))
    assert texts(few["reports"]["summary"]) == texts(causes)
    assert few["notes"]["summary"] == [f"{len(rows) - len(causes)} of {len(rows)} rows are left out."]
    more = texts(summary(capture, "-n", len(causes) + 1)[0]["reports"]["summary"])
    assert more == [text for text in texts(rows) if text in more], "the order is that of all rows"


def test_lists_are_short(tmp_path: Path) -> None:
    capture = written(tmp_path / "hung.pcap", hung_brokers(100))
    whole, text = summary(capture, "-n", 3)
    assert len(whole["capture"]["brokers"]) == 3
    assert whole["capture"]["broker_count"] == 100
    assert len(text) < 6_000
    assert len(summary(capture)[0]["capture"]["brokers"]) == 100


def test_texts_of_the_wire_are_short_and_escaped(tmp_path: Path) -> None:
    talk = one_talk()
    for n in range(12):
        talk.respond(talk.request(HEARTBEAT, 1, n, GroupId=LONG), ErrorCode=16)
    capture = written(tmp_path / "long.pcap", talk.tcp.segments)
    whole, text = summary(capture, "-n", 5)
    assert len(text) < 6_000
    assert "\x1b" not in text
    (row,) = [row for row in whole["reports"]["summary"] if row["finding"] == "errors"]
    assert len(row["text"]) == 1_000
    assert row["text"].endswith("…")
    assert max(len(party["name"]) for party in row["parties"]) <= 300
    assert LONG in summary(capture)[1].encode().decode("unicode_escape"), "without -n nothing is cut"
