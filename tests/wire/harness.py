"""Run captures through the engine and return their rows as plain values, with names in place of numbers.

`decode_packets(packets)` passes all packets to the engine at once. `check(packets)` also passes them in runs of many
lengths and asserts that the rows stay the same. Each run has its own buffer, which is overwritten afterwards to reveal
stale places. `decode_files` passes real files to `kafkatap.run.Run`.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from kafkatap.dissector import dtypes as r
from kafkatap.dissector.time_parts import DURATIONS, parts_of
from kafkatap.engine.engine import Engine
from kafkatap.engine.read_options import ReadOptions
from kafkatap.reassembly.scanner import HEADER_SIZE, Scanner
from kafkatap.reports.batch import Batch, Context
from kafkatap.reports.connection_words import PROTOCOLS
from kafkatap.run import Run
from tests.support.captures import ETHERNET, Packet, pcap_bytes
from tests.support.sweeps import examples

Array = np.ndarray[Any, Any]
Row = dict[str, Any]

_TEXTS = (
    *r.EXCHANGE_STRINGS, "software", "software_version", "sasl_mechanism", "tls_server_name", "tls_alpn", "tls_ja4",
    "tls_server_certificate", "tls_client_certificate",
)  # fmt: skip


@dataclass(slots=True)
class Decoded:
    """The rows of a run, sorted and without their numbers, and the ledger."""

    exchanges: list[Row]
    results: list[Row]
    connections: list[Row]
    ledger: dict[str, dict[str, int]]
    packets: int
    files: list[Any]

    @property
    def outcomes(self) -> list[str]:
        return [x["outcome"] for x in self.exchanges]


def decode_packets(
    packets: Sequence[Packet], link: int = ETHERNET, *, runs: Sequence[int] | None = None, ports: Sequence[int] = (),
    all_results: bool = True, engine: Engine | None = None,
) -> Decoded:  # fmt: skip
    """One pass over packets. `runs`: how many packets the engine gets at once, each time (None: all)."""
    data = pcap_bytes(packets, link, nanoseconds=True)
    return decode_capture(data, runs=runs, ports=ports, all_results=all_results, engine=engine)


def decode_capture(
    data: bytes, *, runs: Sequence[int] | None = None, ports: Sequence[int] = (), all_results: bool = True,
    engine: Engine | None = None,
) -> Decoded:  # fmt: skip
    """The same for the bytes of a capture without damage. `engine`: a new one."""
    engine = engine or Engine(ReadOptions(ports), all_results=all_results)
    return _decoded(batches_of(data, engine, runs), Run((), engine).context())


def batches_of(data: bytes, engine: Engine, runs: Sequence[int] | None = None) -> list[Batch]:
    """What the engine makes of a capture without damage, that it gets in such runs of packets."""
    scanner = Scanner(max(16, len(data) // 16))
    at = scanner.start(data[:HEADER_SIZE])
    whole = np.frombuffer(data, np.uint8).copy()
    count, _ = scanner.scan(whole, at, len(whole))
    batches: list[Batch] = []
    first = 0
    for length in runs if runs is not None else [max(count, 1)]:
        last = min(first + length, count)
        if last > first:
            buffer, packets = _moved(whole, scanner.packets[first:last])
            batches += engine.take(buffer, packets, 0, last - first)
            buffer[:] = 0xAA
            packets["at"] = -1
        first = last
    assert first == count, "the runs do not cover the capture"
    return [*batches, *engine.finish()]


def _moved(whole: Array, packets: Array) -> tuple[Array, Array]:
    """A buffer that holds exactly the bytes of these packets, and the packets with their places in it."""
    packets = packets.copy()
    low = int(packets["at"].min())
    high = int((packets["at"] + packets["captured"]).max())
    packets["at"] -= low
    return whole[low:high].copy() if high > low else np.zeros(1, np.uint8), packets


def decode_files(
    paths: Sequence[Path | str], *, block_size: int = 1 << 20, ports: Sequence[int] = (), all_results: bool = True
) -> Decoded:
    """Read files with `Run`, as the command line does."""
    run = Run([str(p) for p in paths], Engine(ReadOptions(ports), all_results=all_results), block_size=block_size)
    return decode_run(run)


def decode_run(run: Run) -> Decoded:
    """Read all captures of a run."""
    batches = list(run.batches())
    return _decoded(batches, run.context())


def _decoded(batches: Iterable[Batch], context: Context) -> Decoded:
    exchanges: list[Row] = []
    results: list[Row] = []
    keys = context.connections["connection"].tolist()
    # Connections that begin with the same packet, captured twice, have the same key, and so do two SYNs that cross.
    firsts = context.connections[["client_ip", "client_port", "broker_ip", "broker_port", "first"]].tolist()
    assert len(set(keys)) >= len({(frozenset((first[:2], first[2:4])), first[4]) for first in firsts})
    begun = dict(zip(keys, context.connections["first"].tolist(), strict=True))
    for batch in batches:
        names: dict[int, Row] = {}
        for row in _rows(batch.exchanges, context):
            row["connection_first"] = begun[row["connection"]]
            names[row.pop("exchange")] = row
            row["errors"] = {}
            row["outcome"] = r.OUTCOMES[row["outcome"]]
            row["request_status"] = r.STATUSES[row["request_status"]]
            row["response_status"] = r.STATUSES[row["response_status"]]
            exchanges.append(row)
        for result in _rows(batch.results, context):
            row = names[result.pop("exchange")]
            if code := result["error_code"]:
                row["errors"][code] = row["errors"].get(code, 0) + 1
            for name in ("client_ip", "client_port", "request_packet_first", "response_packet_first"):
                result["of_" + name] = row[name]
            result["kind"] = r.RESULT_KINDS[result["kind"]]
            results.append(result)
    connections = []
    for row in _rows(context.connections, context):
        row["protocol"] = PROTOCOLS[row["protocol"]]
        connections.append(row)
    ledger = {name: dict(parts) for name, parts in context.ledger.items()}
    seen = Decoded(
        _sorted(exchanges), _sorted(results), _sorted(connections), ledger, context.packets, list(context.files)
    )
    check_invariants(seen)
    return seen


def _rows(table: Array, context: Context) -> list[Row]:
    """A record array as dicts, with names of texts, addresses and topics."""
    names = table.dtype.names or ()
    rows = [dict(zip(names, row, strict=True)) for row in table.tolist()]
    for row in rows:
        for name in _TEXTS:
            if name in row:
                row[name] = context.text(row[name])
        for name in ("client_ip", "broker_ip", "proxy_ip"):
            if name in row:
                row[name] = context.address(row[name])
        if "topic" in row:
            row["topic"] = context.topic(row["topic"], row.pop("topic_id"))
            row["name"], row["error_message"] = context.text(row["name"]), context.text(row["error_message"])
    return rows


def _sorted(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: repr(sorted(row.items(), key=lambda item: item[0])))


def check_invariants(seen: Decoded) -> None:
    """Assert the invariants of every run: the ledger adds up, and so do the times of each exchange."""
    for section, parts in seen.ledger.items():
        rest = {name: count for name, count in parts.items() if name != "total"}
        assert min(rest.values()) >= 0, (section, parts)
        assert sum(rest.values()) == parts["total"], (section, parts)
    assert seen.ledger["packets"]["total"] == seen.packets
    requests, responses = seen.ledger["requests"], seen.ledger["responses"]
    for outcome in ("answered", "no_reply_expected", "in_flight", "unanswered", "response_lost"):
        assert seen.outcomes.count(outcome) == requests[outcome], outcome
    assert seen.outcomes.count("orphan_response") == responses["orphan"]
    assert requests["answered"] == responses["matched"] + responses["out_of_order"]
    for x in seen.exchanges:
        parts = parts_of(x)
        if x["outcome"] != "answered":
            assert not any(x[name] for name in DURATIONS), x
            continue
        assert min(parts.values()) >= 0, x
        assert x["nagle_ns"] <= x["sender_ns"], x
        assert sum(parts.values()) == x["total_ns"], x
        places = [x[name] for name in ("request_first", "request_last", "response_first", "response_last")]
        if r.NO_TIME not in places and places == sorted(places):
            # More, if a missing byte came after the last one.
            assert x["total_ns"] >= places[3] - places[0], x


def run_lengths(count: int, seed: int = 1, splits: int = 10) -> list[list[int]]:
    """Lengths of runs: one packet each, small odd ones, random ones, and two parts split at some places."""
    chance = random.Random(seed)
    ways = [[1] * count]
    for length in (2, 7):
        ways.append([length] * (count // length + 1))
    mixed: list[int] = []
    while sum(mixed) < count:
        mixed.append(chance.choice((1, 1, 2, 3, 5, 11, 40)))
    ways.append(mixed)
    places = sorted(chance.sample(range(1, count), min(splits, count - 1))) if count > 1 else []
    return ways + [[place, count] for place in places]


def assert_same(got: Decoded, wanted: Decoded, what: object = "") -> None:
    """Assert the same rows, connections and ledger."""
    assert got.exchanges == wanted.exchanges, what
    assert got.results == wanted.results, what
    assert got.connections == wanted.connections, what
    assert got.ledger == wanted.ledger, what


def check(packets: Sequence[Packet], link: int = ETHERNET, *, ports: Sequence[int] = (), splits: int = 8) -> Decoded:
    """Assert that packets have the same rows at once and in runs of many lengths; return the rows."""
    data = pcap_bytes(packets, link, nanoseconds=True)
    whole = decode_capture(data, ports=ports)
    for runs in run_lengths(len(packets), splits=examples(splits)):
        assert_same(decode_capture(data, runs=runs, ports=ports), whole, runs)
    lean = decode_capture(data, ports=ports, all_results=False)
    assert lean.exchanges == whole.exchanges
    assert lean.results == [row for row in whole.results if row["error_code"]]
    assert lean.ledger == whole.ledger
    return whole
