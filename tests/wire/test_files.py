"""Several files: in the order of their packets, not their names; cut anywhere; overlapping."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from kafkatap import analyze
from tests.support.captures import ETHERNET, SLL2, Interface, Packet, pcap_bytes, pcapng_bytes, write_capture
from tests.support.tcp import START_NS, Segment, encode, merge
from tests.wire.harness import Decoded, assert_same, check, decode_files, decode_packets
from tests.wire.kafkatalk import MS, KafkaTalk, add_exchanges, assert_exchanges, small_talk

TALK = small_talk(8, mss=60)
PACKETS = encode(TALK.segments)
WHOLE = decode_packets(PACKETS)


def write(folder: Path, name: str, packets: Sequence[Packet]) -> Path:
    return write_capture(folder / name, pcap_bytes(packets, nanoseconds=True))


def same_but_numbers(got: Decoded, wanted: Decoded) -> None:
    """Equal except for packet numbers (files that overlap are numbered one behind the other)."""

    numbers = ("_packet", "_packet_first", "_packet_last")

    def bare(rows: Iterable[Mapping[str, object]]) -> list[dict[str, object]]:
        return sorted(({n: value for n, value in row.items() if not n.endswith(numbers)} for row in rows), key=repr)

    assert bare(got.exchanges) == bare(wanted.exchanges)
    assert bare(got.connections) == bare(wanted.connections)
    assert got.ledger == wanted.ledger


def test_cut_at_any_packet(tmp_path: Path) -> None:
    """A connection goes on in the next file; names sort the other way round."""
    for place in range(1, len(PACKETS)):
        first = write(tmp_path, "zz.pcap", PACKETS[:place])
        second = write(tmp_path, "aa.pcap", PACKETS[place:])
        for paths in ([first, second], [second, first]):
            seen = decode_files(paths, block_size=700)
            assert_same(seen, WHOLE, place)
            assert [(Path(f.path).name, f.first_packet, f.packets) for f in seen.files] == [
                ("zz.pcap", 1, place), ("aa.pcap", place + 1, len(PACKETS) - place),
            ]  # fmt: skip


@pytest.mark.parametrize("count", [3, 7, len(PACKETS)])
def test_a_ring_that_has_wrapped(count: int, tmp_path: Path) -> None:
    """Names go round: the last file written may have the first name."""
    size = -(-len(PACKETS) // count)
    parts = [PACKETS[n : n + size] for n in range(0, len(PACKETS), size)]
    paths = [write(tmp_path, f"ring{(n + 2) % len(parts):03}.pcap", part) for n, part in enumerate(parts)]
    random.Random(count).shuffle(paths)
    for block_size in (300, 1 << 20):
        assert_same(decode_files(paths, block_size=block_size), WHOLE)


def test_files_of_different_forms(tmp_path: Path) -> None:
    forms = encode(TALK.segments, SLL2)
    a = write(tmp_path, "a.pcap.gz", PACKETS[:10])
    b = write_capture(tmp_path / "b.pcapng", pcapng_bytes(forms[10:20], [Interface(SLL2, 9)], order=">"))
    c = write_capture(tmp_path / "c.zst", pcapng_bytes(PACKETS[20:], [Interface(ETHERNET, 9)]))
    seen = decode_files([c, b, a])
    assert_same(seen, WHOLE)
    assert [f.link_types for f in seen.files] == [("Ethernet",), ("Linux cooked v2",), ("Ethernet",)]


def begun_every(count: int) -> list[KafkaTalk]:
    """Connections of which many are open at once."""
    return [
        small_talk(6, client=("10.0.1.1", 2_000 + n), mss=100, time_ns=START_NS + n * 1_300_777, step_ns=500_000)
        for n in range(count)
    ]


def halves(segments: Sequence[Segment]) -> list[list[Segment]]:
    """Requests' connections of odd ports in one capture, of even ports in the other."""
    ports = [max(s.source[1] % 9_092, s.destination[1] % 9_092) for s in segments]
    return [[s for s, port in zip(segments, ports, strict=True) if port % 2 == k] for k in (0, 1)]


