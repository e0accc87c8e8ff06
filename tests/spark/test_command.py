"""`kafkatap spark`: what it takes, what it refuses and how it says so, and what it tells of a job."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kafkatap.__main__ import main
from kafkatap.commands.command_parser import build_parser
from kafkatap.commands.completion.command import completion_script
from kafkatap.commands.spark.command import summary
from kafkatap.installation import install_command
from kafkatap.reports.tables import TABLES
from kafkatap.spark import stages
from kafkatap.spark.job_result import JobResult
from kafkatap.spark.stages import Lines, progress_text, watching
from tests.cli.running import ROOT, Done, kafkatap
from tests.support.captures import pcap_bytes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SAMPLE = ROOT / "samples" / "apache-0.8.2.pcap.zst"


def line_of(done: Done) -> str:
    """The one line that a refusal is."""
    assert (done.code, done.out) == (2, "")
    lines = done.err.splitlines()
    assert len(lines) == 1, done.err
    assert lines[0].startswith("kafkatap: ")
    return lines[0].removeprefix("kafkatap: ")


# ---------------------------------------------------------------- options


def test_defaults() -> None:
    args = build_parser().parse_args(["spark", "captures/", "-o", "t"])
    assert (args.captures, args.output, args.split_size, args.by) == (["captures/"], "t", None, "api")
    assert (args.records, args.strict, args.json, args.progress, args.number) == (False, False, False, True, 12)
    assert (args.master, args.archive, args.conf, args.log, args.port, args.definitions) == (None,) * 6
    assert (args.checkpoint, args.follow, args.finish) == (None, False, False)
    assert (args.quiet, args.lateness, args.batch_size) == (60 * 10**9, 0, None)


def test_all_options() -> None:
    line = (
        "spark a b -o t --records --by topic --strict --port 19092 --definitions d --master local[2] --split-size"
        " 1.5m --archive a.tgz --conf spark.a=b=c --conf spark.d=1 --log l -n all --utc --progress --json -v"
    )
    args = build_parser().parse_args(line.split())
    assert (args.split_size, args.conf) == (1_572_864, [("spark.a", "b=c"), ("spark.d", "1")])
    assert (args.progress, args.port, args.master, args.log) == ("lines", [19092], "local[2]", "l")
    assert build_parser().parse_args(["spark", "a", "-o", "t", "--no-progress"]).progress is False
    line = "spark a -o t --checkpoint c --follow --quiet 5s --lateness 10m --batch-size 64m"
    args = build_parser().parse_args(line.split())
    assert (args.checkpoint, args.follow, args.quiet, args.lateness) == ("c", True, 5 * 10**9, 600 * 10**9)
    assert args.batch_size == 64 << 20


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (["a", "-o", "t", "--split-size", "-1"], "'-1' is not a size (such as 64m, 512k, 1g, or 0)"),
        (["a", "-o", "t", "--split-size", "64x"], "'64x' is not a size (such as 64m, 512k, 1g, or 0)"),
        (["a", "-o", "t", "--split-size", "1"], "'1' is less than 4k, the smallest split (0 keeps files whole)"),
        (["a", "-o", "t", "--conf", "spark.a"], "is not a setting"),
        (["a"], "required: -o/--output"), (["a", "-o", "t", "--by", "x"], "invalid choice"),
    ],
)  # fmt: skip
def test_wrong_calls_end_with_2(wrong: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        build_parser().parse_args(["spark", *wrong])
    assert end.value.code == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(shell: str) -> None:
    assert "split-size" in completion_script(shell)


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys\nfrom kafkatap.__main__ import main\n"
        "try: main(['spark', '--help'])\nexcept SystemExit: pass\n"
        "heavy = {'numpy', 'numba', 'rich', 'pyarrow', 'pandas', 'pyspark'} & set(sys.modules)\n"
        "sys.exit(str(heavy) if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "spark-submit" in done.stdout


# ---------------------------------------------------------------- what is refused, before Spark starts


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["missing.pcap"], "missing.pcap: there is no such file or folder"),
        (["*.pcap"], "*.pcap: no file matches"),
        (["-"], "standard input (-) cannot be split into tasks (save it to a file first)"),
        ([str(SAMPLE), "--definitions", "nowhere"], "nowhere: no such file or directory"),
        ([str(SAMPLE), "--archive", "a.tgz"], "a.tgz: there is no such archive (python -m kafkatap.spark.pack makes "
         "one)"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_said_in_one_line(tmp_path: Path, arguments: list[str], said: str) -> None:
    assert line_of(kafkatap("spark", *arguments, "-o", "out", cwd=tmp_path)) == said


@pytest.mark.parametrize(
    ("out", "said"),
    [
        ("file", "file: file exists"),
        ("file/deeper", "file/deeper: not a directory"),
        (
            "nowhere://bucket/x",
            "nowhere://bucket: nowhere:// is no store of kafkatap (s3a, abfss, wasbs, gs, hdfs, dbfs:/, or a path)",
        ),
    ],
)
def test_what_cannot_be_written_is_said_in_one_line(tmp_path: Path, out: str, said: str) -> None:
    (tmp_path / "file").touch()
    assert line_of(kafkatap("spark", SAMPLE, "-o", out, cwd=tmp_path)) == said


def test_no_java(tmp_path: Path) -> None:
    done = kafkatap("spark", SAMPLE, "-o", tmp_path / "out", JAVA_HOME="/nowhere")
    assert (done.code, done.out) == (2, "")
    first, *advice = done.err.splitlines()
    assert first == "kafkatap: JAVA_HOME is /nowhere, and there is no /nowhere/bin/java."
    assert any("apt-get install" in line for line in advice)


def test_an_old_java(tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    java.chmod(0o755)
    done = kafkatap("spark", SAMPLE, "-o", tmp_path / "out", JAVA_HOME=str(tmp_path))
    assert done.code == 2
    assert "is Java 11" in done.err.splitlines()[0]


def test_no_pyspark(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "class Missing:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'pyspark':\n"
        "            raise ModuleNotFoundError(name=name)\n"
        "sys.modules.pop('pyspark', None)\n"
        "sys.path_importer_cache.clear()\n"
        "import importlib.util\n"
        "find = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda name, *a: None if name == 'pyspark' else find(name, *a)\n"
        "from kafkatap.__main__ import main\n"
        f"sys.exit(main(['spark', {str(SAMPLE)!r}, '-o', {str(tmp_path / 'out')!r}]))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2, done.stderr
    assert install_command("spark") in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_master_that_is_none(java: None, tmp_path: Path) -> None:
    done = kafkatap("spark", SAMPLE, "-o", tmp_path / "out", "--master", "moon")
    assert line_of(done).startswith("moon: there is no such master (local[*], ")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("lake", "compact", "out"), "out: there are no Delta tables"),
        (("lake", "verify", "out"), "out: there is no Delta table files"),
        (("lake", "forget", "out"), "forget needs the names of captures"),
        (("lake", "verify", "out", "x"), "verify takes no captures; it looks at the whole lake"),
    ],
)
def test_options_that_do_not_fit_together(tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    assert line_of(kafkatap(*arguments, cwd=tmp_path)) == said


def test_an_output_that_is_in_use(tmp_path: Path) -> None:
    (tmp_path / "_SUCCESS").touch()
    done = kafkatap("spark", SAMPLE, "-o", tmp_path)
    assert "has files of another program (_SUCCESS)" in line_of(done)


# ---------------------------------------------------------------- jobs


def call(*arguments: str | Path) -> int:
    """In this process, on the session that runs."""
    return main(["spark", *map(str, arguments)])


def visible(out: Path) -> set[str]:
    return {str(p.relative_to(out)) for p in out.rglob("*") if p.is_file()}


def rows(out: Path, table: str) -> list[dict[str, Any]]:
    """The rows of a table in its declared columns, in a definite order."""
    from kafkatap.spark.output.delta import read_table

    found = read_table(str(out), table, [column.name for column in TABLES[table]])
    if table == "ledger":  # what is open at the end of a run has rows of its own
        found = found.group_by(["section", "part"]).aggregate([("count", "sum")]).rename_columns({"count_sum": "count"})
        return sorted((row for row in found.to_pylist() if row["count"] or row["part"] != "unfinished"), key=repr)
    return sorted(found.to_pylist(), key=repr)


@pytest.fixture(scope="module")
def tables(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the command made of a sample, in splits that are smaller than it."""
    out = tmp_path_factory.mktemp("spark") / "tables"
    assert call(SAMPLE, "-o", out, "--records", "--no-progress") == 0
    return out


