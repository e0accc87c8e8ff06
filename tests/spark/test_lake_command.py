"""`kafkatap lake`: what it finds in lakes that something happened to, and captures that are forgotten."""

from __future__ import annotations

import itertools
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from kafkatap import analyze
from kafkatap.engine.read_options import ReadOptions
from kafkatap.spark import job
from kafkatap.spark.neighbours import SharedConnections
from kafkatap.spark.output import delta
from kafkatap.spark.output.delta import read_table
from kafkatap.spark.verifying import forget, named_captures, verify
from kafkatap.splits.run_options import RunOptions
from tests.cli.running import ROOT, kafkatap
from tests.spark.jobs import run_job
from tests.support.captures import PcapRecords, pcap_bytes
from tests.support.tcp import Segment, encode
from tests.wire.kafkatalk import small_talk

if TYPE_CHECKING:
    from collections.abc import Sequence


SAMPLES = [ROOT / "samples" / f"{name}.pcap.zst" for name in ("apache-0.8.2", "apache-2.8")]
HOUR = 3_600_000_000_000


def found(out: Path) -> list[tuple[str, int]]:
    return sorted((finding.kind, finding.amount) for finding in verify(str(out)))


def rows(out: Path, table: str) -> list[dict[str, Any]]:
    return sorted(read_table(str(out), table).drop_columns("run_number").to_pylist(), key=repr)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("lake") / "out"
    for capture in SAMPLES:
        run_job(str(capture), str(out))
    return out


@pytest.fixture
def copy(lake: Path, tmp_path: Path) -> Path:
    return shutil.copytree(lake, tmp_path / "copy")


def test_nothing_is_wrong(lake: Path) -> None:
    done = kafkatap("lake", "verify", lake)
    assert (done.code, done.out) == (0, "")
    assert done.err == f"kafkatap: {lake}: nothing is wrong\n"


def test_captures_are_forgotten(copy: Path) -> None:
    before = {table: rows(copy, table) for table in ("exchanges", "results", "connections", "files", "ledger")}
    [kept] = [row["capture"] for row in before["files"] if "2.8" in row["path"]]
    done = kafkatap("lake", "forget", copy, "apache-0.8.2.pcap.zst")
    gone = sum(row["capture"] != kept for row in before["exchanges"])
    assert done.code == 0
    assert done.err.splitlines()[0] == f"kafkatap: {SAMPLES[0]} is forgotten"
    assert f" {gone:,} exchanges, " in done.err.splitlines()[1]
    assert {table: rows(copy, table) for table in before} == {
        table: [row for row in some if row["capture"] == kept] for table, some in before.items()
    }
    assert found(copy) == []
    done = kafkatap("lake", "forget", copy, "apache-0.8.2.pcap.zst")
    assert done.code == 2
    assert "it has no capture apache-0.8.2.pcap.zst" in done.err
    assert kafkatap("lake", "forget", copy, str(kept)).code == 0
    assert rows(copy, "exchanges") == rows(copy, "files") == []


def test_reports_of_jobs(tmp_path: Path) -> None:
    """The report of a job stays while the lake has a capture of it."""
    out = tmp_path / "out"

    def kept() -> list[set[str]]:
        """The captures of each report that is there, the most first."""
        runs = {row["run"]: set[str]() for row in read_table(str(out), "files").to_pylist()}
        assert {path.stem for path in (out / "reports").iterdir()} == set(runs)
        for path in (out / "reports").iterdir():
            report = json.loads(path.read_text())
            assert report["reports"]["events"] is not None
            runs[path.stem] = {Path(row["path"]).name for row in report["reports"]["files"]}
        return sorted(runs.values(), key=len, reverse=True)

    first, second = SAMPLES[:2]
    run_job([str(first), str(second)], str(out))
    assert kept() == [{first.name, second.name}]
    shutil.rmtree(out / "state")  # otherwise it reads the second one again, too
    run_job(str(first), str(out))
    assert kept() == [{first.name, second.name}, {first.name}]
    forget(str(out), [info.capture for info in named_captures(str(out), [second.name])])
    assert kept() == [{first.name}]
    assert json.loads((out / "report.json").read_text()) == json.loads(next((out / "reports").iterdir()).read_text())


