"""Small input is also searched for signatures over facts of Produce and Fetch. Otherwise the last line says so."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from kafkatap import analyze
from kafkatap.captures.storage import stored_bytes
from kafkatap.reports.advice.catalogue import ON_REQUEST
from kafkatap.reports.rendering.json_report import write_json
from kafkatap.reports.rendering.text import first_lines
from kafkatap.reports.section_parts import registry
from kafkatap.reports.section_parts.registry import SEEN_TWICE, SMALL_INPUT, counted_sections, load_sections
from kafkatap.splits.run_options import RunOptions
from tests.cli.running import kafkatap
from tests.support.captures import unpacked

ADVICE = Path(__file__).resolve().parents[2] / "samples" / "advice"
#: Recordings whose trouble only such a signature names.
TROUBLES = {"open-transaction": "open_transaction", "slow-follower": "slow_follower"}


def printed(*options: str, stdin: Path | None = None) -> list[dict[str, Any]]:
    """The summary that the command prints as JSON."""
    made = kafkatap("report", "--json", *options, stdin=None if stdin is None else stdin.read_bytes())
    found: list[dict[str, Any]] = json.loads(made.out)["reports"]["summary"]
    return found


def of_library(path: Path) -> list[dict[str, Any]]:
    """The same of the library."""
    text = io.StringIO()
    write_json(analyze(path).report(), text, "0")
    found: list[dict[str, Any]] = json.loads(text.getvalue())["reports"]["summary"]
    return found


@pytest.mark.parametrize("name", TROUBLES)
def test_small_files_are_searched_for_all_signatures(name: str, tmp_path: Path) -> None:
    path = unpacked(ADVICE, name, tmp_path)
    whole = printed(str(path))
    assert TROUBLES[name] in {row["finding"] for row in whole}
    assert "not_checked" not in {row["finding"] for row in whole}
    assert printed("--jobs", "3", str(path)) == whole
    assert of_library(path) == whole


def test_a_summary_alone_is_searched_too(tmp_path: Path) -> None:
    path = unpacked(ADVICE, "open-transaction", tmp_path)
    assert "open_transaction" in {row["finding"] for row in printed("--sections", "summary", str(path))}


@pytest.mark.parametrize("name", TROUBLES)
def test_of_a_pipe_the_last_line_says_what_was_not_checked(name: str, tmp_path: Path) -> None:
    found = printed("-", stdin=unpacked(ADVICE, name, tmp_path))
    assert TROUBLES[name] not in {row["finding"] for row in found}
    last = found[-1]
    assert (last["finding"], last["severity"], last["cause"]) == ("not_checked", "note", None)
    assert last["command"] == "kafkatap report --sections advice CAPTURE"
    assert all(signature.title in last["text"] for signature in ON_REQUEST)


def test_with_the_section_all_is_checked(tmp_path: Path) -> None:
    path = unpacked(ADVICE, "slow-follower", tmp_path)
    found = printed("--sections", "summary,advice", "-", stdin=path)
    assert {"slow_follower", "not_checked"} & {row["finding"] for row in found} == {"slow_follower"}


def test_large_files_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    path = ADVICE / "open-transaction.pcap.zst"
    monkeypatch.setattr(registry, "SMALL_INPUT", path.stat().st_size)
    assert "open_transaction" in {row["finding"] for row in of_library(path)}
    monkeypatch.setattr(registry, "SMALL_INPUT", path.stat().st_size - 1)
    assert "open_transaction" not in {row["finding"] for row in of_library(path)}


def test_the_decision_is_the_same_for_any_way_of_reading() -> None:
    for size, is_read in ((None, False), (0, True), (SMALL_INPUT, True), (SMALL_INPUT + 1, False)):
        for wanted in (None, ("summary", "latency")):
            names = {section.name for section in load_sections(counted_sections(wanted, size))}
            more = ("advice-on-request", "advice-from-all", "group-reading", "follower-reading", "transaction-reading")
            assert names == {"events", "advice", "cluster-reading", "tls", "twin-reading", *(more if is_read else ())}
            assert RunOptions(wanted=wanted, input_bytes=size).sections == counted_sections(wanted, size)
        assert counted_sections(("latency",), size) == ("latency", *SEEN_TWICE)


def test_sizes_are_those_of_all_files(tmp_path: Path) -> None:
    for name, size in (("a", 3), ("b", 4)):
        (tmp_path / name).write_bytes(bytes(size))
    assert stored_bytes([str(tmp_path / "a"), str(tmp_path / "b")]) == 7
    assert stored_bytes([str(tmp_path / "a"), "-"]) is None
    assert stored_bytes([str(tmp_path / "a"), str(tmp_path / "missing")]) is None


def test_what_was_not_checked_is_on_the_first_screen() -> None:
    table = analyze(ADVICE / "open-transaction.pcap.zst").report().table("summary")
    names = [column.name for column in table.columns]
    row = dict.fromkeys(names) | {"severity": "warning", "text": "", "time_lost_ns": 0}
    rows = [tuple((row | {"finding": f"trouble {n}"}).values()) for n in range(12)]
    rows.append(tuple((row | {"finding": "not_checked", "severity": "note"}).values()))
    shown, left = first_lines(table.replace(rows=rows))
    assert [each["finding"] for each in shown][-2:] == ["trouble 6", "not_checked"]
    assert (len(shown), left) == (8, 5)
