"""The time of reports on many short TLS connections, on many small records and on full batches, beside the same traffic
in the clear.

    python benchmarks/short_tls.py [--connections 3000] [--records 500000] [--batches 7800] [--runs 5]
        [--keep FOLDER] [--beside FOLDER]

It talks TLS 1.3 with real keys, and prints a table: the processor time of `kafkatap report` as a whole process, the
least of some runs in turns, and the time of the cipher alone. The last column is what decryption takes besides: the
report with keys minus the one of the same traffic in the clear minus the cipher, for each connection and record.
--keep keeps the captures, and uses those that are there. --beside also runs the checkout in another folder, in the same
turns, and prints its rows below ours.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from make_traffic import produce_request, produce_response

from tests.support.captures import ETHERNET, pcap_bytes
from tests.support.tcp import ACK, START_NS, Segment, TcpConversation, encode
from tests.support.tls_talk import OverTls
from tests.wire.kafkatalk import BROKER, HEARTBEAT, request, response, small_talk

ROOT = Path(__file__).resolve().parent.parent
#: Exchanges of a short connection, and the time between two of them.
_EXCHANGES, _STEP_NS = 4, 2_000_000
#: The group id that makes records of 100 bytes, about.
_GROUP = "g" * 40


class Traffic(NamedTuple):
    """A capture with TLS, the same in the clear, and its key log. `records`: of TLS with application data."""

    name: str
    tls: Path
    plain: Path
    key_log: Path
    connections: int
    records: int
    record_bytes: int


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--connections", type=int, default=3_000, help="short connections (default: 3,000)")
    parser.add_argument("--records", type=int, default=500_000, help="small records of one connection")
    parser.add_argument("--batches", type=int, default=7_800, help="Produce requests of 16 KiB of one connection")
    parser.add_argument("--runs", type=int, default=5, help="runs of each command (default: 5)")
    parser.add_argument("--keep", type=Path, help="where captures are kept")
    parser.add_argument("--beside", type=Path, help="another checkout to compare with")
    options = parser.parse_args()
    checkouts = [ROOT] if options.beside is None else [ROOT, options.beside]
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.keep or Path(scratch)
        print("| traffic | checkout | in the clear, s | without keys, s | with keys, s | cipher, s | besides |")
        print("|---|---|---|---|---|---|---|")
        for made in (
            short_connections(folder, options.connections),
            small_records(folder, options.records),
            batches(folder, options.batches),
        ):
            measure(made, checkouts, options.runs)


def short_connections(folder: Path, count: int) -> Traffic:
    """Connections of a few exchanges, one after the other."""
    talks = [
        small_talk(_EXCHANGES, client=("10.0.0.1", 1_024 + n), time_ns=START_NS + n * _STEP_NS, step_ns=10_000)
        for n in range(count)
    ]
    name = f"{count:,} short connections"
    return _written(folder, "short", name, [talk.tcp.segments for talk in talks])


def small_records(folder: Path, count: int) -> Traffic:
    """One connection with records of 100 bytes, request after response."""
    tcp = TcpConversation(("10.0.0.1", 40_000), BROKER, acks=False, step_ns=50_000)
    tcp.open()
    asked = request(HEARTBEAT, 0, 0, GroupId=_GROUP, MemberId="m")
    answered = response(HEARTBEAT, 0, 0)
    for number in range(count // 2):
        correlation_id = number.to_bytes(4, "big")
        tcp.client(asked[:8] + correlation_id + asked[12:])
        tcp.server(answered[:4] + correlation_id + answered[8:])
    tcp.close()
    return _written(folder, "small", f"{count:,} small records", [tcp.segments])


def batches(folder: Path, count: int) -> Traffic:
    """One connection with Produce requests of 16 KiB, a full batch of a Java client, each in one record of TLS."""

    def talk(mss: int) -> list[Segment]:
        tcp = TcpConversation(("10.0.0.1", 40_000), BROKER, acks=False, step_ns=50_000, mss=mss)
        tcp.open()
        for number in range(1, count + 1):
            tcp.client(produce_request(16_000, number))
            tcp.server(produce_response(number))
        tcp.close()
        return tcp.segments

    return _written(folder, "batches", f"{count:,} batches", [talk(1 << 15)], [talk(1_448)])


def _written(
    folder: Path, stem: str, name: str, conversations: list[list[Segment]], clear: list[list[Segment]] | None = None
) -> Traffic:
    """The captures of these conversations over TLS, a record for each segment, and in the clear, made unless they are
    there. `clear`: the same in the segments of the capture in the clear."""
    folder.mkdir(parents=True, exist_ok=True)
    tls, plain, key_log = (folder / f"{stem}-{len(conversations)}{end}" for end in (".tls.pcap", ".pcap", ".keys.log"))
    payloads = [segment.payload for segments in conversations for segment in segments if segment.payload]
    size = sum(map(len, payloads)) // len(payloads)
    if not tls.exists():
        over = OverTls(folder)
        over.key_log = key_log
        _write(tls, [_like(segments, over.replayed(segments)) for segments in conversations])
        _write(plain, clear or conversations)
    return Traffic(name, tls, plain, key_log, len(conversations), len(payloads), size)


def _like(plain: list[Segment], encrypted: list[Segment]) -> list[Segment]:
    """The encrypted segments without acknowledgements if the plain ones have none."""
    if any(segment.flags == ACK and not segment.payload for segment in plain[3:-1]):
        return encrypted
    return [*encrypted[:3], *(segment for segment in encrypted[3:] if segment.payload or segment.flags != ACK)]


def _write(path: Path, conversations: list[list[Segment]]) -> None:
    packets = encode([segment for segments in conversations for segment in segments])
    path.write_bytes(pcap_bytes(packets, ETHERNET, nanoseconds=True))


def measure(made: Traffic, checkouts: list[Path], runs: int) -> None:
    commands: dict[str, list[str | Path]] = {
        "clear": [made.plain],
        "none": [made.tls],
        "keys": ["--keylog", made.key_log, made.tls],
    }
    best: dict[tuple[Path, str], float] = {}
    for run in range(runs + 1):  # the first one fills the store
        for checkout in checkouts:
            for kind, arguments in commands.items():
                spent = _processor_time(checkout, [str(argument) for argument in arguments])
                if run:
                    best[checkout, kind] = min(spent, best.get((checkout, kind), spent))
    cipher = _cipher_time(made.records, made.record_bytes)
    for checkout in checkouts:
        clear, none, keys = (best[checkout, kind] for kind in commands)
        besides = keys - clear - cipher
        each = (
            f"{besides / made.connections * 1e6:,.0f} µs a connection"
            if made.connections > 1
            else f"{besides / made.records * 1e6:.2f} µs a record"
        )
        print(
            f"| {made.name} | {checkout.name} | {clear:.2f} | {none:.2f} | {keys:.2f} | {cipher:.2f} | {each} |",
            flush=True,
        )


def _processor_time(checkout: Path, arguments: list[str]) -> float:
    """Seconds of the processor that a report takes as a process."""
    python = checkout / ".venv" / "bin" / "python"
    command = [str(python) if python.exists() else sys.executable, "-m", "kafkatap", "report", *arguments]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(
        command, cwd=checkout, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment
    )
    assert done.returncode in (0, 1), command  # 1: without keys there are no exchanges
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _cipher_time(records: int, size: int) -> float:
    """Seconds to decrypt as many records of the same size with AES-256-GCM, and nothing else."""
    cipher, nonce, head, out = AESGCM(bytes(32)), bytes(12), bytes(5), bytearray(size + 1)
    record = cipher.encrypt(nonce, bytes(size + 1), head)
    decrypt = cipher.decrypt_into
    started = time.process_time()
    for _ in range(records):
        decrypt(nonce, record, head, out)
    return time.process_time() - started


if __name__ == "__main__":
    main()
