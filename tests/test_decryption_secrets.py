"""TLS key logs in decryption secrets blocks of pcapng: they reach the engine before the packets behind them."""

from __future__ import annotations

import gzip
import os
import struct
import subprocess
import sys
import time
from pathlib import Path
from threading import Thread

import numpy as np
import pytest

from kafkatap.captures.capture_reader import CaptureReader
from kafkatap.captures.merged_captures import MergedPackets
from kafkatap.engine.assembly import Assembled
from kafkatap.engine.engine import Engine
from kafkatap.reassembly import pcapng, scanner
from kafkatap.reassembly.pcapng_blocks import decryption_secrets
from kafkatap.reassembly.scanner import Scanner
from kafkatap.run import Follow, Run
from tests.support.captures import Packet, block, pcap_bytes
from tests.support.tcp import START_NS, encode
from tests.wire.kafkatalk import KafkaTalk, add_exchanges

SECRETS, TLS, OTHER = 10, 0x544C534B, 0x57474B4C


def talk(number: int) -> list[Packet]:
    made = KafkaTalk(("10.0.0.1", 20_000 + number), ("10.0.1.1", 9_092), time_ns=START_NS + number * 10**9)
    made.tcp.open()
    add_exchanges(made, 3)
    return encode(made.tcp.segments)


def section(order: str = "<") -> bytes:
    made = block(0x0A0D0D0A, struct.pack(order + "IHHq", 0x1A2B3C4D, 1, 0, -1), order)
    option = struct.pack(order + "HHBxxxHH", 9, 1, 9, 0, 0)
    return made + block(1, struct.pack(order + "HHI", 1, 0, 0) + option, order)


def packets(number: int, order: str = "<") -> bytes:
    made = []
    for packet in talk(number):
        ticks, data = packet.time_ns, packet.data
        head = struct.pack(order + "IIIII", 0, ticks >> 32, ticks & 0xFFFFFFFF, len(data), len(data))
        made.append(block(6, head + data.ljust(len(data) + 3 & ~3, b"\0"), order))
    return b"".join(made)


def line(number: int) -> bytes:
    return b"CLIENT_RANDOM %064x %096x" % (number, number)


def secrets(number: int, order: str = "<", kind: int = TLS, length: int | None = None) -> bytes:
    data = line(number)
    count = len(data) if length is None else length
    return block(SECRETS, struct.pack(order + "II", kind, count) + data.ljust(len(data) + 3 & ~3, b"\0"), order)


class Listening(Engine):
    """An engine that notes secrets, and how many packets it has counted before."""

    told: list[tuple[int, bytes]]

    def add_secrets(self, data: bytes) -> None:
        self.told += [(self.packets, each) for each in data.split(b"\n") if each]
        super().add_secrets(data)


def told(*paths: Path | str, block_size: int = 4_096, **options: object) -> tuple[list[tuple[int, bytes]], Run]:
    """What the engine is told, with the packets that it has counted before, and the run."""
    engine = Listening()
    engine.told = []
    run = Run([str(path) for path in paths], engine, block_size=block_size, **options)  # type: ignore[arg-type]
    for _ in run.batches():
        pass
    return engine.told, run


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    """Two connections, each behind its secrets; the second in a section of the other byte order."""
    path = tmp_path / "x.pcapng"
    path.write_bytes(
        section() + secrets(1) + packets(0) + section(">") + secrets(9, ">", OTHER) + secrets(2, ">") + packets(1, ">")
    )
    return path


def is_right(found: list[tuple[int, bytes]], before: int = len(talk(0))) -> bool:
    """Whether each connection's secrets came before its first packet was counted."""
    return [each for _, each in found] == [line(1), line(2)] and found[0][0] == 0 and found[1][0] <= before


def test_plain_and_compressed(capture: Path) -> None:
    found, run = told(capture)
    assert is_right(found)
    assert (run.files[0].secrets, run.files[0].secrets_left_out) == (2, 0)
    packed = capture.with_suffix(".pcapng.gz")
    packed.write_bytes(gzip.compress(capture.read_bytes()))
    assert is_right(told(packed)[0])
    assert is_right(told(capture, threaded=False)[0])
    assert is_right(told(capture, block_size=1 << 21)[0])


def test_rows_are_the_same_without_the_blocks(capture: Path, tmp_path: Path) -> None:
    plain = tmp_path / "x.pcap"
    plain.write_bytes(pcap_bytes(talk(0) + talk(1)))
    assert told(capture)[1].context().ledger == told(plain)[1].context().ledger


