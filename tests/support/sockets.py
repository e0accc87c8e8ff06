"""What the kernel of a host says about its TCP connections (`ss -ti`), sampled beside a capture."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .namespaces import Host

#: Numbers of `ss -ti` that count over the life of a connection, or describe it. Times are in ms.
COUNTS = (
    "bytes_sent",
    "bytes_retrans",
    "bytes_acked",
    "bytes_received",
    "segs_out",
    "segs_in",
    "data_segs_out",
    "dsack_dups",
)
TIMES = ("busy", "rwnd_limited", "sndbuf_limited")
Samples = dict[tuple[str, str], dict[str, Any]]


@contextmanager
def sampled(host: Host, port: int, every: float = 0.1, side: str = "sport") -> Iterator[Samples]:
    """Sample the connections of a local port (`side`: "dport" for a peer's). The last sample of each (local, peer)
    stays, with the ranges of RTT and of the peer's window over all samples."""
    samples: Samples = {}
    done = threading.Event()

    def work() -> None:
        while not done.wait(every):
            text = host.run(["ss", "-tinHO", "state", "connected", f"( {side} = :{port} )"])
            for line in text.splitlines():
                _add(samples, line)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield samples
    finally:
        done.set()
        thread.join()


def _add(samples: Samples, line: str) -> None:
    words = line.split()
    if len(words) < 6 or words[0] == "SYN-RECV":
        return
    # Java listens with IPv6 sockets: [::ffff:10.77.0.11]:44562.
    local, peer = (word.replace("[::ffff:", "").replace("]", "") for word in words[3:5])
    row = parsed(line)
    old = samples.get((local, peer), {})
    for name in ("rtt_ms", "snd_wnd", "cwnd"):
        if name in row:
            low, high = old.get(f"{name}_range", (row[name], row[name]))
            row[f"{name}_range"] = (min(low, row[name]), max(high, row[name]))
    samples[local, peer] = {"first_seen": old.get("first_seen", time.time()), **row}


def parsed(line: str) -> dict[str, Any]:
    """The numbers of one line of `ss -tinO`."""
    row: dict[str, Any] = {}
    if found := re.search(r"\bwscale:(\d+),(\d+)", line):
        # The shift of the windows that the peer sends, and of those that this host sends.
        row["peer_wscale"], row["own_wscale"] = int(found[1]), int(found[2])
    if found := re.search(r"\brtt:([\d.]+)/", line):
        row["rtt_ms"] = float(found[1])
    if found := re.search(r"\bminrtt:([\d.]+)", line):
        row["minrtt_ms"] = float(found[1])
    if found := re.search(r"\bretrans:\d+/(\d+)", line):
        row["retrans"] = int(found[1])
    for name in ("mss", "cwnd", "snd_wnd", *COUNTS):
        if found := re.search(rf"\b{name}:(\d+)", line):
            row[name] = int(found[1])
    for name in TIMES:
        if found := re.search(rf"\b{name}:(\d+)ms", line):
            row[f"{name}_ms"] = int(found[1])
    return row
