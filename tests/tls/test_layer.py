"""The layer over crafted connections in real TLS: the rows of the plain ones, however packets and records are cut."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from kafkatap.reports.connection_words import D_DECRYPTED, D_NO_KEY, D_NO_KEY_LOG, D_WRONG_KEY
from tests.support.sweeps import seeds
from tests.support.tcp import Segment, merge, move, retransmit, split_small
from tests.support.tls_talk import OverTls, TLSv1_2, TLSv1_3
from tests.tls.layer_runs import check, decode, facts, long_talk
from tests.wire.kafkatalk import small_talk

VERSIONS = {
    "1.3": (TLSv1_3, None),
    "1.2 GCM": (TLSv1_2, "ECDHE-ECDSA-AES128-GCM-SHA256"),
    "1.2 ChaCha20": (TLSv1_2, "ECDHE-ECDSA-CHACHA20-POLY1305"),
    "1.2 CBC": (TLSv1_2, "ECDHE-ECDSA-AES128-SHA"),
}


@pytest.fixture(scope="module")
def over(tmp_path_factory: pytest.TempPathFactory) -> OverTls:
    return OverTls(tmp_path_factory.mktemp("tls"))


@pytest.mark.parametrize("name", VERSIONS)
def test_rows_are_those_of_the_plain_connection(over: OverTls, name: str) -> None:
    talk = long_talk()
    seen = check(over.replayed(talk.segments, *VERSIONS[name]), over.key_log)
    assert facts(seen.exchanges) == facts(talk.wanted)
    row = seen.connections[0]
    assert (row["protocol"], row["tls_decryption"]) == ("kafka", D_DECRYPTED)
    assert row["tls_version"] == int(VERSIONS[name][0])
    assert row["tls_server_name"] == row["tls_server_certificate"] == "broker.example"
    assert row["tls_lost_records"] == row["tls_failed_records"] == 0
    parts = seen.ledger["payload bytes"]
    assert parts["kafka_frames"] == sum(4 + x["request_bytes"] + 4 + x["response_bytes"] for x in talk.wanted)
    assert parts["tls_overhead"] > 0
    assert parts["encrypted"] == 0


@pytest.mark.parametrize("name", VERSIONS)
@pytest.mark.parametrize("size", [1, 2, 5, 17])
def test_small_segments(over: OverTls, name: str, size: int) -> None:
    talk = small_talk(4)
    segments = over.replayed(talk.segments, *VERSIONS[name])
    seen = decode(split_small(segments, size), over.key_log)
    assert facts(seen.exchanges) == facts(talk.wanted)
    if size == 17:
        check(split_small(segments, size), over.key_log, splits=2)


@pytest.mark.parametrize("seed", seeds(6, 2))
def test_any_cut_of_segments(over: OverTls, seed: int) -> None:
    """Segments that end anywhere, out of order and retransmitted."""
    chance = random.Random(seed)
    talk = long_talk()
    segments = []
    for each in over.replayed(talk.segments, *list(VERSIONS.values())[seed % 4]):
        data, at = each.payload, 0
        while True:
            size = chance.choice((1, 3, 60, 1448, 9_000))
            segments.append(replace(each, seq=(each.seq + at) % 2**32, payload=data[at : at + size]))
            at += size
            if at >= len(data):
                break
    for _ in range(5):
        number = chance.randrange(10, len(segments) - 10)
        if segments[number].payload and segments[number + 1].payload:
            segments = move(segments, number, number + 1)
        number = chance.randrange(10, len(segments) - 10)
        segments = retransmit(segments, number, 3)
    assert facts(check(segments, over.key_log, splits=2).exchanges) == facts(talk.wanted)


def test_several_connections_beside_plain_ones(over: OverTls) -> None:
    plain = small_talk(5, client=("10.0.0.9", 4_444))
    talks = [small_talk(6, client=("10.0.0.1", 40_000 + n), step_ns=70_000 + n) for n in range(4)]
    secret = [over.replayed(talk.segments, *list(VERSIONS.values())[n]) for n, talk in enumerate(talks)]
    seen = check(merge(plain.segments, *secret), over.key_log, splits=3)
    assert facts(seen.exchanges) == facts([row for talk in (plain, *talks) for row in talk.wanted])


def test_times_and_packets_are_those_of_records(over: OverTls) -> None:
    """A byte's time and packet are those of the last packet of its record."""
    talk = small_talk(3)
    segments = split_small(over.replayed(talk.segments), 40)
    times = {segment.time_ns for segment in segments}
    seen = decode(segments, over.key_log)
    for row in seen.exchanges:
        assert row["request_first"] == row["request_last"]
        assert row["request_first"] in times
        assert row["request_packet_first"] == row["request_packet_last"]
        assert row["response_first"] > row["request_last"]


def test_without_keys(over: OverTls, tmp_path: Path) -> None:
    segments = over.replayed(long_talk().segments)
    other = OverTls(tmp_path)
    other.replayed(small_talk(1).segments)
    rows = {}
    for name, keys, reason in (("none", None, D_NO_KEY_LOG), ("other", other.key_log, D_NO_KEY)):
        seen = rows[name] = check(segments, keys, splits=2)
        assert not seen.exchanges
        assert (seen.connections[0]["protocol"], seen.connections[0]["tls_decryption"]) == ("tls", reason)
        parts = seen.ledger["payload bytes"]
        assert parts["encrypted"] == parts["total"] - parts["retransmitted"]
        assert seen.connections[0]["tls_handshake_ns"] > 0
    assert rows["none"].ledger == rows["other"].ledger


