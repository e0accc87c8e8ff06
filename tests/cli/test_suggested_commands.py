"""Commands that outputs suggest keep the options of their run that change the answer, and can be run."""

from __future__ import annotations

import argparse
import re
import shlex
from pathlib import Path

import pytest

from kafkatap.__main__ import main
from kafkatap.commands.command_parser import build_parser, parse
from kafkatap.commands.kept_options import duration_word, kept_options
from kafkatap.commands.values import parse_duration
from kafkatap.reports.commands import CAPTURE, KEPT, OF_SECTIONS, kept_words

#: Options of `report` that select exchanges: they are in the text of the selection.
SELECTION = {"filter", "from", "to", "client", "connection", "topic", "broker", "api", "group"}
#: Options of `report` that do not change what a command finds: how it reads, and what it prints or writes.
OUTPUT = {
    "help", "follow", "duration", "by", "sections", "interval", "jobs", "number", "sort", "width", "color",
    "no-progress", "no-pager", "verbose", "ledger", "json", "html", "csv", "plots", "parquet",
    "overwrite",
}  # fmt: skip


def options_of(command: str) -> set[str]:
    (commands,) = (a for a in build_parser()._actions if isinstance(a, argparse._SubParsersAction))
    parser = commands.choices[command]
    return {word[2:] for action in parser._actions for word in action.option_strings if word.startswith("--")}


def test_every_option_of_report_is_kept_or_changes_only_the_output() -> None:
    assert options_of("report") - SELECTION - OUTPUT == set(KEPT)


@pytest.mark.parametrize("command", ["report", "show", "records", "extract", "compare", "doctor", "upgrade-check"])
def test_each_command_gets_the_options_that_it_has(command: str) -> None:
    of_its_own = {"release"} if command == "upgrade-check" else set()  # it has no sections, so no command keeps it
    assert {name for name in KEPT if command in KEPT[name]} == (options_of(command) & set(KEPT)) - of_its_own


def suggested(text: str, captures: tuple[str, ...]) -> set[str]:
    ends = "|".join(map(re.escape, (*captures, CAPTURE)))
    return set(re.findall(rf"kafkatap (?:report|show|extract) [^\n]*?(?:{ends})(?=$|[\s\"<\\])", text))


def test_commands_keep_the_options_of_their_run(
    samples: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    zones = tmp_path / "zones.txt"
    zones.write_text("127.0.0.0/8 here\n")
    page = tmp_path / "report.html"
    words = [
        "report", "live-4.4.pcap.zst", "--utc", "--late", "2s", "--port", "53279", "--from", "+0s",
        "--sections", "summary,errors,zones,slowest", "--zones", str(zones), "--filter", "latency >= 0ms",
    ]  # fmt: skip
    words[1] = str(samples / words[1])
    assert main([*words, "--html", str(page)]) == 0
    text = capsys.readouterr().out
    found = suggested(text, (words[1],)) | suggested(page.read_text(), (words[1],))
    assert main([*words, "--json"]) == 0
    found |= suggested(capsys.readouterr().out, ())
    assert len(found) > 5
    events = set()
    for command in found:
        line = shlex.split(
            command.replace("&#39;", "'").replace("&gt;", ">").replace("\\u0027", "'").replace("\\u003e", ">")
        )
        options = parse([*line[1:-1], words[1]])
        assert options.utc, command
        assert options.port == [53279]
        if options.command == "show" and options.end is not None:  # of an event: its own times and API
            events.add((options.start, options.end, str(options.api)))
            continue
        assert options.start == "+0s"
        assert "latency >= 0ms" in options.filter
        if options.command == "report":
            assert options.late == 2_000_000_000
    assert events == {("2026-11-22T19:34:39.071Z", "2026-11-22T19:34:41.071Z", "[['CreateTopics']]")}


def test_doctor_keeps_the_options_of_its_run(samples: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capture = str(samples / "questions" / "timeouts.pcap.zst")
    assert main(["doctor", "--ledger", "--utc", "--port", "9092", "--max-names", "5000", capture]) == 0
    (found,) = suggested(capsys.readouterr().out, (capture,))
    line = shlex.split(found)
    options = parse(line[1:])
    assert (options.command, options.sections, options.captures) == ("report", ["connections"], [capture])
    assert (options.utc, options.port, options.max_names) == (True, [9092], 5000)


def test_values_are_written_so_that_they_are_read_again() -> None:
    for text in ("2h", "90m", "5s", "1500ms", "7us", "3ns"):
        assert duration_word(parse_duration(text)) == ("90m" if text == "90m" else text)
    words = ["report", "x.pcap", "--sections", "throttle,upgrade", "--window", "7x2s", "--quota", "20000",
             "--release", "4.0", "--keylog", "my keys.log", "--definitions", "a", "--definitions", "b"]  # fmt: skip
    kept = kept_options(parse(words))
    again = parse(["report", *shlex.split(" ".join(kept_words(kept, "report", tuple(OF_SECTIONS.values())))), "x.pcap"])
    assert kept_options(again) == kept


def test_options_of_a_section_go_to_commands_with_that_section() -> None:
    kept = (("quota", "20000"), ("utc", ""))
    assert kept_words(kept, "report", ("latency",)) == ["--utc"]
    assert kept_words(kept, "report", ("latency", "throttle")) == ["--quota 20000", "--utc"]
    assert kept_words(kept, "show --tree") == ["--utc"]
