"""What a lake says of messages (groups, events, advice, topics, clients) equals the report of its captures."""

from __future__ import annotations

import json
import shutil
import struct
from collections import Counter
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from deltalake import DeltaTable

from kafkatap.engine.selection import Selection
from kafkatap.reports import batch
from kafkatap.reports.batch import Array
from kafkatap.reports.section_parts import place_counts, section_counts
from kafkatap.reports.section_parts.registry import OF_LAKES
from kafkatap.reports.section_parts.stored import STORED_TABLE
from kafkatap.spark import section_tables
from kafkatap.spark.output.compaction import compact
from kafkatap.spark.output.delta import read_table
from kafkatap.spark.output.writing import SplitFiles, TableWriter
from kafkatap.spark.verifying import forget, named_captures, verify
from kafkatap.splits import tasks, two_passes
from kafkatap.splits.run_options import RunOptions
from tests.cli.running import ROOT, kafkatap
from tests.spark.jobs import run_job
from tests.spark.test_lake_report import COARSE, SAMPLES, report
from tests.splits.test_packs import rotated
from tests.support.captures import read_bytes

SECTIONS = ",".join((*OF_LAKES, "summary", "latency"))
#: Captures with what several sections have to say, and a size of splits that cuts them in several.
RECORDINGS = (
    *((ROOT / "samples" / "events" / f"{name}.pcap.zst", 40_000) for name in ("hang", "kill", "quota", "topics")),
    (ROOT / "samples" / "apache-2.8.pcap.zst", 200_000),
    (ROOT / "samples" / "reports" / "refetch.pcap.zst", 100_000),
    (ROOT / "samples" / "reports" / "nat-twice.pcap.zst", 100_000),
)
DAY = 86_400


def without_times(value: Any) -> Any:
    """A part of a report without what a lake has in another unit, with the rows of tables in any order."""
    if isinstance(value, dict):
        return {name: without_times(each) for name, each in value.items() if name not in (*COARSE, "packets")}
    if isinstance(value, list):
        return sorted((without_times(each) for each in value), key=lambda each: json.dumps(each, sort_keys=True))
    return value


def compare(lake: Path, captures: list[Path], *options: str) -> None:
    found, wanted = (report(*options, *named)["reports"] for named in ([lake], captures))
    for table, rows in wanted.items():
        if table not in ("files", "timeline"):  # the paths, and hours
            assert without_times(found[table]) == without_times(rows), table


def later(path: Path, seconds: int, out: Path) -> Path:
    """A capture whose packets came so much later."""
    data, at = bytearray(read_bytes(path)), 24
    while at < len(data):
        struct.pack_into("<I", data, at, struct.unpack_from("<I", data, at)[0] + seconds)
        at += 16 + struct.unpack_from("<I", data, at + 8)[0]
    out.write_bytes(data)
    return out


@pytest.mark.parametrize(("capture", "split_size"), RECORDINGS, ids=lambda each: getattr(each, "stem", ""))
def test_sections_equal_those_of_the_capture(tmp_path: Path, capture: Path, split_size: int) -> None:
    run_job(capture, tmp_path / "out", split_size=split_size)
    compare(tmp_path / "out", [capture], "--sections", SECTIONS)


def test_by_topic_and_first_lines(tmp_path: Path) -> None:
    for capture in SAMPLES:  # a run for each
        run_job(capture, tmp_path / "out")
    compare(tmp_path / "out", SAMPLES, "--by", "topic")
    done = kafkatap("upgrade-check", "--json", tmp_path / "out")
    wanted = kafkatap("upgrade-check", "--json", *SAMPLES)
    assert done.code == wanted.code == 3
    assert without_times(json.loads(done.out)["reports"]["upgrade"]) == without_times(
        json.loads(wanted.out)["reports"]["upgrade"]
    )


