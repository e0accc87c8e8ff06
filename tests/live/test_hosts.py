"""Live capture reads the files of --hosts again when they change, and has each name at its time."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from kafkatap.live.screen.columns import _end
from tests.live import network

from .running import Live, wait_for
from .test_signals import on_loopback, talking

WHY_NOT = network.missing()


def test_a_column_has_the_name_first() -> None:
    assert _end("10.0.0.1:9092", None) == "10.0.0.1:9092"
    assert _end("10.0.0.1:9092", "kafka\x1b-1") == "kafka\\x1b-1 10.0.0.1:9092"


@pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)
def test_a_file_that_changes(tmp_path: Path) -> None:
    names = tmp_path / "hosts.csv"
    names.write_text("127.0.0.1,before\n")
    tmp_path.chmod(0o755)
    with talking() as talk, Live(*on_loopback(talk, "--json", "--hosts", names, "--user", "root")) as live:
        live.wait_ready()
        talk.request(3)
        time.sleep(0.5)
        names.write_text("127.0.0.1,afterwards\n")
        time.sleep(2.5)
        talk.request(3, first=4)
        names.write_text("no address\n")
        wait_for(lambda: "names of hosts stay as they were" in live.err(), 15, live.err)
        done = live.end()
    assert f"{names}, line 1: 'no' is no address or network; names of hosts stay as they were" in done.err
    (row,) = json.loads(done.out)["reports"]["clients"]
    assert row["client_host"] == "before, then afterwards"