@pytest.mark.parametrize("name", VERSIONS)
def test_wrong_keys(over: OverTls, tmp_path: Path, name: str) -> None:
    """The key log has the client random, but another secret."""
    segments = over.replayed(long_talk(40).segments, *VERSIONS[name])
    lines = [line.split() for line in over.key_log.read_text().splitlines() if not line.startswith("#")]
    wrong = tmp_path / "wrong.log"
    wrong.write_text("".join(f"{label} {random_} {secret[::-1]}\n" for label, random_, secret in lines))
    seen = check(segments, wrong, splits=2)
    assert not seen.exchanges
    assert (seen.connections[0]["protocol"], seen.connections[0]["tls_decryption"]) == ("tls", D_WRONG_KEY)


PROXY_1 = b"PROXY TCP4 192.0.2.7 10.0.0.2 5678 9092\r\n"
PROXY_2 = bytes.fromhex("0d0a0d0a000d0a515549540a2111000cc00002070a000002162e2384")


@pytest.mark.parametrize("header", [PROXY_1, PROXY_2], ids=["1", "2"])
@pytest.mark.parametrize("size", [1, 7, 9_000])
@pytest.mark.parametrize("is_alone", [False, True])
def test_proxy_header_before_tls(over: OverTls, header: bytes, size: int, is_alone: bool) -> None:
    talk = small_talk(4)
    segments = _with_header(over.replayed(talk.segments), header, is_alone)
    seen = check(split_small(segments, size), over.key_log, splits=2)
    assert [row["client_ip"] for row in seen.exchanges] == ["192.0.2.7"] * len(talk.wanted)
    assert seen.ledger["payload bytes"]["proxy_headers"] == len(header)
    without = decode(segments, None)
    assert without.ledger["payload bytes"]["proxy_headers"] == len(header)
    assert without.connections[0]["protocol"] == "tls"


def _with_header(segments: list[Segment], header: bytes, is_alone: bool) -> list[Segment]:
    """The client sends a header first, in a segment of its own or with its first bytes."""
    made: list[Segment] = []
    client = segments[0].source
    has_begun = False
    for each in segments:
        if each.payload and each.source == client and not has_begun:
            has_begun = True
            if is_alone:
                made.append(replace(each, payload=header))
                made.append(replace(each, seq=(each.seq + len(header)) % 2**32))
            else:
                made.append(replace(each, payload=header + each.payload))
        elif has_begun and each.source == client:
            made.append(replace(each, seq=(each.seq + len(header)) % 2**32))
        elif has_begun:
            made.append(replace(each, ack=(each.ack + len(header)) % 2**32))
        else:
            made.append(each)
    return made


def test_a_port_that_is_used_again(over: OverTls) -> None:
    """The same 4-tuple again, first in the clear, then over TLS, then over TLS with other keys."""
    plain = small_talk(3)
    second, third = (
        small_talk(3 + n, isn=(7_000_000 * n, 90_000_000 * n), time_ns=plain.tcp.time_ns + n * 10_000_000_000)
        for n in (1, 2)
    )
    segments = [*plain.segments, *over.replayed(second.segments), *over.replayed(third.segments)]
    seen = check(segments, over.key_log, splits=3)
    assert facts(seen.exchanges) == facts([*plain.wanted, *second.wanted, *third.wanted])


def test_client_of_a_connection_without_a_syn(over: OverTls) -> None:
    """The ClientHello shows the client, with and without keys."""
    segments = over.replayed(small_talk(3, client=("10.0.0.9", 4_444)).segments)
    for keys in (None, over.key_log):
        seen = check(segments[3:], keys, splits=2)
        row = seen.connections[0]
        assert (row["client_ip"], row["client_port"], row["orientation_known"]) == ("10.0.0.9", 4_444, 1)
        assert len(seen.exchanges) == (3 if keys else 0)


def test_ends_of_a_connection_without_a_handshake(over: OverTls) -> None:
    """The end with the high port is the client, whichever end sends first."""
    segments = over.replayed(small_talk(6, client=("10.0.0.9", 44_444)).segments)
    late = [each for each in segments if each.payload][-8:]
    for some in (late, late[1:]):
        (row,) = check(some, None, splits=2).connections
        assert (row["protocol"], row["orientation_known"]) == ("tls", 0)
        assert (row["client_ip"], row["client_port"], row["broker_port"]) == ("10.0.0.9", 44_444, 9_092)
        sent = sum(len(each.payload) for each in some if each.source[1] == 9_092)
        assert row["broker_bytes"] == sent


def test_as_plain_python(over: OverTls, tmp_path: Path) -> None:
    """The kernels as plain Python have the same rows."""
    talk = small_talk(3)
    segments = split_small(over.replayed(talk.segments), 900)
    from tests.support.captures import ETHERNET, pcap_bytes
    from tests.support.tcp import encode

    (tmp_path / "x.pcap").write_bytes(pcap_bytes(encode(segments), ETHERNET, nanoseconds=True))
    script = (
        "import sys; from kafkatap import analyze; "
        "print(sorted(analyze(sys.argv[1], keylog=[sys.argv[2]]).exchanges['correlation_id'].to_pylist()))"
    )
    shown = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "x.pcap"), str(over.key_log)],
        env=os.environ | {"NUMBA_DISABLE_JIT": "1"}, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert shown.strip() == "[0, 1, 2]"