def test_pipe(capture: Path, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = Thread(target=lambda: pipe.write_bytes(capture.read_bytes()))
    writer.start()
    assert is_right(told(pipe)[0])
    writer.join()


def test_merged_with_captures_without_packets(capture: Path, tmp_path: Path) -> None:
    """Two files that overlap, and one that has nothing but secrets."""
    first, second, alone = tmp_path / "1.pcapng", tmp_path / "2.pcapng", tmp_path / "3.pcapng"
    first.write_bytes(section() + secrets(1) + packets(0) + packets(2))
    second.write_bytes(section() + secrets(2) + packets(1))
    alone.write_bytes(section() + secrets(3))
    found, run = told(first, second, alone)
    assert sorted(each for _, each in found) == [line(1), line(2), line(3)]
    before = {each: count for count, each in found}
    assert before[line(1)] == 0
    assert before[line(2)] <= len(talk(0))
    assert sum(file.secrets for file in run.files) == 3


def test_followed(capture: Path, tmp_path: Path) -> None:
    """Secrets that a capture gets while it is read."""
    whole, path = capture.read_bytes(), tmp_path / "grows.pcapng"
    cut = len(section() + secrets(1) + packets(0))
    path.write_bytes(whole[: cut - 20])

    def grow() -> None:
        time.sleep(0.7)
        with path.open("ab", buffering=0) as file:
            file.write(whole[cut - 20 :])

    writer = Thread(target=grow)
    writer.start()
    assert is_right(told(path, follow=Follow(2 * 10**9))[0])
    writer.join()


def test_hostile_blocks(tmp_path: Path) -> None:
    """Blocks whose length is wrong, empty ones, and blocks without a type: nothing of them is read."""
    path = tmp_path / "x.pcapng"
    bad = [
        secrets(1, length=1 << 31), secrets(2, length=len(line(2)) + 5), secrets(3, length=0),
        block(SECRETS, struct.pack("<I", TLS), "<"), block(SECRETS, b"", "<"),
    ]  # fmt: skip
    path.write_bytes(section() + b"".join(bad) + secrets(4, length=70) + packets(0))
    found, run = told(path)
    assert [each for _, each in found] == [line(4)[:70]]
    assert (run.files[0].secrets, run.files[0].secrets_left_out) == (1, 2)
    assert run.files[0].damage is None
    path.write_bytes(section() + secrets(1) + packets(0) + secrets(2)[:-30])
    found, run = told(path)
    assert [each for _, each in found] == [line(1)]
    assert run.files[0].damage is not None


def test_room_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many small blocks use up the room as few large ones do."""
    monkeypatch.setattr(scanner, "SECRETS_ROOM", 20 * pcapng.LEAST_COST + 5)
    path = tmp_path / "x.pcapng"
    large = decryption_secrets(b"x" * 30_000)
    path.write_bytes(section() + large + b"".join(secrets(n) for n in range(50)) + packets(0))
    found, run = told(path)
    assert [each for _, each in found] == [line(n) for n in range(20)]
    assert (run.files[0].secrets, run.files[0].secrets_left_out) == (20, 31)


def test_secrets_across_blocks_of_a_reader(capture: Path) -> None:
    """The packets are the same wherever a read ends."""
    whole = Scanner(1 << 10)
    data = np.frombuffer(capture.read_bytes(), np.uint8)
    whole.start(data[:24].tobytes())
    count, end = whole.scan(data, 0, len(data))
    taken = count
    while end < len(data):
        count, end = whole.scan(data, end, len(data))
        taken += count
    assert taken == len(talk(0)) + len(talk(1))
    assert whole.take_secrets() == [line(1), line(2)]
    assert whole.take_secrets() == []
    for size in (64, 333, 1_000):
        reader = CaptureReader(str(capture), size)
        seen = 0
        while reader.fill():
            seen += reader.count - reader.position
            reader.position = reader.count
        reader.close()
        assert seen == taken
        assert reader.take_secrets() == line(1) + b"\n" + line(2) + b"\n"


def test_secrets_are_in_no_repr() -> None:
    nothing = np.zeros(0)
    part = Assembled(nothing, nothing, nothing, 0, 0, nothing, nothing, nothing, nothing, nothing, secrets=line(1))
    assert repr(part) == "<Assembled: 0 chunks of 0 packets>"
    merged = MergedPackets(nothing, nothing, 2, 5, (), 0, 0, line(1))
    assert repr(merged) == "<MergedPackets: 3 packets>"


def test_captures_without_secrets_import_no_tls(tmp_path: Path) -> None:
    path = tmp_path / "x.pcapng"
    path.write_bytes(section() + packets(0))
    code = (
        "import sys; from kafkatap.__main__ import main; code = main(['report', sys.argv[1]]); "
        "print(code, 'cryptography' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "0 False"
