"""Packets in memory that a user asks for: those of some exchanges, as a pcapng.

A thread copies the recorder's ring to a file, and `kafkatap extract` takes the packets out of it: a process of its own
with the lowest priority, so that the capture waits for nothing.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Lock, Thread

from kafkatap.reports import units

from ...output_file import is_device
from .recorder import Recorder
from .recording_files import free_path

#: Seconds after which an extraction is given up: it takes about three for 64 MiB.
PATIENCE = 120
_NICE = ("nice", "-n", "19")


class PacketSaver:
    """`key_logs`: the paths of --keylog. `notify` gets a line when packets are saved."""

    def __init__(self, recorder: Recorder, key_logs: Sequence[str], notify: Callable[[str], None]) -> None:
        self._recorder, self._key_logs, self._notify = recorder, key_logs, notify
        self._busy = Lock()

    def save(self, wanted: str, what: str) -> str:
        """Begin to save the connections of the exchanges that a filter expression selects; return a line. `what`: they
        in words."""
        if is_device(str(self._recorder.path)):
            return f"{self._recorder.path} is no file: name a file for --write-pcap to save packets beside it"
        if not self._busy.acquire(blocking=False):
            return "packets are being saved already"
        Thread(target=self._run, args=(wanted, what), name="kafkatap-save", daemon=True).start()
        return f"saving the packets of {what} …"

    def _run(self, wanted: str, what: str) -> None:
        try:
            self._notify(self._saved(wanted, what))
        except OSError as error:
            self._notify(f"the packets of {what} are not saved: {error.strerror or error}")
        finally:
            self._busy.release()

    def _saved(self, wanted: str, what: str) -> str:
        path = self._recorder.path
        now = time.time_ns()
        place = free_path(path.with_name(f"{path.stem}-saved.pcapng"), now)
        whole = path.with_name(f".{place.stem}{path.suffix}")
        span = self._recorder.copy_packets(whole)
        try:
            done = self._extract(whole, place, wanted)
            if place.exists():
                size = units.size(place.stat().st_size)
                return f"{place}: {size} of {what}, of the last {units.duration(span)}"
            if done is not None and "no exchange matches" in done.stderr:
                return f"the packets in memory, of the last {units.duration(span)}, have none of {what}"
            place = free_path(path.with_name(f"{path.stem}-saved{path.suffix}"), now)
            os.rename(whole, place)
            return f"{place}: all packets of the last {units.duration(span)}; they could not be searched for {what}"
        finally:
            with suppress(OSError):
                whole.unlink()

    def _extract(self, whole: Path, place: Path, wanted: str) -> subprocess.CompletedProcess[str] | None:
        """Run `kafkatap extract`. None if that is not possible."""
        command = [
            *_NICE, sys.executable, "-m", "kafkatap", "extract", str(whole), "--connections", "-f", wanted,
            "-o", str(place), "--no-progress",
        ]  # fmt: skip
        for key_log in self._key_logs:
            command += ["--keylog", key_log]
        try:
            return subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE, umask=0o077
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