def test_captures_that_are_read_again_or_forgotten(tmp_path: Path) -> None:
    out = tmp_path / "out"
    run_job(SAMPLES, out)
    run_job(SAMPLES[0], out, replace_rows=True)
    compare(out, SAMPLES, "--sections", "groups,topics,clients")
    forget(str(out), [info.capture for info in named_captures(str(out), [SAMPLES[0].name])])
    compare(out, SAMPLES[1:], "--sections", "groups,topics,clients")


def test_a_window_of_hours(tmp_path: Path) -> None:
    hang = RECORDINGS[0][0]
    next_day = later(RECORDINGS[1][0], DAY, tmp_path / "next.pcap")
    run_job([hang, next_day], tmp_path / "out")
    for capture in (hang, next_day):
        begin = report(capture)["capture"]["first"]
        window = ("--from", f"{begin[:13]}:00Z", "--to", f"{begin[:11]}23:00Z")
        found, wanted = (
            report(*window, "--sections", "events", path)["reports"] for path in (tmp_path / "out", capture)
        )
        assert found["events"], capture
        assert [row["event"] for row in found["events"]] == [row["event"] for row in wanted["events"]]


def test_what_other_clients_do_is_not_known_of_one(tmp_path: Path) -> None:
    run_job(SAMPLES[0], tmp_path / "out")
    done = kafkatap("report", tmp_path / "out", "--client", "x", "--sections", "groups")
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert "--sections groups of a lake is of all clients" in done.err
    assert kafkatap("report", tmp_path / "out", "-n", "3", "--no-pager").code == 0


# ---------------------------------------------------------------- lakes of earlier versions, and damage


def test_a_lake_without_counts_of_messages(tmp_path: Path) -> None:
    out = tmp_path / "out"
    run_job(SAMPLES[0], out)
    shutil.rmtree(out / STORED_TABLE)  # as an earlier version left it
    assert ("missing", 1) in {(finding.kind, finding.amount) for finding in verify(str(out))}
    assert report(out)["reports"]["latency"]
    assert kafkatap("lake", "sections", out).code == 2
    run_job(SAMPLES[1], out)
    [finding] = [each for each in verify(str(out)) if each.kind == "rollup"]
    assert finding.text.startswith("1 capture without counts of messages, such as ")
    assert any("sections over messages are without 1 capture" in text for text in report(out)["warnings"])
    shutil.rmtree(out / "state")
    run_job(SAMPLES[0], out)
    assert {each.kind for each in verify(str(out))} <= {"gap"}
    compare(out, SAMPLES[:2], "--sections", "topics")


def test_captures_that_have_nothing_to_say(tmp_path: Path) -> None:
    """They are not of an earlier version."""
    options = RunOptions(selection=Selection.of(apis=["ApiVersions"]))
    run_job(SAMPLES[2], tmp_path / "out", options=options)
    found = report(tmp_path / "out")
    assert found["reports"]["latency"][0]["answered"] > 5
    assert not any("sections over messages" in text for text in found["warnings"])


def test_counts_that_are_there_twice(tmp_path: Path) -> None:
    out = tmp_path / "out"
    run_job(SAMPLES[0], out)
    rows = DeltaTable(str(out / STORED_TABLE)).to_pyarrow_table()
    from deltalake import write_deltalake

    write_deltalake(str(out / STORED_TABLE), rows, mode="append")
    [finding] = [each for each in verify(str(out)) if each.kind == "rollup"]
    assert "section_counts counts twice" in finding.text
    assert "exchanges with their messages" in finding.text


# ---------------------------------------------------------------- two spans compared


