"""Digests of samples in the kernel mode of this process: `python -m tests.wire.probe PACKETS ROUNDS SAMPLE...`.

Prints JSON {sample: digest of all rows}. Then it runs `ROUNDS` rounds of each kind of hostile bytes, which must not
crash. Exit 3: KAFKATAP_BOUNDSCHECK is set, but this process does not detect an index out of bounds.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import tempfile
from contextlib import suppress

import numpy as np

from kafkatap.dissector.strings import STRING, enter_strings
from kafkatap.reassembly.errors import CaptureError
from tests.support.captures import PcapRecords, pcap_bytes
from tests.wire import mutations
from tests.wire.harness import Decoded, decode_capture, decode_files, decode_packets


def digest(seen: Decoded) -> str:
    """A short hash of all rows."""
    whole = repr((seen.exchanges, seen.results, seen.connections, sorted(seen.ledger.items())))
    return f"{len(seen.exchanges)} exchanges {hashlib.sha256(whole.encode()).hexdigest()[:16]}"


def digests(samples: list[str], packets: int) -> dict[str, str]:
    """Digests of the first `packets` packets of each sample, at once and in runs."""
    found = {}
    for path in samples:
        records = PcapRecords(path)
        data = records.slice(0, min(packets, len(records)))
        found[path] = digest(decode_capture(data))
        found[path + " cut"] = digest(decode_capture(data, runs=[17] * (packets // 17 + 1)))
        found[path + " in one pass"] = digest(in_one_pass(data))
    return found


def in_one_pass(data: bytes, block_size: int = 20_000) -> Decoded:
    """Read a capture as the command line reads a file."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        return decode_files([file.name], block_size=block_size)


def _bounds_are_checked() -> bool:
    try:
        enter_strings(np.zeros(1, STRING), 10_000, np.zeros(8, np.int32))
    except IndexError:
        return True
    return False


def main(packets: int, rounds: int, samples: list[str]) -> int:
    if os.environ.get("KAFKATAP_BOUNDSCHECK") and not _bounds_are_checked():
        return 3
    print(json.dumps(digests(samples, packets)), flush=True)
    for captured in mutations.captures(91, rounds):
        with suppress(CaptureError):
            decode_capture(captured)
        in_one_pass(captured, 999)
    for damaged in (mutations.packets, mutations.payloads):
        for n, packed in enumerate(damaged(92, rounds)):
            decode_packets(packed, runs=[1 + n % 9] * len(packed))
            in_one_pass(pcap_bytes(packed, nanoseconds=True))
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]))
