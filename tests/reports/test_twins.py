"""Connections that are seen under two addresses: before and behind NAT, and as both legs of a proxy."""

from __future__ import annotations

import json
import random
import socket
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyarrow import parquet

from kafkatap import analyze
from kafkatap.engine.engine import Engine
from kafkatap.parquet.table_writer import TableWriter
from kafkatap.reports.connection_columns import CONNECTION_ROW
from kafkatap.reports.section_parts.registry import SEEN_TWICE
from kafkatap.reports.twins import HOP_NS, find_twins, twin_keys
from kafkatap.run import Run
from tests.cli.running import kafkatap
from tests.support.captures import Packet, pcap_bytes, read_capture
from tests.support.copies import by_time, coalesce, cut_up, elsewhere, lossy, outer_leg
from tests.support.tcp import START_NS, encode, merge
from tests.ways.reports import compared, differences, splits_of
from tests.wire.kafkatalk import API_VERSIONS, FETCH, METADATA, MS, KafkaTalk

SAMPLE = Path(__file__).resolve().parents[2] / "samples" / "apache-4.3.pcap.zst"
#: The broker of the sample, and its client.
BROKER, CLIENT = ("10.77.0.1", 9092), "10.77.0.10"
VIRTUAL = ("10.96.0.10", 9092)
HOP = 18_000
#: What a TCP proxy takes.
DELAY = 300_000


@cache
def sample() -> tuple[Packet, ...]:
    return tuple(read_capture(SAMPLE).packets)


def nat(packets: Iterable[Packet], hop_ns: int = HOP) -> list[Packet]:
    return outer_leg(packets, BROKER, VIRTUAL, hop_ns)


def proxied(packets: Iterable[Packet], before: tuple[str, int] = (CLIENT, 19_092)) -> list[Packet]:
    """The outer leg of a proxy on the host of the sample's client, which cuts segments otherwise."""
    return cut_up(coalesce(outer_leg(packets, BROKER, before, DELAY, "10.77.3.3", shift=77_777_777)), 900)


def both(folder: Path, *parts: Iterable[Packet]) -> Path:
    path = folder / "both.pcap"
    path.write_bytes(pcap_bytes(by_time(packet for part in parts for packet in part), nanoseconds=True))
    return path


def report(*paths: Path | str, code: int = 0) -> list[dict[str, Any]]:
    """The first lines."""
    done = kafkatap("report", "--json", *paths)
    assert done.code == code, done.err
    found: list[dict[str, Any]] = json.loads(done.out)["reports"]["summary"]
    return found


def seen_twice(*paths: Path | str) -> list[dict[str, Any]]:
    return [line for line in report(*paths) if line["finding"] == "seen_twice"]


def brokers(line: dict[str, Any]) -> list[str]:
    return [party["name"] for party in line["parties"] if party["kind"] == "broker"]


def rows_of(*paths: Path) -> tuple[Any, Engine]:
    engine = Engine()
    for _ in Run([str(path) for path in paths], engine).batches():
        pass
    return engine.connections, engine


def whole(folder: Path) -> int:
    """How many connections to the broker the sample has."""
    rows, engine = rows_of(both(folder, sample()))
    return sum((engine.addresses[r["broker_ip"]], r["broker_port"]) == BROKER for r in rows)


def test_a_client_before_and_behind_nat(corpus: Path) -> None:
    """As iptables has it: 43 requests were sent, and each was captured twice."""
    path = corpus / "captures" / "reports" / "nat-twice.pcap.zst"
    line = next(row for row in report(path) if row["finding"] == "seen_twice")
    assert line["severity"] == "note"
    numbers = line["numbers"]
    assert {name: numbers[name] for name in ("connections", "requests", "behind")} == {
        "connections": 2, "requests": 43, "behind": "NAT"
    }  # fmt: skip
    assert 5_000 < numbers["hop_ns"] < 100_000
    assert "2 connections to 10.96.0.10:9092 are those to 10.88.0.1:9097 once more" in line["text"]
    assert "their 43 requests count once, where they come to the broker" in line["text"]
    assert line["command"].startswith("kafkatap report --broker 10.88.0.1:9097 ")
    done = kafkatap("report", "--json", "--broker", "10.88.0.1:9097", path)
    assert [row["finding"] for row in json.loads(done.out)["reports"]["summary"]] == ["none"]


