"""Requests under way between the batches of a stream, and when it ends."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from kafkatap.spark.output.delta import read_table
from kafkatap.spark.stream import finish_stream
from kafkatap.spark.stream_state import StateFolder
from tests.spark.test_stream import Stream, _options
from tests.support.captures import pcap_bytes
from tests.support.tcp import Segment, encode
from tests.wire.kafkatalk import HEARTBEAT, JOIN_GROUP, METADATA, KafkaTalk, add_exchanges

S = 1_000_000_000


def capture(path: Path, segments: Sequence[Segment]) -> str:
    path.write_bytes(pcap_bytes(encode(segments), nanoseconds=True))
    return str(path)


def outcomes(folder: str) -> dict[int, str]:
    rows = read_table(folder, "exchanges").to_pylist()
    assert len({row["correlation_id"] for row in rows}) == len(rows)
    return {row["correlation_id"]: row["outcome"] for row in rows}


def test_an_open_request_waits_in_the_checkpoint(tmp_path: Path) -> None:
    """A request of the first batch is answered in the second. Another one waits until the stream ends: it is in flight,
    although its batch ended long before that. One that was silent for longer than --late is unanswered."""
    talk, other = KafkaTalk(), KafkaTalk(client=("10.0.0.1", 40_001))
    for one in (talk, other):
        one.tcp.open()
        one.exchange(METADATA, 4, 1 if one is talk else 11)
    asked = talk.request(HEARTBEAT, 1, 2)
    other.request(HEARTBEAT, 1, 12)
    cut = len(talk.segments)
    talk.tcp.wait(20 * S)
    talk.respond(asked)
    middle = len(talk.segments)
    talk.tcp.wait(15 * S)
    talk.exchange(HEARTBEAT, 1, 3)
    talk.request(HEARTBEAT, 1, 4)

    stream = Stream(_options(tmp_path))
    stream.read([capture(tmp_path / "0.pcap", [*talk.segments[:cut], *other.segments])])
    assert outcomes(stream.options.out) == {1: "answered", 11: "answered"}
    stream.read([capture(tmp_path / "1.pcap", talk.segments[cut:middle])])
    assert outcomes(stream.options.out) == {1: "answered", 11: "answered", 2: "answered"}
    stream.read([capture(tmp_path / "2.pcap", talk.segments[middle:])])
    result = finish_stream(None, stream.options)
    found = outcomes(stream.options.out)
    assert (found[3], found[4], found[12]) == ("answered", "in_flight", "unanswered")
    assert result.report is not None
    names = [column.name for column in result.report.heading.columns]
    assert dict(zip(names, result.report.heading.rows[0], strict=True))["in_flight"] == 1


@pytest.mark.parametrize("name", ["replication", "zones"])
def test_few_packets_of_a_waiting_connection_are_kept(samples: Path, tmp_path: Path, name: str) -> None:
    """The state of a connection with a waiting request comes from its last packets, and so do its waits."""
    stream = Stream(_options(tmp_path))
    stream.read([str(samples / "questions" / f"{name}.pcap.zst")])
    state = StateFolder(stream.options.checkpoint).last()
    assert state is not None
    kept = [len(flow.seam.packets) for flow in state.checkpoint.flows.values()]
    assert kept
    assert max(kept) <= 64


@pytest.mark.parametrize("api_key", [HEARTBEAT, JOIN_GROUP])
def test_few_packets_are_kept_of_a_member_that_waits(tmp_path: Path, api_key: int) -> None:
    """The name of its group is in the waiting request."""
    talk = KafkaTalk()
    talk.tcp.open()
    add_exchanges(talk, 100)
    talk.request(api_key, 1, 1_000, GroupId="billing")
    stream = Stream(_options(tmp_path))
    stream.read([capture(tmp_path / "0.pcap", talk.segments)])
    state = StateFolder(stream.options.checkpoint).last()
    assert state is not None
    assert [len(flow.seam.packets) for flow in state.checkpoint.flows.values()] == [16]
