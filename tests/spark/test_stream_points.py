"""Captures of two points that arrive in different batches give the rows of one job over all of them."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from kafkatap.engine.read_options import ReadOptions
from kafkatap.engine.tls.key_log import KeyLog
from kafkatap.parquet.partitions import to_microseconds
from kafkatap.spark.stream import finish_stream, run_stream
from kafkatap.splits.run_options import RunOptions
from tests.spark.test_stream import Stream, _options
from tests.splits.join_support import compared, differences, local, published, unnumbered
from tests.splits.join_talks import tuple_used_again
from tests.splits.test_tls import conversations
from tests.support.captures import Packet, pcap_bytes
from tests.support.copies import by_time, elsewhere, later, lossy
from tests.support.encapsulation import fragment
from tests.support.tcp import Segment, encode, merge
from tests.support.tls_talk import OverTls
from tests.wire.kafkatalk import MS, KafkaTalk, add_exchanges

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SECOND = 1_000 * MS
START = 1_704_067_200 * SECOND


Tables = Mapping[str, pa.Table]


def talks(count: int = 6, seconds: int = 60) -> list[Packet]:
    """Connections that begin and end all over the time, and one that is open from begin to end."""
    found = []
    for n in range(count):
        step = SECOND // 20 if n == 0 else SECOND // 100
        talk = KafkaTalk(
            client=("10.0.0.1", 40_000 + n), time_ns=START + n * seconds * SECOND // count, step_ns=step, mss=400
        )
        talk.tcp.open()
        while talk.tcp.time_ns < START + (seconds * SECOND if n == 0 else (n + 3) * seconds * SECOND // count):
            add_exchanges(talk, 2, first=len(talk.wanted))
            talk.tcp.wait(SECOND // 3)
        talk.tcp.close()
        found.append(talk.segments)
    return encode(merge(*found))


def parts(packets: Sequence[Packet], folder: Path, name: str, bounds: Sequence[float]) -> list[str]:
    """The packets as files that begin at these times, s after the start."""
    folder.mkdir(exist_ok=True)
    ends = [0, *(START + int(n * SECOND) for n in bounds), 1 << 62]
    paths = []
    for n, (first, end) in enumerate(pairwise(ends)):
        path = folder / f"{name}-{n}.pcap"
        path.write_bytes(pcap_bytes([p for p in packets if first <= p.time_ns < end], nanoseconds=True))
        paths.append(str(path))
    return paths


def streamed(
    folder: Path, batches: Sequence[Sequence[str]], keylog: Path | None = None, **more: Any
) -> tuple[Tables, Tables]:
    """The tables of a stream of these batches, and those of a job over all captures."""
    options = replace(_options(folder), **more)
    stream = Stream(options)
    for batch in batches:
        assert stream.read(batch).damage == []
    finish_stream(None, options)
    wanted = local([path for batch in batches for path in batch], records=True, keylog=keylog)
    return published(options.out), {name: to_microseconds(table) for name, table in wanted.items()}


def check(found: Tables, wanted: Tables) -> None:
    """All rows are the same, but for the numbers of packets."""
    lines = differences(compared(unnumbered(found)), compared(unnumbered(wanted)))
    assert not lines, "\n".join(lines)


def check_counts(found: Tables, wanted: Tables) -> None:
    """The same exchanges and connections; their times may be those of the other point."""
    compared(found)
    for table, columns in (("exchanges", EXCHANGE), ("connections", ENDS)):
        assert counted(found[table], columns) == counted(wanted[table], columns)


EXCHANGE = ("client_port", "api_key", "correlation_id", "response_status", "request_bytes", "response_bytes")
ENDS = ("client_ip", "client_port", "client_bytes", "broker_bytes", "closed_with")


def counted(table: pa.Table, columns: Sequence[str]) -> Counter[Any]:
    return Counter(zip(*(table[column].to_pylist() for column in columns), strict=True))


ORDERS = {
    "both in each": ((0, 3), (1, 4), (2, 5)),
    "in turns": ((0,), (3,), (1,), (4,), (2,), (5,)),
    "ahead and behind": ((3,), (0, 1), (4,), (2,), (5,)),
    "one first": ((0, 1, 2), (3, 4, 5)),
}


_LONG = pytest.mark.long
#: A usual run has one order of both where the other makes no other state.
IN_TURNS = ("in turns", pytest.param("both in each", marks=_LONG))
AT_ONCE = ("both in each", pytest.param("in turns", marks=_LONG))


def batches_of(order: str, paths: Sequence[str]) -> list[list[str]]:
    return [[paths[n] for n in batch] for batch in ORDERS[order]]


@pytest.mark.parametrize("order", ORDERS)
def test_two_points(tmp_path: Path, order: str) -> None:
    """Each packet passes the first point before it passes the second one."""
    packets = talks()
    paths = parts(packets, tmp_path / "files", "a", (20, 40))
    paths += parts(later(packets, 200_000), tmp_path / "files", "b", (20, 40))
    found = streamed(tmp_path, batches_of(order, paths))
    if order == "ahead and behind":  # the second point was read before the first one
        check_counts(*found)
    else:
        check(*found)


@pytest.mark.parametrize("ends", [(20, 40), (19.6, 39.3), (20.4, 43)])
def test_the_ends_of_a_connection(tmp_path: Path, ends: tuple[float, float]) -> None:
    """Requests pass the client's host first, responses the broker's. Captures of a batch end at different times: if
    that is more than a second, or connections begin meanwhile, some times are those of the other point."""
    packets = talks()
    paths = parts(packets, tmp_path / "files", "a", (20, 40))
    paths += parts(elsewhere(packets, 20_000, 100_000, 9_092), tmp_path / "files", "b", ends)
    found = streamed(tmp_path, batches_of("both in each", paths))
    (check_counts if 43 in ends else check)(*found)


@pytest.mark.parametrize("order", [pytest.param("in turns", marks=_LONG), "ahead and behind", "one first"])
def test_the_ends_of_a_connection_in_turns(tmp_path: Path, order: str) -> None:
    packets = talks()
    paths = parts(packets, tmp_path / "files", "a", (20, 40))
    paths += parts(elsewhere(packets, 20_000, 100_000, 9_092), tmp_path / "files", "b", (20, 40))
    check_counts(*streamed(tmp_path, batches_of(order, paths)))


@pytest.mark.parametrize("order", AT_ONCE)
def test_points_that_lose_packets(tmp_path: Path, order: str) -> None:
    """What one point lost, the other one has; and segments that were sent again."""
    packets = talks()
    again = by_time([p for n, packet in enumerate(packets) for p in (packet, *later([packet] * (n % 9 == 4), 4 * MS))])
    paths = parts(lossy(again, Random(1), 0.02), tmp_path / "files", "a", (20, 40))
    paths += parts(later(lossy(again, Random(2), 0.02), 200_000), tmp_path / "files", "b", (19.8, 39.9))
    found = streamed(tmp_path, batches_of(order, paths))
    if order == "both in each":
        check(*found)
    else:
        assert found[0]["exchanges"].num_rows == pytest.approx(found[1]["exchanges"].num_rows, rel=0.05)


@pytest.mark.parametrize("order", IN_TURNS)
def test_three_points(tmp_path: Path, order: str) -> None:
    packets, paths = talks(), []
    for n, name in enumerate("abc"):
        paths += parts(later(packets, n * 150_000), tmp_path / "files", name, (20, 40))
    batches = [paths[n::3] for n in range(3)]
    if order == "in turns":
        batches = [[path] for batch in batches for path in batch]
    check(*streamed(tmp_path, batches))


@pytest.mark.parametrize("order", IN_TURNS)
def test_fragments(tmp_path: Path, order: str) -> None:
    """Datagrams begin in one batch and end in another. Copies of their fragments count as one datagram where both lie
    in one batch, as in splits of a job."""
    packets = fragment(talks(2, 20), 300)
    folder = tmp_path / "files"
    folder.mkdir()
    paths = []
    for name, delay in (("a", 0), ("b", 200_000)):
        inside = [n for n, (one, other) in enumerate(pairwise(packets), 1) if one.time_ns == other.time_ns]
        bounds = [0, inside[len(inside) // 3], inside[2 * len(inside) // 3], len(packets)]
        for n, (first, end) in enumerate(pairwise(bounds)):
            path = folder / f"{name}-{n}.pcap"
            path.write_bytes(pcap_bytes(later(packets[first:end], delay), nanoseconds=True))
            paths.append(str(path))
    found, wanted = (compared(unnumbered(tables)) for tables in streamed(tmp_path, batches_of(order, paths)))
    for name in ("exchanges", "results", "records"):
        assert found[name] == wanted[name]


def test_fragments_of_one_point(tmp_path: Path) -> None:
    packets = fragment(talks(2, 20), 300, "shuffled")
    inside = [n for n, (one, other) in enumerate(pairwise(packets), 1) if one.time_ns == other.time_ns]
    paths = []
    for n, (first, end) in enumerate(pairwise([0, *inside[20::60], len(packets)])):
        paths.append(tmp_path / f"{n}.pcap")
        paths[-1].write_bytes(pcap_bytes(packets[first:end], nanoseconds=True))
    check(*streamed(tmp_path, [[str(path)] for path in paths]))


def test_fragments_at_the_end(tmp_path: Path) -> None:
    """Of a datagram that never becomes complete."""
    packets = fragment(talks(1, 5), 300)
    last = max(n for n, (one, other) in enumerate(pairwise(packets), 1) if one.time_ns == other.time_ns)
    check(*streamed(tmp_path, [parts(packets[:last], tmp_path / "files", "a", [])]))


@pytest.mark.parametrize("points", [1, 2])
def test_a_port_that_is_used_again(tmp_path: Path, points: int) -> None:
    """A connection and the one before it on the same port are open between two batches."""
    packets = encode(tuple_used_again())
    seconds = (packets[-1].time_ns - START) / SECOND
    names = ("a", "b")[:points]
    captured = [
        parts(later(packets, 200_000 * n), tmp_path / "files", name, (seconds / 3, 2 * seconds / 3))
        for n, name in enumerate(names)
    ]
    check(*streamed(tmp_path, [list(batch) for batch in zip(*captured, strict=True)]))


@pytest.mark.parametrize("order", IN_TURNS)
def test_tls(tmp_path: Path, order: str) -> None:
    over = OverTls(tmp_path)
    packets = encode(merge(*conversations(over, 60)))
    bounds = [(packets[n * len(packets) // 3].time_ns - START) / SECOND for n in (1, 2)]
    paths = parts(packets, tmp_path / "files", "a", bounds)
    paths += parts(later(packets, 20_000), tmp_path / "files", "b", bounds)
    reading = RunOptions(ReadOptions(key_log=KeyLog([str(over.key_log)])), records=True)
    check(*streamed(tmp_path, batches_of(order, paths), reading=reading, keylog=over.key_log))


def test_on_spark(spark: SparkSession, tmp_path: Path) -> None:
    """What executors get and return has how far each point saw a connection, and packets that wait."""
    packets = talks()
    one = parts(packets, tmp_path / "all", "a", (20, 40))
    two = parts(elsewhere(packets, 20_000, 100_000, 9_092), tmp_path / "all", "b", (19.6, 39.3))
    options, folder = _options(tmp_path), tmp_path / "captures"
    folder.mkdir()
    for paths in zip(one, two, strict=True):
        for path in paths:
            shutil.copy(path, folder)
        run_stream(spark, [str(folder)], options, quiet=0)
    run_stream(spark, [str(folder)], options, finish=True)
    wanted = {name: to_microseconds(table) for name, table in local([*one, *two], records=True).items()}
    check(published(options.out), wanted)


def test_a_port_that_is_used_again_while_packets_wait(tmp_path: Path) -> None:
    """The old connection ended long before. The new one begins before the second point's capture ends, or after."""
    found = []
    for n, (seconds, count) in enumerate(((0, 4), (19.4, 9))):
        talk = KafkaTalk(time_ns=START + int(seconds * SECOND), isn=(n * 99_000_000, 7), step_ns=SECOND // 50)
        talk.tcp.open()
        add_exchanges(talk, count)
        talk.tcp.close()
        found.append(talk.segments)
    other = talks(3)
    packets = by_time([*other, *encode([replace_port(segment) for part in found for segment in part])])
    for n, end in enumerate((19.3, 19.45, 19.9)):
        paths = parts(packets, tmp_path / f"files-{n}", "a", (20, 40))
        paths += parts(later(packets, 200_000), tmp_path / f"files-{n}", "b", (end, 40))
        check_counts(*streamed(tmp_path / str(n), batches_of("both in each", paths)))


def replace_port(segment: Segment) -> Segment:
    """The segment with another port of the client."""
    ends = [(host, 41_000 if port == 40_000 else port) for host, port in (segment.source, segment.destination)]
    return replace(segment, source=ends[0], destination=ends[1])
