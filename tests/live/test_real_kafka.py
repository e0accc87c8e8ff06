"""A real Apache Kafka broker with a quota, real clients, and two captures at once: `kafkatap live` and tcpdump.

What live saw is what an analysis of tcpdump's file gives, exchange by exchange (two sockets stamp packets at slightly
different times); its own recording gives the same again, to the last column. Capturing begins before the first
connection and ends after the last, so nothing is left out of the comparison.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kafkatap import analyze
from kafkatap.dissector.time_parts import DURATIONS
from kafkatap.parquet.partitions import to_microseconds
from kafkatap.reports.sections import time_shares
from tests.cli.running import ROOT, kafkatap
from tests.support import broker as kafka
from tests.support.captures import read_capture
from tests.support.live_tables import read_tables

from . import network
from .network import Veth, namespace_pair
from .running import Live, Tcpdump
from .shop import QUOTA, THROTTLED

WHY_NOT = network.missing("tcpdump") or kafka.missing()
pytestmark = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)

#: What the flight recorder is to look for.
INCIDENT = "error or throttle > 100ms"
#: ns; of two sockets' stamps of one packet. Seen: some 0.1 ms, rarely more where the machine was busy.
APART = 1_000_000
#: What the two captures number for themselves, or stamp.
_OWN_NUMBERS = ("exchange", "connection", "request_packet_first", "request_packet_last", "response_packet_first",
                "response_packet_last")  # fmt: skip
_TIMES = ("request_first", "request_last", "response_first", "response_last")
#: Counts of exchanges by the order of two stamps, which two sockets may see differently.
_BY_TIMES = ("hol_waits", "throttle_waits")


@dataclass(frozen=True, slots=True)
class Recorded:
    """What came of some seconds of traffic."""

    seen: Mapping[str, Mapping[str, int]]  # by the clients themselves
    report: Mapping[str, Any]  # that live printed
    folder: Path  # of live's tables
    pcap: Path  # that live wrote
    dump: Path  # that tcpdump wrote
    dumped: int  # packets
    any: Path  # tables and incidents of another one, on all interfaces

    def table(self, name: str) -> Any:
        return read_tables(self.folder, name)


@pytest.fixture(scope="module")
def veth() -> Iterator[Veth]:
    why = network.missing(admin=True)
    if why:
        pytest.skip(why)
    with namespace_pair() as pair:
        yield pair


def start_broker(folder: Path, address: str) -> tuple[kafka.KafkaBroker, str]:
    """A broker that clients reach at this address, and HOST:PORT; one client has a quota."""
    inner, outer, controller = kafka.free_ports(3)
    properties = {
        "listeners": f"INNER://127.0.0.1:{inner},OUTER://{address}:{outer},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": f"INNER://127.0.0.1:{inner},OUTER://{address}:{outer}",
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "listener.security.protocol.map": "INNER:PLAINTEXT,OUTER:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "INNER",
    }
    broker = kafka.KafkaBroker.start(folder, port=inner, properties=properties)
    try:
        limit = ["--alter", "--add-config", f"producer_byte_rate={QUOTA}"]
        broker.tool("kafka.admin.ConfigCommand", *limit, "--entity-type", "clients", "--entity-name", THROTTLED)
    except BaseException:
        broker.stop()
        raise
    return broker, f"{address}:{outer}"


def record(folder: Path, interface: str, at: str, before: Sequence[str] = ()) -> Recorded:
    """Have clients (`before`: words before their command) talk to the broker at HOST:PORT, captured twice."""
    expression = f"tcp port {at.rsplit(':', 1)[1]}"
    tables, pcap, dump, everywhere = (folder / name for name in ("tables", "live.pcap", "tcpdump.pcap", "any"))
    everywhere.mkdir()
    common = ["--json", "--interval", "1s", "--max-cpu", "0", "--nice", "0", "--buffer-size", "64m"]
    with ExitStack() as stack:
        live = Live("-i", interface, *common, "--parquet", tables, "--write-pcap", pcap, expression)
        other = Live(
            "-i", "any", *common, "--parquet", everywhere / "tables", "--write-pcap", everywhere / "x.pcap",
            "--on", INCIDENT, expression,
        )  # fmt: skip
        tcpdump = Tcpdump(interface, dump, expression)
        for each in (live, other, tcpdump):
            stack.enter_context(each)
        for each in (live, other, tcpdump):
            each.wait_ready()
        command = [*before, sys.executable, "-m", "tests.live.shop", at, f"s{time.time_ns()}-"]
        clients = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
        assert clients.returncode == 0, clients.stderr[-3000:]
        time.sleep(0.3)  # the last acknowledgements
        ended = [each.end() for each in (live, other, tcpdump)]
        for done in ended:
            assert done.code == 0, done.err
        for done in ended[:2]:
            lines = [line for line in done.err.splitlines() if line.startswith("time=")]
            assert lines
            assert [line for line in lines if "level=full" not in line] == []
        packets, dropped = tcpdump.counts()
    assert dropped == 0
    return Recorded(json.loads(clients.stdout), json.loads(ended[0].out), tables, pcap, dump, packets, everywhere)


@pytest.mark.parametrize("place", ["loopback", "namespace"])
def test_live_is_what_tcpdump_saw(place: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if place == "loopback":
        interface, address, before = "lo", "127.0.0.1", []
    else:
        pair: Veth = request.getfixturevalue("veth")
        interface, address, before = pair.near, pair.near_address, pair.inside([])
    broker, at = start_broker(tmp_path / "broker", address)
    with broker:
        recorded = record(tmp_path, interface, at, before)
    check_it_is_what_was_asked_for(recorded)
    check_packets(recorded)
    check_against_tcpdump(recorded)
    check_against_its_own_pcap(recorded)
    check_reports(recorded)
    check_on_any_interface(recorded)


def check_it_is_what_was_asked_for(recorded: Recorded) -> None:
    """The clients and the capture agree on what there was: quota, errors, groups, three libraries."""
    rows = recorded.table("exchanges").to_pylist()
    throttled = [row for row in rows if row["throttle_time_ms"]]
    assert {row["client_id"] for row in throttled} == {THROTTLED}
    assert max(row["throttle_time_ms"] for row in throttled) == recorded.seen["throttled_ms"][THROTTLED]
    assert any(row["throttle_wait_ns"] for row in rows)
    failed = {(row["client_id"], error["code"]) for row in rows for error in row["errors"]}
    assert {("ops-admin", 36), ("typo", 3), ("verbose", 10), ("archive", 1)} <= failed
    assert recorded.seen["errors"]["ops-admin: TOPIC_ALREADY_EXISTS"] == 1
    apis = {row["api_name"] for row in rows}
    assert apis >= {
        "ApiVersions", "CreateTopics", "Metadata", "Produce", "InitProducerId", "FindCoordinator", "JoinGroup",
        "SyncGroup", "Heartbeat", "OffsetFetch", "OffsetCommit", "LeaveGroup", "Fetch", "ListOffsets",
        "ConsumerGroupHeartbeat", "ListGroups",
    }  # fmt: skip
    software = {row["client_software"] for row in rows}
    assert any(name and "rdkafka" in row_version(rows, name) for name in software)
    assert "kafka-python" in software
    assert {"aio-sender", "aio-reader", "metrics"} <= {row["client_id"] for row in rows}
    assert {row["client_id"] for row in rows if row["outcome"] == "no_reply_expected"} == {"metrics"}
    outcomes = Counter(row["outcome"] for row in rows)
    assert outcomes.keys() <= {"answered", "no_reply_expected", "in_flight", "unanswered"}
    assert outcomes["answered"] > 300
    assert outcomes["unanswered"] <= 10  # clients that leave do not wait


def row_version(rows: Sequence[Mapping[str, Any]], software: str) -> str:
    return f"{software} {next(row['client_software_version'] for row in rows if row['client_software'] == software)}"


def check_packets(recorded: Recorded) -> None:
    """Each packet is there once: on loopback, too, where a socket sees it twice."""
    assert recorded.report["capture"]["packets"] == recorded.dumped
    assert recorded.report["capture"]["drops"] == 0
    live, dumped = read_capture(recorded.pcap), read_capture(recorded.dump)
    assert len(live.packets) == len(dumped.packets) == recorded.dumped
    mine, theirs = (Counter(packet.data for packet in capture.packets) for capture in (live, dumped))
    assert (mine - theirs).total() == (theirs - mine).total() == 0


def check_against_tcpdump(recorded: Recorded) -> None:
    compare(rows_of(recorded.table("exchanges")), rows_of(analyze(recorded.dump).exchanges))


def rows_of(table: Any) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = to_microseconds(table).to_pylist()
    return rows


def compare(seen: Sequence[Mapping[str, Any]], wanted: Sequence[Mapping[str, Any]]) -> None:
    """Exchange by exchange: all columns the same, times as far apart as stamps are."""
    mine, theirs = by_key(seen), by_key(wanted)
    assert mine.keys() == theirs.keys()
    assert len(seen) == len(wanted)
    differences = []
    for key, rows in mine.items():
        for row, other in zip(rows, theirs[key], strict=True):
            differences += apart(row, other)
            assert plain(row) == plain(other)
    # (All but a few: between two stamps a busy machine may do something else.)
    assert np.quantile(differences, 0.995) < APART
    assert np.median(differences) < APART / 10


def by_key(rows: Sequence[Mapping[str, Any]]) -> dict[tuple[Any, ...], list[Mapping[str, Any]]]:
    """Exchanges by both ends, correlation id and API, in their order."""
    found: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    ends = ("client_ip", "client_port", "broker_ip", "broker_port", "correlation_id", "api_key")
    for row in rows:
        found.setdefault(tuple(row[name] for name in ends), []).append(row)
    for same in found.values():
        same.sort(key=lambda row: row["request_first"])
    return found


def plain(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row without times and own numbers; where there is a time it is told."""
    return {
        name: value is not None if name in (*_TIMES, *DURATIONS, "waited_ns") else value
        for name, value in row.items()
        if name not in _OWN_NUMBERS
    }