@pytest.mark.parametrize("block_size", [200, 5_000, 1 << 20])
def test_captures_that_overlap(block_size: int, tmp_path: Path) -> None:
    """Two hosts' captures of the same time are merged by time."""
    talks = begun_every(8)
    segments = merge(*(t.segments for t in talks))
    paths = [write(tmp_path, f"{n}.pcap", encode(part)) for n, part in enumerate(halves(segments))]
    seen = decode_files(paths, block_size=block_size)
    assert_exchanges(seen, [row for t in talks for row in t.wanted])
    same_but_numbers(seen, decode_packets(encode(segments)))
    numbers = [(f.first_packet, f.packets) for f in seen.files]
    assert numbers[0][0] == 1
    assert numbers[1][0] == 1 + numbers[0][1]


def test_packets_of_one_connection_in_two_captures(tmp_path: Path) -> None:
    """Each direction in a file of its own, milliseconds apart: merged packet by packet."""
    talk = KafkaTalk(step_ns=3 * MS, mss=90)
    talk.tcp.open()
    add_exchanges(talk, 6)
    talk.tcp.close()
    client = talk.segments[0].source
    ways = [[s for s in talk.segments if (s.source == client) == side] for side in (True, False)]
    paths = [write(tmp_path, f"{n}.pcap", encode(way)) for n, way in enumerate(ways)]
    for block_size in (150, 1 << 20):
        for order in (paths, paths[::-1]):
            seen = decode_files(order, block_size=block_size)
            assert_exchanges(seen, talk.wanted)
            same_but_numbers(seen, decode_packets(encode(talk.segments)))


def test_duplicates_of_each_file(tmp_path: Path) -> None:
    """The first file that has a packet keeps it, whatever the order of arguments and the size of blocks."""
    for block_size in (300, 1 << 20):
        paths = [write(tmp_path, name, PACKETS) for name in ("a.pcap", "b.pcap")]
        seen = decode_files(paths, block_size=block_size)
        assert_exchanges(seen, TALK.wanted)
        assert [f.duplicates for f in seen.files] == [0, len(PACKETS)]
        assert seen.ledger["packets"]["duplicate"] == len(PACKETS)
        parts = [write(tmp_path, "first.pcap", PACKETS[:20]), write(tmp_path, "rest.pcap", PACKETS[10:])]
        assert sum(f.duplicates for f in decode_files(parts, block_size=block_size).files) == 10
        halves_of_it = [write(tmp_path, f"{n}.pcap", PACKETS[n::2]) for n in range(2)]
        assert [f.duplicates for f in decode_files(halves_of_it, block_size=block_size).files] == [0, 0]


def test_a_gap_between_files(tmp_path: Path) -> None:
    """One file of the ring is missing: what lies in the others is found."""
    talk = small_talk(40)
    packets = encode(talk.segments)
    paths = [write(tmp_path, f"{n}.pcap", part) for n, part in ((0, packets[:50]), (2, packets[80:]))]
    seen = decode_files(paths[::-1])
    numbers = {id(p): n for n, p in enumerate(packets)}
    times = {p.time_ns for p in packets if not 50 <= numbers[id(p)] < 80}
    whole = [row for row in talk.wanted if {row["request_first"], row["response_last"]} <= times]
    found = {x["correlation_id"]: x for x in seen.exchanges}
    assert len(whole) >= 30
    for row in whole:
        x = found[row["correlation_id"]]
        assert {name: x[name] for name in row} == row


def test_empty_damaged_and_foreign_files_among_others(tmp_path: Path) -> None:
    empty = write(tmp_path, "empty.pcap", [])
    nothing = tmp_path / "nothing.pcap"
    nothing.write_bytes(b"")
    text = tmp_path / "text.pcap"
    text.write_bytes(b"this is no capture at all, but some words")
    short = tmp_path / "short.pcap"
    short.write_bytes(pcap_bytes(PACKETS[:20], nanoseconds=True)[:-5])
    rest = write(tmp_path, "rest.pcap", PACKETS[19:])
    seen = decode_files([rest, text, nothing, short, empty])
    assert_same(seen, WHOLE)
    damaged = {Path(f.path).name for f in seen.files if f.damage}
    assert damaged == {"nothing.pcap", "text.pcap", "short.pcap"}
    assert len(seen.files) == 5


