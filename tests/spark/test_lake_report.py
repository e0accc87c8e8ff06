"""`kafkatap report LAKE`: what it says equals the report of the captures, whatever happened to the lake."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kafkatap import analyze
from kafkatap.reports.rollup_tables import FORMS
from kafkatap.spark import exchanges_once
from kafkatap.spark.output.compaction import compact
from kafkatap.spark.output.delta import read_table
from kafkatap.spark.verifying import forget, named_captures, verify
from tests.cli.running import ROOT, kafkatap
from tests.spark.jobs import run_job
from tests.splits.test_packs import rotated
from tests.support.captures import pcap_bytes, read_bytes, read_capture
from tests.support.copies import elsewhere, ports

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAMES = ("apache-2.8.pcap.zst", "apache-0.8.2.pcap.zst", "live-4.3.pcap.zst")
SAMPLES = [ROOT / "samples" / name for name in NAMES]
#: The tables of a report that are made of counts alone. Times of a lake are in microseconds, and packets are those of
#: its runs.
TABLES = ("latency", "throttle", "error_totals", "errors", "not_decoded", "clients")
COARSE = ("first", "last", "packet", "first_packet", "last_seen", "first_seen")


def report(*arguments: object) -> dict[str, Any]:
    done = kafkatap("report", "--json", "--utc", *arguments)
    assert done.code == 0, done.err
    found: dict[str, Any] = json.loads(done.out)
    return found


def rows(found: dict[str, Any], table: str) -> list[Any]:
    """The rows of a report's table, in any order, without what a lake has in another unit."""
    return sorted(
        (json.dumps({k: v for k, v in row.items() if k not in COARSE}, sort_keys=True) for row in found[table]), key=str
    )


def compare(lake: Path, captures: list[Path], *options: object) -> None:
    found, wanted = report(*options, lake)["reports"], report(*options, *captures)["reports"]
    for table in TABLES:
        assert rows(found, table) == rows(wanted, table), table
        assert table != "latency" or found[table]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("lake") / "out"
    run_job([str(path) for path in SAMPLES], str(out), split_size=100_000)
    return out


@pytest.fixture
def copy(lake: Path, tmp_path: Path) -> Path:
    return shutil.copytree(lake, tmp_path / "copy")


@pytest.mark.parametrize(
    "options",
    [
        (), ("--by", "client"), ("--by", "broker"), ("--by", "version"), ("--client", "*-cons*"),
        ("--client", "127.0.0.1", "--api", "Fetch,Produce"), ("--api", "Metadata", "--api", "18"),
        ("--broker", "127.0.0.1:28101", "--by", "client"), ("--broker", ":8102"),
    ],
    ids=" ".join,
)  # fmt: skip
def test_it_equals_the_report_of_the_captures(lake: Path, options: tuple[str, ...]) -> None:
    found, wanted = report(*options, lake)["reports"], report(*options, *SAMPLES)["reports"]
    for table in TABLES:
        if table != "clients":  # under a selection, connections of other captures are not known
            assert rows(found, table) == rows(wanted, table), table


def test_connections_and_heading(lake: Path) -> None:
    found, wanted = report(lake), report(*SAMPLES)
    assert rows(found["reports"], "clients") == rows(wanted["reports"], "clients")
    for name in ("requests", "connections", "kafka_connections", "packets", "error_codes", "brokers", "files", "bytes"):
        assert found["capture"][name] == wanted["capture"][name]


def test_hours(lake: Path) -> None:
    whole = analyze([str(path) for path in SAMPLES]).exchanges
    for begin, end in (("2026-11-21T04:00Z", "2026-11-21T05:00Z"), ("2026-11-21T08:00Z", "2026-11-23T00:00Z")):
        times = [t for t in whole["request_first"].to_pylist() if t is not None]
        wanted = sum(begin[:16] <= t.strftime("%Y-%m-%dT%H:%M") < end[:16] for t in times)
        found = report("--from", begin, "--to", end, lake)
        assert found["capture"]["requests"] == wanted > 0


def test_after_changes(copy: Path) -> None:
    run_job([str(path) for path in SAMPLES], str(copy))  # again
    compare(copy, SAMPLES)
    list(compact(str(copy)))
    compare(copy, SAMPLES)
    forget(str(copy), [info.capture for info in named_captures(str(copy), [NAMES[1], NAMES[2]])])
    assert "rollup" not in {finding.kind for finding in verify(str(copy))}
    assert {row["capture"] for table in FORMS for row in read_table(str(copy), table).to_pylist()} == {
        row["capture"] for row in read_table(str(copy), "files").to_pylist()
    }
    assert report(copy)["capture"]["requests"] == read_table(str(copy), "exchanges").num_rows
    run_job([str(path) for path in SAMPLES], str(copy))
    compare(copy, SAMPLES)


