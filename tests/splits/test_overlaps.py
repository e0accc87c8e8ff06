"""Captures of several points that overlap in time, in splits and packs: all columns are those of the local engine."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.splits.join_support import Joined, assert_same, compared, join, local, packets_at_random
from tests.splits.join_talks import pipelined
from tests.splits.test_packs import rotated
from tests.support.captures import Packet, pcap_bytes, read_bytes, read_capture
from tests.support.split_plans import planned_packs, planned_splits
from tests.support.tcp import Segment, TcpConversation, encode, merge

_WHOLE = 262_144


def _elsewhere(packets: Sequence[Packet], seed: int = 3) -> list[Packet]:
    """The same packets at another point, whose clock steps back now and then."""
    chance = random.Random(seed)
    return [replace(p, time_ns=p.time_ns + 1_000 * chance.randrange(-60, 60)) for p in packets]


def _check(paths: Sequence[Path], split_size: int, records: bool = True) -> Joined:
    files = [str(path) for path in paths]
    joined = join(planned_splits(files, split_size), records=records)
    assert_same(joined, compared(local(files, records=records)))
    return joined


@pytest.mark.parametrize("snap_length", [_WHOLE, 128])
@pytest.mark.parametrize("name", ["apache-2.8", "live-4.3"])
def test_two_points(samples: Path, tmp_path: Path, name: str, snap_length: int) -> None:
    """Time stamps step back at both, also where splits begin. A capture with a short snap length comes behind."""
    packets = read_capture(read_bytes(samples / f"{name}.pcap.zst")).packets
    one, two = tmp_path / "one.pcap", tmp_path / "two.pcap"
    one.write_bytes(pcap_bytes(_elsewhere(packets, 1)))
    two.write_bytes(pcap_bytes(_elsewhere(packets, 2), snap_length=snap_length))
    for size in (0, 60_000):
        joined = _check([one, two], size)
        assert len(joined.plans[-1].both_ends) > 1
        assert sum(_duplicates(joined)) > len(packets) // 2


def _duplicates(joined: Joined) -> list[int]:
    """The duplicates of each connection."""
    rows = joined.tables["connections"].to_pylist()
    return [row["client_duplicates"] + row["broker_duplicates"] for row in rows]


def test_a_clock_that_steps_back_behind_a_split(tmp_path: Path) -> None:
    """Packets of other connections, in an earlier split, decide where those of a connection are sorted."""
    base = 1_795_233_600_000_000_000
    one = pipelined(60, client=("10.7.7.7", 42_000), time_ns=base, step_ns=10_000)
    ahead = TcpConversation(("10.8.8.8", 40_000), ("10.0.0.1", 22), time_ns=base + 5_000_000, step_ns=0)
    ahead.send(0, b"x" * 100)
    first = tmp_path / "one.pcap"
    packets = encode(one)
    first.write_bytes(pcap_bytes([*packets[:3], *encode(ahead.segments), *packets[3:]], nanoseconds=True))
    second = tmp_path / "two.pcap"
    second.write_bytes(pcap_bytes([replace(p, time_ns=p.time_ns + 300) for p in packets], nanoseconds=True))
    for size in (0, 4_000):
        joined = _check([first, second], size)
        firsts = sorted(joined.tables["exchanges"]["request_packet_first"].to_pylist())
        assert firsts[-1] > len(packets) + 1  # of the second capture


def _short(client: tuple[str, int], time_ns: int) -> list[Segment]:
    talk = TcpConversation(client, ("10.0.0.1", 9_092), time_ns=time_ns, step_ns=40_000)
    talk.open()
    talk.reset(1)
    return talk.segments


@pytest.mark.parametrize("delay", [pytest.param(20_000, marks=pytest.mark.long), 500_000, 100_000_000])
def test_connections_that_are_shorter_than_their_delay(tmp_path: Path, delay: int) -> None:
    """They are captured at both ends, even if one point saw their last packet before the other one saw the first."""
    base = 1_795_233_600_000_000_000
    talks = [_short(("10.7.7.7", 42_000 + n), base + 70_000_000 * n) for n in range(12)]
    segments = merge(*talks, pipelined(200, time_ns=base, step_ns=4_000_000))
    one, two = tmp_path / "one.pcap", tmp_path / "two.pcap"
    one.write_bytes(pcap_bytes(encode(segments)))
    two.write_bytes(pcap_bytes([replace(p, time_ns=p.time_ns + delay) for p in encode(segments)]))
    joined = _check([one, two], 3_000)
    assert set(_duplicates(joined)) == {4, len(segments) - 48}


def test_points_in_packs(samples: Path, tmp_path: Path) -> None:
    """Each point has a rotation of its own, and so a pack."""
    packets = read_capture(read_bytes(samples / "live-4.3.pcap.zst")).packets
    folder = tmp_path / "files"
    for seed, name in ((1, "client"), (2, "broker")):
        path = tmp_path / f"{name}.pcap"
        path.write_bytes(pcap_bytes(sorted(_elsewhere(packets, seed), key=lambda p: p.time_ns)))
        rotated(path, folder, packets_at_random(path, 5, seed), name=f"{name}-{{}}.pcap")
    files = sorted(str(path) for path in folder.iterdir())
    joined = join(planned_packs(files, 1 << 40), split_size=1 << 40, records=True)
    assert len(joined.surveys) == 2
    assert_same(joined, compared(local(files, records=True)))


@pytest.mark.parametrize("first", [0, 1])
def test_a_part_that_was_copied(samples: Path, tmp_path: Path, first: int) -> None:
    """The middle of a capture is in a file of its own, too. `first`: which of both comes first."""
    packets = read_capture(read_bytes(samples / "apache-2.8.pcap.zst")).packets
    third = len(packets) // 3
    paths = [tmp_path / "a.pcap", tmp_path / "b.pcap"]
    paths[first].write_bytes(pcap_bytes(packets))
    paths[1 - first].write_bytes(pcap_bytes(packets[third : 2 * third]))
    for size in (0, 60_000):
        _check(paths, size)


@pytest.mark.parametrize("name", ["apache-4.3-broker1-s128", "apache-4.3-broker1-any"])
def test_recordings_of_two_points(corpus: Path, tmp_path: Path, name: str) -> None:
    paths = []
    for each in ("apache-4.3-broker1", name):
        capture = read_bytes(corpus / "captures" / f"{each}.pcap.zst")
        paths.append(tmp_path / f"{each}.pcap")
        paths[-1].write_bytes(capture[:2_000_000])
    _check(paths, 700_000, records=False)
