"""What commands take of memory for the messages that cost the most for their bytes, as the kernel counts it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.running import kafkatap
from tests.support.captures import pcap_bytes, write_capture
from tests.support.peak_memory import cost
from tests.support.sweeps import spread
from tests.support.tcp import encode
from tests.wire.kafkatalk import API_VERSIONS, METADATA, KafkaTalk
from tests.wire.worst_messages import COMMANDS, WorstMessage, arguments_of, named_worst, worst_arrays, write_worst

MB = 1_000_000
#: A capture of "a few kB".
FEW = 32_000


def check(command: str, worst: WorstMessage, size: int, folder: Path) -> None:
    capture = write_worst(folder / "worst.pcap.zst", worst, size)
    assert capture.stat().st_size < FEW
    done = cost(*arguments_of(command, capture, folder / "copy.pcapng"))
    assert done.code == 0 or (command == "records" and "no records" in done.errors), (worst.name, done)
    assert done.mib < COMMANDS[command], (command, worst.name, size)


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("report", "OffsetCommit v7 response Topics.Partitions"),
        ("show --tree", "DescribeQuorum v1 response Topics.Partitions"),
        ("extract --anonymize", "ConsumerGroupHeartbeat v1 request TopicPartitions.Partitions"),
        ("extract --anonymize", "OffsetCommit v7 response Topics.Partitions"),
    ],
)
def test_known_messages_take_little_memory(command: str, name: str, tmp_path: Path) -> None:
    check(command, named_worst(name), 4 * MB, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("command", COMMANDS)
def test_every_array_takes_little_memory(command: str, tmp_path: Path) -> None:
    for worst in spread(worst_arrays(), 60):
        check(command, worst, 4 * MB, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("command", COMMANDS)
def test_the_largest_messages_take_little_memory(command: str, tmp_path: Path) -> None:
    for worst in spread(worst_arrays(), 8):
        check(command, worst, 100 * MB, tmp_path)


def test_a_long_text_is_cut(tmp_path: Path) -> None:
    """Of 10 million control characters each would be four on the screen."""
    talk = KafkaTalk(mss=60_000, acks=False)
    talk.tcp.open()
    talk.exchange(API_VERSIONS, 0, 0)
    talk.respond(talk.request(METADATA, 9, 1, Topics=[{"Name": "\1" * 10 * MB}]))
    capture = write_capture(tmp_path / "text.pcap.zst", pcap_bytes(encode(talk.segments)))
    assert cost("show", "--tree", capture).mib < 250
    cut = '\\x01"... and 983,040 more characters (the first 1,048,576 of 10,000,000 bytes)'
    assert cut in kafkatap("show", "--tree", capture).out
