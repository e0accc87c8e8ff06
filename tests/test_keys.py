"""Keys of connections and exchanges: made as docs/tables.md says, unique, and the same in every run."""

from __future__ import annotations

import ipaddress
import json
import os
import struct
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from kafkatap import analyze
from kafkatap.library import Analysis
from tests.cli.running import kafkatap
from tests.support.captures import PcapRecords, pcap_bytes
from tests.support.tcp import START_NS, Segment, encode, lose, merge, retransmit
from tests.wire.kafkatalk import METADATA, SASL_HANDSHAKE, KafkaTalk, small_talk

TABLES = ("exchanges", "results", "connections")
SAMPLE = "apache-4.3.pcap.zst"


# ---------------------------------------------------------------- how they are made


def reference_hash(*words: int) -> int:
    """63 bits of 64-bit words, in plain arithmetic."""

    def fold(number: int) -> int:
        product = number * 0xD6E8FEB86659FD93 % 2**64
        return product ^ (product >> 32)

    found = 0
    for word in words:
        found = fold(found ^ word % 2**64)
    return fold(fold(found)) % 2**63


def reference_ends(one: tuple[str, int], other: tuple[str, int]) -> int:
    ends = sorted((_address(ip), port) for ip, port in (one, other))
    words = [part for address, _ in ends for part in divmod(address, 2**64)]
    return reference_hash(*words, ends[0][1] << 16 | ends[1][1])


def _address(ip: str) -> int:
    address = ipaddress.ip_address(ip)
    return int(address) if address.version == 6 else 0xFFFF << 32 | int(address)


def write(path: Path, segments: Sequence[Segment]) -> Path:
    path.write_bytes(pcap_bytes(encode(segments), nanoseconds=True))
    return path


@pytest.mark.parametrize("client", [("10.0.0.1", 40_000), ("10.0.0.9", 1_024), ("2001:db8::1", 40_000), ("::1", 5)])
def test_keys_are_hashes_of_what_the_docs_name(tmp_path: Path, client: tuple[str, int]) -> None:
    broker = ("10.0.0.2", 9_092) if "." in client[0] else ("2001:db8::2", 9_092)
    talk = KafkaTalk(client=client, broker=broker, isn=(2**32 - 60, 2**32 - 90))
    talk.tcp.open()
    for n in range(8):
        talk.exchange(METADATA, 4, n)
    found = analyze(write(tmp_path / "talk.pcap", talk.segments))
    ends = reference_ends(client, broker)
    connection = reference_hash(ends, START_NS, 2**32 - 60)
    assert found.connections["connection"].to_pylist() == [connection]
    assert set(found.exchanges["connection"].to_pylist()) == {connection}
    requests = [s for s in talk.segments if s.payload and s.source == client]
    wanted = [reference_hash(ends, s.seq << 1, n) for n, s in enumerate(requests)]
    assert any(s.seq < 1_000 for s in requests), "sequence numbers do not wrap"
    assert found.exchanges["exchange"].to_pylist() == wanted
    # Without its requests, an exchange has the key of its response.
    alone = [s for s in talk.segments if s not in requests[1:]]
    found = analyze(write(tmp_path / "alone.pcap", alone), ports=[9_092])
    orphans = found.exchanges.filter(pc.equal(found.exchanges["outcome"], "orphan_response"))
    responses = [s for s in talk.segments if s.payload and s.source == broker][1:]
    wanted = [reference_hash(ends, s.seq << 1 | 1, n) for n, s in enumerate(responses, 1)]
    assert orphans["exchange"].to_pylist() == wanted
    assert len(responses) == 7


def test_keys_stay_the_same_in_later_versions(samples: Path) -> None:
    """Tables of earlier runs join with those of later ones. If this test must change, say so in CHANGELOG.md."""
    found = analyze(samples / SAMPLE)
    assert set(CONNECTIONS) <= set(found.connections["connection"].to_pylist())
    assert set(EXCHANGES) <= set(found.exchanges["exchange"].to_pylist())


