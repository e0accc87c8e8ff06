"""Time the machine alone: ns per frame, byte and tape row of each profile, on random and on typical messages.

    python benchmarks/bench_machine.py [--repeat 20]

"all messages" has four random messages of every API in every version and direction. "fetch", "produce" and "heartbeat"
repeat one message that is typical of busy clusters. The figures are of the fastest repeat, so that other work on this
computer does not count. Bodies lie in one array of at most 4 MiB, as they do in a block.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from kafkatap.dissector.layouts.catalog import load_messages
from kafkatap.dissector.layouts.schema import REQUEST, RESPONSE
from kafkatap.dissector.programs.compiler import compile_programs
from kafkatap.dissector.programs.machine import JOB, ROWS, SCRATCH_SIZE, TAPE, decode_frames
from kafkatap.dissector.programs.profiles import PROFILES
from tests.support.messages import encode_message, generate_message

Body = tuple[int, int, int, bytes]  #: api_key, version, direction, bytes
BLOCK = 4 << 20


def workloads() -> dict[str, list[Body]]:
    """Bodies by name of the workload."""
    messages = load_messages()
    source = random.Random(1)
    everything = [
        (message.api_key, version, message.direction, generate_message(message, version, source)[0])
        for message in messages.values()
        for version in message.versions
        for _ in range(4)
    ]
    source.shuffle(everything)
    partition: dict[str, Any] = {
        "PartitionIndex": 3, "ErrorCode": 0, "HighWatermark": 9, "LastStableOffset": 9, "LogStartOffset": 0,
        "AbortedTransactions": None, "PreferredReadReplica": -1, "Records": bytes(300),
    }  # fmt: skip
    topics = [{"Topic": "orders", "Partitions": [partition] * 5}] * 2
    fetch = encode_message(
        messages[1, RESPONSE], 12, {"ThrottleTimeMs": 0, "ErrorCode": 0, "SessionId": 7, "Responses": topics}
    )
    written = [{"Name": "orders", "PartitionData": [{"Index": 1, "Records": bytes(900)}]}]
    produce = encode_message(
        messages[0, REQUEST], 9, {"TransactionalId": None, "Acks": -1, "TimeoutMs": 30_000, "TopicData": written}
    )
    heartbeat = encode_message(messages[12, RESPONSE], 4, {"ThrottleTimeMs": 0, "ErrorCode": 0})
    return {
        "all messages": everything,
        "fetch": [(1, 12, RESPONSE, fetch)] * 1_000,
        "produce": [(0, 9, REQUEST, produce)] * 4_000,
        "heartbeat": [(12, 4, RESPONSE, heartbeat)] * 20_000,
    }


def measure(bodies: list[Body], repeat: int) -> None:
    """Print one line for each profile."""
    sizes = np.array([len(body[3]) for body in bodies], np.int64)
    buffer = np.frombuffer(b"".join(body[3] for body in bodies), np.uint8).copy()
    jobs = np.zeros(len(bodies), JOB)
    jobs["end"] = jobs["limit"] = np.cumsum(sizes)
    jobs["at"] = jobs["end"] - sizes
    nothing = np.zeros(0, np.uint8)
    for profile in PROFILES.values():
        programs = compile_programs(load_messages(), profile)
        jobs["program"] = [programs.find(*body[:3]) for body in bodies]
        tape, scratch = np.zeros(3 * len(buffer) + 1_000, TAPE), np.zeros(SCRATCH_SIZE, np.int64)
        times = []
        for _ in range(repeat):
            scratch[ROWS] = 0
            start = time.perf_counter()
            done = decode_frames(programs.code, jobs, len(jobs), 0, buffer, nothing, nothing, tape, scratch)
            times.append(time.perf_counter() - start)
            assert done == len(jobs)
        assert not jobs["status"].any()
        rows, best = int(scratch[ROWS]), min(times) * 1e9
        print(
            f"  {profile.name:12} {best / len(jobs):7.1f} ns/frame {best / len(buffer):7.3f} ns/byte "
            f"{best / max(1, rows):7.1f} ns/row {rows / len(jobs):6.1f} rows/frame"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=20)
    options = parser.parse_args()
    for name, bodies in workloads().items():
        size = sum(len(body[3]) for body in bodies)
        assert size <= BLOCK, (name, size)
        print(f"{name}: {len(bodies)} frames of {size / len(bodies):.0f} bytes")
        measure(bodies, options.repeat)


if __name__ == "__main__":
    main()
