"""Splits of captures: whatever the size, what lies in them and where they are cut, together they are the capture."""

from __future__ import annotations

import gzip
import random
import struct
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkatap.captures.capture_reader import CaptureReader
from kafkatap.captures.split_checks import dropped, misinformed, misplaced, void
from kafkatap.captures.splits import Split, SplitReader, find_record
from kafkatap.captures.storage import open_input
from kafkatap.reassembly import boundaries
from tests.support.captures import (
    RAW,
    Interface,
    Packet,
    PcapRecords,
    block,
    every_form,
    pcap_bytes,
    pcapng_bytes,
    read_bytes,
)  # fmt: skip
from tests.support.split_plans import planned_splits

BEGIN = 1_700_000_000 * 10**9
Row = tuple[int, int, int, bytes]


def rows_of(reader: CaptureReader) -> list[Row]:
    """Every packet of a reader: time, original length, link type, bytes. Their numbers count up from 1."""
    rows: list[Row] = []
    try:
        while reader.fill():
            for packet in reader.packets[reader.position : reader.count]:
                assert packet["number"] == len(rows) + 1
                data = reader.buffer[packet["at"] : packet["at"] + packet["captured"]].tobytes()
                rows.append((int(packet["ts"]), int(packet["original"]), int(packet["link_type"]), data))
            reader.position = reader.count
    finally:
        reader.close()
    return rows


class Together:
    """All splits of a capture, read again until nothing is misplaced or misinformed, as a plan does it."""

    def __init__(self, path: Path | str, size: int, block_size: int = 1 << 20) -> None:
        self.splits = planned_splits([str(path)], size)
        self.readers: list[SplitReader] = []
        self.rows: list[list[Row]] = []
        self.again = 0
        for split in self.splits:
            reader = SplitReader(split, block_size)
            self.rows.append(rows_of(reader))
            self.readers.append(reader)
        while True:
            wrong: Split | None
            informed = [(r.split, r.interfaces_read) for r in self.readers]
            exact = None
            if uninformed := misinformed(informed):
                wrong = uninformed[0]
                exact = self.readers[wrong.number].begins
            elif places := misplaced(self.bounds):
                [(wrong, exact)] = places
            else:
                break
            self.again += 1
            reader = self.readers[wrong.number] = SplitReader(wrong, block_size, exact)
            self.rows[wrong.number] = rows_of(reader)

    @property
    def bounds(self) -> list[tuple[Split, int | None, int | None]]:
        return [(r.split, r.begins, r.ends) for r in self.readers]

    @property
    def counting(self) -> list[SplitReader]:
        beyond = void(self.bounds)
        return [r for r in self.readers if r.split not in beyond]

    @property
    def packets(self) -> list[Row]:
        return [row for reader in self.counting for row in self.rows[reader.split.number]]


def assert_whole(path: Path | str, size: int, block_size: int = 1 << 20) -> Together:
    """The splits of a capture are what one reader finds in all of it; their reports add up to its report."""
    whole = CaptureReader(str(path))
    expected = rows_of(whole)
    together = Together(path, size, block_size)
    assert together.packets == expected
    reports = [r.report for r in together.counting]
    assert sum(r.packets for r in reports) == whole.report.packets
    assert {t for r in reports for t in r.link_types} == set(whole.report.link_types)
    assert [r.damage for r in reports if r.damage] == [whole.report.damage][: whole.report.damage is not None]
    assert dropped(r.drops for r in together.counting) == whole.report.drops
    if whole.report.damage is None:
        assert sum(r.bytes for r in reports) == whole.report.bytes == Path(path).stat().st_size
        firsts = [r.first for r in reports if r.first is not None]
        assert min(firsts, default=None) == whole.report.first
    return together