CONNECTIONS = [6_314_419_355_650_338_240, 4_276_815_080_064_782_546]
EXCHANGES = [5_860_309_205_646_517_482, 4_993_252_514_441_207_311]


def test_a_port_that_is_used_again_at_once(tmp_path: Path) -> None:
    """Two connections of the same ends that begin in the same nanosecond."""
    first, second = small_talk(isn=(1_000, 5_000), step_ns=0), small_talk(isn=(90_000, 80_000), step_ns=0)
    found = analyze(write(tmp_path / "again.pcap", [*first.segments, *second.segments]))
    assert len(found.connections) == 2
    assert pc.count_distinct(found.connections["connection_first"]).as_py() == 1
    assert pc.count_distinct(found.connections["connection"]).as_py() == 2
    assert pc.count_distinct(found.exchanges["exchange"]).as_py() == len(found.exchanges) == 10


def test_frames_that_begin_at_the_same_time(tmp_path: Path) -> None:
    """Many requests in one packet, and then their responses in one packet."""
    talk = KafkaTalk(mss=60_000)
    talk.tcp.open()
    asked = [talk.request(METADATA, 4, n) for n in range(20)]
    for each in asked:
        talk.respond(each)
    sides: dict[Any, list[Segment]] = {}
    for segment in talk.segments[3:]:
        if segment.payload:
            sides.setdefault(segment.source, []).append(segment)
    packed = [replace(s[0], payload=b"".join(x.payload for x in s), time_ns=s[-1].time_ns) for s in sides.values()]
    found = analyze(write(tmp_path / "packed.pcap", [*talk.segments[:3], *packed]))
    assert pc.count_distinct(found.exchanges["request_first"]).as_py() == 1
    assert pc.count_distinct(found.exchanges["exchange"]).as_py() == len(found.exchanges) == 20


def test_keys_have_the_upper_half_of_time_stamps(tmp_path: Path) -> None:
    """They distinguish connections of the same ends and sequence numbers. Packets that wait for others keep theirs."""
    talk = small_talk(9)
    requests = [s for s in talk.segments if s.payload and s.source == talk.client]
    ends = reference_ends(talk.client, talk.broker)
    for stamp in (0, 1, 0x8000, 0xFFFF):
        options = b"\1\1\x08\x0a" + struct.pack("!II", stamp << 16 | 0xABCD, 0)
        packets = encode(talk.segments, options=options)
        wanted = [reference_hash(ends, (stamp << 32 | s.seq) << 1, n) for n, s in enumerate(requests)]
        moved = [*packets[:4], *packets[8:11], *packets[4:8], *packets[11:]]
        for order in (packets, [replace(p, time_ns=q.time_ns) for p, q in zip(moved, packets, strict=True)]):
            path = tmp_path / "stamped.pcap"
            path.write_bytes(pcap_bytes(order, nanoseconds=True))
            assert analyze(path).exchanges["exchange"].to_pylist() == wanted


def test_bytes_of_tokens_are_not_in_keys(tmp_path: Path) -> None:
    """A bare SASL token is a request without a correlation_id. Its bytes are a secret."""
    keys = []
    for secret in (b"\0user\0secret-of-one", b"\0user\0other-secrets"):
        talk = KafkaTalk()
        talk.tcp.open()
        talk.exchange(SASL_HANDSHAKE, 0, 1, mechanism="PLAIN")
        talk.tcp.client(struct.pack("!i", len(secret)) + secret)
        talk.tcp.server(struct.pack("!i", 0))
        path = write(tmp_path / "token.pcap", talk.segments)
        messages = [json.loads(line) for line in kafkatap("show", path, "--json", "--brief").out.splitlines()]
        keys.append([m["exchange"] for m in messages])
        assert "token" in {m["outcome"] for m in messages}
    assert keys[0] == keys[1]


# ---------------------------------------------------------------- the same in every run


def in_order(table: pa.Table) -> pa.Table:
    """By key; results of one exchange as they come."""
    return table.take(pa.array(np.argsort(table[0].to_numpy(), kind="stable")))