@pytest.fixture(scope="module")
def points(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Path]]:
    """A lake whose runs read one capture each, of two brokers and of a client of both, and these captures."""
    folder = tmp_path_factory.mktemp("points")
    capture = read_capture(SAMPLES[0])
    whole = capture.packets
    of_first = [28_101 in ports(packet) for packet in whole]
    sides = [whole[: len(whole) * 2 // 3]]  # the client's capture ends early
    sides += [[p for p, is_mine in zip(whole, of_first, strict=True) if is_mine == side] for side in (True, False)]
    captures = []
    for number, side in enumerate(sides):
        captures.append(folder / f"point{number}.pcap")
        captures[-1].write_bytes(pcap_bytes(elsewhere(side, skew_ns=number * 2_000), link_type=capture.link_types[0]))
        run_job([str(captures[-1])], str(folder / "out"))
    return folder / "out", captures


@pytest.mark.parametrize("options", [(), ("--by", "client"), ("--api", "Fetch,Produce")], ids=" ".join)
def test_captures_of_several_places(points: tuple[Path, list[Path]], options: tuple[str, ...]) -> None:
    """What several captures have counts once."""
    lake, captures = points
    assert read_table(str(lake), "exchanges").num_rows > 1.3 * analyze([str(p) for p in captures]).exchanges.num_rows
    found, wanted = report(*options, lake), report(*options, *captures)
    for row in (*found["reports"]["clients"], *wanted["reports"]["clients"]):
        del row["retransmitted_share"]  # that of one run is of both captures of a connection
    for table in TABLES:
        if table != "clients" or not options:
            assert rows(found["reports"], table) == rows(wanted["reports"], table), table
    assert found["capture"]["requests"] == wanted["capture"]["requests"]
    assert [w for w in found["warnings"] if "count once" in w]


def test_an_answered_row_is_better_than_a_lost_one(spark: SparkSession, tmp_path: Path) -> None:
    """The capture nearest to the broker has lost each 20th packet."""
    packets = read_capture(SAMPLES[1]).packets
    captures = [tmp_path / "broker.pcap", tmp_path / "client.pcap"]
    near = elsewhere([packet for number, packet in enumerate(packets) if number % 20 != 7], skew_ns=2_000)
    for path, side in zip(captures, (near, packets[: len(packets) * 9 // 10]), strict=True):
        path.write_bytes(pcap_bytes(side))
        run_job([str(path)], str(tmp_path / "out"))
    outcomes = [Counter(analyze(path).exchanges["outcome"].to_pylist()) for path in captures]
    found = report(tmp_path / "out")
    once = exchanges_once(spark, str(tmp_path / "out"))
    counted = Counter(row["outcome"] for row in once.select("outcome").collect())
    assert once.count() == once.select("exchange").distinct().count()
    assert once.count() == found["capture"]["requests"] + counted["orphan_response"]
    assert counted["answered"] == sum(row["answered"] for row in found["reports"]["latency"])
    assert counted["answered"] > max(each["answered"] for each in outcomes)
    assert counted["response_lost"] < outcomes[0]["response_lost"]


def ledgers(out: Path) -> dict[str, dict[tuple[str, str], int]]:
    """The ledger of each capture, by the name of its file."""
    names = {row["capture"]: Path(row["path"]).name for row in read_table(str(out), "files").to_pylist()}
    found = {name: Counter[tuple[str, str]]() for name in names.values()}
    for row in read_table(str(out), "ledger").to_pylist():
        found[names[row["capture"]]][row["section"], row["part"]] += row["count"]
    return {
        name: {key: n for key, n in ledger.items() if n or key[1] != "unfinished"} for name, ledger in found.items()
    }


def test_the_ledger_of_each_capture(lake: Path) -> None:
    """Each capture has the counts of a run over it alone."""
    found = ledgers(lake)
    for path in SAMPLES:
        wanted = {(row["section"], row["part"]): row["count"] for row in analyze([str(path)]).ledger.to_pylist()}
        assert found[path.name] == wanted, path.name


def test_connections_of_many_captures(tmp_path: Path) -> None:
    """What a file of a rotated capture has of a connection counts there. What `forget` leaves adds up."""
    whole = tmp_path / "whole.pcap"
    whole.write_bytes(read_bytes(SAMPLES[2]))
    files = rotated(whole, tmp_path / "files", [300, 600, 900, 1_200])
    out = tmp_path / "lake"
    run_job(files, str(out), split_size=100_000)
    found = ledgers(out)
    assert sum(ledger["payload bytes", "total"] for ledger in found.values()) == 793_321
    for ledger in found.values():
        total, frames = ledger["payload bytes", "total"], ledger["payload bytes", "kafka_frames"]
        assert 0.9 * total < frames + ledger["payload bytes", "retransmitted"] < 1.1 * total
    names = [Path(file).name for file in files]
    for kept in range(len(files)):
        copy = shutil.copytree(out, tmp_path / f"lake{kept}")
        forget(str(copy), [i.capture for i in named_captures(str(copy), names[:kept] + names[kept + 1 :])])
        rows = report(copy)["reports"]["ledger"]
        assert all(row["count"] >= 0 and row["share"] <= 1 for row in rows)
        for section in ("packets", "payload bytes", "requests", "responses"):
            *parts, total = [row["count"] for row in rows if row["section"] == section]
            assert sum(parts) == total > 0


def test_a_rollup_that_lacks_rows(copy: Path) -> None:
    [file] = seen_files(copy, "rollup")[:1]
    log = sorted((copy / "rollup" / "_delta_log").glob("*.json"))[-1]
    number = int(log.stem) + 1
    remove = {"remove": {"path": file, "deletionTimestamp": 0, "dataChange": True}}
    (log.parent / f"{number:020d}.json").write_text(json.dumps(remove) + "\n")
    done = kafkatap("report", copy)
    assert done.code == 0
    assert "! the rollup has " in done.out
    [finding] = [finding for finding in verify(str(copy)) if finding.kind == "rollup"][:1]
    assert finding.text.startswith("the rollup lacks ")


@pytest.mark.parametrize(("table", "what"), [("rollup_errors", "error codes"), ("rollup_connections", "connections")])
def test_a_part_of_the_rollup_is_gone(copy: Path, table: str, what: str) -> None:
    log = sorted((copy / table / "_delta_log").glob("*.json"))[-1]
    removed = [
        {"remove": {"path": file, "deletionTimestamp": 0, "dataChange": True}} for file in seen_files(copy, table)
    ]
    text = "".join(f"{json.dumps(action)}\n" for action in removed)
    (log.parent / f"{int(log.stem) + 1:020d}.json").write_text(text)
    found = {finding.text.split(" of ")[0].split(maxsplit=4)[4] for finding in verify(str(copy))}
    assert what in found
    assert (table == "rollup_errors") == ("! rollup_errors has 0 of " in kafkatap("report", copy).out)
    shutil.rmtree(copy / table)
    done = kafkatap("report", copy)
    assert (done.code, done.out) == (2, "")
    assert f"there is no {table}: " in done.err
    assert ("missing", f"there is no table {table}; run all captures again", 1) in list(verify(str(copy)))
    assert "rollup" not in {finding.kind for finding in verify(str(copy))}


def test_files_that_are_gone(copy: Path) -> None:
    """A file that was deleted by other means is named, and a second run mends it."""
    for table in ("rollup", "exchanges", "ledger"):
        path = seen_files(copy, table)[0]
        (copy / table / path).unlink()
        done = kafkatap("report", copy)
        assert (done.code, done.out, done.err.count("\n")) == (2, "", 1), done.err
        done = kafkatap("lake", "verify", copy)
        assert done.code == 3
        assert f"missing: {table}: 1 file is gone, such as {path}; run all captures again\n" in done.out
        assert {line.partition(":")[0] for line in done.out.splitlines()} <= {"missing", "gap"}


def test_folders_that_are_no_lake(copy: Path, tmp_path: Path) -> None:
    """A table alone is named. Earlier versions left no lake.json."""
    for command in ("report", "show"):
        done = kafkatap(command, copy / "rollup")
        assert done.code == 2
        assert done.err.endswith(f"name the folder of all tables: `kafkatap report {copy}`\n")
    (copy / "lake.json").unlink()
    assert report(copy)["capture"]["requests"] > 0


def seen_files(out: Path, table: str) -> list[str]:
    from kafkatap.spark.output.delta import active_files, open_table

    return [file.path for file in active_files(open_table(str(out), table))]


def test_sql_of_the_rollup(lake: Path) -> None:
    """The sums and percentiles that the documents promise."""
    exchanges, rollup = (read_table(str(lake), table).to_pylist() for table in ("exchanges", "rollup"))
    for api in ("Produce", "Metadata"):
        mine = [row for row in exchanges if row["api_name"] == api and row["outcome"] == "answered"]
        of_rollup = [row for row in rollup if row["api_name"] == api]
        assert sum(row["answered"] for row in of_rollup) == len(mine)
        assert sum(row["broker_ns"] for row in of_rollup) == sum(row["broker_ns"] for row in mine)
        counts: dict[int, int] = {}
        for row in of_rollup:
            for bucket in row["broker_histogram"]:
                counts[bucket["le"]] = counts.get(bucket["le"], 0) + bucket["count"]
        rank, least = -(-99 * len(mine) // 100), 0
        for le in sorted(counts):
            least += counts[le]
            if least >= rank:
                break
        exact = sorted(row["broker_ns"] for row in mine)[rank - 1]
        assert exact <= le <= exact * 1.016 + 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--topic", "orders"), "--topic needs captures"), (("-f", "api == Fetch"), "--filter needs captures"),
        (("--sections", "slowest,errors"), "--sections slowest needs messages, and a lake has none; it has summary"),
        (("--by", "connection"), "a lake has no counts by connection"), (("--from", "+10s"), "+10s has no date"),
        (("--from", "2026-11-21T04:30Z"), "2026-11-21T04:30 UTC is no whole hour"),
        (("--parquet", "x"), "--parquet needs captures"), (("--follow",), "--follow needs captures"),
        (("--keylog", "x"), "--keylog needs captures"), (("--late", "5s"), "--late needs captures"),
        (("--release", "4.1"), "--release is for the section upgrade"), (("--jobs", "2"), "--jobs needs captures"),
        (("--max-names", "9"), "--max-names needs captures"), (("--interval", "1m"), "--interval needs captures"),
        (("--from", "2026-11-22T00:00Z", "--to", "2026-11-21T00:00Z"), "the window ends before it begins"),
        ((str(SAMPLES[0]),), "a lake is reported alone"),
    ],
)  # fmt: skip
def test_what_a_lake_lacks_is_one_line(lake: Path, options: tuple[str, ...], words: str) -> None:
    done = kafkatap("report", lake, *options)
    assert (done.code, done.out) == (2, "")
    assert words in done.err
    assert done.err.count("\n") == 1


def test_sections_are_those_that_were_asked_for(lake: Path) -> None:
    for sections in ("not-decoded", "errors,files", "summary"):
        found, wanted = report("--sections", sections, lake), report("--sections", sections, *SAMPLES)
        assert list(found["reports"]) == list(wanted["reports"])


def test_sections_of_the_rollup_read_no_counts_of_messages(lake: Path, tmp_path: Path) -> None:
    other = shutil.copytree(lake, tmp_path / "other")
    for file in (other / "section_counts").rglob("*.parquet"):
        file.unlink()
    found, wanted = (report("--sections", "latency,errors", one) for one in (other, lake))
    assert found["reports"] == wanted["reports"]


def test_nothing_matches(lake: Path) -> None:
    done = kafkatap("report", lake, "--client", "nobody")
    assert done.code == 0
    assert done.err == f"kafkatap: {lake}: no request matches --client nobody\n"


def test_a_lake_of_before_has_no_rollup(tmp_path: Path) -> None:
    old = shutil.copytree(ROOT / "samples" / "lakes" / "schema-2", tmp_path / "old")
    for table in FORMS:
        shutil.rmtree(old / table, ignore_errors=True)
    done = kafkatap("report", old)
    assert (done.code, done.out) == (2, "")
    assert "there is no rollup and no rollup_errors and no rollup_connections: deleted, or an earlier" in done.err
    assert done.err.count("\n") == 1


def test_files_beside_the_report(lake: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    done = kafkatap("report", lake, "--html", page, "--csv", tmp_path / "csv", "--sections", "latency,errors")
    assert done.code == 0, done.err
    assert "Latency by API" in done.out
    assert "Clients" not in done.out
    assert "<svg" in page.read_text()
    assert (tmp_path / "csv" / "latency.csv").stat().st_size > 1000