def made_packets(count: int, longest: int = 1_500, seed: int = 1) -> list[Packet]:
    """Packets of random bytes, with many zeros and small numbers among them, as protocols have them."""
    chance = random.Random(seed)
    packets = []
    now = BEGIN
    for _ in range(count):
        now += chance.randrange(2_000_000) * 1_000 - 1_000
        length = chance.choice((40, 60, 66, 1_448, chance.randrange(longest)))
        data = b"".join(
            chance.choice((bytes(16), struct.pack("<I", chance.randrange(300)), chance.randbytes(30)))
            for _ in range(max(length // 16, 1))
        )
        packets.append(Packet(now, data[:longest], len(data) + chance.choice((0, 0, 7))))
    return packets


def offsets(path: Path, size: int) -> list[int | None]:
    """Where the splits begin, as they find it alone."""
    readers = [SplitReader(split) for split in planned_splits([str(path)], size)]
    for reader in readers:
        reader.close()
    return [reader.begins for reader in readers]


FORMS = every_form(made_packets(1_200))


@pytest.mark.parametrize("name", FORMS)
def test_splits_of_every_form(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(FORMS[name])
    for size in (len(FORMS[name]) // 2, 150_001):
        assert assert_whole(path, size).again == 0


@pytest.mark.parametrize("name", FORMS)
def test_splits_smaller_than_a_packet(tmp_path: Path, name: str) -> None:
    """A split may hold no first byte of any record."""
    path = tmp_path / name
    path.write_bytes(every_form(made_packets(12))[name])
    for size in (29, 100, 333):
        # A split that begins in the head of a pcapng gets interfaces that it reads itself.
        assert assert_whole(path, size, block_size=1_000).again <= (path.suffix == ".pcapng") * 5


@given(st.integers(200, 3_000), st.integers(64, 70_000))
@settings(max_examples=40, deadline=None)
def test_any_size_and_any_block(size: int, block_size: int) -> None:
    path = Path(_small())
    assert assert_whole(path, size, block_size).again == 0


def _small(kept: dict[str, str] = {}) -> str:  # noqa: B006
    if not kept:
        import tempfile

        folder = tempfile.mkdtemp()
        kept["path"] = str(Path(folder) / "small.pcap")
        Path(kept["path"]).write_bytes(pcap_bytes(made_packets(20, seed=3)))
    return kept["path"]


def test_samples(samples: Path, tmp_path: Path) -> None:
    for sample in sorted(samples.glob("*.pcap*")):
        path = tmp_path / sample.name.removesuffix(".zst")
        path.write_bytes(read_bytes(sample))
        for count in (4, 30):
            assert assert_whole(path, -(-path.stat().st_size // count)).again == 0


def test_no_search_in_a_long_recording_is_misled(corpus: Path, tmp_path: Path) -> None:
    path = tmp_path / "recording.pcap"
    path.write_bytes(read_bytes(corpus / "captures" / "apache-4.3-broker1.pcap.zst"))
    starts = PcapRecords(path).starts
    file = open_input(str(path))
    for split in planned_splits([str(path)], 1_000_000):
        assert find_record(file, split) == next(s for s in starts if s >= split.start)
    file.close()


def test_long_packets(tmp_path: Path) -> None:
    """The longest packets there are: some windows hold no more than three headers."""
    chance = random.Random(5)
    packets = [Packet(BEGIN + n, chance.randbytes(262_144)) for n in range(8)]
    for name, data in (("a.pcap", pcap_bytes(packets)), ("a.pcapng", pcapng_bytes(packets))):
        path = tmp_path / name
        path.write_bytes(data)
        for size in (100_000, 262_161, 700_000):
            assert assert_whole(path, size).again == 0


def test_more_captured_than_there_was_and_times_that_step_back(tmp_path: Path) -> None:
    packets = [replace(p, original_length=max(len(p.data) - 16, 1)) for p in made_packets(1_500)]
    packets = packets[700:] + packets[:700]
    path = tmp_path / "odd.pcap"
    path.write_bytes(pcap_bytes(packets))
    assert assert_whole(path, 100_000).again == 0


def test_a_clock_that_was_not_set(tmp_path: Path) -> None:
    packets = [replace(p, time_ns=p.time_ns - BEGIN + 2_000_000) for p in made_packets(1_000)]
    path = tmp_path / "1970.pcap"
    path.write_bytes(pcap_bytes(packets))
    assert_whole(path, 100_000)


def test_fractions_that_are_none(tmp_path: Path) -> None:
    data = bytearray(pcap_bytes(made_packets(1_000)))
    starts = PcapRecords(bytes(data)).starts
    for start in starts[:-1]:
        data[start + 4 : start + 8] = struct.pack("<I", 999_999_999 - start % 1_000)
    path = tmp_path / "odd.pcap"
    path.write_bytes(data)
    assert assert_whole(path, 100_000).again == 0


def test_joined_captures(tmp_path: Path) -> None:
    """By `cat`: a pcap's file headers, a pcapng's sections, lie between packets, and at boundaries."""
    parts = [made_packets(300, seed=n) for n in range(6)]
    path = tmp_path / "joined.pcap"
    path.write_bytes(b"".join(pcap_bytes(p) for p in parts))
    for size in (40_000, 110_000):
        assert_whole(path, size)
    path = tmp_path / "joined.pcapng"
    sections = [
        pcapng_bytes(part, [Interface(RAW if n % 2 else 1, 9 if n % 2 else 6)] * (1 + n % 3), order="<>"[n // 3])
        for n, part in enumerate(parts)
    ]
    path.write_bytes(b"".join(sections))
    together = assert_whole(path, 110_000)
    assert together.again > 0  # splits after the first section did not know of the others


def test_interfaces_described_in_the_middle(tmp_path: Path) -> None:
    first = pcapng_bytes(made_packets(900), [Interface()])
    packets = [replace(p, interface=1) for p in made_packets(900, seed=2)]
    both = pcapng_bytes(packets, [Interface(), Interface(RAW, 9)])
    head = len(pcapng_bytes([], [Interface()]))
    path = tmp_path / "late.pcapng"
    path.write_bytes(first + both[head:])
    together = assert_whole(path, 150_000)
    assert together.again > 0
    assert all(r.report.damage is None for r in together.readers)


def test_drops_are_told_once(tmp_path: Path) -> None:
    """Statistics tell what was dropped since the capture's start, of each interface."""

    def statistics(number: int, drops: int) -> bytes:
        option = struct.pack("<HHQ", 5, 8, drops) + bytes(4)
        return block(5, struct.pack("<III", number, 0, 0) + option)

    interfaces = [Interface(), Interface()]
    head = pcapng_bytes([], interfaces)
    packets = pcapng_bytes(made_packets(900), interfaces)[len(head) :]
    path = tmp_path / "drops.pcapng"
    statistics_blocks = [(0, 5), (1, 0), (0, 12), (1, 3)]
    path.write_bytes(head + b"".join(packets + statistics(*t) for t in statistics_blocks))
    together = assert_whole(path, 200_000)
    assert dropped(r.drops for r in together.readers) == 15
    assert dropped([{}, {}]) is None


@pytest.mark.parametrize("form", [pcap_bytes, pcapng_bytes])
def test_cut_short(tmp_path: Path, form: Callable[..., bytes]) -> None:
    data = form(made_packets(1_500))
    path = tmp_path / "short"
    for cut in (1, 5, 17, 300_001):
        path.write_bytes(data[:-cut])
        for size in (100_000, 333_333):
            assert assert_whole(path, size).readers[-1].ends is None


@pytest.mark.parametrize("form", [pcap_bytes, pcapng_bytes])
def test_damage_ends_a_capture(tmp_path: Path, form: Callable[..., bytes]) -> None:
    """Also where it lies at a boundary, or covers some. What comes after it is not read, as in one go."""
    data = bytearray(form(made_packets(2_500)))
    path = tmp_path / "damaged"
    size = 150_000
    path.write_bytes(data)
    place = next(p for p in offsets(path, size)[4:] if p is not None)
    for start, end in ((place, place + 16), (place - 40, place + 1), (400_000, 400_100), (400_000, 900_000)):
        for fill in (b"\xff", b"\0"):
            broken = data.copy()
            broken[start:end] = fill * (end - start)
            path.write_bytes(broken)
            assert_whole(path, size)


def test_files_that_are_read_as_a_whole(tmp_path: Path) -> None:
    capture = pcap_bytes(made_packets(200))
    for name, data in (
        ("empty", b""),
        ("text", b"what is this? " * 10_000),
        ("head", capture[:20]),
        ("zipped", gzip.compress(capture)),
        ("no-blocks.pcapng", struct.pack("<IIII", 0x0A0D0D0A, 7, 0x1A2B3C4D, 0) * 3_000),
    ):
        path = tmp_path / name
        path.write_bytes(data)
        [split] = planned_splits([str(path)], 10_000)
        assert split == Split(str(path), size=len(data))
        whole, reader = CaptureReader(str(path)), SplitReader(split)
        assert rows_of(reader) == rows_of(whole)
        assert vars(reader.report) == vars(whole.report)
        assert (reader.begins, reader.ends) == (0, None)


def test_a_plan_covers_every_byte_once(tmp_path: Path) -> None:
    paths = []
    for n, length in enumerate((24, 25, 1_000, 1_001, 2_999)):
        paths.append(str(tmp_path / str(n)))
        Path(paths[-1]).write_bytes(pcap_bytes([]) + bytes(length - 24))
    splits = planned_splits(paths, 1_000)
    for n, path in enumerate(paths):
        own = [s for s in splits if s.path == path]
        assert [(s.file, s.number) for s in own] == [(n, k) for k in range(len(own))]
        assert own[0].start == 0
        assert [s.end for s in own] == [*[s.start for s in own[1:]], None]
        assert sum(s.length for s in own) == Path(path).stat().st_size
        assert all(s.length <= 1_000 for s in own)
    assert [s.number for s in planned_splits(paths, 0)] == [0] * 5


def test_splits_over_another_store(tmp_path: Path) -> None:
    path = tmp_path / "a.pcap"
    path.write_bytes(pcap_bytes(made_packets(1_500)))
    here, there = Together(path, 100_000), Together(path.as_uri(), 100_000)
    assert here.packets == there.packets
    assert len(there.splits) > 5


def test_little_is_read_beyond_a_split(tmp_path: Path) -> None:
    path = tmp_path / "a.pcap"
    path.write_bytes(pcap_bytes(made_packets(6_000)))
    for split in planned_splits([str(path)], 400_000):
        reader = SplitReader(split, block_size=1 << 20)
        rows_of(reader)
        assert reader.progress <= split.length + 2 * 65_536


# ---------------------------------------------------------------- baits


def carriers(bait: bytes, before: bytes = b"", after: bytes = b"", places: Sequence[int] = (300,)) -> list[Packet]:
    """Packets of which some hold the bait."""
    packets = made_packets(700, seed=9)
    for place in places:
        data = before + bait + after
        packets[place] = replace(packets[place], data=data, original_length=len(data))
    return packets


@pytest.mark.parametrize("form", [pcap_bytes, pcapng_bytes])
@pytest.mark.parametrize("after", [0, 1, 90])
def test_a_packet_that_holds_a_capture(tmp_path: Path, form: Callable[..., bytes], after: int) -> None:
    """Boundaries anywhere in it: no search is misled, also where the capture inside ends with the packet."""
    bait = form(made_packets(180, seed=4))
    path = tmp_path / "bait"
    path.write_bytes(form(carriers(bait, bytes(54), bytes(after))))
    size = path.stat().st_size
    assert size > boundaries.BEFORE + len(bait)
    for count in (3, 5, 8, 13, 21, 34):
        assert assert_whole(path, -(-size // count)).again == 0


def linked_baits(packets: Sequence[Packet]) -> bytes:
    """A pcap in which every long packet ends with the head of a record that reaches to the next such head."""
    data = bytearray(pcap_bytes(packets))
    starts = PcapRecords(bytes(data)).starts
    held = [end - 16 for start, end in pairwise(starts) if end - start > 60]
    for at, following in zip(held, [*held[1:], len(data)], strict=True):
        length = following - at - 16
        data[at : at + 16] = struct.pack("<IIII", BEGIN // 10**9, 1, length, length)
    return bytes(data)


def test_a_chain_of_baits_is_told_and_mended(tmp_path: Path) -> None:
    """Nothing in the bytes around a boundary says which of two chains is the true one: that shows when they meet."""
    path = tmp_path / "linked.pcap"
    path.write_bytes(linked_baits(made_packets(1_500)))
    file = open_input(str(path))
    splits = planned_splits([str(path)], 60_000)
    found = [find_record(file, split) for split in splits]
    file.close()
    starts = set(PcapRecords(path).starts)
    assert any(place not in starts for place in found)
    together = assert_whole(path, 60_000)
    assert together.again > 0


HEADS = st.builds(
    lambda order, s, captured, more: struct.pack(order + "IIII", BEGIN // 10**9 + s, 5, captured, captured + more),
    st.sampled_from("<>"), st.integers(-5, 5), st.integers(0, 60), st.integers(-2, 2).map(abs),
)  # fmt: skip
BLOCKS = st.builds(
    lambda order, kind, body: block(kind, body, order),
    st.sampled_from("<>"), st.sampled_from((1, 2, 3, 5, 6, 7, 0x0A0D0D0A)), st.binary(max_size=40),
)  # fmt: skip
NOISE = st.one_of(st.binary(max_size=20), st.integers(0, 40).map(bytes))


@given(st.lists(st.one_of(HEADS, BLOCKS, NOISE), max_size=14), st.integers(0, 500), st.booleans(), st.booleans())
@settings(max_examples=60, deadline=None)
def test_no_window_takes_a_search_out_of_its_bounds(
    pieces: list[bytes], target: int, whole: bool, swapped: bool
) -> None:
    """As plain Python, which minds them, the kernels find what they find when compiled."""
    data = np.frombuffer(bytearray(b"".join(pieces)) or bytearray(1), np.uint8)
    target = min(target, len(data) - 1)
    wanted = (data, len(data), target, target, int(whole), int(swapped))
    for kernel, more in ((boundaries.find_pcap, (1_000_000, BEGIN // 10**9)), (boundaries.find_pcapng, ())):
        answers = []
        for run in (kernel, kernel.function):
            landing, found = np.full(len(data), 7, np.int32), np.zeros(1, boundaries.FOUND)
            run(*wanted, *more, landing, found)
            answers.append((landing.tolist(), found.tolist()))
        assert answers[0] == answers[1]
        assert all(place >= target for place in answers[0][0] if place >= 0)
    places, plain = np.zeros((2, 4), boundaries.BLOCK_RANGE)
    count = boundaries.find_descriptions(data, 0, len(data), int(swapped), places)
    assert boundaries.find_descriptions.function(data, 0, len(data), int(swapped), plain) == count
    assert places.tolist() == plain.tolist()


def test_misplaced_and_void() -> None:
    a = [Split("a", 100 * n, 100 * n + 100, 0, n) for n in range(4)]
    b = [Split("b", 100 * n, 100 * n + 100, 1, n) for n in range(3)]
    assert misplaced([(a[0], 0, 100), (a[1], 100, 210), (a[2], 210, None)]) == []
    wrong: list[tuple[Split, int | None, int | None]] = [
        (a[0], 24, 110), (a[1], 120, 205), (a[2], 210, 300), (b[0], 24, 100), (b[1], None, None),
    ]  # fmt: skip
    assert misplaced(wrong) == [(a[1], 110), (b[1], 100)]
    damaged: list[tuple[Split, int | None, int | None]] = [(a[0], 24, 110), (a[1], 110, None), (a[2], 230, 300)]
    assert misplaced(damaged) == []
    assert void(damaged) == [a[2]]
    assert void([(a[0], 24, 110), (b[0], 24, None)]) == []
