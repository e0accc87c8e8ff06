"""How fast records are decrypted: `Session.open` by suite and size of records, beside `openssl speed` in the same run.

    python benchmarks/tls_speed.py [--seconds 1] [--size 16384 --size 1400 --size 100]

It prints a table: MB/s of plain bytes of one core, those of `openssl speed`, their ratio, and the time of one record.
For CBC, `openssl speed` has the cipher and the hash apart; both times are added.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from kafkatap.engine.tls.session import Session
from tests.tls.crafted import Crafted13
from tests.tls.talk import CLIENT, Talk, ends, talk

#: Bytes that are decrypted in a round.
_ROUND = 8 << 20
#: Suites of TLS 1.3 and of TLS 1.2, and the algorithms of `openssl speed`.
_SUITES_13 = {0x1301: "aes-128-gcm", 0x1302: "aes-256-gcm", 0x1303: "chacha20-poly1305", 0x1304: "aes-128-ccm"}
_SUITES_12 = {
    "ECDHE-RSA-AES128-GCM-SHA256": "aes-128-gcm",
    "ECDHE-RSA-AES256-GCM-SHA384": "aes-256-gcm",
    "ECDHE-RSA-CHACHA20-POLY1305": "chacha20-poly1305",
    "ECDHE-RSA-AES128-SHA": "aes-128-cbc sha1",
    "ECDHE-RSA-AES128-SHA256": "aes-128-cbc sha256",
    "ECDHE-RSA-AES256-SHA384": "aes-256-cbc sha384",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=int, default=1, help="time of each measurement (default: 1)")
    parser.add_argument("--size", type=int, action="append", help="plain bytes of a record; may be repeated")
    options = parser.parse_args()
    print("| suite | record, bytes | session, MB/s | openssl speed, MB/s | ratio | one record, µs |")
    print("|---|---|---|---|---|---|")
    for size in options.size or (16_384, 1_400, 100):
        for number, algorithms in _SUITES_13.items():
            _measure(f"TLS 1.3 {number:#06x}", algorithms, _crafted(number, size), size, options.seconds)
        for name, algorithms in _SUITES_12.items():
            _measure(f"TLS 1.2 {name}", algorithms, _talk(name, size), size, options.seconds)


def _crafted(suite: int, size: int) -> Talk:
    crafted = Crafted13(suite)
    crafted.hello()
    for _ in range(_ROUND // size):
        crafted.send(CLIENT, bytes(size))
    return Talk(crafted.records, keys=crafted.keys)


def _talk(name: str, size: int) -> Talk:
    return talk(ends(0x0303, name), [(CLIENT, bytes(size))] * (_ROUND // size), close=False)


def _measure(title: str, algorithms: str, said: Talk, size: int, seconds: int) -> None:
    first = next(n for n, (_, r) in enumerate(said.records) if r[0] == 23 and len(r) >= size)
    records = [memoryview(record) for _, record in said.records[first:]]
    out = memoryview(bytearray(20_000))

    def session() -> Callable[[], None]:
        made = Session(said.key_log)
        for direction, record in said.records[:first]:
            made.open(direction, memoryview(record), out)

        def run() -> None:
            open_record = made.open
            for record in records:
                kind, length, _, _ = open_record(CLIENT, record, out)
                assert kind == 23
                assert length == size

        return run

    speed = _rate(session, len(records) * size, seconds)
    openssl = 1 / sum(1 / _openssl(algorithm, size, seconds) for algorithm in algorithms.split())
    print(
        f"| {title} | {size:,} | {speed / 1e6:,.0f} | {openssl / 1e6:,.0f} | {speed / openssl:.0%} "
        f"| {size / speed * 1e6:.2f} |",
        flush=True,
    )


def _rate(prepare: Callable[[], Callable[[], None]], count: int, seconds: float) -> float:
    """Bytes by second of processor time, in the best of the rounds that this time has room for."""
    best, spent = float("inf"), 0.0
    while spent < seconds:
        run = prepare()
        started = time.process_time()
        run()
        took = time.process_time() - started
        best, spent = min(best, took), spent + took
    return count / best


@cache
def _openssl(algorithm: str, size: int, seconds: int) -> float:
    """Bytes by second as `openssl speed` measures them."""
    command = ["openssl", "speed", "-seconds", str(seconds), "-bytes", str(size)]
    is_hash = algorithm.startswith("sha")
    command += ["-hmac" if is_hash else "-evp", algorithm]
    done = subprocess.run(command if is_hash else [*command, "-decrypt"], capture_output=True, text=True, check=False)
    found = re.search(r"^\S+\s+([0-9.]+)k\s*$", done.stdout, re.MULTILINE)
    if found is None:
        found = re.search(r"\s([0-9.]+)k\s*$", done.stdout, re.MULTILINE)
    return float(found[1]) * 1_000 if found else float("nan")


if __name__ == "__main__":
    main()
