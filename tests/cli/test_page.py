"""`kafkatap report --html`: what is written, when, and what stays as it is."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from .running import KAFKATAP, ROOT, environment, kafkatap

SAMPLE = ROOT / "samples" / "questions" / "throttle.pcap.zst"


SECTIONS = "latency,timeline,topics,slowest"


def whole_data(page: str) -> dict[str, Any]:
    """What the script of a page shows."""
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page)
    assert found is not None
    made: dict[str, Any] = json.loads(found[1])
    return made


def data_of(page: str) -> dict[str, dict[str, Any]]:
    """The tables of a page by name."""
    return {table["name"]: table for table in whole_data(page)["tables"]}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """(what a run printed, its page)."""
    path = tmp_path_factory.mktemp("page") / "report.html"
    done = kafkatap("report", "--utc", SAMPLE, "--html", path)
    assert (done.code, done.err) == (0, f"kafkatap: wrote {path}\n")
    assert [p.name for p in path.parent.iterdir()] == ["report.html"]
    return done.out, path.read_text("utf-8")


def without_first_lines(printed: str) -> list[str]:
    """The lines of a report without its beginning: a page needs all sections, so more is found."""
    return sorted(printed.partition("\n\n")[2].splitlines())


def test_all_sections_are_on_the_page_and_the_text_stays(written: tuple[str, str]) -> None:
    printed, page = written
    assert without_first_lines(printed) == without_first_lines(kafkatap("report", "--utc", SAMPLE).out)
    tables = data_of(page)
    assert {"latency", "clients", "throttle_obedience", "groups", "topics", "slowest", "ledger"} <= set(tables)
    assert "<svg" in page
    for name in ("latency", "topic-matrix", "rebalances"):
        assert f'id="figure-of-{name}"' in page
    assert any("kafkatap show --tree" in line for row in tables["slowest"]["commands"] for line in row)


def test_what_is_printed_stays_with_a_request_log_too(tmp_path: Path) -> None:
    capture, log = ROOT / "samples" / "apache-4.3.pcap.zst", ROOT / "samples" / "apache-4.3.request.log.zst"
    usual = kafkatap("report", "--utc", capture, "--request-log", log)
    done = kafkatap("report", "--utc", capture, "--request-log", log, "--html", tmp_path / "page.html")
    assert (done.code, without_first_lines(done.out)) == (usual.code, without_first_lines(usual.out))
    assert {"broker_times", "slowest"} <= set(data_of((tmp_path / "page.html").read_text("utf-8")))


def test_the_page_needs_nothing_else(written: tuple[str, str]) -> None:
    _, page = written
    assert re.findall(r"(?:src|href)=\"(?!#)([^\"]*)\"", page) == ["data:,"]
    assert "style=" not in page
    assert re.findall(r"\bon\w+=", page.partition("<script")[0]) == []
    assert "default-src &#39;none&#39;" in page
    assert "unsafe-inline" not in page
    assert page.count("</script>") == page.count("<script") == 2
    assert "@import" not in page
    assert "http" not in page.replace("http://www.w3.org/", "").replace("http-equiv", "")


def test_chosen_sections(tmp_path: Path) -> None:
    path = tmp_path / "some.html"
    done = kafkatap("report", "--utc", "--sections", "summary,clients", SAMPLE, "--html", path, "--json")
    assert done.code == 0
    assert set(json.loads(done.out)["reports"]) == {"summary", "clients", "client_activity", "ledger"}
    assert set(data_of(path.read_text("utf-8"))) == {"clients", "client_activity", "ledger"}


def test_the_page_is_the_same_for_several_processes(written: tuple[str, str], tmp_path: Path) -> None:
    import zstandard

    capture, path = tmp_path / SAMPLE.name.removesuffix(".zst"), tmp_path / "jobs.html"
    with open(SAMPLE, "rb") as packed, open(capture, "wb") as file:
        zstandard.ZstdDecompressor().copy_stream(packed, file)
    pages = []
    for jobs in ("1", "3"):
        done = kafkatap("report", "--utc", "--jobs", jobs, "--sections", SECTIONS, capture, "--html", path)
        assert done.code == 0, done.err
        pages.append(path.read_text("utf-8"))
    assert pages[0] == pages[1]


def test_refused_before_reading(tmp_path: Path) -> None:
    copy = tmp_path / "copy.pcap.zst"
    shutil.copy(SAMPLE, copy)
    for name, words in (
        ("", "--html needs the name of a file"), ("-", "--html needs the name of a file"),
        (tmp_path, "is a directory"), (copy, "would overwrite the capture"),
        (tmp_path / "no" / "x.html", f"kafkatap: {tmp_path}/no: no such folder\n"),
        ("/proc/x.html", "kafkatap: /proc/x.html: no file can be created in this folder\n"),
    ):  # fmt: skip
        done = kafkatap("report", copy, "--html", name)
        assert (done.code, done.out) == (2, "")
        assert words in done.err
    assert copy.read_bytes() == SAMPLE.read_bytes()


def test_without_matplotlib_three_charts_are_left_out(tmp_path: Path) -> None:
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "sitecustomize.py").write_text("import sys\nsys.modules['matplotlib'] = None\n")
    python_path = os.pathsep.join(filter(None, (str(hidden), os.environ.get("PYTHONPATH"))))
    path = tmp_path / "x.html"
    done = kafkatap("report", SAMPLE, "--html", path, PYTHONPATH=python_path)
    assert done.code == 0
    assert done.err.startswith(f"kafkatap: wrote {path}, without three charts that need matplotlib (")
    page = path.read_text("utf-8")
    assert 'id="picture"' in page
    assert "figure-of-latency" not in page
    assert whole_data(page)["picture"]["cells"]
    refused = kafkatap("report", SAMPLE, "--plots", tmp_path / "plots", PYTHONPATH=python_path)
    assert refused.code == 2
    assert "--plots needs matplotlib (" in refused.err


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_names_the_file() -> None:
    done = kafkatap("report", SAMPLE, "--sections", "timeline", "--html", "/dev/full")
    assert (done.code, done.err) == (2, "kafkatap: /dev/full: no space left on device\n")


def test_a_followed_capture_has_its_page_at_the_end(tmp_path: Path) -> None:
    capture, path = tmp_path / "grows.pcap", tmp_path / "page.html"
    with open(capture, "wb") as file:
        subprocess.run(["zstd", "-dcq", SAMPLE], stdout=file, check=True)
    process = subprocess.Popen(
        [*KAFKATAP, "report", "--follow", "--interval", "200ms", str(capture), "--html", str(path)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(), cwd=ROOT, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    for line in process.stdout:  # the first report
        if line.startswith("More: "):
            break
    time.sleep(0.2)
    assert not path.exists()
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 130
    assert f"wrote {path}" in errors
    assert "slowest" in data_of(path.read_text("utf-8"))


def test_packets_of_files_are_on_the_page_and_those_of_pipes_are_not(written: tuple[str, str], tmp_path: Path) -> None:
    """Files are read once more for them."""
    found = whole_data(written[1])
    assert len(found["sequences"]) > 10
    assert "10.77.0.1:9092" in found["picture"]["names"][2]
    page = tmp_path / "page.html"
    with subprocess.Popen(["zstd", "-dcq", SAMPLE], stdout=subprocess.PIPE) as pipe:
        command = [*KAFKATAP, "report", "-", "--html", str(page)]
        subprocess.run(command, stdin=pipe.stdout, check=True, capture_output=True, env=environment())
    piped = whole_data(page.read_text("utf-8"))
    assert piped["sequences"] == {}
    assert piped["picture"]["cells"] == found["picture"]["cells"]
