"""No byte of a SASL token is in what a run leaves to the next one, wherever captures end."""

from __future__ import annotations

import itertools
import pickle
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from kafkatap.parquet.partitions import to_microseconds
from kafkatap.spark.stream_state import StateFolder
from kafkatap.splits.run_options import RunOptions
from tests.spark.jobs import run_job
from tests.splits.join_support import compared, differences, local, published
from tests.support.captures import PcapRecords, pcap_bytes
from tests.support.tcp import START_NS, Segment, encode, frame, retransmit, shake, split_small
from tests.wire.kafkatalk import API_VERSIONS, METADATA, SASL_AUTHENTICATE, SASL_HANDSHAKE, KafkaTalk

SECRETS = (b"n,,n=Zq7&Wv,r=Jx9_Kf3", b"r=9fVpQ0xK3uJw,s=Gh5!Ry8?Lm2", b"c=biws,p=Bn4+Tz6~Hc1", b"v=Dk0^Ws9|Px7")
PIECE = 4


def talk_of(version: int, plain: tuple[int, int] = (12, 3)) -> list[Segment]:
    """A connection that logs in, and later once more. `version`: of SaslAuthenticate; -1: tokens are bare. `plain`:
    so many exchanges come after each login. Each version has a client and a broker of its own."""
    talk = KafkaTalk((f"10.0.1.{version + 2}", 40_000), (f"10.0.2.{version + 2}", 9_092), "sasl-client")
    talk.tcp.open()
    talk.respond(talk.request(API_VERSIONS, 3, 1, ClientSoftwareName="librdkafka", ClientSoftwareVersion="2.6.0"))
    for again in range(2):
        asked = talk.request(SASL_HANDSHAKE, 0 if version < 0 else 1, 2, Mechanism="SCRAM-SHA-256")
        talk.respond(asked, Mechanisms=["SCRAM-SHA-256"])
        for n, (token, answer) in enumerate((SECRETS[:2], SECRETS[2:])):
            if version >= 0:
                talk.respond(talk.request(SASL_AUTHENTICATE, version, 3 + n, AuthBytes=token), AuthBytes=answer)
            else:
                talk.tcp.client(frame(token))
                talk.tcp.server(frame(answer))
        for n in range(plain[again]):
            talk.respond(talk.request(METADATA, 4, 10 + n, Topics=[{"Name": "orders"}]))
    return talk.segments


def together(talks: Sequence[Sequence[Segment]], cuts: Sequence[Sequence[int]]) -> tuple[list[Segment], list[int]]:
    """Connections in one capture, and its cuts: each part has that part of each connection. `cuts`: of each one."""
    segments, ends = list[Segment](), list[int]()
    bounds = [[0, *some, len(talk)] for talk, some in zip(talks, cuts, strict=True)]
    for parts in zip(*map(itertools.pairwise, bounds), strict=True):
        for talk, (first, end) in zip(talks, parts, strict=True):
            segments += talk[first:end]
        ends.append(len(segments))
    return [replace(s, time_ns=START_NS + n * 100_000) for n, s in enumerate(segments)], ends[:-1]


def assert_clean(out: Path) -> int:
    """No state has a piece of a token. Return the number of open flows of the last one."""
    pieces = {secret[at : at + PIECE] for secret in SECRETS for at in range(len(secret) - PIECE + 1)}
    flows = {}
    for series in (out / "state").iterdir():
        states = StateFolder(str(out), True, f"state/{series.name}", 26)
        for number in states.sizes():
            state = states.read(number)
            assert state is not None
            whole = pickle.dumps(state)
            assert sorted(piece for piece in pieces if piece in whole) == []
            flows = state.checkpoint.flows
    return len(flows)