def test_two_days_are_compared_as_their_captures_are(tmp_path: Path) -> None:
    before, quota = (ROOT / "samples" / "compare" / f"{name}.pcap.zst" for name in ("before", "quota"))
    after = later(quota, DAY, tmp_path / "after.pcap")
    run_job(before, tmp_path / "out")
    run_job(after, tmp_path / "out")
    days = ("--before", "2026-11-23", "--after", "2026-11-24T02:00Z/2026-11-24T03:00Z")
    found = json.loads(kafkatap("compare", "--json", "--utc", tmp_path / "out", *days).out)
    wanted = json.loads(kafkatap("compare", "--json", "--utc", before, after).out)
    assert [row["finding"] for row in found["findings"]] == [row["finding"] for row in wanted["findings"]]
    assert found["changes"][0]["before"] == pytest.approx(wanted["changes"][0]["before"])
    assert (found["worse"], found["better"]) == (wanted["worse"], wanted["better"]) == (1, 0)
    assert [side["requests"] for side in found["sides"]] == [side["requests"] for side in wanted["sides"]]
    done = kafkatap("compare", "--utc", "--exit-code", tmp_path / "out", *days)
    assert done.code == 3
    assert "Worse       client metrics, Produce: throttled by a quota" in done.out
    assert "kafkatap report --from 2026-11-24T02:00Z --to 2026-11-24T03:00Z" in done.out
    one = kafkatap("compare", "--utc", "--exit-code", tmp_path / "out", "--client", "billing", *days)
    assert one.code == 0, one.err


def test_events_of_a_day_are_compared(tmp_path: Path) -> None:
    hang = RECORDINGS[0][0]
    steady = later(ROOT / "samples" / "compare" / "steady.pcap.zst", DAY, tmp_path / "steady.pcap")
    run_job([steady], tmp_path / "out")
    run_job([hang], tmp_path / "out")
    days = [report(path)["capture"]["first"][:10] + "Z" for path in (steady, hang)]
    found = json.loads(kafkatap("compare", "--json", tmp_path / "out", "--before", days[0], "--after", days[1]).out)
    wanted = json.loads(kafkatap("compare", "--json", steady, hang).out)
    events = [[row["finding"] for row in each["findings"] if "hung" in row["finding"]] for each in (found, wanted)]
    assert events[0] == events[1] != []


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((), "of a lake two spans are compared"), (("--before", "2026-11-23"), "of a lake two spans are compared"),
        (("--before", "x", "--after", "2026-11-24"), "--before x: neither a day"),
        (("--before", "2026-13-23", "--after", "2026-11-24"), "--before 2026-13-23: month must be in 1..12"),
        (("--before", "2020-01-01Z", "--after", "2026-11-21Z"), "has no capture of 2020-01-01Z"),
        (("--before", "2026-11-21T08:30Z/2026-11-21T09:00Z", "--after", "2026-11-21Z"), "is no whole hour"),
        (("--before", "2026-11-22T00:00Z/2026-11-21T00:00Z", "--after", "2026-11-21Z"), "ends before it begins"),
        (("--before", "2026-11-21Z", "--after", "2026-11-21Z", "-f", "api == Fetch"), "--filter needs captures"),
        (("--before", "2026-11-21Z", "--after", "2026-11-21Z", "--cluster", "x"), "has no cluster x"),
        (("--split", "15:00", "--before", "2026-11-21Z", "--after", "2026-11-21Z"), "--split needs captures"),
    ],
)  # fmt: skip
def test_wrong_spans_are_one_line(tmp_path_factory: Any, options: tuple[str, ...], words: str) -> None:
    out = tmp_path_factory.getbasetemp() / "spans"
    if not out.exists():
        run_job(SAMPLES[0], out)
    done = kafkatap("compare", out, *options)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1), done.err
    assert words in done.err


def test_spans_and_clusters_are_not_of_captures() -> None:
    commands: tuple[tuple[str | Path, ...], ...] = (
        ("compare", SAMPLES[0], SAMPLES[1], "--before", "2026-11-21"), ("compare", *SAMPLES[:2], "--cluster", "x"),
        ("report", SAMPLES[0], "--cluster", "x"),
    )  # fmt: skip
    for command in commands:
        done = kafkatap(*command)
        assert (done.code, done.err.count("\n")) == (2, 1)
        assert "kafkatap spark" in done.err


# ---------------------------------------------------------------- sections as tables


