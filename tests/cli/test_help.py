"""`kafkatap help`: the page for programs and agents is small and true, and every kind of finding has a meaning."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from kafkatap.commands.command_parser import COMMANDS
from kafkatap.reports import kinds
from kafkatap.reports.advice.catalogue import CATALOGUE
from kafkatap.reports.kind_meanings import EVENTS, FAMILIES, OWN
from kafkatap.reports.sections.summary import COLUMNS

from .running import ROOT, kafkatap

SAMPLE = ROOT / "samples" / "apache-4.3.pcap.zst"
PAGE = kafkatap("help", "agents").out
#: What stands for a value of the reader's.
VALUES = {
    "CAPTURE": str(SAMPLE), "BEFORE": str(SAMPLE), "AFTER": str(SAMPLE), "NAME": "NOT_COORDINATOR", "COMMAND": "report",
    "KIND": "nagle",
}  # fmt: skip


def test_every_kind_of_finding_has_one_meaning() -> None:
    assert set(EVENTS) == kinds.EVENT_KINDS
    assert set(OWN) == {*kinds.FINDINGS, kinds.LOSSY, kinds.NO_REQUESTS, kinds.NOTHING}
    assert len([kind for family in FAMILIES.values() for kind in family]) == len(EVENTS) + len(OWN) + len(CATALOGUE)
    shown = kafkatap("help", "findings").out
    assert len(shown) < 6_500
    for kind, meaning in (pair for family in FAMILIES.values() for pair in family.items()):
        assert re.search(rf"^  {kind} +{re.escape(meaning)}$", shown, re.MULTILINE)


@pytest.mark.parametrize("kind", ["slow_broker", "broker_hung"])
def test_help_on_a_kind(kind: str) -> None:
    assert kafkatap("help", kind).out.startswith(f"{kind}: ")


def test_help_on_a_signature_says_what_to_change() -> None:
    (nagle,) = [each for each in CATALOGUE if each.id == "nagle"]
    found = " ".join(kafkatap("help", "nagle").out.split())
    assert found.startswith(f"nagle: {nagle.title}")
    assert all(text in found for text in (nagle.wire, nagle.setting, nagle.remedy))


def test_the_page_is_short_and_names_every_kind() -> None:
    assert PAGE.isascii()
    assert len(PAGE) <= 4_096
    named = set(re.findall(r"\w+", PAGE.partition("## Kinds of findings")[2]))
    assert named >= {kind for family in FAMILIES.values() for kind in family}


def test_what_the_page_says_of_rows_is_so() -> None:
    whole = json.loads(kafkatap("report", "--sections", "summary", "--json", "-n", 5, SAMPLE).out)
    reading = PAGE.partition("## Reading the JSON")[2].partition("\n## ")[0]
    fields = {column.name for column in COLUMNS}
    assert {name for name in re.findall(r"`(\w+)`", reading) if not name.startswith("_")} - fields == {
        "warnings", "notes", "none"
    }  # fmt: skip
    assert fields - {"label"} <= set(re.findall(r"\w+", reading)) | {"end"}
    assert len(whole["reports"]["summary"]) == 5
    assert "encryption" in whole["capture"]


def commands() -> list[str]:
    return re.findall(r"(?:^ +|: |`)(kafkatap [^`\n]+)", PAGE, re.MULTILINE)


def test_the_page_has_commands() -> None:
    assert len(commands()) > 10


@pytest.mark.parametrize("command", commands())
def test_every_command_of_the_page_runs(command: str) -> None:
    _, *words = [VALUES.get(word, word) for word in shlex.split(command)]
    done = kafkatap(*words)
    assert done.code in (0, 3), done.err
    assert done.out


def test_the_filter_of_the_page_has_the_causes() -> None:
    if shutil.which("jq") is None:
        pytest.skip("needs jq")
    (line,) = re.findall(r"^jq .*$", PAGE, re.MULTILINE)
    report = kafkatap("report", "--sections", "summary", "--json", "-n", 5, SAMPLE).out
    done = subprocess.run(shlex.split(line), input=report, capture_output=True, text=True, timeout=60, check=True)
    rows = json.loads(report)["reports"]["summary"]
    assert done.stdout.splitlines() == [f"{r['finding']}: {r['text']}" for r in rows if r["cause"] is None]


RECORDINGS = sorted(
    path for name in ("advice", "events", "questions") for path in (ROOT / "samples" / name).rglob("*.pcap.zst")
)  # fmt: skip


@pytest.mark.parametrize("capture", RECORDINGS[::6], ids=lambda path: path.stem)
def test_the_first_command_prints_a_few_kilobytes(capture: Path) -> None:
    assert len(kafkatap("report", "--sections", "summary", "--json", "-n", 5, capture).out) < 10_000


def test_help_of_commands() -> None:
    assert kafkatap("help", "errors").out == kafkatap("errors", "--help").out
    assert kafkatap("help").out == kafkatap("--help").out
    assert all(name in kafkatap("help").out for name in COMMANDS)


def test_no_help() -> None:
    done = kafkatap("help", "naggle")
    assert (done.code, done.out) == (2, "")
    assert "did you mean nagle?" in done.err
