"""Blocks of a pcapng with names of addresses: reports have them where nothing better is known."""

from __future__ import annotations

import json
import random
import re
import struct
from pathlib import Path

import numpy as np
import pytest

from kafkatap.__main__ import main
from kafkatap.reassembly import pcapng, scanner
from kafkatap.reassembly.pcapng_blocks import FROM_TRAFFIC, name_resolution, names_in
from kafkatap.reassembly.scanner import Scanner
from tests.support.captures import block

from .test_decryption_secrets import packets, section

NAMES = {"10.0.0.1": ["laptop", "laptop.example"], "10.0.1.1": ["broker"], "fe80::1": ["gate"], "8.8.8.8": ["dns"]}


def body(names: dict[str, list[str]], order: str = "<") -> bytes:
    """The body of a block, by hand, in either byte order."""
    made = b""
    for address, known in names.items():
        packed = bytes.fromhex("fe80000000000000" "0000000000000001") if ":" in address else bytes(
            map(int, address.split("."))
        )  # fmt: skip
        value = packed + b"".join(name.encode() + b"\0" for name in known)
        made += struct.pack(order + "HH", 2 if ":" in address else 1, len(value)) + value + bytes(-len(value) % 4)
    return made + bytes(4)


PAIRS = {(address, name): None for address, known in NAMES.items() for name in known}


@pytest.mark.parametrize("order", "<>")
def test_names_are_read(order: str) -> None:
    assert dict.fromkeys(names_in(body(NAMES, order), order == ">")) == PAIRS


def test_those_that_extracts_write_are_read() -> None:
    written = name_resolution(NAMES)
    assert dict.fromkeys(names_in(written[8:-4], big_endian=False)) == PAIRS


def test_damaged_bodies_raise_nothing() -> None:
    chance = random.Random(1)
    for _ in range(2_000):
        data = bytearray(body(NAMES))
        for _ in range(chance.choice((1, 3))):
            data[chance.randrange(len(data))] = chance.getrandbits(8)
        assert len(list(names_in(bytes(data[: chance.randrange(len(data) + 1)]), big_endian=False))) <= len(data)


def scanned(data: bytes) -> Scanner:
    found = Scanner()
    buffer = np.frombuffer(bytearray(data), np.uint8)
    at = found.start(bytes(buffer[: scanner.HEADER_SIZE]))
    while at < len(buffer):
        _, after = found.scan(buffer, at, len(buffer))
        if after == at:
            break
        at = after
    return found


def test_blocks_beyond_the_room_are_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = [block(4, body({"10.0.0.1": [f"name-{n}"]})) for n in range(5)]
    monkeypatch.setattr(scanner, "NAMES_ROOM", 3 * pcapng.LEAST_COST)
    assert len(scanned(section() + b"".join(blocks) + packets(0)).names) == 3
    monkeypatch.setattr(scanner, "MOST_NAMES", 2)
    assert len(scanned(section() + b"".join(blocks) + packets(0)).names) == 2


@pytest.mark.parametrize(("order", "options"), [
    ("<", []), (">", []), ("<", ["--jobs", "2"]), ("<", ["--hosts"]),
], ids=["little", "big", "jobs", "hosts"])  # fmt: skip
def test_reports_have_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], order: str, options: list[str]
) -> None:  # fmt: skip
    """Wireshark writes them behind the packets."""
    path, hosts = tmp_path / "named.pcapng", tmp_path / "hosts"
    path.write_bytes(section(order) + packets(0, order) + block(4, body(NAMES, order), order))
    hosts.write_text("10.0.0.1 from-file\n")
    words = [*options, str(hosts)] if options == ["--hosts"] else options
    assert main(["report", "--sections", "clients", "--json", *words, str(path)]) == 0
    (row,) = json.loads(capsys.readouterr().out)["reports"]["clients"]
    assert row["client_host"] == ("from-file" if options == ["--hosts"] else "laptop, laptop.example")


def test_extracts_keep_them_and_not_those_derived_from_traffic(tmp_path: Path) -> None:
    """The names that kafkatap derives, such as client ids, are for Wireshark: reports of an extract lack them."""
    path, hosts, made = tmp_path / "named.pcapng", tmp_path / "hosts", tmp_path / "made.pcapng"
    path.write_bytes(section() + packets(0) + block(4, body(NAMES)))
    hosts.write_text("10.0.1.1 from-file\n")
    assert main(["extract", str(path), "-o", str(made), "--hosts", str(hosts), "--no-progress"]) == 0
    assert scanned(made.read_bytes()).names == dict.fromkeys(
        [("10.0.0.1", "laptop"), ("10.0.0.1", "laptop.example"), ("10.0.1.1", "from-file")]
    )
    assert FROM_TRAFFIC.encode() in made.read_bytes()
    assert re.search(
        rb"10\.0\.0\.1:\d+ \(laptop, laptop\.example\) > 10\.0\.1\.1:\d+ \(from-file\), ", made.read_bytes()
    )
    assert list(names_in(name_resolution(NAMES, FROM_TRAFFIC)[8:-4], big_endian=False)) == []
    made.unlink()
    assert main(["extract", str(path), "-o", str(made), "--anonymize", "--no-progress"]) == 0
    assert scanned(made.read_bytes()).names == {}
    assert b"laptop" not in made.read_bytes()