def days_of(out: Path, table: str) -> set[tuple[str, str | None]]:
    rows = DeltaTable(str(out / "sections" / table)).to_pyarrow_table(columns=["date", "cluster"])
    return set(zip(map(str, rows["date"].to_pylist()), rows["cluster"].to_pylist(), strict=True))


def test_sections_are_tables_by_day_and_cluster(tmp_path: Path) -> None:
    sample = RECORDINGS[0][0]
    for folder in ("prod", "dev"):
        (tmp_path / folder).mkdir()
    first = Path(shutil.copy(sample, tmp_path / "prod" / "first.pcap.zst"))
    second = later(SAMPLES[0], DAY, tmp_path / "dev" / "second.pcap")
    third = later(SAMPLES[0], 5 * DAY, tmp_path / "prod" / "third.pcap")
    out, pattern = tmp_path / "out", "{cluster}/*"
    run_job(first, out, path_pattern=pattern)
    assert not section_tables.are_there(str(out))
    assert list(section_tables.update_sections(str(out))) == ["2026-11-23"] or section_tables.are_there(str(out))
    assert list(section_tables.update_sections(str(out))) == []
    run_job([second, third], out, path_pattern=pattern)  # the job keeps them up to date
    assert {cluster for _, cluster in days_of(out, "clients")} == {"prod", "dev"}
    assert len(days_of(out, "clients")) == 3
    assert not section_tables.is_outdated(str(out))
    for path in (first, second):
        rows = DeltaTable(str(out / "sections" / "clients")).to_pyarrow_table().to_pylist()
        wanted = report("--sections", "clients,groups,events,advice", path)["reports"]
        date = wanted["clients"][0]["client_id"] and report(path)["capture"]["first"][:10]
        mine = [row for row in rows if str(row["date"]) == date]
        assert {row["client_id"]: row["requests"] for row in mine} == {
            row["client_id"]: row["requests"] for row in wanted["clients"]
        }
        events = DeltaTable(str(out / "sections" / "events")).to_pyarrow_table().to_pylist()
        assert [row["event"] for row in events if str(row["date"]) == date] == [
            row["event"] for row in wanted["events"]
        ]
    list(compact(str(out)))
    assert not section_tables.is_outdated(str(out))  # the same rows
    found = report("--cluster", "dev", out)["capture"]
    assert found["requests"] == report(second)["capture"]["requests"]
    clusters = read_table(str(out), "rollup", ["capture", "cluster"]).to_pylist()
    assert {row["cluster"] for row in clusters} == {"prod", "dev"}
    forget(str(out), [info.capture for info in named_captures(str(out), ["third.pcap"])])
    assert len(days_of(out, "clients")) == 2


def test_tables_of_sections_that_are_older_than_the_lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out"
    run_job(SAMPLES[0], out)
    done = kafkatap("lake", "sections", out)
    assert (done.code, done.err) == (0, f"kafkatap: {out}/sections: 1 day written\n")
    with monkeypatch.context() as killed:
        killed.setattr(section_tables, "are_there", lambda out: False)  # the job ended before it wrote them
        run_job(SAMPLES[1], out)
    assert "sections" in {finding.kind for finding in verify(str(out))}
    assert kafkatap("lake", "sections", out).code == 0
    assert "sections" not in {finding.kind for finding in verify(str(out))}
    assert kafkatap("lake", "sections", out).err == f"kafkatap: {out}/sections: nothing has changed\n"


# ---------------------------------------------------------------- many splits


