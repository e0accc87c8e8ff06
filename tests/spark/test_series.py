"""Runs that go on from each other: whatever the order of captures, the rows are those of one run over all."""

from __future__ import annotations

import itertools
import shutil
import threading
from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kafkatap.engine import assembly
from kafkatap.parquet.partitions import to_microseconds
from kafkatap.spark.job import run_job
from kafkatap.spark.output import delta
from kafkatap.spark.series import Series, Start
from kafkatap.spark.state_bytes import state_bytes
from kafkatap.spark.verifying import forget, named_captures, verify
from kafkatap.splits.run_options import RunOptions
from tests.splits.join_support import compared, differences, local, published
from tests.splits.join_talks import SECOND, pipelined
from tests.support.captures import PcapRecords, pcap_bytes
from tests.support.tcp import START_NS, encode, merge

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HOURS = 5
HANDSHAKE = ("tls_session", "tls_handshake_ns")


@pytest.fixture(scope="module")
def hours(samples: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Captures that share connections."""
    records, folder = PcapRecords(samples / "apache-4.3.pcap.zst"), tmp_path_factory.mktemp("hours")
    paths = [folder / f"hour-{n}.pcap" for n in range(HOURS)]
    for n, path in enumerate(paths):
        path.write_bytes(records.slice(len(records) * n // HOURS, len(records) * (n + 1) // HOURS))
    return list(map(str, paths))


@pytest.fixture
def out(tmp_path: Path) -> str:
    return str(tmp_path / "out")


def assert_same(out: str, paths: Sequence[str], kinds: Collection[str] = ()) -> None:
    wanted = {name: to_microseconds(table) for name, table in local(sorted(paths), records=True).items()}
    lines = differences(compared(published(out)), compared(wanted))
    assert not lines, "\n".join(lines)
    assert {finding.kind for finding in verify(out)} <= {"gap", *kinds}


def run(spark: SparkSession | None, out: str, *paths: str) -> list[str]:
    return run_job(spark, list(paths), out, options=RunOptions(records=True)).notes


def test_on_spark(spark: SparkSession, hours: list[str], out: str) -> None:
    """What executors get and return has all that runs leave. All other tests run without Spark."""
    for chosen in ([0, 1], [2], [3, 4], [2]):
        run(spark, out, *(hours[n] for n in chosen))
    assert_same(out, hours)


@pytest.mark.parametrize(
    "order",
    [
        "01234",
        "0123434",
        "4",
        "0 1 2 3 4",
        "0 1 3 2 4",
        "1 0 2",
        "0 2 1",
        "0 1 2 1",
        "0 1 2 3 4 0",
        "43 0 21",
    ],
)
def test_any_order(hours: list[str], out: str, order: str) -> None:
    for chosen in order.split():
        run(None, out, *(hours[int(n)] for n in chosen))
    assert_same(out, [hours[n] for n in sorted({int(n) for n in order if n != " "})])


def test_a_report_has_the_connections_of_its_run(hours: list[str], out: str) -> None:
    """Those that are open since earlier captures count only if the run has packets of them."""
    for hour in hours:
        report = run_job(None, [hour], out).report
        alone = run_job(None, [hour], f"{out}-{Path(hour).stem}").report
        assert report is not None
        assert alone is not None
        of_run, of_hour = (made.heading.named_rows()[0]["connections"] for made in (report, alone))
        assert of_run == of_hour


def test_forgotten(hours: list[str], out: str) -> None:
    """The next run goes on from what is before."""
    for hour in hours[:4]:
        run(None, out, hour)
    forget(out, [info.capture for info in named_captures(out, [hours[2]])])
    run(None, out, hours[4])
    assert_same(out, [*hours[:2], *hours[3:]])
    run(None, out, hours[2])
    assert_same(out, hours)


def test_forgotten_from_the_only_run(hours: list[str], out: str) -> None:
    """The next run reads what is left of it again."""
    run(None, out, *hours[:3])
    forget(out, [info.capture for info in named_captures(out, [hours[1]])])
    run(None, out, hours[3])
    assert_same(out, [hours[0], *hours[2:4]])


def test_a_copy_between_the_others(hours: list[str], out: str, tmp_path: Path) -> None:
    """Its name is of another series of files. So the others are read as one, although it lies between them."""
    copy = shutil.copy(hours[1], tmp_path / "copy.pcap")
    run(None, out, *hours[:3])
    assert run(None, out, str(copy)) == ["2 captures with later packets of the same connections are read again."]
    assert_same(out, [hours[0], str(copy), hours[2]])
    run(None, out, hours[3])
    assert_same(out, [hours[0], str(copy), *hours[2:4]])


def test_zeros_in_place_of_packets(hours: list[str], out: str, tmp_path: Path) -> None:
    """They have no time. The capture goes on from the one before, and the next one from it."""
    data, damaged = bytearray(Path(hours[1]).read_bytes()), tmp_path / "damaged.pcap"
    data[len(data) // 2 : len(data) // 2 + 20_000] = bytes(20_000)
    damaged.write_bytes(data)
    for path in (hours[0], str(damaged), hours[2]):
        run(None, out, path)
    assert_same(out, [hours[0], str(damaged), hours[2]], {"damage"})
    run(None, out, hours[1])
    assert_same(out, hours[:3])


def test_who_listens_is_known_from_other_connections(samples: Path, out: str, tmp_path: Path) -> None:
    """Short captures, of which some are missing."""
    records, paths = PcapRecords(samples / "apache-4.3.pcap.zst"), []
    for n in (5, 8, 9, 10):
        path = tmp_path / f"part-{n:02d}.pcap"
        path.write_bytes(records.slice(len(records) * n // 72, len(records) * (n + 1) // 72))
        paths.append(str(path))
    run(None, out, *paths[:3])
    run(None, out, paths[3])
    assert_same(out, paths)


@pytest.mark.parametrize("count", [0, 1, 4, 7])
def test_killed(hours: list[str], out: str, monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """After some commits. The next run over other captures completes it."""
    run(None, out, hours[0])
    commit, left = delta.TableChanges.commit, itertools.count(-count)

    def commit_some(changes: delta.TableChanges) -> None:
        if next(left) == 0:
            raise KeyboardInterrupt
        commit(changes)

    with monkeypatch.context() as killed:
        killed.setattr(delta.TableChanges, "commit", commit_some)
        with pytest.raises(KeyboardInterrupt):
            run(None, out, hours[1])
    run(None, out, hours[2])
    if count == 0:
        run(None, out, hours[1])
    assert_same(out, hours[:3])


def test_two_at_once(hours: list[str], out: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two runs that go on from the same state, the second one starts again."""
    run(None, out, hours[0])
    both, start, starts = threading.Barrier(2), Series.start, list[Start]()

    def together(series: Series, *surveyed: Any) -> Start:
        found = start(series, *surveyed)
        starts.append(found)
        if len(starts) <= 2:
            both.wait(60)
        return found

    monkeypatch.setattr(Series, "start", together)
    runs = [threading.Thread(target=run, args=(None, out, hour)) for hour in hours[1:3]]
    for thread in runs:
        thread.start()
    for thread in runs:
        thread.join()
    assert len(starts) == 3
    assert_same(out, hours[:3])


def test_closed_connections_that_end_while_their_packets_are_read_again(
    tmp_path: Path, out: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run has counted them already. Of more than 8,000, some end then; here all do."""
    monkeypatch.setattr(assembly, "REAP_EVERY", 1)
    talks = [pipelined(12, client=("10.0.0.7", 40_000 + n), time_ns=START_NS + n * 10 * SECOND) for n in range(4)]
    path = tmp_path / "short.pcap"
    path.write_bytes(pcap_bytes(encode(merge(*talks)), nanoseconds=True))
    run(None, out, str(path))
    assert_same(out, [str(path)])


def test_without_its_states(hours: list[str], out: str) -> None:
    """As in a lake of an earlier version: the edge is cut, the run says so, and one run over all mends it."""
    run(None, out, hours[0])
    shutil.rmtree(f"{out}/state")
    [note] = run(None, out, hours[1])
    assert "go on in captures that another run read" in note
    assert {finding.kind for finding in verify(out)} == {"cut"}
    run(None, out, *hours[:2])
    assert_same(out, hours[:2])


class _Hostile:
    def __reduce__(self) -> tuple[Any, ...]:
        return print, ("code of a state ran",)


def _states(out: str) -> list[Path]:
    return sorted((Path(out) / "state").glob("*/*"))


@pytest.mark.parametrize("harm", ["cut", "bit", "hostile", "empty"])
def test_damaged_state(hours: list[str], out: str, harm: str, capsys: pytest.CaptureFixture[str]) -> None:
    """No run goes on from it, and says so. It does not run code."""
    run(None, out, hours[0])
    (path,) = _states(out)
    data = bytearray(path.read_bytes())
    if harm == "cut":
        del data[len(data) // 2 :]
    elif harm == "bit":
        data[len(data) // 2] ^= 1
    elif harm == "hostile":
        data[data.index(b"\n") + 1 :] = state_bytes(_Hostile())
    else:
        data.clear()
    path.write_bytes(data)
    (path.parent / "state-1 (copy)").touch()
    (path.parent.parent / "notes").mkdir()
    (path.parent.parent / "notes" / "state-1").touch()
    notes = run(None, out, hours[1])
    assert any("is damaged" in note for note in notes) == (harm != "empty")
    assert any("go on in captures that another run read" in note for note in notes)
    assert {finding.kind for finding in verify(out)} == {"cut"}
    assert "code of a state ran" not in capsys.readouterr().out
    assert not any("is damaged" in note for note in run(None, out, hours[2]))


def test_damaged_last_state(hours: list[str], out: str) -> None:
    """A run goes on from the state before it, and reads its captures again."""
    for hour in hours[:2]:
        run(None, out, hour)
    _states(out)[-1].write_bytes(b"kafkatap")
    run(None, out, hours[2])
    assert_same(out, hours[:3])


@pytest.mark.parametrize("first", [False, True])
def test_records_of_some_runs(hours: list[str], out: str, first: bool) -> None:
    """A run without records, and one with: nothing is unfinished."""
    for hour, records in zip(hours, (first, not first), strict=False):
        run_job(None, [hour], out, options=RunOptions(records=records))
    assert list(verify(out)) == []


def test_handshakes(samples: Path, tmp_path: Path, out: str) -> None:
    """Handshakes of TLS that begin in one capture and end in the next one."""
    records = PcapRecords(samples / "tls" / "broker.pcap.zst")
    paths = [tmp_path / f"hour-{n}.pcap" for n in range(3)]
    for path, (begin, end) in zip(paths, itertools.pairwise((0, 236, 742, len(records))), strict=True):
        path.write_bytes(records.slice(begin, end))
        run_job(None, [str(path)], out)
    found, wanted = (
        Counter(zip(*(table["connections"][name].to_pylist() for name in ("connection", *HANDSHAKE)), strict=True))
        for table in (published(out, ["connections"]), local(paths))
    )
    assert found == wanted
