"""`kafkatap compare`: text, JSON, exit codes, refusals; and its library and documents."""

from __future__ import annotations

import doctest
import json
import os
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import jsonschema
import pytest

from kafkatap import Analysis, Comparison, analyze, compare
from kafkatap.commands.command_parser import parse
from kafkatap.reports import units
from kafkatap.reports.comparison.comparison import TABLES
from kafkatap.reports.comparison.json_form import schema
from tests.cli.running import Done, kafkatap
from tests.support.captures import ETHERNET, pcap_bytes, read_capture
from tests.support.segments import tcp_at

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = ROOT / "samples" / "compare"
BEFORE, QUOTA, STEADY = (str(SAMPLES / f"{name}.pcap.zst") for name in ("before", "quota", "steady"))


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., Done]:
    """Run a command in this process."""

    def made(*words: str) -> Done:
        options = parse(words)
        code = import_module(f"kafkatap.commands.{options.command}.command").run(options)
        shown = capsys.readouterr()
        return Done(code, shown.out, shown.err)

    return made


def test_text_says_it_in_80_columns() -> None:
    done = kafkatap("compare", "--utc", "--width", "80", BEFORE, QUOTA)
    assert done.code == 0
    lines = done.out.splitlines()
    assert next(line for line in lines if line.startswith("Worse")) == (
        "Worse       client metrics, Produce: throttled by a quota"
    )
    assert "            throttled responses: 0 % → 47.8 %" in lines
    assert all(units.cells(line) <= 80 for line in lines if "kafkatap report" not in line)
    assert (
        f"before      kafkatap report --sections latency,throttle --client metrics --api Produce --utc {BEFORE}"
        in lines
    )


def test_the_commands_that_show_more_run(run: Callable[..., Done]) -> None:
    done = run("compare", "--json", BEFORE, QUOTA)
    for finding in json.loads(done.out)["findings"]:
        words = finding["command_after"].replace("CAPTURE", QUOTA).split()
        assert words[0] == "kafkatap"
        assert run(*words[1:]).code == 0


def test_json_fits_its_schema(run: Callable[..., Done]) -> None:
    done = run("compare", "--json", BEFORE, QUOTA)
    found = json.loads(done.out)
    jsonschema.validate(found, schema())
    assert found["worse"] == sum(row["kind"] == "worse" for row in found["findings"]) > 0
    assert [side["side"] for side in found["sides"]] == ["before", "after"]


def test_the_schema_is_the_one_in_docs() -> None:
    """KAFKATAP_UPDATE=1 writes the file again."""
    stored = ROOT / "docs" / "compare.schema.json"
    if os.environ.get("KAFKATAP_UPDATE"):
        stored.write_text(json.dumps(schema(), indent=1) + "\n")
    assert json.loads(stored.read_text()) == schema()


def test_exit_codes(run: Callable[..., Done]) -> None:
    assert run("compare", "--exit-code", BEFORE, QUOTA).code == 3
    assert run("compare", "--exit-code", "--split", "+17s", STEADY).code == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([BEFORE], "compare needs two captures, before and after, not 1"),
        ([BEFORE, QUOTA, STEADY], "not 3: name a folder or quote a glob"),
        (["--split", "+1s", BEFORE, QUOTA], "--split compares the parts of one capture"),
        (["-", "-"], "standard input (-) can be read only once"),
        ([BEFORE, "none.pcap"], "none.pcap"),
        (["--utc", "--split", "15:10:39", STEADY], "--split 15:10:39 is outside the capture (2026-11-23 02:"),
        (["--from", "+1h", BEFORE, QUOTA], f"--from +1h leaves nothing of {BEFORE} ("),
        (["--from", "+20s", "--split", "+17s", STEADY], "--split +17s --from +20s leaves nothing of "),
    ],
)
def test_wrong_calls_are_refused(words: list[str], message: str, run: Callable[..., Done]) -> None:
    done = run("compare", *words)
    assert done.code == 2
    assert message in done.err
    assert done.out == ""
    assert len(done.err.splitlines()) == 1


def test_a_side_without_kafka_says_so(run: Callable[..., Done]) -> None:
    done = run("compare", "--client", "nobody", BEFORE, QUOTA)
    assert "There is nothing to compare: both sides have no requests." in done.out
    assert "Nothing has changed" not in done.out
    assert done.code == 0
    assert "no request on the side before matches --client nobody" in done.err
    assert run("compare", "--client", "nobody", "--html", "x.html", BEFORE, QUOTA).code == 2


def test_a_side_without_packets_says_so(run: Callable[..., Done], tmp_path: Path) -> None:
    empty = tmp_path / "empty.pcap"
    empty.write_bytes(pcap_bytes([]))
    done = run("compare", BEFORE, str(empty))
    assert done.code == 1
    assert f"after       {empty}: no packets" in done.out
    assert "There is nothing to compare: the side after has no requests." in done.out
    assert json.loads(run("compare", "--json", BEFORE, str(empty)).out)["sides"][1]["first"] is None


def test_one_direction_stops_no_rollout(run: Callable[..., Done], tmp_path: Path) -> None:
    """Brokers whose answers were not captured do not look dead."""
    packets = read_capture(Path(BEFORE)).packets
    sent = [p for p in packets if p.data[(at := tcp_at(p, ETHERNET)) + 2 : at + 4] == (9092).to_bytes(2, "big")]
    path = tmp_path / "one-way.pcap"
    path.write_bytes(pcap_bytes(sent))
    done = run("compare", "--exit-code", BEFORE, str(path))
    assert done.code == 0
    assert "! The side after is incomplete: 100 % of its connections were captured in one direction only." in done.out
    assert f"  more: kafkatap doctor {path}" in done.out.splitlines()


def test_a_side_can_be_a_folder_or_a_glob(run: Callable[..., Done], tmp_path: Path) -> None:
    for name in ("before", "quota"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "x.pcap.zst").write_bytes((SAMPLES / f"{name}.pcap.zst").read_bytes())
    done = run("compare", "--exit-code", str(tmp_path / "before"), str(tmp_path / "quota" / "*.zst"))
    assert done.code == 3


def test_the_library_takes_analyses_with_windows_of_their_own() -> None:
    parts = [analyze(STEADY, end="+15s"), analyze(STEADY, start="+15s")]
    assert all(isinstance(part, Analysis) for part in parts)
    found = compare(*parts)
    assert isinstance(found, Comparison)
    assert repr(found) == "<Comparison: 0 worse, 0 better, 0 different>"
    assert [row[2] for row in found.table("sides").rows] == ["--to +15s", "--from +15s"]
    with pytest.raises(KeyError, match="a comparison has no table 'nope'; it has sides, findings, changes, presence"):
        found.table("nope")
    with pytest.raises(ValueError, match="two captures"):
        compare(STEADY)
    with pytest.raises(ValueError, match="has its selection already"):
        compare(*parts, clients="a")


def test_the_examples_in_the_document_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    failed, tried = doctest.testfile(
        str(ROOT / "docs" / "compare.md"), module_relative=False, optionflags=doctest.NORMALIZE_WHITESPACE
    )
    assert tried >= 4
    assert failed == 0


def test_the_output_in_the_document_is_so(run: Callable[..., Done], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    text = (ROOT / "docs" / "compare.md").read_text()
    command, _, shown = text.partition("$ kafkatap ")[2].partition("\n```")[0].partition("\n")
    assert run(*command.split()).out.startswith(shown.removesuffix("..."))


def test_the_document_names_each_table() -> None:
    text = (ROOT / "docs" / "compare.md").read_text()
    assert all(f"`{name}`" in text for name in TABLES)