@pytest.mark.parametrize("most", [2, 3])
def test_counts_of_many_splits_are_added_up_by_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """In several turns. The report of the run and the lake are the same, and nothing is left."""
    captures = [SAMPLES[0], ROOT / "samples" / "reports" / "nat-twice.pcap.zst"]  # the second one is decoded again
    names = [str(later(path, 0, tmp_path / path.stem)) for path in captures]
    run_job(names, tmp_path / "few", split_size=20_000)
    sums: list[int] = []
    call = tasks.SumTask.__call__

    def counted(task: tasks.SumTask, mine: tasks.SumInput, *more: Any) -> Any:
        sums.append(len(mine.names))
        return call(task, mine, *more)

    monkeypatch.setattr(two_passes, "MOST_COUNTS", most)
    monkeypatch.setattr(tasks.SumTask, "__call__", counted)
    run_job(names, tmp_path / "many", split_size=20_000)
    assert max(sums) == most < len(sums)
    few, many = (json.loads((tmp_path / name / "report.json").read_text()) for name in ("few", "many"))
    assert without_times(few) == without_times(many)
    assert not list((tmp_path / "many").rglob("*.counts"))
    compare(tmp_path / "many", [Path(name) for name in names], "--sections", SECTIONS)


def test_counts_of_a_capture_that_comes_again_are_kept_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its exchanges are among those of 30 later ones. Small captures of a series cost what it costs to keep them."""
    files = rotated(SAMPLES[0], tmp_path / "series", range(30, 900, 30))
    kept, numbers = Counter[tuple[SplitFiles, int]](), count(1)
    keep = SplitFiles.keep

    def places_of(_: SplitFiles, exchanges: Array) -> tuple[Array, Array]:
        captures = np.where(np.arange(len(exchanges)) % 2, 0, next(numbers))
        return captures, np.zeros(len(exchanges), np.int64)

    def noted(files: SplitFiles, places: Array, parts: Any, names: Any, exchanges: Array) -> None:
        if exchanges.any():  # those of connections are kept alone
            kept.update((files, capture) for capture in places[:, 0].tolist())
        keep(files, places, parts, names, exchanges)

    monkeypatch.setattr(batch, "_GATHERED", 1)
    monkeypatch.setattr(SplitFiles, "places_of", places_of)
    monkeypatch.setattr(SplitFiles, "keep", noted)
    run_job(files, tmp_path / "out", split_size=1 << 30)
    assert len(kept) > 20
    assert {times for (_, capture), times in kept.items() if not capture} == {1}


def test_counts_of_many_captures_are_kept_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A split keeps those of its exchanges once, and more often if there are many rows. The counts are the same."""
    files = rotated(SAMPLES[0], tmp_path / "series", range(30, 900, 30))
    kept, keep = Counter[SplitFiles](), SplitFiles.keep
    monkeypatch.setattr(batch, "_GATHERED", 1)

    def noted(files: SplitFiles, places: Array, parts: Any, names: Any, exchanges: Array) -> None:
        kept[files] += bool(exchanges.any())  # those of connections are kept alone
        keep(files, places, parts, names, exchanges)

    monkeypatch.setattr(SplitFiles, "keep", noted)
    for out, rows, places in (("once", 1 << 18, 16), ("often", 0, 1)):
        kept.clear()
        monkeypatch.setattr(place_counts, "_MOST_ROWS", rows)
        monkeypatch.setattr(place_counts, "_MOST_OPEN", places)
        monkeypatch.setattr(section_counts, "_EXCHANGES", 20 if out == "often" else 1 << 13)
        run_job(files, tmp_path / out, split_size=1 << 30)
        assert (max(kept.values()) > 3) if out == "often" else (max(kept.values()) == 1)
        compare(tmp_path / out, files, "--sections", SECTIONS)
        assert not list(verify(str(tmp_path / out)))


def test_counts_that_are_gone_end_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spill = TableWriter.spill

    def lost(writer: TableWriter, data: bytes) -> str:
        name = spill(writer, data)
        (Path(writer.out) / name).unlink()
        return name

    monkeypatch.setattr(two_passes, "MOST_COUNTS", 2)
    monkeypatch.setattr(TableWriter, "spill", lost)
    with pytest.raises(OSError, match="is gone; another program deleted it"):
        run_job(later(SAMPLES[0], 0, tmp_path / "plain.pcap"), tmp_path / "out", split_size=20_000)
    assert not list((tmp_path / "out").rglob("*.parquet"))
