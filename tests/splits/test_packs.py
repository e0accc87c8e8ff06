"""Packs of small captures give the rows of the local engine over the same files: here without Spark."""

from __future__ import annotations

import random
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafkatap.captures.identity import capture_head, missing_identity
from kafkatap.captures.packs import LARGEST, SMALLEST, TimedFile, choose_split_size, pack_splits, repack, shared_tasks
from kafkatap.captures.splits import Split, plan_splits
from kafkatap.captures.storage import find, system_of
from kafkatap.library import UnreadableCaptureError
from kafkatap.reassembly.dtypes import ROW_OPEN
from kafkatap.spark.captures import Captures, DamagedCaptureError
from kafkatap.spark.job import Job
from kafkatap.spark.job_result import ignore
from kafkatap.spark.output.delta import read_table
from kafkatap.splits.capture_ledgers import CaptureLedgers, sum_ledgers
from tests.splits.join_support import Joined, assert_same, check, compared, join, local, packets_at_random
from tests.splits.join_talks import TALKS, busy, lossy, pipelined
from tests.support.captures import PcapRecords, pcap_bytes, read_bytes, write_capture
from tests.support.s3_server import s3_server
from tests.support.split_plans import planned_packs
from tests.support.tcp import Segment, encode, merge, shake

SAMPLES = ("apache-4.3", "apache-0.8.2", "live-4.3")
#: No pack is larger.
ALL = 1 << 40


def write(path: Path, segments: list[Segment]) -> Path:
    path.write_bytes(pcap_bytes(encode(segments), nanoseconds=True))
    return path


def rotated(path: Path, folder: Path, numbers: Iterable[int], name: str = "part-{:03d}.pcap") -> list[str]:
    """A pcap as files that begin with its first packet and with these ones, named in order of time."""
    records = PcapRecords(path)
    bounds = [0]
    for n in sorted(set(numbers)):  # files that begin at the same time are in the order of their names
        if records.record(n)[:8] != records.record(bounds[-1])[:8]:
            bounds.append(n)
    bounds.append(len(records))
    folder.mkdir(parents=True, exist_ok=True)
    names = [str(folder / name.format(n)) for n in range(len(bounds) - 1)]
    for each, (first, last) in zip(names, pairwise(bounds), strict=True):
        write_capture(each, records.slice(first, last))
    return names


def packed(folder: Path, size: int = ALL, **options: object) -> Joined:
    """Check the packs of a folder's files."""
    files = sorted(str(path) for path in folder.iterdir())
    return check(planned_packs(files, size), split_size=size, **options)  # type: ignore[arg-type]


# ---------------------------------------------------------------- one series


