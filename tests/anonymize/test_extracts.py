"""`kafkatap extract --anonymize` on recordings: the same report but for names, and nothing of the original left."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

import kafkatap
from kafkatap.__main__ import main
from kafkatap.anonymize import read_key
from kafkatap.anonymize.audit import Originals
from kafkatap.anonymize.fields import kept_words
from kafkatap.anonymize.names import Names
from kafkatap.captures.capture_reader import CaptureReader
from tests.anonymize.same_reports import differences
from tests.cli.tls_captures import conversation
from tests.support.captures import pcap_bytes
from tests.support.tcp import encode, lose
from tests.support.wireshark import TSHARK

KEY = "a key for tests only"
#: Captures with authentication, groups, transactions, racks, compressed batches, and two interfaces.
CAPTURES = (
    "live-4.4.pcap.zst", "questions/auth.pcap.zst",
    pytest.param("apache-4.3-two-interfaces.pcapng", marks=pytest.mark.long),
    pytest.param("questions/zones.pcap.zst", marks=pytest.mark.long),
    pytest.param("apache-4.3.pcap.zst", marks=pytest.mark.long),
    pytest.param("apache-0.10.2.pcap.zst", marks=pytest.mark.long),
    pytest.param("questions/groups.pcap.zst", marks=pytest.mark.long),
)  # fmt: skip
_PRINTABLE = re.compile(rb"[\x20-\x7e]{6,}")
_TEXT = re.compile(rb"[0-9A-Za-z._-]{6,}")


@pytest.fixture(scope="session")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("key") / "key"
    path.write_text(KEY)
    return path


@pytest.fixture(scope="session", params=CAPTURES)
def pair(request: Any, samples: Path, key: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A capture's extract as it is, and anonymized."""
    folder = tmp_path_factory.mktemp("extracts")
    capture, plain, new = samples / request.param, folder / "plain.pcapng", folder / "new.pcapng"
    assert main(["extract", str(capture), "-o", str(plain), "--no-comments", "--no-progress"]) == 0
    options = ["--anonymize", "--anonymize-key", str(key), "--no-progress"]
    assert main(["extract", str(capture), "-o", str(new), *options]) == 0
    return plain, new


def _packets(path: Path) -> list[bytes]:
    found, reader = [], CaptureReader(str(path))
    while reader.fill():
        for row in reader.packets[reader.position : reader.count]:
            at = int(row["at"])
            found.append(reader.buffer[at : at + int(row["captured"])].tobytes())
        reader.position = reader.count
    reader.close()
    return found