def _without_packets(tables: dict[str, Any]) -> dict[str, Any]:
    """Tables without numbers of packets, and without what is of captures."""
    kept = {name: rows for name, rows in tables.items() if name != "ledger"}
    kept["summary"] = [row for row in kept["summary"] if row["finding"] not in ("seen_twice", "encrypted")]
    return {
        name: [{k: v for k, v in row.items() if "packet" not in k} if isinstance(row, dict) else row for row in rows]
        for name, rows in kept.items()
    }


@pytest.mark.parametrize("other", ["nat", "proxy", "both"])
@pytest.mark.parametrize("options", [(), ("--jobs", "2"), ("--client", "svc-*"), ("--sections", "latency,groups")])
def test_a_report_is_as_if_one_side_was_captured(other: str, options: tuple[str, ...], tmp_path: Path) -> None:
    of_client = [p for p in sample() if socket.inet_aton(CLIENT) in p.data[26:34]]
    legs = [*(nat(sample()) if other != "proxy" else ()), *(proxied(of_client) if other != "nat" else ())]
    alone, twice = tmp_path / "alone.pcap", both(tmp_path, sample(), legs)
    alone.write_bytes(pcap_bytes(sample(), nanoseconds=True))
    sections = () if "--sections" in options else ("--sections", "all")
    made = [json.loads(kafkatap("report", "--json", *sections, *options, path).out) for path in (alone, twice)]
    wanted, found = (_without_packets({"summary": [], **compared(whole)}) for whole in made)
    assert differences(found, wanted) == []
    for section in ("requests", "responses", "payload bytes"):
        parts = {row["part"]: row["count"] for row in made[1]["reports"]["ledger"] if row["section"] == section}
        assert parts["seen_twice"] > 0
        assert sum(parts.values()) == 2 * parts["total"]


def _held_back(packets: Sequence[Packet], begin: int, end: int) -> list[Packet]:
    """The outer leg of a proxy that passes no response from `begin` to `end`."""
    source = socket.inet_aton(CLIENT) + (19_092).to_bytes(2, "big")
    found = []
    for n, packet in enumerate(packets):
        is_held = packet.data[26:30] + packet.data[34:36] == source and begin <= packet.time_ns < end
        found.append(replace(packet, time_ns=end + n) if is_held else packet)
    return by_time(found)


@pytest.mark.parametrize("seconds", [0, 4])
def test_a_proxy_that_holds_requests_back(seconds: int, tmp_path: Path) -> None:
    """The broker answers at once, and the report is that of its leg."""
    of_client = [p for p in sample() if socket.inet_aton(CLIENT) in p.data[26:34]]
    begin = sample()[0].time_ns + 20_000 * MS
    legs = _held_back(proxied(of_client), begin, begin + seconds * 1_000 * MS)
    found = report(both(tmp_path, sample(), legs))
    (line,) = (row for row in found if row["finding"] == "seen_twice")
    assert line["severity"] == ("warning" if seconds else "note")
    assert ("it holds them back" in line["text"]) == bool(seconds) == (line["time_lost_ns"] > 0)
    assert not {"broker_hung", "connection_hung"} & {row["finding"] for row in found}


def test_the_library_and_compare_count_once(tmp_path: Path) -> None:
    alone, twice = tmp_path / "alone.pcap", both(tmp_path, sample(), nat(sample()))
    alone.write_bytes(pcap_bytes(sample(), nanoseconds=True))
    wanted, found = (analyze(path).report().table("latency").named_rows() for path in (alone, twice))
    assert found == wanted
    done = kafkatap("compare", "--json", alone, twice)
    assert done.code == 0, done.out
    assert analyze(twice).exchanges.num_rows > analyze(alone).exchanges.num_rows  # its rows are there