def test_keys_do_not_depend_on_blocks(samples: Path) -> None:
    whole = analyze(samples / SAMPLE)
    for size in (70_000, 1 << 20):
        found = Analysis([samples / SAMPLE], block_size=size)
        for name in TABLES:
            assert in_order(getattr(found, name)).equals(in_order(getattr(whole, name))), (name, size)


def test_keys_do_not_depend_on_compiled_code(samples: Path, tmp_path: Path) -> None:
    records = PcapRecords(samples / "live-4.3.pcap.zst")
    path = tmp_path / "x.pcap"
    path.write_bytes(records.slice(0, len(records) // 4))  # plain Python takes seconds for it
    command = [sys.executable, "-m", "kafkatap", "report", str(path), "--parquet", str(tmp_path)]
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    subprocess.run(command, env=environment, check=True, capture_output=True)
    found = analyze(path)
    for name in TABLES:
        assert pq.read_table(tmp_path / f"{name}.parquet").equals(getattr(found, name)), name


def test_keys_do_not_depend_on_the_order_of_captures(tmp_path: Path) -> None:
    """A connection that was captured at both ends, and one that goes on in the next file."""
    talk = small_talk(9)
    there = [replace(s, time_ns=s.time_ns + 20_000) for s in lose(talk.segments, 0)]
    half = len(talk.segments) // 2
    paths = [
        write(tmp_path / "b.pcap", talk.segments[:half]),
        write(tmp_path / "a.pcap", talk.segments[half:]),
        write(tmp_path / "there.pcap", there),
    ]
    tables = [analyze(order) for order in (paths, paths[::-1])]
    for name in ("connections", "exchanges"):
        keys = [sorted(getattr(t, name)[name[:-1]].to_pylist()) for t in tables]
        assert keys[0] == keys[1]
    ends = reference_ends(talk.client, talk.broker)
    assert tables[0].connections["connection"].to_pylist() == [reference_hash(ends, START_NS, 1_000)]


def test_all_commands_have_the_same_keys(samples: Path, tmp_path: Path) -> None:
    path = samples / SAMPLE
    assert kafkatap("report", path, "--parquet", tmp_path).code == 0
    exchanges = pq.read_table(tmp_path / "exchanges.parquet")
    keys = set(exchanges["exchange"].to_pylist())
    assert kafkatap("records", path, "-o", tmp_path / "records.parquet").code in (0, 1)
    records = pq.read_table(next(tmp_path.glob("records*.parquet")))
    assert set(records["exchange"].to_pylist()) < keys
    lines = kafkatap("records", path, "--json", "--values", "none").out.splitlines()
    assert [int(json.loads(line)["exchange"]) for line in lines] == records["exchange"].to_pylist()
    pairs = set(zip(exchanges["exchange"].to_pylist(), exchanges["connection"].to_pylist(), strict=True))
    messages = [json.loads(line) for line in kafkatap("show", path, "--json", "--brief").out.splitlines()]
    shown = {(int(m["exchange"]), int(m["connection"])) for m in messages if m["outcome"] != "token"}
    assert shown == pairs
    key, connection = exchanges["exchange"][7].as_py(), exchanges["connection"][7].as_py()
    selected = analyze(path, filter=f"exchange == {key}").exchanges
    assert selected.equals(exchanges.slice(7, 1))
    of_connection = analyze(path, filter=f"connection == {connection}").exchanges
    assert of_connection.equals(exchanges.filter(pc.equal(exchanges["connection"], connection)))


# ---------------------------------------------------------------- different captures


def test_exchanges_have_the_same_keys_at_every_capture_point(tmp_path: Path) -> None:
    """The times differ, one capture starts later, and packets are lost on the way and sent again."""
    talk = small_talk(30)
    there = [replace(s, time_ns=s.time_ns + 3_000_123) for s in talk.segments]
    for number in [n for n, s in enumerate(talk.segments) if s.payload][3:40:9]:
        there = retransmit(there, number, 1)
    keys = [
        analyze(write(tmp_path / f"{n}.pcap", s), ports=[9_092]).exchanges["exchange"].to_pylist()
        for n, s in enumerate((talk.segments, there, there[12:]))
    ]
    assert len(set(keys[0])) == 30
    assert set(keys[1]) == set(keys[0])
    assert set(keys[2]) < set(keys[0])
    assert len(keys[2]) > 20


def test_captures_of_one_broker_join(corpus: Path) -> None:
    """Two sockets on one host, which stamp packets at other times: all exchanges of the shorter one join. One capture
    has 128 bytes of each packet: of its requests, all that it has whole headers of."""
    whole, anywhere, short = (
        analyze(corpus / "captures" / f"apache-4.3-broker1{name}.pcap.zst").exchanges for name in ("", "-any", "-s128")
    )
    keys = set(whole["exchange"].to_pylist())
    assert len(anywhere) > 4_000
    assert set(anywhere["exchange"].to_pylist()) < keys
    with_request = short.filter(pc.is_in(short["outcome"], pa.array(["answered", "unanswered"])))
    assert len(with_request) > 16_000
    assert set(with_request["exchange"].to_pylist()) < keys


def test_tables_of_two_runs_join_without_collisions(samples: Path) -> None:
    runs = [analyze(samples / name) for name in (SAMPLE, "apache-2.8.pcap.zst")]
    exchanges, results, connections = (pa.concat_tables([getattr(r, name) for r in runs]) for name in TABLES)
    assert pc.count_distinct(exchanges["exchange"]).as_py() == len(exchanges)
    assert pc.count_distinct(connections["connection"]).as_py() == len(connections)
    joined = results.join(exchanges.select(["exchange", "connection"]), "exchange", join_type="inner")
    assert len(joined) == len(results)
    found = joined.join(connections.select(["connection", "client_port"]), "connection", join_type="inner")
    assert len(found) == len(results)


def test_ports_used_in_turn(tmp_path: Path) -> None:
    """Thousands of connections of the same ends, one after the other and beside each other."""
    talks = [
        small_talk(2, client=("10.0.0.1", 40_000 + n % 7), isn=(n * 64_000 % 2**32, n), time_ns=START_NS + n * 10**6)
        for n in range(3_000)
    ]
    found = analyze(write(tmp_path / "many.pcap", merge(*(t.segments for t in talks))))
    assert pc.count_distinct(found.connections["connection"]).as_py() == len(found.connections) > 2_000
    assert pc.count_distinct(found.exchanges["exchange"]).as_py() == len(found.exchanges) > 4_000


def test_keys_are_unique_in_long_captures(corpus: Path) -> None:
    """In each, and in all together: equal keys of two captures are those of the same packets."""
    ends: dict[int, tuple[Any, ...]] = {}
    requests: dict[int, tuple[Any, ...]] = {}
    for path in sorted((corpus / "captures").glob("*.pcap*")):
        found = analyze(path)
        connections, exchanges = found.connections, found.exchanges
        for table, key in ((connections, "connection"), (exchanges, "exchange")):
            assert pc.count_distinct(table[key]).as_py() == len(table), (path, key)
        first = connections["connection_first"].cast("int64").to_pylist()
        both = zip(*(connections[n].to_pylist() for n in ("client_ip", "client_port", "broker_ip")), strict=True)
        for key, at, row in zip(connections["connection"].to_pylist(), first, both, strict=True):
            assert 0 <= key < 2**63
            assert ends.setdefault(key, (at, *sorted(map(str, row)))) == (at, *sorted(map(str, row)))
        columns = [exchanges[n].to_pylist() for n in ("client_port", "broker_port", "correlation_id", "api_key")]
        for number, *row in zip(exchanges["exchange"].to_pylist(), *columns, strict=True):
            assert 0 <= number < 2**63
            assert requests.setdefault(number, tuple(row)) == tuple(row)
    assert len(requests) > 150_000