@pytest.mark.parametrize("ending", ["gz", "zst"])
def test_a_damaged_compressed_file_keeps_what_was_read(ending: str, tmp_path: Path) -> None:
    chance = random.Random(2)
    packets = [replace(p, data=p.data + chance.randbytes(300)) for p in PACKETS * 40]
    data = write_capture(tmp_path / f"x.{ending}", pcap_bytes(packets, nanoseconds=True)).read_bytes()
    for name, bad in (("cut", data[: len(data) // 2]), ("bent", data[:9_000] + b"\x55" * 40 + data[9_040:])):
        path = tmp_path / name
        path.write_bytes(bad)
        seen = decode_files([path], block_size=4_096)
        assert seen.files[0].damage is not None
        assert name == "bent" or seen.packets > 20


def test_many_files(tmp_path: Path) -> None:
    """More files than may be open at once are read one after the other."""
    talks = begun_every(20)
    segments = merge(*(t.segments for t in talks))
    packets = encode(segments)
    paths = [write(tmp_path, f"{(n * 7) % 1_000:04}.pcap", packets[n : n + 2]) for n in range(0, len(packets), 2)]
    assert len(paths) > 200
    assert_same(decode_files(sorted(paths), block_size=4_096), decode_packets(packets))


def test_time_steps_back_between_blocks(tmp_path: Path) -> None:
    """Within one file the order of the file counts, wherever blocks end."""
    chance = random.Random(4)
    packets = [replace(p, time_ns=p.time_ns - chance.choice((0, 0, 4 * MS))) for p in PACKETS]
    whole = check(packets)
    path = write(tmp_path, "x.pcap", packets)
    for block_size in (100, 300, 1_000):
        assert_same(decode_files([path], block_size=block_size), whole)


def test_time_steps_back_while_files_overlap(tmp_path: Path) -> None:
    talks = begun_every(6)
    chance = random.Random(4)
    segments = merge(*(t.segments for t in talks))
    parts = halves(segments)
    paths = []
    for n, part in enumerate(parts):
        shaken = [replace(s, time_ns=s.time_ns - chance.choice((0, 0, 0, 300_000))) for s in part]
        paths.append(write(tmp_path, f"{n}.pcap", encode(shaken)))
    for block_size in (200, 1 << 20):
        seen = decode_files(paths, block_size=block_size)
        assert seen.outcomes == ["answered"] * sum(len(t.wanted) for t in talks)


def test_the_library_gives_the_same(tmp_path: Path) -> None:
    """`analyze` has every row of the harness, with the same values."""
    talks = begun_every(4)
    segments = merge(*(t.segments for t in talks))
    paths = [write(tmp_path, f"{n}.pcap", encode(part)) for n, part in enumerate(halves(segments))]
    seen = decode_files(paths)
    analysis = analyze(paths)
    table = analysis.exchanges
    for name in ("request_first", "request_last", "response_first", "response_last"):
        place = table.column_names.index(name)
        table = table.set_column(place, name, table[name].cast(pa.int64()))
    rows = {(row["client_port"], row["correlation_id"]): row for row in table.to_pylist()}
    assert len(rows) == len(seen.exchanges)
    for x in seen.exchanges:
        row = rows[x["client_port"], x["correlation_id"]]
        assert {code["code"]: code["count"] for code in row["errors"]} == x["errors"]
        for name in ("api_key", "client_id", "broker_ns", "request_first", "response_last", "outcome", "request_bytes"):
            assert row[name] == x[name]
    assert analysis.connections.num_rows == len(seen.connections)
    assert analysis.results.num_rows >= len(seen.results)
    assert {(row["section"], row["part"]): row["count"] for row in analysis.ledger.to_pylist()} == {
        (section, part): count for section, parts in seen.ledger.items() for part, count in parts.items()
    }