def test_a_pipe_is_read_once(tmp_path: Path) -> None:
    path = both(tmp_path, sample(), nat(sample()))
    done = kafkatap("report", "--json", "-", stdin=path.read_bytes())
    (line,) = (row for row in json.loads(done.out)["reports"]["summary"] if row["finding"] == "seen_twice")
    assert line["severity"] == "warning"
    assert "count twice" in line["text"]


def test_one_side_can_be_selected(tmp_path: Path) -> None:
    """Then it counts, whether it is nearer to the broker or not."""
    path = both(tmp_path, sample(), nat(sample()))
    counts = [
        json.loads(kafkatap("report", "--json", "--broker", f"{host}:{port}", path).out)["capture"]["requests"]
        for host, port in (BROKER, VIRTUAL)
    ]
    assert counts[0] == counts[1] > 500


def test_nat_of_a_broker(tmp_path: Path) -> None:
    """Of all connections: those with an answer, and those that TLS hides."""
    count = whole(tmp_path)
    (line,) = seen_twice(both(tmp_path, sample(), nat(sample())))
    assert (line["numbers"]["connections"], line["numbers"]["behind"]) == (count, "NAT")
    assert line["numbers"]["hop_ns"] == HOP
    assert brokers(line) == ["10.96.0.10:9092", "10.77.0.1:9092"]


def test_nat_of_the_clients_address(tmp_path: Path) -> None:
    """The broker has one address: the command leaves out the client's own one."""
    outside = outer_leg(sample(), BROKER, BROKER, HOP, "192.0.2.7")
    (line,) = seen_twice(both(tmp_path, sample(), outside))
    assert "of 192.0.2.7 to 10.77.0.1:9092" in line["text"]
    assert 'client_ip != "192.0.2.7"' in line["command"]


def test_nat_within_tls(tmp_path: Path) -> None:
    tls = ("10.77.0.1", 9094)
    outside = outer_leg(sample(), tls, VIRTUAL, HOP)
    (line,) = seen_twice(both(tmp_path, sample(), outside))
    assert line["numbers"]["connections"] > 1


def test_a_capture_that_begins_amid_connections(tmp_path: Path) -> None:
    packets = list(sample())[900:]
    found = seen_twice(both(tmp_path, packets, nat(packets)))
    assert [line["numbers"]["behind"] for line in found] == ["NAT"]


def test_captures_on_both_sides_of_nat(tmp_path: Path) -> None:
    """The clock of one of them is 30 ms behind, and both lost packets."""
    outside = lossy(elsewhere(nat(sample()), -30 * MS), random.Random(1), 0.01)
    inside = lossy(sample(), random.Random(2), 0.01)
    paths = [tmp_path / "inside.pcap", tmp_path / "outside.pcap"]
    for path, packets in zip(paths, (inside, outside), strict=True):
        path.write_bytes(pcap_bytes(packets, nanoseconds=True))
    done = kafkatap("report", "--json", *paths)
    (line,) = (x for x in json.loads(done.out)["reports"]["summary"] if x["finding"] == "seen_twice")
    assert brokers(line) == ["10.96.0.10:9092", "10.77.0.1:9092"]
    assert line["numbers"]["connections"] >= 0.8 * whole(tmp_path)


def test_both_legs_of_a_proxy(tmp_path: Path) -> None:
    """Those with few messages, or only with such as all brokers answer alike, may be others."""
    path = both(tmp_path, sample(), proxied(sample()))
    (line,) = seen_twice(path)
    assert (line["numbers"]["behind"], line["numbers"]["hop_ns"]) == ("proxy", pytest.approx(DELAY, rel=0.05))
    assert "both legs of a proxy" in line["text"]
    rows, engine = rows_of(path)
    keys = twin_keys(rows)
    by_key = {int(row["connection"]): row for row in rows}
    for outer, inner in keys.items():
        mine, other = by_key[outer], by_key[inner]
        assert (engine.addresses[mine["broker_ip"]], mine["broker_port"]) == (CLIENT, 19_092)
        assert (engine.addresses[other["broker_ip"]], other["broker_port"]) == BROKER
        assert mine["client_port"] == other["client_port"]


def test_a_proxy_elsewhere(tmp_path: Path) -> None:
    (line,) = seen_twice(both(tmp_path, sample(), proxied(sample(), before=("10.50.0.1", 9_092))))
    assert brokers(line) == ["10.50.0.1:9092", "10.77.0.1:9092"]