def read_in_parts(folder: Path, segments: Sequence[Segment], cuts: Sequence[int]) -> tuple[list[str], list[int]]:
    """What differs from one run, if each part is read by a run of its own, and the open flows after each."""
    whole, out = folder / "whole.pcap", folder / "out"
    whole.write_bytes(pcap_bytes(encode(segments), nanoseconds=True))
    records, paths, flows = PcapRecords(whole), [], []
    for n, (first, end) in enumerate(zip([0, *cuts], [*cuts, len(records)], strict=True)):
        paths.append(folder / f"{n}.pcap")
        paths[-1].write_bytes(records.slice(first, end))
        run_job(paths[-1], out, options=RunOptions(records=True))
        flows.append(assert_clean(out))
    return differences(
        compared(published(out)),
        compared({name: to_microseconds(table) for name, table in local(paths, records=True).items()}),
    ), flows


def make(folder: Path) -> Path:
    folder.mkdir()
    return folder


def test_each_message_ends_one_of_many_captures(tmp_path: Path) -> None:
    """Of connections with bare tokens and with each version of SaslAuthenticate."""
    talks = [talk_of(version, (2, 1)) for version in (-1, 0, 1, 2)]
    (length,) = {len(talk) for talk in talks}
    cuts = list(range(3, length - 1, 2))
    found, flows = read_in_parts(tmp_path, *together(talks, [cuts] * len(talks)))
    assert found == []
    assert flows == [len(talks)] * (len(cuts) + 1)


@pytest.mark.long
@pytest.mark.parametrize("version", [-1, 0, 1, 2])
def test_each_message_ends_a_capture(tmp_path: Path, version: int) -> None:
    segments = talk_of(version)
    for cut in range(3, len(segments) - 1, 2):
        found, flows = read_in_parts(make(tmp_path / str(cut)), segments, [cut])
        assert found == [], cut
        assert flows == [1, 1]


#: Some of many cuts, or with `--long` all.
Sweep = Callable[[Sequence[int], int], list[int]]


def within_tokens(segments: Sequence[Segment]) -> list[int]:
    """Cuts behind each segment that has a piece of a token."""
    pieces = {secret[at : at + 3] for secret in SECRETS for at in range(len(secret) - 2)}
    return [n + 1 for n, each in enumerate(segments[:-12]) if any(piece in each.payload for piece in pieces)]


def zip_cycled(lists: Sequence[Sequence[int]]) -> Iterable[tuple[int, ...]]:
    """All of each list: shorter ones begin again."""
    longest = max(map(len, lists))
    return zip(*(itertools.islice(itertools.cycle(some), longest) for some in lists), strict=True)


def test_captures_end_within_tokens(tmp_path: Path, sweep: Sweep) -> None:
    talks = [split_small(talk_of(version), size) for version, size in ((-1, 3), (1, 11), (2, 3))]
    for number, ends in enumerate(zip_cycled([sweep(within_tokens(talk), 4) for talk in talks])):
        cuts = [[end, end + 9] for end in ends]
        found, flows = read_in_parts(make(tmp_path / str(number)), *together(talks, cuts))
        assert found == [], ends
        assert flows == [len(talks)] * 3


def test_parts_of_tokens_are_lost_and_out_of_order(tmp_path: Path, sweep: Sweep) -> None:
    """A connection that cannot be left open without a token ends with its run."""
    talks = []
    for version, size in ((-1, 11), (1, 3), (2, 11)):
        segments = split_small(talk_of(version), size)
        for number in [n for n, each in enumerate(segments) if each.payload][:200:7]:
            segments = retransmit(segments, number, 2)
        talks.append(segments)
    same = 0
    for number, ends in enumerate(zip_cycled([sweep(within_tokens(talk), 4) for talk in talks])):
        shaken = [shake(talk, random.Random(end)) for talk, end in zip(talks, ends, strict=True)]
        cuts = [[end, end + 9] for end in ends]
        found, _ = read_in_parts(make(tmp_path / str(number)), *together(shaken, cuts))
        same += not found
    assert same