@pytest.mark.parametrize("name", SAMPLES)
def test_samples_in_packs(samples: Path, tmp_path: Path, name: str) -> None:
    path = tmp_path / "sample.pcap"
    path.write_bytes(read_bytes(samples / f"{name}.pcap.zst"))
    size = path.stat().st_size
    rotated(path, tmp_path / "files", packets_at_random(path, 15, 1))
    one = packed(tmp_path / "files", records=True)
    assert len(one.surveys) == 1
    assert [len(survey.files) for survey in one.surveys] == [16]
    some = packed(tmp_path / "files", size // 3 + 5 * (128 << 10), records=True)
    assert 1 < len(some.surveys) < 16
    assert some.began_wrong == 0


@pytest.mark.parametrize("name", TALKS)
def test_traffic_that_is_hard_to_cut(tmp_path: Path, name: str) -> None:
    path = write(tmp_path / "talk.pcap", TALKS[name]())
    rotated(path, tmp_path / "files", packets_at_random(path, 9, len(name)))
    packed(tmp_path / "files", records=True)
    packed(tmp_path / "files", path.stat().st_size // 3 + 3 * (128 << 10), records=True)


@pytest.mark.parametrize("named", ["apache-0.10.2", "diverse", pytest.param("*", marks=pytest.mark.long)])
def test_recordings_in_small_files(corpus: Path, tmp_path: Path, named: str) -> None:
    """Each capture of the corpus in files of 1 MB and less, in packs of a tenth of it."""
    paths = [p for p in sorted((corpus / "captures").glob(f"{named}.pcap*")) if p.stat().st_size < 40e6]
    assert paths
    for found in paths:
        data = read_bytes(found)
        if data[:4] == b"\n\r\r\n":  # pcapng
            continue
        path = tmp_path / f"{found.name.partition('.pcap')[0]}.pcap"
        path.write_bytes(data)
        count = max(len(data) // 1_000_000, 20)
        folder = tmp_path / f"{path.stem}-files"
        rotated(path, folder, packets_at_random(path, count, 5))
        joined = packed(folder, len(data) // 10 + count // 10 * (128 << 10))
        assert len(joined.surveys) < count
        path.unlink()


def test_packet_numbers_and_files_follow_the_times(tmp_path: Path) -> None:
    """Natural order: part-9 comes before part-10, whatever the names' order as texts."""
    path = write(tmp_path / "talk.pcap", busy(5))
    rotated(path, tmp_path / "files", packets_at_random(path, 12, 3), name="part-{}.pcap")
    joined = packed(tmp_path / "files", records=True)
    assert len(joined.surveys) == 1
    assert joined.began_wrong == 0
    firsts = joined.tables["files"]["first_packet"].to_pylist()
    assert firsts == sorted(firsts)


# ---------------------------------------------------------------- several series


def two_series(tmp_path: Path) -> tuple[Path, Path]:
    """Two captures of the same time, of other connections."""
    one = busy(3)
    other = [
        replace(s, source=(f"10.9.{s.source[0].split('.', 2)[2]}", s.source[1]),
                destination=(f"10.9.{s.destination[0].split('.', 2)[2]}", s.destination[1]), time_ns=s.time_ns + 777)
        for s in pipelined(120)
    ]  # fmt: skip
    return write(tmp_path / "one.pcap", one), write(tmp_path / "other.pcap", other)


@pytest.mark.parametrize(
    ("names", "again"),
    [
        (("client-{}.pcap", "broker-{}.pcap"), False),
        (("broker1-{:03d}.pcap", "broker2-{:03d}.pcap"), True),
        (("2026-{:03d}-broker1.pcap", "2026-{:03d}-broker2.pcap"), True),
    ],
)
def test_two_series_of_the_same_time(tmp_path: Path, names: Sequence[str], again: bool) -> None:
    """Names that differ in digits alone are one series, until its packs turn out not to be in order."""
    folder = tmp_path / "files"
    for path, name, seed in zip(two_series(tmp_path), names, (1, 2), strict=True):
        rotated(path, folder, packets_at_random(path, 7, seed), name=name)
    joined = packed(folder, records=True)
    assert (joined.began_wrong > 0) == again
    assert len(joined.surveys) == 2
    assert [len(survey.files) for survey in joined.surveys] == [8, 8]
    assert not joined.notes
    size = max(file.stat().st_size for file in folder.iterdir()) * 3 + (384 << 10)
    assert len(packed(folder, size, records=True).surveys) > 3


def test_both_ends_of_a_connection(tmp_path: Path) -> None:
    """It is in packs of two series at the same time, so one split decodes all its packets in order of time."""
    segments = pipelined()
    elsewhere = sorted(
        (replace(s, time_ns=s.time_ns + (20_000 if s.source == segments[0].source else -20_000)) for s in segments),
        key=lambda s: s.time_ns,
    )
    folder = tmp_path / "files"
    for name, some in (("client", segments), ("broker", elsewhere)):
        path = write(tmp_path / f"{name}.pcap", some)
        rotated(path, folder, packets_at_random(path, 5, 4), name=f"{name}-{{}}.pcap")
    files = sorted(str(path) for path in folder.iterdir())
    joined = join(planned_packs(files, ALL), split_size=ALL)
    alone = join(planned_packs(files, 0))
    assert len(joined.surveys) == 2
    assert joined.tables["connections"].num_rows == 1
    assert len(joined.plans[-1].both_ends) == 1
    assert_same(joined, compared(alone.tables))


def test_who_listens_is_learned_from_other_packs_in_time(tmp_path: Path) -> None:
    """A file of one series shows who listens; that orients connections in later files of another series' pack."""
    opened = pipelined(6, client=("10.0.3.1", 45_000), step_ns=200_000)
    early, late = (
        [
            replace(s, source=_on(s.source, port), destination=_on(s.destination, port), time_ns=s.time_ns + later)
            for s in TALKS["TLS"]()[8:]
        ]
        for port, later in ((45_001, -3_000_000_000), (45_002, 600_000))
    )
    folder = tmp_path / "files"
    path = write(tmp_path / "one.pcap", opened)
    rotated(path, folder, [4], name="one-{}.pcap")
    both = merge(early, late)
    path = write(tmp_path / "two.pcap", both)
    first = next(n for n, s in enumerate(both) if s.time_ns == late[0].time_ns)
    rotated(path, folder, [first // 2, first], name="two-{}.pcap")
    joined = packed(folder)
    assert len(joined.surveys) == 2
    known = {r["client_port"]: r["orientation_known"] for r in joined.tables["connections"].to_pylist()}
    assert known[45_002]
    assert [list(task.later_listeners) for task in joined.plans[-1].tasks] == [[2], []]


def _on(end: tuple[str, int], port: int) -> tuple[str, int]:
    """The same ends with the broker's port that others talk to, and another of the client's."""
    return ("10.0.0.2", 9_092) if end[1] in (9_092, 9_093) else (end[0], port)


# ---------------------------------------------------------------- wrong guesses


def test_names_whose_order_is_not_that_of_time(tmp_path: Path) -> None:
    path = write(tmp_path / "talk.pcap", busy(11))
    names = rotated(path, tmp_path / "files", packets_at_random(path, 9, 2))
    mixed = names[:]
    random.Random(3).shuffle(mixed)
    for name, other in zip(names, mixed, strict=True):
        Path(name).rename(f"{other}.new")
    for other in mixed:
        Path(f"{other}.new").rename(other)
    joined = packed(tmp_path / "files", records=True)
    assert joined.began_wrong == 1
    assert len(joined.surveys) == 1


def test_files_that_overlap(tmp_path: Path) -> None:
    """Each has packets of the time of the next one; no order of them is one of time."""
    path = write(tmp_path / "talk.pcap", merge(busy(7), pipelined(300, client=("10.3.3.3", 40_000))))
    records = PcapRecords(path)
    folder = tmp_path / "files"
    folder.mkdir()
    header, n = records.slice(0, 0), len(records)
    kept: list[list[bytes]] = [[] for _ in range(6)]
    for i in range(n):
        at = 6 * i // n
        kept[max(at - (i % 3 == 0), 0)].append(records.record(i))
    for i, some in enumerate(kept):
        (folder / f"{i}.pcap").write_bytes(header + b"".join(some))
    files = sorted(str(f) for f in folder.iterdir())
    joined = join(planned_packs(files, ALL), split_size=ALL)
    assert len(joined.surveys) == 6
    assert_same(joined, compared(join(planned_packs(files, 0)).tables))


def test_repacking_finds_the_numbers_that_tell_series_apart() -> None:
    def file(name: str, number: int, first: int | None, last: int | None) -> TimedFile:
        return TimedFile(Split(name, size=1_000, file=number), first, last)

    second = 10**9
    files = [
        file(f"/x/{20 + n}-b{broker}-{n}.pcap", 3 * n + broker, (n * 10 + broker) * second, (n * 10 + 10) * second)
        for n in range(50)
        for broker in range(3)
    ]
    files.append(file("/x/7-b1-8.pcap", 999, None, None))
    random.Random(1).shuffle(files)
    packs = repack(files, ALL)
    chains = [[split.path.split("-")[1] for split in pack] for pack in packs]
    assert sorted((chain[0], len(set(chain)), len(chain)) for chain in chains) == [
        ("b0", 1, 50), ("b1", 1, 1), ("b1", 1, 50), ("b2", 1, 50),
    ]  # fmt: skip
    for pack in packs:
        numbers = [int(split.path.split("-")[2].partition(".")[0]) for split in pack]
        assert numbers == sorted(numbers)
    assert len(repack(files, 30 * (129 << 10))) == 7
    same = [file(f"/x/{n}", n, 0, second) for n in range(5)]
    assert sorted(len(pack) for pack in repack(same, ALL)) == [1] * 5


# ---------------------------------------------------------------- what cannot be read


def test_captures_of_all_kinds_in_a_pack(tmp_path: Path) -> None:
    """Compressed ones, an empty one, one without packets, one that is cut off, damaged ones, and no capture at all."""
    path = write(tmp_path / "whole.pcap", merge(busy(7), pipelined(client=("10.9.9.9", 41_000))))
    records = PcapRecords(path)
    n = len(records)
    folder = tmp_path / "files"
    folder.mkdir()
    parts = [records.slice(n * i // 9, n * (i + 1) // 9) for i in range(9)]
    for i, part in enumerate(parts):
        write_capture(folder / f"a-{i:02d}.pcap{('', '.gz', '.zst')[i % 3]}", part)
    (folder / "a-03.pcap").write_bytes(parts[3][:-7])
    (folder / "a-06.pcap").write_bytes(parts[6][: len(parts[6]) // 2] + b"\xff" * 90)
    damaged = bytearray((folder / "a-07.pcap.gz").read_bytes())
    damaged[len(damaged) // 2] ^= 255
    (folder / "a-07.pcap.gz").write_bytes(damaged)
    (folder / "a-10.pcap").write_bytes(b"")
    (folder / "a-11.pcap").write_bytes(records.slice(0, 0))
    (folder / "a-12.pcap").write_bytes(b"this is no capture at all, but a text that somebody has left here")
    joined = packed(folder, records=True)
    assert len(joined.surveys) == 3
    found = {Path(f["path"]).name: f["damage"] for f in joined.tables["files"].to_pylist()}
    assert {name for name, damage in found.items() if damage} == {
        "a-03.pcap", "a-06.pcap", "a-07.pcap.gz", "a-10.pcap", "a-12.pcap",
    }  # fmt: skip


def test_captures_that_are_gone(tmp_path: Path) -> None:
    """A file that was listed and then deleted is a row with damage; the others are read."""
    path = write(tmp_path / "talk.pcap", busy(3))
    names = rotated(path, tmp_path / "files", packets_at_random(path, 6, 3))
    large = tmp_path / "large" / "long.pcap"
    large.parent.mkdir()
    large.write_bytes(path.read_bytes())
    listed = find([str(tmp_path / "files"), str(large)])
    size = large.stat().st_size // 2 + (128 << 10)
    packs = pack_splits(plan_splits(listed, size), size)
    late = pack_splits(plan_splits(listed, large.stat().st_size // 3), ALL)
    for gone in (names[0], names[3], names[-1], str(large)):
        Path(gone).unlink()
    left = [name for name in names if Path(name).exists()]
    for some in (packs, late, pack_splits(plan_splits(listed, 1_000), 1_000)):
        joined = join(some, split_size=ALL)
        files = joined.tables["files"].to_pylist()
        assert len(files) == len(listed)
        damage = {f["path"]: f["damage"] for f in files if f["damage"]}
        assert damage == dict.fromkeys(
            (names[0], names[3], names[-1], str(large)), "cannot be opened: no such file or directory"
        )
        wanted = local(left)
        wanted.pop("files")
        found = {name: table for name, table in joined.tables.items() if name != "files"}
        assert not _differ(compared(found), compared(wanted))
        identities = {read.report.path: read.capture for s in joined.surveys for read in s.files if read.capture}
        assert identities[names[1]] == capture_head(names[1]).identity
        assert identities[names[0]] == missing_identity(names[0])


def _differ(found: dict[str, Counter[bytes]], wanted: dict[str, Counter[bytes]]) -> list[str]:
    return [name for name in wanted if found[name] != wanted[name]]


def test_a_file_that_is_back_replaces_the_row_with_its_damage(tmp_path: Path) -> None:
    pytest.importorskip("deltalake")
    names = rotated(write(tmp_path / "talk.pcap", busy(3)), tmp_path / "files", [40, 90, 140])
    listed, data = find(names), Path(names[1]).read_bytes()
    out = str(tmp_path / "out")
    damage = []
    for found in (b"", data):
        if found:
            Path(names[1]).write_bytes(found)
        else:
            Path(names[1]).unlink()
        result = Job(out, "api", False, ignore, None).run(Captures(None, [], listed=listed), time.time_ns())
        assert result is not None
        damage.append(len(result.damage))
        files = read_table(out, "files").to_pylist()
        assert sorted(f["path"] for f in files) == names
    assert damage == [1, 0]
    assert not any(f["damage"] for f in files)
    assert {f["capture"] for f in files} == {capture_head(name).identity for name in names}


def test_what_is_added_after_the_listing_is_not_read(tmp_path: Path) -> None:
    path = write(tmp_path / "talk.pcap", busy(3))
    for suffix in (".gz", ".zst", ""):
        names = rotated(path, tmp_path / f"files{suffix}", [60, 120], name=f"part-{{}}.pcap{suffix}")
        packs = planned_packs(names, ALL)
        wanted = compared(local(names))
        more = Path(names[1]).read_bytes()
        with Path(names[1]).open("ab") as file:
            file.write(more)
        assert_same(join(packs, split_size=ALL), wanted)


def test_what_is_strict(tmp_path: Path) -> None:
    names = rotated(write(tmp_path / "talk.pcap", busy(3)), tmp_path / "files", [40, 90])
    listed = find(names)
    for name in names[:2]:
        Path(name).unlink()
    with pytest.raises(DamagedCaptureError, match=r"part-000\.pcap: cannot be opened"):
        Captures(None, [], listed=listed, strict=True).places  # noqa: B018
    Path(names[2]).unlink()
    with pytest.raises(UnreadableCaptureError, match=r"part-002\.pcap: cannot be opened"):
        Captures(None, [], listed=listed).places  # noqa: B018


def test_packs_in_an_object_store(tmp_path: Path) -> None:
    """Also a capture that is deleted after it was listed."""
    path = write(tmp_path / "talk.pcap", busy(4))
    names = rotated(path, tmp_path / "files", packets_at_random(path, 29, 2))
    with s3_server() as uri:
        store, _ = system_of(uri("captures"))
        keys = [f"bucket/captures/{Path(name).name}" for name in names]
        for key, name in zip(keys, names, strict=True):
            with store.open_output_stream(key) as file:
                file.write(Path(name).read_bytes())
        listed = find(uri("captures"))
        assert [file.size for file in listed] == [Path(name).stat().st_size for name in names]
        store.delete_file(keys[17])
        joined = join(pack_splits(plan_splits(listed, 1 << 20), 1 << 20), split_size=1 << 20)
    Path(names.pop(17)).unlink()
    assert 1 < len(joined.surveys) < 30
    found, wanted = compared(joined.tables), compared(local(names))
    assert not _differ(found, {name: rows for name, rows in wanted.items() if name != "files"})
    files = {Path(f["path"].partition("?")[0]).name: f for f in joined.tables["files"].to_pylist()}
    assert [name for name, f in files.items() if f["damage"]] == ["part-017.pcap"]
    captures = {read.capture for survey in joined.surveys for read in survey.files}
    assert captures > {capture_head(name).identity for name in names}


def test_a_file_that_changes_between_the_passes_is_an_error(tmp_path: Path) -> None:
    """It is gone, begins with another packet (a ring of files is written on), or has more or fewer packets."""
    path = write(tmp_path / "talk.pcap", busy(3))
    names = rotated(path, tmp_path / "files", packets_at_random(path, 6, 3), name="part-{}.pcap.gz")
    changed = Path(names[2])
    data = read_bytes(changed)
    records = PcapRecords(data)
    n = len(records)
    for packs in (planned_packs(names, ALL), planned_packs(names, 0)):
        with pytest.raises(FileNotFoundError, match=r"part-2\.pcap\.gz"):
            join(packs, split_size=ALL, tamper=lambda surveys: changed.unlink())
        for other in (records.slice(1, n), records.slice(0, n - 1), data + records.record(n - 1), b""):
            write_capture(changed, data)
            with pytest.raises(OSError, match=r"part-2\.pcap\.gz: the capture changed while it was read"):
                join(packs, split_size=ALL, tamper=lambda surveys, other=other: write_capture(changed, other))
        write_capture(changed, data)
        check(packs, split_size=ALL)


# ---------------------------------------------------------------- ledgers


def test_ledgers_of_the_files_of_packs_add_up(tmp_path: Path) -> None:
    path = write(tmp_path / "talk.pcap", merge(busy(5), lossy(3)))
    names = rotated(path, tmp_path / "files", packets_at_random(path, 11, 6))
    size = sum(Path(name).stat().st_size for name in names) // 3 + (512 << 10)
    joined = join(planned_packs(names, size), split_size=size)
    assert 1 < len(joined.surveys) < 12
    ledgers = joined.ledgers
    assert set(ledgers) == {capture_head(name).identity for name in names}
    whole = sum_ledgers(ledgers.values())
    rows = {(r["section"], r["part"]): r["count"] for r in joined.tables["ledger"].to_pylist()}
    assert rows == {(section, part): count for section, parts in whole.items() for part, count in parts.items()}
    packets = {capture_head(f["path"]).identity: f["packets"] for f in joined.tables["files"].to_pylist()}
    assert {capture: ledger["packets"]["total"] for capture, ledger in ledgers.items()} == packets
    # Parts count in the capture that has the bytes, but for the messages that the ends of these small files cut.
    cut = [abs(ledger["payload bytes"].get("unfinished", 0)) for ledger in ledgers.values()]
    assert sum(cut) < 0.5 * whole["payload bytes"]["total"]


# ---------------------------------------------------------------- planning


@pytest.mark.parametrize("talk", sorted(TALKS))
def test_ledgers_count_what_has_changed(tmp_path: Path, talk: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ledger of a capture is the same if all connections are counted whenever a capture is over."""
    whole = write(tmp_path / "whole.pcap", TALKS[talk]())
    paths = rotated(whole, tmp_path / "files", packets_at_random(whole, 9, 1))

    def ledgers() -> object:
        return Captures(None, paths, 1 << 20)._planned.ledgers()

    def all_open(counted: CaptureLedgers) -> Any:
        return np.flatnonzero(counted._engine.assembler.connections["used"] == ROW_OPEN)

    found = ledgers()
    monkeypatch.setattr(CaptureLedgers, "_changed", all_open)
    assert found == ledgers()


def test_what_is_packed(tmp_path: Path) -> None:
    """Files of one folder whose names differ in digits, without opening them; not larger ones, and none for size 0."""
    for name in ("a1", "a2", "a10", "b1", "c/a1", "c/a3"):
        file = tmp_path / f"{name}.pcap"
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(bytes(1_000))
    (tmp_path / "a3.pcap").write_bytes(bytes(1 << 20))
    (tmp_path / "a4.pcap.gz").write_bytes(bytes(1 << 19))
    files = find([str(tmp_path), str(tmp_path / "c")])
    for each in files:
        Path(each.path).unlink()

    def names(size: int) -> list[list[str]]:
        packs = pack_splits(plan_splits(files, size), size)
        return sorted([str(Path(s.path).relative_to(tmp_path)).removesuffix(".pcap") for s in pack] for pack in packs)

    assert names(1 << 20) == [["a1", "a2", "a10"], ["a3"], ["a4.pcap.gz"], ["b1"], ["c/a1", "c/a3"]]
    assert names(1 << 21) == [["a1", "a2", "a3", "a10"], ["a4.pcap.gz"], ["b1"], ["c/a1", "c/a3"]]
    assert names(0) == [["a1"], ["a10"], ["a2"], ["a3"], ["a4.pcap.gz"], ["b1"], ["c/a1"], ["c/a3"]]


def test_folders_that_are_named_after_dates_are_packed_together() -> None:
    def packed_names(paths: list[str]) -> list[list[str]]:
        packs = pack_splits([Split(path, file=n, size=100_000) for n, path in enumerate(paths)], 2 << 20)
        return [[split.path for split in pack] for pack in packs]

    hours = [
        f"s3://x/b7/date=2026-11-{day}/hour={hour:02d}/c-{n}.pcap"
        for day in (9, 10)
        for hour in range(9)
        for n in (9, 10)
    ]
    days = packed_names(hours)
    assert [path for names in days for path in names] == hours
    assert [len(names) for names in days] == [6] * 6
    brokers = [f"/x/broker{n}/c-{k}.pcap" for n in range(4) for k in range(2)]
    assert packed_names(brokers) == [brokers[:2], brokers[2:4], brokers[4:6], brokers[6:]]
    both = [f"/x/2026/11/21/broker{n}/c-{k}.pcap" for n in range(2) for k in range(7)]
    assert packed_names(both) == [both[:7], both[7:]]


def test_the_split_size_that_nobody_chose() -> None:
    assert choose_split_size(0, 4) == choose_split_size(1 << 30, 4) == SMALLEST
    assert choose_split_size(1 << 35, 1) == choose_split_size(1 << 50, None) == LARGEST
    assert choose_split_size(1 << 32, 4) == 1 << 28
    assert choose_split_size(1 << 36, None) == 1 << 30


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    seed=st.integers(0, 10_000),
    kind=st.sampled_from(("busy", "lossy", "shaken")),
    cuts=st.lists(st.integers(1, 10**6), min_size=2, max_size=20),
    size=st.sampled_from((ALL, 2_500, 400 << 10)),
    weird=st.booleans(),
)
def test_any_traffic_in_any_packs(
    tmp_path: Path, seed: int, kind: str, cuts: list[int], size: int, weird: bool
) -> None:
    segments = lossy(seed, 1 + seed % 4) if kind == "lossy" else busy(seed)
    if kind == "shaken":
        segments = shake(segments, random.Random(seed))
    path = write(tmp_path / "any.pcap", segments)
    folder = Path(tempfile.mkdtemp(dir=tmp_path))
    numbers = [n % len(segments) or 1 for n in cuts]
    rotated(path, folder, numbers, name="{:03d}.pcap.zst" if weird else "{}.pcap")
    packed(folder, size, records=True)


def test_small_packs_share_a_task() -> None:
    """Consecutive ones, up to the size. One that is larger has a task of its own, and so has each without a size."""
    assert shared_tasks([40, 50, 10, 1, 300, 20, 80, 1], 100) == [
        range(3), range(3, 4), range(4, 5), range(5, 7), range(7, 8),
    ]  # fmt: skip
    assert shared_tasks([1, 2], 0) == [range(1), range(1, 2)]
    assert shared_tasks([], 100) == []