def test_a_run_that_was_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After each of its commits."""
    before = tmp_path / "before"
    run_job(str(SAMPLES[0]), str(before))
    commit = delta.TableChanges.commit
    left = 0

    def commit_some(changes: delta.TableChanges) -> None:
        nonlocal left
        if left == 0:
            raise KeyboardInterrupt
        left -= 1
        commit(changes)

    for count in range(1, 8):
        left, out = count, shutil.copytree(before, tmp_path / str(count))
        with monkeypatch.context() as killed:
            killed.setattr(delta.TableChanges, "commit", commit_some)
            with pytest.raises(KeyboardInterrupt):
                run_job(str(SAMPLES[1]), str(out))
        assert {kind for kind, _ in found(out)} == {"unfinished"}, count
        run_job(str(SAMPLES[1]), str(out))
        assert found(out) == []


def test_a_run_does_not_open_files_of_earlier_days(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    day, out = 24 * HOUR, tmp_path / "out"
    paths = []
    for n in range(6):
        talk = small_talk(3)
        segments = [replace(s, time_ns=s.time_ns + n * day) for s in talk.segments]
        paths.append(written(tmp_path / f"{n}.pcap", segments))
    run_job(paths[:5], str(out))
    opened: list[str | None] = []
    change, active = delta.change_file, delta.active_files

    def recorded(folder: Any, table: str, file: Any, *others: Any) -> Any:
        opened.append(file.date)
        return change(folder, table, file, *others)

    monkeypatch.setattr(delta, "change_file", recorded)
    # As in files of many captures, whose range has all others.
    monkeypatch.setattr(delta, "active_files", lambda of: [replace(file, least=None, most=None) for file in active(of)])
    dates = [str(row["date"]) for row in read_table(str(out), "exchanges", ["date"]).to_pylist()]
    run_job(paths[5], str(out))
    days = sorted({*dates})
    assert {date for date in opened if date is not None} == {days[4]}  # a day is left
    opened.clear()
    run_job(paths[5], str(out))
    assert min(date for date in opened if date is not None) == days[4]
    after = [str(row["date"]) for row in read_table(str(out), "exchanges", ["date"]).to_pylist()]
    assert sorted(date for date in after if date in days) == sorted(dates)


def test_rows_that_are_there_twice(copy: Path) -> None:
    """As if a file of the table had been committed again under another name."""
    table = delta.open_table(str(copy), "exchanges")
    [path, *_] = sorted(table.to_pyarrow_dataset().files)
    name = Path(path).name
    shutil.copy(copy / "exchanges" / path, copy / "exchanges" / path.replace(name, f"again-{name}"))
    [action] = [a for a in delta.active_files(table) if a.path == path]
    from deltalake.transaction import AddAction

    again = AddAction(path.replace(name, f"again-{name}"), action.size, {"date": action.date}, 0, True, "{}")
    table.create_write_transaction([again], "append", table.schema(), ["date"])
    (kind, amount), (other, not_counted) = found(copy)
    assert (kind, other) == ("double", "rollup")
    assert amount == not_counted > 100
    assert kafkatap("lake", "verify", copy).code == 3


def written(path: Path, segments: Sequence[Segment]) -> str:
    path.write_bytes(pcap_bytes(encode(segments)))
    return str(path)


def test_captures_of_two_places_overlap(tmp_path: Path) -> None:
    talk = small_talk(30)
    here = written(tmp_path / "client.pcap", talk.segments)
    later = [replace(s, time_ns=s.time_ns + 200_000) for s in talk.segments[20:]]
    there = written(tmp_path / "broker.pcap", later)
    for path in (here, there):
        run_job(path, str(tmp_path / "out"))
    both = set(analyze(here).exchanges["exchange"].to_pylist())
    both &= set(analyze(there).exchanges["exchange"].to_pylist())
    assert len(both) > 15
    [finding] = verify(str(tmp_path / "out"))
    assert (finding.kind, finding.amount) == ("overlap", len(both))
    assert here in finding.text
    assert there in finding.text


def test_hours_without_a_capture(tmp_path: Path) -> None:
    """Of the broker in the middle, two hours are missing. The others have captures in each."""
    folder = tmp_path / "captures"
    folder.mkdir()
    for number, hours in enumerate([range(6), (0, 1, 4, 5), (2, 3)]):
        for hour in hours:
            talk = small_talk(5, broker=(f"10.0.0.{number + 2}", 9_092), isn=(7_000 * hour, 9_000 * hour))
            moved = [replace(s, time_ns=s.time_ns + hour * HOUR) for s in talk.segments]
            written(folder / f"broker{number}-{hour:02}.pcap", moved)
    run_job(str(folder), str(tmp_path / "out"))
    done = kafkatap("lake", "verify", tmp_path / "out", "--json")
    assert done.code == 3
    [finding] = map(json.loads, done.out.splitlines())
    text = "no packet from 2024-01-01T02:00 to 2024-01-01T04:00 UTC in the captures of broker 10.0.0.3"
    assert finding == {"kind": "gap", "text": text, "amount": 2}


def test_days_of_which_only_some_have_results(tmp_path: Path) -> None:
    """A day of requests without an answer has no results. The days of the two tables are compared by date."""
    folder = tmp_path / "captures"
    folder.mkdir()
    talk = small_talk(9)
    written(folder / "1.pcap", [s for s in talk.segments if not s.payload or s.source == talk.client])
    for day in (1, 2):
        moved = [replace(s, time_ns=s.time_ns + day * 24 * HOUR, seq=s.seq + day) for s in talk.segments]
        written(folder / f"{day + 1}.pcap", moved)
    run_job(str(folder), str(tmp_path / "out"), options=RunOptions(ReadOptions(ports=(9_092,))))
    dates = {
        table: {row["date"] for row in delta.open_table(str(tmp_path / "out"), table).to_pyarrow_table().to_pylist()}
        for table in ("exchanges", "results")
    }
    assert dates["results"] < dates["exchanges"]
    assert {finding.kind for finding in verify(str(tmp_path / "out"))} == {"gap"}


def test_damage(tmp_path: Path) -> None:
    data = pcap_bytes(encode(small_talk(9).segments))
    path = tmp_path / "cut.pcap"
    path.write_bytes(data[:-7])
    run_job(str(path), str(tmp_path / "out"))
    [finding] = verify(str(tmp_path / "out"))
    assert finding.kind == "damage"
    assert finding.text.startswith(f"{path}: cut short")


@pytest.fixture(scope="module")
def series(samples: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Three captures that share connections."""
    records, folder = PcapRecords(samples / "apache-4.3.pcap.zst"), tmp_path_factory.mktemp("series")
    cuts = [len(records) * n // 3 for n in range(4)]
    paths = [folder / f"hour-{n}.pcap" for n in range(3)]
    for path, first, end in zip(paths, cuts, cuts[1:], strict=False):
        path.write_bytes(records.slice(first, end))
    return list(map(str, paths))


@pytest.mark.parametrize("again", range(3))
def test_an_hour_is_not_read_again_without_its_neighbours(
    series: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, again: int
) -> None:
    """It is refused without the state before it. Where an earlier version did it, `verify` finds it."""
    out = str(tmp_path / "out")
    run_job(series, out)
    shutil.rmtree(f"{out}/state")
    wanted = rows(Path(out), "exchanges")
    assert found(Path(out)) == []
    others = [path for path in series if path != series[again]]
    with pytest.raises(SharedConnections) as refused:
        run_job(series[again], out, replace_rows=True)
    assert all(path in str(refused.value) for path in others)
    assert rows(Path(out), "exchanges") == wanted
    monkeypatch.setattr(job, "check_neighbours", lambda *_: None)
    run_job(series[again], out)
    assert rows(Path(out), "exchanges") != wanted
    assert any(finding.kind == "cut" and series[again] in finding.text for finding in verify(out))
    assert again == 0 or "balance" in {kind for kind, _ in found(Path(out))}
    monkeypatch.undo()
    run_job(series, out)
    assert rows(Path(out), "exchanges") == wanted
    assert found(Path(out)) == []


def test_hours_that_different_runs_read_are_cut(series: list[str], tmp_path: Path) -> None:
    out = tmp_path / "out"
    notes = []
    for path in series:
        notes.append(run_job(path, str(out)).notes)
        shutil.rmtree(out / "state")  # as in a lake of an earlier version
    assert ["go on in captures that another run read" in str(each) for each in notes] == [False, True, True]
    cut = [finding for finding in verify(str(out)) if finding.kind == "cut"]
    assert len(cut) >= 2
    for one, two in itertools.pairwise(series):
        assert any(f"of {one} go on in {two}" in finding.text for finding in cut)


def test_tables_that_do_not_balance(copy: Path) -> None:
    """As if somebody had changed rows."""
    table = DeltaTable(str(copy / "exchanges"))
    table.update(updates={"outcome": "'unanswered'"}, predicate="outcome = 'answered' and api_key = 3")
    DeltaTable(str(copy / "files")).update(updates={"packets": "packets + 5"})
    texts = [finding.text for finding in verify(str(copy)) if finding.kind == "balance"]
    assert sum("packets, and its ledger" in text for text in texts) == 2
    assert sum("exchanges of the outcome unanswered, and its ledger" in text for text in texts) == 2


def test_zeros_in_place_of_packets(samples: Path, tmp_path: Path) -> None:
    data = bytearray(PcapRecords(samples / "apache-0.8.2.pcap.zst").data)
    data[300_000:400_000] = bytes(100_000)
    (tmp_path / "hole.pcap").write_bytes(data)
    run_job(str(tmp_path / "hole.pcap"), str(tmp_path / "out"))
    assert "damage" in {kind for kind, _ in found(tmp_path / "out")}


def test_records_go_with_their_exchanges(samples: Path, tmp_path: Path) -> None:
    """Half of a capture with records, then all of it without: its records are those of the whole."""
    data = PcapRecords(samples / "apache-2.8.pcap.zst")
    path, out = tmp_path / "broker.pcap", tmp_path / "out"
    path.write_bytes(data.slice(0, len(data) // 2))
    run_job(str(path), str(out), options=RunOptions(records=True))
    half = len(rows(out, "records"))
    path.write_bytes(data.data)
    result = run_job(str(path), str(out))
    assert any("records of these captures" in note for note in result.notes)
    assert len(rows(out, "records")) == analyze(path).records.num_rows > half
    assert found(out) == []
    DeltaTable(str(out / "records")).delete("partition = 0")
    assert [kind for kind, _ in found(out)] == ["unfinished"]


@pytest.mark.parametrize("damage", ["empty", "half", "text"])
@pytest.mark.parametrize("kind", ["_delta_log/*1.json", "*.parquet"])
def test_damaged_files_of_a_table_are_one_line(copy: Path, kind: str, damage: str) -> None:
    """`verify` is never silent. An empty commit of a log is none: then it finds rows that are gone."""
    path = sorted((copy / "exchanges").rglob(kind))[0]
    data = path.read_bytes()
    path.write_bytes({"empty": b"", "half": data[: len(data) // 2], "text": b"corrupt"}[damage])
    for command in (("lake", "verify"), ("lake", "compact"), ("lake", "forget"), ("report", "--client", "*")):
        done = kafkatap(*command, copy, *(["apache-2.8.pcap.zst"] if "forget" in command else []))
        lines = done.err.splitlines()
        if done.code == 2:
            assert len(lines) == 1
            assert f"{copy}/exchanges" in lines[0]
            assert len(lines[0]) < 500
        else:
            assert done.code == (3 if "verify" in command else 0)
