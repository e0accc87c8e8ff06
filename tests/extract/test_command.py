"""`kafkatap extract`: what it prints, its exit codes, and that a file appears whole or not at all."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest

import kafkatap
from kafkatap.__main__ import main
from kafkatap.extract import extraction
from kafkatap.extract.row_check import compare_rows
from kafkatap.output_file import OutputFile
from tests.cli.running import KAFKATAP, ROOT, environment
from tests.cli.running import kafkatap as run
from tests.extract.support import SAMPLES, extracted, rows_of
from tests.support.captures import read_bytes, read_capture

CAPTURE = SAMPLES / "live-4.3.pcap.zst"
SLOW = ("-f", "latency > 50ms")


def test_a_file(tmp_path: Path) -> None:
    output = tmp_path / "out.pcapng"
    done = run("extract", CAPTURE, *SLOW, "-o", output)
    packets = len(read_capture(output).packets)
    rows = rows_of(CAPTURE, "latency > 50ms")
    connections = {row["connection"] for row in rows.values()}
    assert done.code == 0
    assert done.out == ""
    assert done.err.startswith(f"kafkatap: {output}: {packets:,} packets, ")
    assert f": {len(rows)} selected exchanges of {len(connections)} connections, " in done.err
    assert stat.S_IMODE(output.stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == ["out.pcapng"]


def test_selection_options_are_those_of_show(tmp_path: Path) -> None:
    options = ("--client", "*", "--api", "Fetch,Produce", "--from", "+1s", "--broker", "127.0.0.1", "--utc")
    shown = run("show", CAPTURE, *options, "--json", "--brief", "--only", "requests")
    done = run("extract", CAPTURE, *options, "-o", tmp_path / "out.pcapng")
    assert done.code == 0, done.err
    assert f": {len(shown.out.splitlines())} selected exchanges" in done.err
    assert "--from +1s --client" in (tmp_path / "out.pcapng").read_bytes().decode("latin-1")


def test_standard_output() -> None:
    command = [*KAFKATAP, "extract", str(CAPTURE), *SLOW, "-o", "-"]
    done = subprocess.run(command, capture_output=True, cwd=ROOT, env=environment(), check=True)
    assert read_capture(done.stdout).packets
    assert b"standard output: " in done.stderr


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path) -> None:
    """What waits in the buffer cannot be written when the file is closed."""
    made = OutputFile(str(tmp_path / "out.pcapng"))
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, made.file.fileno())
    os.close(full)
    with pytest.raises(OSError, match="No space left"), made:
        made.file.write(b"x")
    assert os.listdir(tmp_path) == []


def test_an_existing_file_is_replaced_when_the_new_one_is_whole(tmp_path: Path) -> None:
    output = tmp_path / "out.pcapng"
    assert run("extract", CAPTURE, "-f", "api == Metadata", "-o", output).code == 0
    before = output.read_bytes()
    done = run("extract", CAPTURE, "--client", "nobody", "-o", output)
    assert (done.code, output.read_bytes()) == (2, before)
    for secrets in ([], ["--no-secrets"]):
        assert run("extract", CAPTURE, *SLOW, *secrets, "-o", output).code == 0
        assert read_capture(output).packets
        assert output.read_bytes() != before
    assert os.listdir(tmp_path) == ["out.pcapng"]


@pytest.mark.parametrize("name", ["same", "link", "hard link", "in a folder"])
def test_an_input_is_never_overwritten(name: str, tmp_path: Path) -> None:
    capture, output = tmp_path / "in.pcapng", tmp_path / "other.pcapng"
    capture.write_bytes(read_bytes(CAPTURE))
    before, named = capture.read_bytes(), capture
    if name == "same":
        output = capture
    elif name == "link":
        output.symlink_to(capture)
    elif name == "hard link":
        output.hardlink_to(capture)
    else:
        output, named = capture, tmp_path
    done = run("extract", named, *SLOW, "-o", output)
    assert done.code == 2
    assert "would overwrite the capture" in done.err
    assert capture.read_bytes() == before


@pytest.mark.parametrize(("output", "said"), [
    ("no/out.pcapng", "no such folder"), (".", "is a directory"), ("out.pcapng.zst", "not compressed"),
    ("out.pcap", "name it .pcapng"), ("/sys/x.pcapng", "kafkatap: /sys/x.pcapng: no file can be created"),
])  # fmt: skip
def test_outputs_that_cannot_be(output: str, said: str, tmp_path: Path) -> None:
    done = run("extract", CAPTURE, *SLOW, "-o", tmp_path / output)
    assert done.code == 2
    assert said in done.err
    assert os.listdir(tmp_path) == []


def test_nothing_selected(tmp_path: Path) -> None:
    done = run("extract", CAPTURE, "-f", "latency > 1h", "-o", tmp_path / "out.pcapng")
    assert done.code == 2
    assert done.err == "kafkatap: no exchange matches --filter 'latency > 1h': nothing is written\n"
    assert os.listdir(tmp_path) == []


def test_no_kafka(tmp_path: Path) -> None:
    (tmp_path / "in.pcap").write_bytes(read_bytes(CAPTURE)[:24])
    done = run("extract", tmp_path / "in.pcap", "-o", tmp_path / "out.pcapng")
    assert done.code == 1
    assert "no packets" in done.err
    assert not (tmp_path / "out.pcapng").exists()


def test_a_damaged_capture(tmp_path: Path) -> None:
    """What was read before the damage is extracted."""
    (tmp_path / "in.pcap").write_bytes(read_bytes(CAPTURE)[:-7])
    done = run("extract", tmp_path / "in.pcap", *SLOW, "-o", tmp_path / "out.pcapng")
    assert done.code == 1
    assert "cut short" in done.err
    assert "the last packet is not whole" in done.err
    assert rows_of(tmp_path / "out.pcapng").items() >= rows_of(tmp_path / "in.pcap", "latency > 50ms").items()


def test_pipes_are_refused(tmp_path: Path) -> None:
    done = run("extract", "-", *SLOW, "-o", tmp_path / "out.pcapng", stdin=read_bytes(CAPTURE))
    assert done.code == 2
    assert "save it to a file first" in done.err
    assert os.listdir(tmp_path) == []


def test_wrong_filters(tmp_path: Path) -> None:
    done = run("extract", CAPTURE, "-f", "latency >", "-o", tmp_path / "out.pcapng")
    assert done.code == 2
    assert "kafkatap: " in done.err


def test_library(tmp_path: Path) -> None:
    """`analysis.extract` uses the selection of the analysis."""
    analysis = kafkatap.analyze(CAPTURE, filter="latency > 50ms")
    made = analysis.extract(tmp_path / "out.pcapng")
    assert made.exchanges == analysis.exchanges.num_rows
    assert analysis.extract(tmp_path / "out.pcapng", connections=True).packets > made.packets


@pytest.mark.parametrize("calls", [0, 1, 3])
def test_an_interruption_leaves_nothing(calls: int, tmp_path: Path) -> None:
    """`calls`: how often the run may go on. The second pass and the check can be interrupted too."""
    left = [calls]

    def watch(done: int) -> bool:
        left[0] -= 1
        return left[0] < 0

    made = extracted(CAPTURE, tmp_path / "out.pcapng", "latency > 50ms", watch=watch)
    assert made.is_interrupted
    assert os.listdir(tmp_path) == []


def test_connections_that_are_copied_whole_are_named(tmp_path: Path) -> None:
    """An answer that never came depends on what comes after the request: where other responses are left out, it might
    have been lost."""
    capture = SAMPLES / "questions" / "retries.pcap.zst"
    done = run("extract", capture, "-f", "outcome != answered", "-v", "-o", tmp_path / "out.pcapng")
    assert "; 1 connection copied whole, as rows depend" in done.err
    assert done.err.count("kafkatap: copied whole: ") == 1


@pytest.mark.parametrize("options", [(), ("--anonymize",)])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_leaves_nothing(
    number: int, options: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The signal comes in the check of the copy, when all packets are written. Originals are in no named file."""
    there = []

    def compare(*arguments: Any) -> Any:
        there.append([path.stat().st_size for path in tmp_path.iterdir()])
        os.kill(os.getpid(), number)
        return compare_rows(*arguments)

    monkeypatch.setattr(extraction, "compare_rows", compare)
    arguments = [str(CAPTURE), *SLOW, "-o", str(tmp_path / "out.pcapng"), "--no-progress", *options]
    assert main(["extract", *arguments]) == 130
    assert len(there) == 1
    assert len(there[0]) == (not options)
    assert os.listdir(tmp_path) == []


def test_connections_of_other_protocols_are_counted(tmp_path: Path) -> None:
    capture = SAMPLES / "questions" / "auth.pcap.zst"
    done = run("extract", capture, "-o", tmp_path / "out.pcapng")
    totals = kafkatap.analyze(capture).connections.column("protocol").to_pylist()
    assert totals.count("tls")
    assert f"{totals.count('tls')} encrypted (TLS)" in done.err
    assert "kafkatap: left out: " in done.err
    assert "left out" not in run("extract", capture, *SLOW, "-o", tmp_path / "slow.pcapng").err
