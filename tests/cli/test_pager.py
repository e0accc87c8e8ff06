"""Long output on a terminal goes to a pager."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.cli.running import KAFKATAP, ROOT, environment, kafkatap, on_terminal

SAMPLE = Path("samples/apache-4.3.pcap.zst")
MARKING = "sed s/^/P:/"


@pytest.mark.parametrize("words", [
    ("report", "--no-progress", SAMPLE), ("show", "--no-progress", "-n", "5", SAMPLE),
    ("doctor", "--no-progress", SAMPLE), ("errors",),
])  # fmt: skip
def test_output_goes_through_the_pager(words: tuple[str, ...]) -> None:
    code, shown = on_terminal(*words, KAFKATAP_PAGER=MARKING)
    wanted, plain = on_terminal(*words)
    assert code == wanted
    # What is said while the pager has the terminal comes behind its end.
    said = [line for line in plain.splitlines() if line.startswith("kafkatap: ")]
    paged = [f"P:{line}" for line in plain.splitlines() if line not in said]
    assert shown.splitlines() == [*paged, *said]


def test_who_chooses_it() -> None:
    assert "Q:" in on_terminal("errors", "6", KAFKATAP_PAGER="sed s/^/Q:/", PAGER=MARKING)[1]
    assert "P:" not in on_terminal("errors", "6", PAGER=MARKING)[1]  # an empty KAFKATAP_PAGER is none


@pytest.mark.parametrize("words", [
    ("report", "--no-pager", SAMPLE), ("report", "--json", SAMPLE), ("show", "--json", "-n", "3", SAMPLE),
    ("errors", "--json"),
])  # fmt: skip
def test_what_is_for_programs_is_not_paged(words: tuple[str, ...]) -> None:
    assert "P:" not in on_terminal(*words, KAFKATAP_PAGER=MARKING)[1]


def test_a_pipe_is_not_paged() -> None:
    assert "P:" not in kafkatap("errors", "6", KAFKATAP_PAGER=MARKING).out


def test_a_pager_that_is_closed_early_is_no_error(tmp_path: Path) -> None:
    """The files of the run are written all the same."""
    page = tmp_path / "page.html"
    code, _ = on_terminal("report", "--html", page, SAMPLE, KAFKATAP_PAGER="head -n 3")
    assert code == 0
    assert page.stat().st_size > 100_000
    assert on_terminal("show", SAMPLE, KAFKATAP_PAGER="head -n 3")[0] == 0
    assert on_terminal("report", SAMPLE, KAFKATAP_PAGER="false")[0] == 0


def test_errors_stay_outside_of_it() -> None:
    code, shown = on_terminal("report", "samples/none.pcap", KAFKATAP_PAGER=MARKING)
    assert code == 2
    assert "P:" not in shown
    assert "none.pcap" in shown


@pytest.mark.skipif(shutil.which("less") is None, reason="needs less")
def test_less_shows_a_short_report_at_once() -> None:
    """With -F, and with the colours of a terminal."""
    code, shown = on_terminal("errors", "6", KAFKATAP_PAGER="less", LESS="FRX")
    assert (code, "NOT_LEADER_OR_FOLLOWER" in shown) == (0, True)


def test_ctrl_c_in_the_pager_is_no_error(tmp_path: Path) -> None:
    """Both are in the foreground, and both get it."""
    import pty

    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*KAFKATAP, "show", str(SAMPLE)], stdin=theirs, stdout=theirs, stderr=theirs, cwd=ROOT,
        env=environment(KAFKATAP_PAGER=f"trap '' INT; head -n 1; touch {tmp_path}/read; sleep 2"),
    )  # fmt: skip
    os.close(theirs)
    end = time.monotonic() + 60
    while not (tmp_path / "read").exists() and time.monotonic() < end:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 0
    os.close(ours)


def test_widths_without_a_terminal() -> None:
    """COLUMNS, else 120; --width goes before it, and 0 is no limit."""

    def longest(*words: str, **variables: str) -> int:
        return max(map(len, kafkatap("report", "--sections", "clients", *words, SAMPLE, **variables).out.splitlines()))

    assert 60 < longest(COLUMNS="80") <= 80
    assert 100 < longest(COLUMNS="") <= 120
    assert 100 < longest(COLUMNS="many") <= 120
    assert longest("--width", "0") == longest() > 160
    assert longest("--width", "90", COLUMNS="200") <= 90


def test_the_report_is_short_without_sections() -> None:
    """At most two screens, for a sample with every kind of trouble; what it leaves out has its command."""
    short = kafkatap("report", "--width", "100", SAMPLE).out.splitlines()
    assert len(short) <= 105
    assert short[-1].strip() == f"kafkatap report --sections errors,timeline,events,advice {SAMPLE}"
    titles = [
        line for line in short if line.startswith(("Latency", "Throttling", "Error codes", "Clients", "Timeline"))
    ]
    assert titles == ["Latency by API", "Throttling by client and API", "Error codes", "Clients"]
    rows = [line.split()[0] for line in short[short.index("Latency by API") + 4 :][:3]]
    assert rows == ["Produce", "Fetch", "Fetch"]
    whole = kafkatap("report", "--sections", "errors,timeline,events,advice", "--width", "100", SAMPLE).out
    assert "Timeline" in whole


def test_what_was_looked_at_in_vain_is_one_line() -> None:
    out = kafkatap("report", "--width", "0", "samples/reports/nat-twice.pcap.zst").out
    (line,) = (line for line in out.splitlines() if line.startswith("Looked at as well: "))
    assert "throttle: no response was throttled; errors: none; events: no outage" in line
    assert "Ledger:" not in out
    assert "Ledger" in kafkatap("report", "--ledger", "samples/reports/nat-twice.pcap.zst").out
