"""A capture has the same report however it is read.

Each pair of a recording and a way is one comparison of the whole report with all sections: each way reads the recording
with the most kinds of findings, and each recording is read in some ways. `tests/spark/test_section_reports.py` adds
Spark. Sections need no such tests of their own.
"""

from __future__ import annotations

import fcntl
import json
import shlex
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import pytest

from kafkatap.commands.command_parser import parse
from kafkatap.reports import kinds
from kafkatap.reports.advice.catalogue import CATALOGUE
from kafkatap.reports.section_parts.registry import SMALL_INPUT, check_sections
from tests.support.captures import pcap_bytes
from tests.ways import ways
from tests.ways.recordings import LOST, RECORDINGS, recording, with_bulk
from tests.ways.reports import Whole, compared, differences
from tests.ways.ways import WAYS, comparable

PAIRS = {
    "advice": tuple(way for way in WAYS if "live" not in way),  # which takes as long as the recording has seconds
    "events": ("processes", "files", "gathered", "splits", "batches"),
    "questions": ("processes", "files_of_processes", "blocks", "gathered", "splits"),
    "reports": ("pipe_of_processes", "processes", "gathered", "splits", "batches"),
    "questions/rebalances": ("live", "live_of_engines", "gathered"),
    "questions/timeouts": ("pipe_of_processes", "batches"),
    "advice/slow-follower": ("processes", "splits", "live"),
    "events/leak": ("splits", "batches", "live"),
    "events/freezes/freezes": ("processes", "files", "gathered", "splits", "batches", "live", "live_of_engines"),
    "events/freezes/slow-broker": ("files_of_processes", "blocks", "splits"),
    "live-4.4": ("compressed", "batches", "live", "live_of_engines"),
    "apache-4.3": ("files", "splits", "live", "live_of_engines"),
    "apache-2.8": ("processes", "gathered", "splits", "live"),
    "apache-0.10.2": ("files_of_processes", "gathered", "batches"),
    "apache-0.8.2": ("processes", "splits"),
    "live-4.3": ("processes", "splits", "gathered"),
    "account/lossy-client": ("processes", "splits"),
    "twins": ("processes", "files", "blocks", "gathered", "splits", "batches"),  # others read once, and count twice
    LOST: ("compressed", "processes", "gathered", "splits"),
}
#: Signatures with a measure that other traffic to the same hosts hides: the share of the time of all Produce requests,
#: and connects a second from the first to the last.
HIDDEN = {"slow_follower": "advice/slow-follower", "reconnect_storm": "events"}


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """A folder that all processes of a run share."""
    base = tmp_path_factory.getbasetemp()
    folder = (base if worker_id == "master" else base.parent) / "ways"
    folder.mkdir(exist_ok=True)
    return folder


Read = Callable[[str], tuple[Sequence[Path], Whole]]


@pytest.fixture(scope="session")
def read(shared: Path) -> Read:
    """The files of a recording, and its report as all other ways have to make it, once for all processes."""

    @cache
    def made(name: str) -> tuple[Sequence[Path], Whole]:
        paths = recording(name, shared)
        report = shared / f"{name.replace('/', '-')}.json"
        with open(f"{report}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not report.exists():
                report.write_text(json.dumps(ways.usual(paths)))
        whole: Whole = json.loads(report.read_text())
        return paths, whole

    return made


def found_in(whole: Whole) -> set[str]:
    """The kinds of findings, those of events, and of advice."""
    tables = whole["reports"]
    return {row["finding"] for table in ("summary", "advice") for row in tables[table]} | {
        row["event"] for row in tables["events"]
    }


@pytest.mark.parametrize(("name", "way"), [(name, way) for name, found in PAIRS.items() for way in found])
def test_the_report_is_the_same(name: str, way: str, read: Read, tmp_path: Path) -> None:
    paths, usual = read(name)
    wanted, found = comparable(usual, way), comparable(WAYS[way](paths, tmp_path), way)
    lines = differences(found, wanted)
    assert not lines, "\n".join(lines)


def test_each_way_and_each_recording_is_in_the_table() -> None:
    assert PAIRS.keys() == {*RECORDINGS, LOST}
    assert {way for name, found in PAIRS.items() if name != "advice" for way in found} <= WAYS.keys()
    assert all(len(found) > 1 for found in PAIRS.values())


def test_the_recordings_have_all_signatures(read: Read) -> None:
    found = found_in(read("advice")[1])
    missing = {signature.id for signature in CATALOGUE} - found
    assert missing == HIDDEN.keys()
    for signature, name in HIDDEN.items():
        assert signature in found_in(read(name)[1])


def test_the_recordings_have_all_kinds_of_events(read: Read) -> None:
    assert kinds.EVENT_KINDS - set().union(*(found_in(read(name)[1]) for name in PAIRS)) == set()


@pytest.mark.parametrize("name", ["advice", "events", "questions"])
def test_commands_of_findings_and_rows_are_right(name: str, read: Read) -> None:
    """A reader pastes them: their options and names of sections exist."""
    tables = read(name)[1]["reports"].values()
    commands = {row["command"] for rows in tables for row in rows if row.get("command")}
    assert len(commands) > 10
    for command in commands:
        program, *words = shlex.split(command)
        assert program == "kafkatap"
        options = parse(words)
        check_sections(getattr(options, "sections", None) or ())


def test_a_response_of_a_recording_waits_for_lost_segments(read: Read) -> None:
    rows = read("account/lossy-client")[1]["reports"]["slow_connections"]
    assert max(row["wait_loss_sum_ns"] for row in rows) > 500_000_000


def test_a_large_capture_has_the_advice_of_a_small_one(read: Read, tmp_path: Path) -> None:
    """What is searched in small input alone is searched in large one if the section is asked for."""
    path = tmp_path / "large.pcap"
    path.write_bytes(pcap_bytes(with_bulk(RECORDINGS["advice"](), SMALL_INPUT), nanoseconds=True))
    assert path.stat().st_size > SMALL_INPUT
    found, wanted = ways.command(path, sections="advice"), read("advice")[1]
    rows = [compared(whole)["advice"] for whole in (found, wanted)]
    assert differences({"advice": rows[0]}, {"advice": rows[1]}) == []