def test_nat_before_a_proxy(tmp_path: Path) -> None:
    """Three addresses: all lead to the connections of the broker."""
    legs = proxied(sample())
    outside = outer_leg(legs, (CLIENT, 19_092), VIRTUAL, HOP)
    rows, engine = rows_of(both(tmp_path, sample(), legs, outside))
    brokers = {int(r["connection"]): (engine.addresses[r["broker_ip"]], r["broker_port"]) for r in rows}
    found = {(brokers[outer], brokers[inner]) for outer, inner in twin_keys(rows).items()}
    assert {(VIRTUAL, BROKER), ((CLIENT, 19_092), BROKER)} <= found


# ---------------------------------------------------------------- no twins


def talk(
    port: int, start_ns: int, messages: int, api: int = FETCH, broker: tuple[str, int] = ("10.0.0.2", 9_092),
    wait_ns: int = 10 * MS, isn: tuple[int, int] = (1000, 5_000_000), client: str = "10.0.0.1",
) -> KafkaTalk:  # fmt: skip
    """A connection that has the same messages as all others."""
    made = KafkaTalk(client=(client, port), broker=broker, time_ns=START_NS + start_ns, isn=isn)
    made.tcp.open()
    for n in range(messages):
        asked = made.request(api, 4 if api == FETCH else 1 if api == METADATA else 0, n)
        made.tcp.wait(wait_ns)
        made.respond(asked)
        made.tcp.wait(50 * MS)
    made.tcp.close()
    return made


def found(folder: Path, talks: Sequence[KafkaTalk]) -> dict[int, int]:
    return twin_keys(rows_of(both(folder, encode(merge(*(one.segments for one in talks)))))[0])


def test_clients_that_are_alike_are_none(tmp_path: Path) -> None:
    """They start within milliseconds, and send the same to one broker, which answers the first one last."""
    assert not found(tmp_path, [talk(40_000, 0, 30, wait_ns=20 * MS), talk(40_001, 2 * MS, 30, wait_ns=10 * MS)])


def test_checks_of_several_brokers_are_none(tmp_path: Path) -> None:
    """One host asks each broker the same at once, and one is always slower."""
    near = talk(40_001, MS, 30, API_VERSIONS, ("10.0.0.3", 9_092), 5 * MS)
    far = talk(40_000, 0, 30, API_VERSIONS, wait_ns=20 * MS)
    assert not found(tmp_path, [far, near])
    others = [talk(40_000, 0, 30, METADATA, wait_ns=20 * MS),
              talk(40_001, MS, 30, METADATA, ("10.0.0.3", 9_092), 5 * MS, client="10.0.0.9")]  # fmt: skip
    assert not found(tmp_path, others)


def test_connections_one_after_the_other_are_none(tmp_path: Path) -> None:
    assert not found(tmp_path, [talk(40_000 + n, n * 2_000 * MS, 20) for n in range(4)])


def test_a_proxy_that_changes_ids_has_none(tmp_path: Path) -> None:
    inner = talk(50_000, 0, 30, broker=("10.0.0.8", 9_092), client="10.0.0.7")
    outer = KafkaTalk(client=("10.0.0.1", 40_000), broker=("10.0.0.7", 9_092), time_ns=START_NS - MS)
    outer.tcp.open()
    for n in range(30):
        asked = outer.request(FETCH, 4, n + 1_000)
        outer.tcp.wait(12 * MS)
        outer.respond(asked)
        outer.tcp.wait(48 * MS)
    assert not found(tmp_path, [inner, outer])


def test_few_messages_show_no_proxy(tmp_path: Path) -> None:
    def legs(messages: int) -> list[KafkaTalk]:
        inner = talk(50_000, 0, messages, broker=("10.0.0.8", 9_092), client="10.0.0.7", isn=(7, 8))
        outer = talk(40_000, -MS, messages, broker=("10.0.0.7", 9_092), wait_ns=12 * MS)
        for leg in (outer,):  # the same pace
            leg.tcp.segments[:] = [replace(s, time_ns=t.time_ns + (-MS if s.source[1] == 40_000 else MS))
                                   for s, t in zip(leg.segments, inner.segments, strict=True)]  # fmt: skip
        return [inner, outer]

    assert not found(tmp_path, legs(3))
    assert len(found(tmp_path, legs(30))) == 1