def apart(row: Mapping[str, Any], other: Mapping[str, Any]) -> list[float]:
    """How far times and durations differ, ns."""
    times = [(row[name] - other[name]).total_seconds() * 1e9 for name in _TIMES if row[name] and other[name]]
    durations = [row[name] - other[name] for name in DURATIONS if row[name] is not None and other[name] is not None]
    return [abs(each) for each in (*times, *durations)]


def check_against_its_own_pcap(recorded: Recorded) -> None:
    """What was recorded gives every row again: all columns, durations to the nanosecond."""
    analysis = analyze(recorded.pcap)
    for name in ("exchanges", "results", "connections"):
        again = to_microseconds(getattr(analysis, name))
        table = recorded.table(name)
        assert table.schema.equals(again.schema)
        for column in table.column_names:
            both = zip(table[column].to_pylist(), again[column].to_pylist(), strict=True)
            assert [values for values in both if values[0] != values[1]][:5] == [], (name, column)
    ledger: Counter[tuple[str, str]] = Counter()
    for row in recorded.table("ledger").to_pylist():
        ledger[row["section"], row["part"]] += row["count"]
    wanted = {(row["section"], row["part"]): row["count"] for row in analysis.ledger.to_pylist()}
    assert ledger == Counter(wanted)


def check_reports(recorded: Recorded) -> None:
    """What live printed in the end is the report on what it recorded; and of its counts, that on tcpdump's file."""
    mine = recorded.report["reports"]
    again, dumped = (  # of an unknown size, as what live reads: small files are searched for more
        json.loads(kafkatap("report", "--json", "-", stdin=file.read_bytes()).out)["reports"]
        for file in (recorded.pcap, recorded.dump)
    )
    assert mine.keys() == again.keys()
    for reports in (mine, again):  # their commands read other things
        for name in ("summary", "events", "advice"):
            for finding in reports[name]:
                del finding["command"]
    assert [name for name in mine if mine[name] != again[name]] == ["files"]
    for name in ("latency", "throttle", "error_totals", "errors", "clients", "ledger"):
        assert counted(mine[name]) == counted(dumped[name])
    for name in _BY_TIMES:
        one, other = (sum(row[name] for row in rows) for rows in (mine["latency"], dumped["latency"]))
        assert abs(one - other) <= 3 + 0.02 * other, name


def counted(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Rows of a report without durations, times, numbers of packets and what depends on a microsecond."""
    own = (
        "first",
        "last",
        "packet",
        "verdict",
        "evidence",
        "client_share",
        "hol_wait_share",
        *_BY_TIMES,
        time_shares.HOL_BEHIND.name,
        *(column.name for column in time_shares.COLUMNS),
    )
    kept = (
        {name: value for name, value in row.items() if not name.endswith("_ns") and name not in own} for row in rows
    )
    return sorted(json.dumps(row, sort_keys=True) for row in kept)


def check_on_any_interface(recorded: Recorded) -> None:
    """The same exchanges without their link layer; and those that the recorder was to look for are in its files."""
    seen = rows_of(read_tables(recorded.any / "tables", "exchanges"))
    compare(seen, rows_of(analyze(recorded.dump).exchanges))
    incidents = sorted(recorded.any.glob("x-*.pcap"))
    assert incidents
    matched = rows_of(analyze(incidents, filter=INCIDENT).exchanges)
    assert len(matched) > 5
    compare(matched, [row for row in seen if row["errors"] or (row["throttle_time_ms"] or 0) > 100])
