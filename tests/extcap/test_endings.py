"""How a capture ends: Wireshark closes the pipe, or ends the program."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import IO

import pytest

from tests.cli.running import KAFKATAP
from tests.live import network
from tests.live.running import Capturing

WHY_NOT = network.missing()
pytestmark = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)


def capturing(fifo: Path) -> Capturing:
    os.mkfifo(fifo)
    return Capturing([*KAFKATAP, "extcap", "--extcap-interface", "kafkatap-lo", "--capture", "--fifo", str(fifo)])


def headers(file: IO[bytes]) -> None:
    """Read the section header and the description of the interface, which come at once."""
    for kind in (0x0A0D0D0A, 1):
        head = file.read(8)
        assert int.from_bytes(head[:4], "little") == kind
        file.read(int.from_bytes(head[4:], "little") - 8)


def test_it_ends_when_the_pipe_is_closed_even_without_traffic(tmp_path: Path) -> None:
    with capturing(tmp_path / "fifo") as process:
        with open(tmp_path / "fifo", "rb") as file:
            headers(file)
        done = process.finish(60)
    assert (done.code, done.err) == (0, "")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_with_statistics(number: int, tmp_path: Path) -> None:
    with capturing(tmp_path / "fifo") as process:
        with open(tmp_path / "fifo", "rb") as file:
            headers(file)
            process.send(number)
            rest = file.read()
        done = process.finish(60)
    assert (done.code, done.err) == (0, "")
    length = int.from_bytes(rest[-4:], "little")
    assert int.from_bytes(rest[-length:][:4], "little") == 5  # an interface statistics block


def test_without_a_reader_a_signal_ends_it(tmp_path: Path) -> None:
    with capturing(tmp_path / "fifo") as process:
        done = process.end(signal.SIGTERM, 60)
    assert done.out == ""