def _json(path: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    capsys.readouterr()
    assert main(["report", "--json", "--sections", "all", "-n", "100000", "--utc", str(path)]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_the_report_is_the_same_but_for_names(
    pair: tuple[Path, Path], key: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain, new = (_json(path, capsys) for path in pair)
    assert differences(plain, new, Names(read_key(key))) == []


def _payload(packet: bytes) -> bytes:
    """The TCP payload of a packet in Ethernet and IPv4."""
    tcp = 14 + (packet[14] & 15) * 4
    return packet[tcp + (packet[tcp + 12] >> 4) * 4 :]


def test_no_text_is_where_it_was(pair: tuple[Path, Path]) -> None:
    """A run of letters stays only if it is a word of the protocol."""
    kept = sorted((word for word in kept_words() if len(word) > 4), key=len, reverse=True)
    words = re.compile(b"|".join(map(re.escape, kept)))
    left: set[bytes] = set()
    for old, new in zip(*map(_packets, pair), strict=True):
        assert len(old) == len(new)
        alike = bytes(x if x == y else 0 for x, y in zip(_payload(old), _payload(new), strict=True))
        for run in _PRINTABLE.findall(alike):
            left.update(_TEXT.findall(words.sub(b"\n", run)))
    left = {text for text in left if text.strip(b"x") and text not in b"\n".join(kept)}
    assert {text for text in left if re.search(rb"[a-z]{4}", text.replace(b"rdkafka", b""))} == set()


def test_no_string_of_the_original_is_left(
    pair: tuple[Path, Path], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Names of all messages and contents of all records are searched in the file and in its records."""
    plain, new = pair
    kept = b"\n".join(sorted(kept_words())) + b" kafkatap User:ANONYMOUS"
    capsys.readouterr()
    assert main(["show", "--json", "--show-secrets", str(plain)]) == 0
    strings = set(_strings_of(capsys.readouterr().out))
    assert main(["records", "--json", "--values", "utf8", str(plain)]) == 0
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    contents = {text[:40] for record in records for text in _contents_of(record)}
    whole = new.read_bytes()
    assert main(["records", "--json", "--values", "utf8", str(new)]) == 0
    out = capsys.readouterr().out
    rewritten = [json.loads(line) for line in out.splitlines()]
    inside = b"\n".join(text for record in rewritten for text in _contents_of(record))
    assert len(rewritten) == len(records)
    wrong = sum(record.get("crc_ok") is False for record in rewritten)
    assert wrong == sum(record.get("crc_ok") is False for record in records)
    searched = {s for s in strings | contents if len(s) >= 6 and s not in kept and s.strip(b"\0")}
    searched -= {b"127.0.0.1", b"/127.0.0.1"}
    assert len(searched) > 10
    assert {s for s in searched if s in whole or s in inside} == set()


def _contents_of(record: dict[str, Any]) -> list[bytes]:
    """Key, value and headers of a record."""
    parts = [record["key"], record["value"], *(part for header in record["headers"] for part in header.values())]
    found = [part["data"] if isinstance(part, dict) else part for part in parts]
    return [text.encode() for text in found if isinstance(text, str) and text.strip("x")]


def _strings_of(lines: str) -> list[bytes]:
    found: list[bytes] = []

    def collect(value: Any, key: str) -> None:
        if isinstance(value, dict):
            for name, item in value.items():
                collect(item, name)
        elif isinstance(value, list):
            for item in value:
                collect(item, key)
        elif isinstance(value, str) and not key.endswith(("_name", "note")) and key not in _OF_PROTOCOL:
            found.append(value.encode("utf-8", "surrogateescape"))

    for line in lines.splitlines():
        message = json.loads(line)
        collect(message.get("header"), "")
        collect(message.get("body"), "")
        collect(message.get("token"), "")
    return found


#: Fields that stay, and values of configurations.
_OF_PROTOCOL = frozenset({"ClientSoftwareName", "ClientSoftwareVersion", "Value", "base64"})


@pytest.mark.skipif(TSHARK is None, reason="tshark is not installed")
def test_checksums_are_right(pair: tuple[Path, Path]) -> None:
    assert _chosen(pair[1], "tcp.checksum.status==0 || ip.checksum.status==0") == []
    assert _chosen(pair[1], "tcp.checksum.status==1")


def _chosen(path: Path, condition: str) -> list[str]:
    """The numbers of packets for which a display filter holds."""
    options = ("-o", "tcp.check_checksum:TRUE", "-o", "ip.check_checksum:TRUE", "-Y", condition, "-T", "fields")
    done = subprocess.run(
        [str(TSHARK), "-r", str(path), *options, "-e", "frame.number"], capture_output=True, text=True, check=True
    )
    return done.stdout.split()


def test_two_captures_with_one_key_have_the_same_names(samples: Path, key: Path, tmp_path: Path) -> None:
    """A topic has one pseudonym in two captures, and another one with another key."""
    names = []
    for number, options in enumerate((["--anonymize-key", str(key)], ["--anonymize-key", str(key)], [])):
        capture = (
            samples
            / ("questions/transactions.pcap.zst", "questions/zones.pcap.zst", "questions/zones.pcap.zst")[number]
        )
        output = tmp_path / f"{number}.pcapng"
        arguments = ["extract", str(capture), "-o", str(output), "--anonymize", *options, "--no-progress"]
        assert main(arguments) == 0
        names.append(output.read_bytes())
    topic = Names(read_key(key)).name(b"orders")
    assert [topic in raw for raw in names] == [True, True, False]
    assert not any(b"\x06orders" in raw for raw in names)


def test_a_key_without_anonymize_is_refused(
    samples: Path, key: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "out.pcapng"
    capture = samples / "questions/auth.pcap.zst"
    assert main(["extract", str(capture), "-o", str(output), "--anonymize-key", str(key)]) == 2
    assert "--anonymize" in capsys.readouterr().err
    assert not output.exists()


def test_the_audit_finds_originals_wherever_they_are() -> None:
    originals = Originals([b"invoice-topic", b"billing", b"short", b"consumer", b"y" * 2_000_000 + b"end"])
    assert len(originals) == 3  # not one that is short, nor a word of the protocol
    filler = b"x" * 3_000_000
    assert originals.found_in(filler) is None
    for at in (0, 1_048_570, 2_999_990):
        assert originals.found_in(filler[:at] + b"billing" + filler[at:]) == b"billing"
    assert originals.found_in(b"invoice-topi") is None
    assert originals.found_in(b"short consumer") is None


def test_a_stream_that_begins_with_a_gap(tmp_path: Path) -> None:
    """The first response of a connection was not captured. All later ones keep their places."""
    capture, output = tmp_path / "lossy.pcap", tmp_path / "x.pcapng"
    segments = conversation(1)
    first = next(n for n, each in enumerate(segments) if each.payload and each.source == segments[1].source)
    capture.write_bytes(pcap_bytes(encode(lose(segments, first))))
    assert main(["extract", str(capture), "--anonymize", "-o", str(output), "--no-progress"]) == 0
    names = ["correlation_id", "outcome", "response_bytes", "total_ns"]
    expected, found = (
        kafkatap.analyze(path).exchanges.select(names).sort_by("correlation_id").to_pylist()
        for path in (capture, output)
    )
    assert found == expected
    assert sum(row["outcome"] == "answered" for row in found) > 10
