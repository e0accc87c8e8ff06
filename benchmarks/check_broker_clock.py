"""Compare broker times from packets with the broker's own clock; print the differences.

    python benchmarks/check_broker_clock.py CAPTURE REQUEST_LOG

REQUEST_LOG is the DEBUG output of Kafka's logger kafka.request.logger on the captured broker (also .zst). Exchanges are
joined with its lines by connection and correlation id; keys that occur twice are skipped. The broker's clock is
totalTimeMs: the time from reading the request to sending the response.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from kafkatap import analyze

_CONNECTION = re.compile(r"\[?([0-9A-Fa-f.:]+?)\]?:(\d+)-\[?([0-9A-Fa-f.:]+?)\]?:(\d+)-\d+(?:-\d+)?")
KEYS = ["client_ip", "client_port", "broker_port", "correlation_id"]
Frame = Any  #: a pandas.DataFrame


def read_request_log(path: Path) -> Frame:
    """Columns KEYS, `api` and `clock_ns`: the broker's totalTimeMs."""
    return pd.DataFrame(_lines(path), columns=[*KEYS, "api", "clock_ns"])


def _lines(path: Path) -> Iterator[tuple[str, int, int, int, str, int]]:
    data = path.read_bytes()
    if path.suffix == ".zst":
        import zstandard

        data = zstandard.ZstdDecompressor().decompressobj().decompress(data)
    for line in data.decode().splitlines():
        start, end = line.find("{"), line.rfind("}")
        if "Completed request:" not in line or start < 0:
            continue
        entry = json.loads(line[start : end + 1])
        match = _CONNECTION.fullmatch(entry["connection"])
        if match and not entry["isForwarded"]:
            header = entry["requestHeader"]
            clock = round(1e6 * entry["totalTimeMs"])
            yield (
                match[3], int(match[4]), int(match[2]), header["correlationId"], header["requestApiKeyName"], clock,
            )  # fmt: skip


def joined(capture: Path, log: Path) -> Frame:
    """Answered exchanges that the broker's log has too: KEYS, `clock_ns`, and our durations."""
    table = analyze(capture).exchanges
    names = [*KEYS, "api_name", "outcome", "broker_ns", "hol_wait_ns", "throttle_wait_ns", "long_poll"]
    ours = table.select(names).to_pandas()
    ours = ours[ours["outcome"] == "answered"]
    theirs = read_request_log(log)
    return ours.drop_duplicates(KEYS, keep=False).merge(theirs.drop_duplicates(KEYS, keep=False), on=KEYS)


def differences(frame: Frame) -> dict[str, Any]:
    """The difference (int64 ns) from the broker's clock, by the parts that are subtracted from the time on the wire."""
    broker, queue, quota, clock = (
        frame[n].to_numpy(np.int64) for n in ("broker_ns", "hol_wait_ns", "throttle_wait_ns", "clock_ns")
    )
    return {
        "request's last byte to response's first": np.abs(broker + queue + quota - clock),
        "... without queueing": np.abs(broker + quota - clock),
        "... and without quota delay (broker time)": np.abs(broker - clock),
    }


def main(arguments: list[str]) -> int:
    if len(arguments) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    frame = joined(Path(arguments[0]), Path(arguments[1]))
    print(f"{len(frame):,} exchanges joined\n")
    print("| difference from the broker's clock, ms | median | mean | p90 | p99 |\n|---|---|---|---|---|")
    for name, difference in differences(frame).items():
        ms = difference / 1e6
        p50, p90, p99 = np.percentile(ms, (50, 90, 99))
        print(f"| {name} | {p50:.2f} | {ms.mean():.1f} | {p90:.1f} | {p99:.0f} |")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