def test_equal_connections_take_no_more_time_each(tmp_path: Path) -> None:
    """A herd, all with the same messages and the same sequence numbers."""
    rows = np.zeros(200_000, CONNECTION_ROW)
    rows["connection"] = 1 + np.arange(len(rows))
    rows["client_port"] = np.arange(len(rows)) % 60_000
    rows["first"], rows["last"] = START_NS, START_NS + 10**10
    rows["client_sequence"] = rows["broker_sequence"] = 3_000_000_000
    for n in range(8):
        rows[f"request_sample_{n}"] = rows[f"response_sample_{n}"] = 1 << 62 | n << 40
    begin = time.process_time()
    assert not len(find_twins(rows))
    assert time.process_time() - begin < 5


def test_a_pair_within_a_herd_of_other_messages(tmp_path: Path) -> None:
    herd = [talk(41_000 + n, n * MS, 6, isn=(20_000_000 + n * 999_999, 30_000_000 + n * 7)) for n in range(300)]
    packets = encode(merge(*(one.segments for one in herd)))
    assert not found(tmp_path, herd)
    outside = outer_leg(packets, ("10.0.0.2", 9_092), VIRTUAL, HOP)
    assert len(twin_keys(rows_of(both(tmp_path, packets, outside))[0])) == 300  # NAT keeps their numbers


def test_hops_have_a_bound() -> None:
    assert HOP_NS <= 1_000_000_000


@pytest.mark.parametrize("folder", ["captures", "samples"])
def test_no_other_capture_has_twins(folder: str, corpus: Path) -> None:
    root = corpus / "captures" if folder == "captures" else SAMPLE.parent
    for path in sorted(p for p in root.rglob("*.pcap*") if p.is_file() and p.name != "nat-twice.pcap.zst"):
        rows, _ = rows_of(path)
        assert twin_keys(rows) == {}, path


# ---------------------------------------------------------------- the column


def expected(folder: Path) -> tuple[Path, dict[int, int]]:
    """A capture with NAT and a proxy, and its twins."""
    path = both(folder, sample(), nat(sample()), proxied(sample()))
    found = twin_keys(rows_of(path)[0])
    assert len(found) > 10
    return path, found


def column(table: Any) -> dict[int, int]:
    """The twins in a table of connections."""
    pairs = zip(table["connection"].to_pylist(), table["twin_of"].to_pylist(), strict=True)
    return {key: twin for key, twin in pairs if twin is not None}


@pytest.mark.parametrize("options", [(), ("--jobs", "3"), ("--sections", "latency"), ("--api", "Produce")])
def test_the_table_has_the_twins(options: tuple[str, ...], tmp_path: Path) -> None:
    path, wanted = expected(tmp_path)
    out = tmp_path / "out"
    done = kafkatap("report", *options, "--parquet", out, path)
    assert done.code == 0
    assert column(parquet.read_table(out / "connections.parquet")) == wanted


def test_rows_that_waited_in_a_file(tmp_path: Path) -> None:
    path, wanted = expected(tmp_path)
    engine = Engine()
    run = Run([str(path)], engine, block_size=1 << 17)
    sections = engine.section_counts(SEEN_TWICE)
    engine.on_connections(sections.add_connections)
    with TableWriter(tmp_path, run, gathered_bytes=20_000) as writer:
        writer.sections = sections
        for batch in writer.batches():
            writer.add(batch)
        writer.publish(writer.context())
    table = parquet.read_table(tmp_path / "connections.parquet")
    assert column(table) == wanted
    whole = analyze(path).connections
    assert column(whole) == wanted
    assert sorted(table["connection"].to_pylist()) == sorted(whole["connection"].to_pylist())


def test_splits_have_the_twins(tmp_path: Path) -> None:
    path, wanted = expected(tmp_path)
    assert column(splits_of([path], 5).small_table("connections")) == wanted
