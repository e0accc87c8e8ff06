"""A recording of loopback by tcpdump, for samples (as root)."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .broker import BrokerError, missing_compiler


def cannot_record() -> str:
    """What this machine lacks for a broker and a recording of it, as a sentence; "" where it lacks nothing."""
    if shutil.which("tcpdump") is None:
        return "needs tcpdump to record loopback (apt-get install tcpdump)"
    return missing_compiler() or ("needs to be root: tcpdump records loopback" if os.geteuid() != 0 else "")


@contextmanager
def recorded(work: Path, port: int, *more: int) -> Iterator[Path]:
    """Record TCP ports of loopback. The path is complete after the block; a line of tcpdump's counts is printed."""
    raw, log = work / "recording.pcap", work / "tcpdump.log"
    raw.unlink(missing_ok=True)
    packets = " or ".join(f"tcp port {number}" for number in (port, *more))
    command = ["tcpdump", "-i", "lo", "-U", "-w", str(raw), "-s", "0", "-B", "65536", packets]
    with open(log, "wb") as errors:
        tcpdump = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=errors, stderr=errors)
    try:
        end = time.monotonic() + 10
        while not (raw.exists() and raw.stat().st_size >= 24) and time.monotonic() < end:
            time.sleep(0.1)
        if tcpdump.poll() is not None:
            raise BrokerError(f"tcpdump ended: {log.read_text()}")
        yield raw
        time.sleep(1)
    finally:
        tcpdump.terminate()
        tcpdump.wait(10)
    print(log.read_text().strip())
