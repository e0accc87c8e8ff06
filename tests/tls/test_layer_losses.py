"""The layer where packets are missing: a lost record costs itself, and the ledger adds up."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from kafkatap.engine.engine import Engine
from kafkatap.engine.read_options import ReadOptions
from kafkatap.engine.tls.key_log import KeyLog
from kafkatap.reports.connection_words import D_DECRYPTED, D_NO_HANDSHAKE
from tests.support.tcp import Segment, lose, split_small
from tests.support.tls_talk import OverTls
from tests.tls.layer_runs import check, decode, facts, long_talk
from tests.tls.test_layer import VERSIONS
from tests.wire.kafkatalk import small_talk


@pytest.fixture(scope="module")
def over(tmp_path_factory: pytest.TempPathFactory) -> OverTls:
    return OverTls(tmp_path_factory.mktemp("tls"))


def _data(segments: list[Segment], behind: int = 0) -> list[int]:
    return [n for n, each in enumerate(segments) if each.payload and n >= behind]


def _handshake(segments: list[Segment]) -> int:
    """The number of the first segment behind the handshake: the client's first one behind the server's second."""
    client = segments[0].source
    turns, last = 0, segments[0].source
    for number, each in enumerate(segments):
        if each.payload and each.source != last:
            turns, last = turns + 1, each.source
        if turns >= 4 and each.payload and each.source == client:
            return number
    raise AssertionError("no data")


@pytest.mark.parametrize("name", VERSIONS)
def test_one_lost_segment_costs_one_exchange(over: OverTls, name: str) -> None:
    talk = small_talk(12)
    segments = over.replayed(talk.segments, *VERSIONS[name])
    wanted = facts(talk.wanted)
    for number in _data(segments, _handshake(segments)):
        seen = decode(lose(segments, number), over.key_log)
        assert seen.connections[0]["tls_decryption"] == D_DECRYPTED
        found = facts(seen.exchanges)
        assert len([row for row in wanted if row not in found]) <= 2, number
        parts = seen.ledger["payload bytes"]
        assert sum(parts.values()) == 2 * parts["total"]


@pytest.mark.parametrize("name", VERSIONS)
def test_lost_parts_of_large_records(over: OverTls, name: str) -> None:
    """Records of 16 KiB in small segments: headers, middles and ends of records are lost."""
    talk = long_talk(10)
    segments = split_small(over.replayed(talk.segments, *VERSIONS[name]), 1_000)
    numbers = _data(segments, _handshake(segments))
    wanted = facts(talk.wanted)
    chance = random.Random(5)
    for _ in range(12):
        first = chance.randrange(len(numbers) - 3)
        lost = numbers[first : first + chance.choice((1, 1, 2, 3))]
        seen = decode(lose(segments, *lost), over.key_log)
        found = facts(seen.exchanges)
        # A CBC record's plain length is unknown, so the next frame has to be searched.
        assert len([row for row in wanted if row not in found]) <= (4 if "CBC" in name else 3), lost
        assert seen.connections[0]["tls_failed_records"] == 0
    check(lose(segments, *numbers[5:7], numbers[30]), over.key_log, splits=2)


@pytest.mark.parametrize("name", VERSIONS)
def test_random_loss(over: OverTls, name: str) -> None:
    """One packet in a hundred is lost, the handshake's too."""
    chance = random.Random(11)
    answered = total = 0
    for round_ in range(8):
        talk = small_talk(40, isn=(1_000 + round_, 9_000))
        segments = over.replayed(talk.segments, *VERSIONS[name])
        kept = [each for each in segments if not each.payload or chance.random() > 0.01]
        seen = check(kept, over.key_log, splits=1)
        total += len(talk.wanted)
        answered += seen.outcomes.count("answered")
    assert answered > 0.6 * total


@pytest.mark.parametrize("cut", [0.2, 0.5, 0.8])
def test_in_mid_connection(over: OverTls, cut: float) -> None:
    """TLS 1.3: the secrets of the key log are tried on the first record that is seen whole."""
    talk = small_talk(40)
    segments = over.replayed(talk.segments)
    first = _handshake(segments)
    first += int((len(segments) - first) * cut)
    seen = check(segments[first:], over.key_log, splits=2)
    later = [row for row in talk.wanted if row["request_first"] >= segments[first].time_ns + 200_000]
    assert len(seen.exchanges) >= len(later) - 2
    assert seen.connections[0]["tls_decryption"] == D_DECRYPTED
    assert seen.connections[0]["protocol"] == "kafka"


def test_in_mid_connection_of_tls_12(over: OverTls) -> None:
    """TLS 1.2 needs the randoms of the handshake."""
    segments = over.replayed(small_talk(20).segments, *VERSIONS["1.2 GCM"])
    seen = check(segments[_handshake(segments) + 4 :], over.key_log, splits=2)
    assert not seen.exchanges
    assert (seen.connections[0]["protocol"], seen.connections[0]["tls_decryption"]) == ("tls", D_NO_HANDSHAKE)


def test_snap_length(over: OverTls) -> None:
    """Packets are cut short: records cannot be decrypted, and nothing is made up."""
    talk = long_talk(10)
    segments = over.replayed(talk.segments)
    from tests.support.captures import ETHERNET, pcap_bytes
    from tests.support.tcp import encode
    from tests.wire.harness import decode_capture

    packets = [replace(each, data=each.data[:128], original_length=len(each.data)) for each in encode(segments)]
    data = pcap_bytes(packets, ETHERNET, nanoseconds=True)
    seen = decode_capture(data, engine=Engine(ReadOptions(key_log=KeyLog([str(over.key_log)])), all_results=True))
    assert seen.ledger["payload bytes"]["encrypted"] > 0
    assert not [row for row in seen.exchanges if row["outcome"] == "answered" and row["response_bytes"] > 10_000]
