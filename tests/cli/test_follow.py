"""`--follow` as a user runs it: beside tcpdump and dumpcap, on a terminal, until Ctrl-C."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from kafkatap.__main__ import main
from tests.cli.running import KAFKATAP, ROOT, environment, kafkatap
from tests.live.network import Wire, missing, veth_pair
from tests.support.captures import Packet, pcap_bytes, read_bytes, read_capture
from tests.support.tcp import START_NS, encode
from tests.wire.kafkatalk import KafkaTalk, add_exchanges

BROKER = ("10.0.1.1", 9_092)


@contextmanager
def following(*arguments: str | Path, **options: Any) -> Iterator[subprocess.Popen[str]]:
    """A run with pipes for its output, which is ended if it still runs."""
    process = subprocess.Popen(
        [*KAFKATAP, *map(str, arguments)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, cwd=ROOT, env=environment(**options),
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def talk(number: int, exchanges: int = 3) -> list[Packet]:
    made = KafkaTalk(("10.0.0.1", 20_000 + number), BROKER, time_ns=START_NS + number * 10**9)
    made.tcp.open()
    add_exchanges(made, exchanges)
    return encode(made.tcp.segments)


def append(path: Path, packets: list[Packet]) -> None:
    """Append packets to a capture, which is made if it is not there."""
    with path.open("ab", buffering=0) as file:
        file.write(pcap_bytes(packets)[len(pcap_bytes([])) if file.tell() else 0 :])


def test_show_prints_an_exchange_within_a_second(tmp_path: Path) -> None:
    """A request at once, and its response when it comes; -n ends it."""
    path = tmp_path / "x.pcap"
    with following("show", "--follow", "-n", "12", "--utc", path) as shown:
        assert shown.stderr is not None
        assert shown.stdout is not None
        assert shown.stderr.readline() == f"kafkatap: waiting for {path}\n"
        append(path, talk(0))
        lines = [shown.stdout.readline() for _ in range(7)]  # the first is the day
        append(path, talk(1)[:4])
        begun = time.monotonic()
        assert "→" in shown.stdout.readline()
        assert time.monotonic() - begun < 1
        append(path, talk(1)[4:])
        lines += [shown.stdout.readline() for _ in range(5)]
        assert time.monotonic() - begun < 2
        assert len(lines) == 12
        assert shown.wait(10) == 0


def test_records_and_messages_until_ctrl_c(tmp_path: Path, samples: Path) -> None:
    """All that a finished capture has, after Ctrl-C too; with --tail only the last of what was there before.

    The last request is cut off by the end: what follows the capture knows that after Ctrl-C.
    """
    capture = tmp_path / "ring" / "x.pcap"
    capture.parent.mkdir()
    plain = kafkatap("records", "--json", samples / "apache-2.8.pcap.zst").out.splitlines()
    cut = json.loads(plain[-1])["exchange"]
    there = [line for line in plain if json.loads(line)["exchange"] != cut]
    tail = kafkatap("show", "--stream", "--tail", "4", "--utc", samples / "apache-2.8.pcap.zst").out
    *lines, last = tail.splitlines(keepends=True)
    assert "cut off" in last
    assert plain[: len(there)] == there != plain
    capture.write_bytes(read_bytes(samples / "apache-2.8.pcap.zst"))
    with (
        following("records", "--follow", "--json", capture.parent) as records,
        following("show", "--follow", "--tail", "3", "--utc", capture.parent) as shown,
    ):
        assert records.stdout is not None
        assert shown.stdout is not None
        assert [records.stdout.readline().rstrip("\n") for _ in there] == there
        assert [shown.stdout.readline() for _ in lines] == lines
        for process in (records, shown):
            process.send_signal(signal.SIGINT)
        rest = "".join(f"{line}\n" for line in plain[len(there) :])
        assert records.communicate(timeout=20) == (rest, "")
        assert shown.communicate(timeout=20) == (last, "")
        assert records.returncode == shown.returncode == 130


def test_a_report_each_interval(tmp_path: Path) -> None:
    """One JSON document a line; the last one is that of the finished capture. --duration ends it with exit code 0."""
    path = tmp_path / "x.pcap"
    append(path, [])
    options = ("--follow", "--json", "--interval", "500ms", "--duration", "3s")
    with following("report", *options, "--csv", tmp_path / "csv", path) as process:
        for number in range(8):
            append(path, talk(number, 6))
            time.sleep(0.3)
        out, err = process.communicate(timeout=30)
    assert process.returncode == 0, err
    documents = [json.loads(line) for line in out.splitlines()]
    assert len(documents) >= 3
    requests = [document["capture"]["requests"] for document in documents]
    assert requests == sorted(requests)
    whole = json.loads(kafkatap("report", "--json", path).out)
    last = documents[-1]
    # What follows grows: it is not searched for what only small input is.
    last["reports"]["summary"] = [row for row in last["reports"]["summary"] if row["finding"] != "not_checked"]
    assert last == whole
    parts = [row["part"] for row in documents[0]["reports"]["ledger"]]
    assert "total" in parts
    assert (tmp_path / "csv" / "latency.csv").exists()
    assert documents[0]["capture"]["connections"] >= 1, "open connections count"


def test_a_terminal_is_drawn_anew(tmp_path: Path, samples: Path) -> None:
    import pty

    ours, theirs = pty.openpty()
    path = tmp_path / "x.pcap"
    path.write_bytes(read_bytes(samples / "apache-0.8.2.pcap.zst"))
    process = subprocess.Popen(
        [*KAFKATAP, "report", "--follow", "--interval", "300ms", str(path)], stdin=theirs, stdout=theirs,
        stderr=subprocess.DEVNULL, cwd=ROOT, env=environment(),
    )  # fmt: skip
    os.close(theirs)
    shown = b""
    while shown.count(b"\x1b[H\x1b[2J") < 2:
        shown += os.read(ours, 65_536)
    process.send_signal(signal.SIGINT)
    try:
        while more := os.read(ours, 65_536):
            shown += more
    except OSError:
        pass
    assert process.wait(20) == 130
    os.close(ours)
    screens, _, report = shown.decode().partition("\x1b[?1049l")
    assert screens.startswith("\x1b[?1049h")
    assert "more lines; Ctrl-C prints the whole report" in screens
    assert "More: " in report
    assert "\x1b[H" not in report


def test_wrong_uses(tmp_path: Path, samples: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for words, said in (
        (("show", "--duration", "1s", "x.pcap"), "--duration needs --follow"),
        (("show", "--follow", samples / "apache-2.8.pcap.zst"), "compressed and cannot be followed"),
        (("report", "--follow", "s3://bucket/x"), "--follow reads local files"),
        (("report", "--follow", "--jobs", "2", tmp_path), "--jobs reads captures that are complete"),
        (("records", "--follow", "-f", "error", tmp_path), "what is followed can be filtered by --topic"),
    ):
        assert main([str(word) for word in words]) == 2, words
        assert said in capfd.readouterr().err


def test_standard_input_is_followed(samples: Path) -> None:
    data = read_bytes(samples / "apache-2.8.pcap.zst")
    done = kafkatap("report", "--follow", "--json", "-", stdin=data)
    assert done.code == 0
    followed, plain = json.loads(done.out), json.loads(kafkatap("report", "--json", "-", stdin=data).out)
    assert followed == plain


def test_standard_input_without_a_packet() -> None:
    done = kafkatap("report", "--follow", "--json", "-", stdin=pcap_bytes([]))
    assert "Error" not in done.err, done.err
    assert (done.code, json.loads(done.out)["capture"]["packets"]) == (1, 0)


WRITERS = {
    "tcpdump": ["tcpdump", "-U", "-Z", "root", "-w", "{folder}/all.pcap", "-i", "{interface}"],
    "tcpdump -C -W": ["tcpdump", "-U", "-C", "1", "-W", "2", "-Z", "root", "-w", "{folder}/r", "-i", "{interface}"],
    "tcpdump -G": ["tcpdump", "-G", "1", "-Z", "root", "-w", "{folder}/%s.pcap", "-i", "{interface}"],
    "dumpcap -b": ["dumpcap", "-q", "-b", "filesize:500", "-b", "files:3", "-w", "{folder}/d.pcapng", "-i",
                   "{interface}"],
}  # fmt: skip


def test_real_rings(tmp_path: Path, samples: Path) -> None:
    """tcpdump and dumpcap write rings and rotated files of live traffic; the reports are those of one whole file."""
    why = missing("tcpdump", "dumpcap", admin=True)
    if why:
        pytest.skip(why)
    frames = [packet.data for packet in read_capture(samples / "apache-4.3.pcap.zst").packets]
    with veth_pair(mtu=65_535) as pair, ExitStack() as ended:
        followers = []
        for name in WRITERS:
            (tmp_path / name).mkdir()
            follower = ended.enter_context(
                following("report", "--follow", "--json", "--interval", "1h", tmp_path / name)
            )  # fmt: skip
            assert follower.stderr is not None
            assert "waiting for" in follower.stderr.readline()
            followers.append(follower)
        writers = [
            subprocess.Popen(
                [word.format(folder=tmp_path / name, interface=pair.far) for word in command], stderr=subprocess.PIPE
            )
            for name, command in WRITERS.items()
        ]  # fmt: skip
        for writer in writers:
            assert writer.stderr is not None
            while (line := writer.stderr.readline()) and not re.search(rb"listening on|^File: ", line):
                pass
        with Wire(pair.near) as wire:
            for at in range(0, len(frames), 100):
                wire.send(frames[at : at + 100])
                time.sleep(0.03)
        time.sleep(1.5)
        for writer in writers:
            writer.send_signal(signal.SIGINT)
            writer.communicate(timeout=10)
        for follower in followers:
            follower.send_signal(signal.SIGINT)
        done = [follower.communicate(timeout=30) for follower in followers]
    whole = json.loads(kafkatap("report", "--json", tmp_path / "tcpdump" / "all.pcap").out)
    assert whole["capture"]["packets"] == len(frames)
    for (out, err), name in zip(done, WRITERS, strict=True):
        report = json.loads(out)
        assert (len(report["reports"]["files"]) > 1) == (name != "tcpdump")
        for table in ("latency", "clients", "error_totals", "ledger"):
            assert without_times(report["reports"][table]) == without_times(whole["reports"][table]), (name, err)


_OF_TIMES = ("first", "last", "evidence", "hol_behind")


def without_times(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows without times, and without shares of them in words: two programs stamp a packet at slightly different
    times."""
    kept = [{k: v for k, v in row.items() if isinstance(v, int | str) and not k.endswith("_ns")} for row in rows]
    return sorted(({k: v for k, v in row.items() if k not in _OF_TIMES} for row in kept), key=repr)