def test_the_tables_are_those_of_one_process(tables: Path) -> None:
    from kafkatap import analyze
    from kafkatap.parquet.partitions import to_microseconds

    local = analyze(SAMPLE)
    names = ("connections", "exchanges", "results", "ledger")
    for name in names:
        expected = to_microseconds(getattr(local, name)).to_pylist()
        assert rows(tables, name) == sorted(expected, key=repr), name
    assert len(rows(tables, "records")) > 0


def test_the_reports_lie_beside_the_tables(tables: Path) -> None:
    of_one = json.loads(kafkatap("report", "--json", "--utc", SAMPLE).out)  # so are the commands of a job's report
    assert json.loads((tables / "report.json").read_text())["reports"] == of_one["reports"]
    sections = "summary,latency,timeline,not-decoded,files"
    wanted = kafkatap("report", "--sections", sections, "--utc", "-n", "all", "--ledger", SAMPLE).out
    made = plain((tables / "report.txt").read_text())
    missing = [line for line in plain(wanted.replace(f" {SAMPLE}", " CAPTURE")).splitlines() if line not in made]
    assert not missing
    assert "\nEvents" in made
    assert "\nLedger\n" in made


def test_commands_of_a_report_in_utc(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """They have --utc once."""
    call(SAMPLE, "-o", tmp_path / "t", "--utc", "-n", "all")
    assert {line.count("--utc") for line in capsys.readouterr().out.splitlines() if "CAPTURE" in line} == {1}


def plain(text: str) -> str:
    """Without the width of columns: a job names no captures in its commands."""
    return re.sub("[ ─]+", " ", text)


def test_again_it_gives_the_same(tables: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {name: rows(tables, name) for name in ("exchanges", "results", "connections", "records", "ledger")}
    assert call(SAMPLE, "-o", tables, "--records", "--json", "--progress") == 0
    output = capsys.readouterr()
    assert {name: rows(tables, name) for name in before} == before
    assert json.loads(output.out) == json.loads((tables / "report.json").read_text())
    lines = output.err.splitlines()
    stages = ["survey", "decode", "publish"]
    assert [line.split(": ")[1] for line in lines if " of " in line and ": 0 of" in line][: len(stages)] == stages
    assert lines[-2].startswith("kafkatap: read ")
    assert re.fullmatch(
        rf"kafkatap: wrote {len(before['exchanges']):,} exchanges, {len(before['results']):,} results, .*", lines[-1]
    )


def test_compaction(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "delta"
    for capture in (SAMPLE, ROOT / "samples" / "apache-4.3-two-interfaces.pcapng"):
        assert call(capture, "-o", out, "--no-progress") == 0
    before = rows(out, "exchanges")
    capsys.readouterr()
    assert main(["lake", "compact", str(out)]) == 0
    assert capsys.readouterr().err.splitlines()[0] == "kafkatap: exchanges: 4 files joined into 1"
    assert rows(out, "exchanges") == before


def test_damage_is_told_and_the_rest_goes_on(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "captures").mkdir()
    shutil.copy(SAMPLE, tmp_path / "captures" / "whole.pcap.zst")
    (tmp_path / "captures" / "no.pcap").write_bytes(b"not a capture at all, but longer than a header")
    assert call(tmp_path / "captures", "-o", tmp_path / "out", "--no-progress") == 1
    output = capsys.readouterr()
    assert f"kafkatap: {tmp_path}/captures/no.pcap: not a pcap or pcapng capture" in output.err
    assert len(rows(tmp_path / "out", "exchanges")) > 0
    before = visible(tmp_path / "out")
    assert call(tmp_path / "captures", "-o", tmp_path / "out", "--strict", "--no-progress") == 2
    output = capsys.readouterr()
    assert (output.out, len(output.err.splitlines())) == ("", 1)
    assert "no.pcap: not a pcap or pcapng capture" in output.err
    assert visible(tmp_path / "out") == before
    assert call(tmp_path / "captures" / "no.pcap", "-o", tmp_path / "out", "--no-progress") == 2
    assert "no.pcap: not a pcap or pcapng capture" in capsys.readouterr().err
    assert visible(tmp_path / "out") == before


def test_captures_without_kafka(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "none.pcap").write_bytes(pcap_bytes([]))
    assert call(tmp_path / "none.pcap", "-o", tmp_path / "out", "--no-progress") == 1
    assert "no Kafka found in these captures" in capsys.readouterr().err
    assert rows(tmp_path / "out", "exchanges") == []


# ---------------------------------------------------------------- output


def test_the_summary() -> None:
    result = JobResult({"exchanges": 12_345, "results": 7, "files": 3}, 321 << 20, 1 << 20, 48, bytes_to_driver=4096)
    assert summary(result, "tables") == [
        "read 321 MiB in two passes, shuffled 1.0 MiB, 4.0 KiB of results to the driver",
        "wrote 12,345 exchanges, 7 results to tables (48 files)",
    ]
    corrected = replace(result, bytes_shuffled=0, rounds=3)
    assert summary(corrected, "tables")[0] == (
        "read 321 MiB in two passes, shuffled 0 B, 4.0 KiB of results to the driver, 3 rounds of decoding"
    )


def test_progress_as_lines(capsys: pytest.CaptureFixture[str]) -> None:
    lines = Lines()
    for done in range(101):
        lines("survey", done, 100, done << 20)
    lines("survey", 100, 100, 100 << 20)
    lines("publish", 0, 8)
    assert capsys.readouterr().err.splitlines() == [
        "kafkatap: survey: 0 of 100 tasks",
        "kafkatap: survey: 100 of 100 tasks, 100 MiB",
        "kafkatap: publish: 0 of 8 tables",
    ]


def test_a_line_that_says_nothing_new_is_rare(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stages, "LINE_EVERY", 0.0)
    lines = Lines()
    for done in (0, 0, 0, 1, 1, 2):
        lines("decode", done, 3)
    monkeypatch.setattr(stages, "SAME_EVERY", 0.0)
    lines("decode", 2, 3)
    assert [line.split()[2] for line in capsys.readouterr().err.splitlines()] == ["0", "1", "2", "2"]


def test_progress_of_many_threads_is_one_s_at_a_time(capsys: pytest.CaptureFixture[str]) -> None:
    from concurrent.futures import ThreadPoolExecutor

    with watching(True, False) as watch, ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: watch("decode", n, 1000), range(1000)))
    assert all(line.startswith("kafkatap: decode: ") for line in capsys.readouterr().err.splitlines())


def test_bars_are_drawn_and_go_away(capsys: pytest.CaptureFixture[str]) -> None:
    with watching(False, True) as watch:
        for stage in ("survey", "decode", "publish"):
            watch(stage, 1, 2, 5)
            watch(stage, 2, 2, 9)
    assert capsys.readouterr().out == ""
    assert progress_text("decode", 2, 2, 9) == "decode: 2 of 2 tasks, 9 B"


def test_where_the_application_is() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "kafkatap.spark", "--path"], capture_output=True, text=True, timeout=60, check=True
    )
    assert Path(done.stdout.strip()).name == "__main__.py"
    assert json.dumps(done.stderr) == '""'
