"""Capture filters are what tcpdump makes of the same words."""

from __future__ import annotations

import ctypes
import ctypes.util
import os
import re
import shutil
import struct
import subprocess
import textwrap
from pathlib import Path

import pytest

from kafkatap.live.capture import capture_filter, default_filters
from kafkatap.reassembly.link_types import ETHERNET, RAW

EXPRESSIONS = (
    "",
    "tcp",
    "tcp port 9092",
    "tcp portrange 9092-9095 and not port 9093",
    "host 10.1.2.3 or host 10.1.2.4",
    "net 192.168.0.0/16 and tcp dst port 9092",
    "ip6 and tcp port 9092",
    "tcp[tcpflags] & (tcp-syn|tcp-fin) != 0",
    "tcp and greater 200",
    "src host fd00::1 and tcp",
    "not (host 127.0.0.1 and tcp port 22)",
    "ip proto 47 or udp port 4789",
)
_LINKS = {ETHERNET: "EN10MB", RAW: "RAW"}

links = pytest.mark.parametrize("link_type", list(_LINKS), ids=list(_LINKS.values()))
needs_tcpdump = pytest.mark.skipif(
    shutil.which("tcpdump") is None, reason="needs the program tcpdump, which is not installed"
)
needs_libpcap = pytest.mark.skipif(capture_filter._libpcap() is None, reason="needs libpcap, which is not installed")


def by_tcpdump(expression: str, link_type: int) -> list[tuple[int, ...]]:
    """What tcpdump -ddd prints: instructions of four numbers, after their count."""
    command = ["tcpdump", "-ddd", "-s", str(capture_filter.WHOLE), "-y", _LINKS[link_type], "--", expression]
    lines = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout.splitlines()
    assert int(lines[0]) == len(lines) - 1
    return [tuple(map(int, line.split())) for line in lines[1:]]


def instructions(program: bytes) -> list[tuple[int, ...]]:
    return list(struct.iter_unpack("HBBI", program))


def libpcap() -> ctypes.CDLL:
    library = capture_filter._libpcap()
    assert library is not None
    return library


@needs_libpcap
def test_the_default_filters_are_what_libpcap_makes() -> None:
    """KAFKATAP_UPDATE=1 writes them anew."""
    library = libpcap()
    library.pcap_lib_version.restype = ctypes.c_char_p
    version = re.search(r"[0-9]+(\.[0-9]+)+", library.pcap_lib_version().decode())
    assert version is not None
    programs = {
        "ON_ETHERNET": capture_filter.compile_filter(capture_filter.default_filter(ETHERNET), ETHERNET),
        "WITHOUT_LINK": capture_filter.compile_filter(capture_filter.default_filter(RAW), RAW),
    }
    if os.environ.get("KAFKATAP_UPDATE"):
        path = Path(default_filters.__file__)
        head = path.read_text("utf-8").partition("MADE_BY")[0]
        text = f'{head}MADE_BY = "{version[0]}"\n#: Instructions as of `capture_filter`, in hexadecimal digits.\n'
        for name, program in programs.items():
            lines = "".join(f'    "{part}"\n' for part in textwrap.wrap(program.hex(), 112))
            text += f"{name} = bytes.fromhex(\n{lines})\n"
        path.write_text(text, "utf-8")
    elif version[0] == default_filters.MADE_BY:
        assert programs == {name: getattr(default_filters, name) for name in programs}
    for program in programs.values():  # of any libpcap
        assert 0 < len(instructions(program)) < 100


def test_the_default_filter_needs_no_library_and_no_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a read-only root without a folder for temporary files, which `find_library` needs."""

    def fails(name: str) -> str:
        raise FileNotFoundError(2, "No usable temporary directory found")

    monkeypatch.setattr(ctypes.util, "find_library", fails)
    monkeypatch.setattr(ctypes, "CDLL", fails)
    for link_type in (ETHERNET, RAW):
        assert instructions(capture_filter.program_for(None, link_type, "eth0"))[-1][0] == 0x06  # it returns a number
    assert capture_filter._libpcap() is None


@needs_libpcap
@needs_tcpdump
@links
@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_filters_are_tcpdumps(expression: str, link_type: int) -> None:
    wanted = by_tcpdump(expression, link_type)
    assert instructions(capture_filter.compile_filter(expression, link_type)) == wanted
    assert instructions(capture_filter._by_libpcap(libpcap(), expression, link_type)) == wanted


@needs_tcpdump
@links
@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_without_libpcap_tcpdump_compiles(expression: str, link_type: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capture_filter, "_libpcap", lambda: None)
    assert instructions(capture_filter.compile_filter(expression, link_type)) == by_tcpdump(expression, link_type)


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("prot 9092", "syntax error"),
        ("tcp port", "syntax error"),
        ("tcp port 99999", "99999"),
        ("tcp port no-such-service", "no-such-service"),
        ("(tcp", "syntax error"),
    ],
)
@pytest.mark.parametrize(
    "way", [pytest.param("libpcap", marks=needs_libpcap), pytest.param("tcpdump", marks=needs_tcpdump)]
)
def test_wrong_filters_are_explained(expression: str, reason: str, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if way == "tcpdump":
        monkeypatch.setattr(capture_filter, "_libpcap", lambda: None)
    with pytest.raises(ValueError, match="man pcap-filter") as told:
        capture_filter.compile_filter(expression, ETHERNET)
    assert expression in str(told.value)
    assert reason in str(told.value)


def test_a_filter_that_cannot_match_is_said() -> None:
    """libpcap refuses what no packet can be."""
    with pytest.raises(ValueError, match="reject"):
        capture_filter.compile_filter("ip and ip6 and tcp", ETHERNET)


def test_filters_that_are_too_long_are_refused() -> None:
    many = " or ".join(f"host 10.{n // 250}.{n % 250}.7" for n in range(3000))
    with pytest.raises(ValueError, match="too long"):
        capture_filter.compile_filter(many, ETHERNET)


def test_neither_library_nor_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capture_filter, "_libpcap", lambda: None)
    monkeypatch.setattr(shutil, "which", lambda name, path=None: None)
    with pytest.raises(ValueError, match="need libpcap or tcpdump"):
        capture_filter.compile_filter("tcp", ETHERNET)
