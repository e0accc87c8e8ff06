"""Extracts of encrypted connections: enough to decrypt them again, and secrets only if they are asked for."""

from __future__ import annotations

import shutil
import stat
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kafkatap
from kafkatap.engine.read_options import ReadOptions
from kafkatap.engine.tls.key_log import KeyLog
from kafkatap.extract import Summary
from kafkatap.reassembly.pcapng_blocks import decryption_secrets
from tests.cli.running import kafkatap as run
from tests.cli.tls_captures import TlsCaptures, make_tls_captures
from tests.extract.support import PACKETS, extracted
from tests.support.captures import pcap_bytes, pcapng_bytes
from tests.support.tcp import START_NS

SECRETS, ENHANCED = 10, 6
FILTERS = (
    "api == Metadata and client ~ 'app-1'", "error", "api == FindCoordinator and client ~ 'app-[02]'",
    "api == SaslAuthenticate",
)  # fmt: skip


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> TlsCaptures:
    return make_tls_captures(tmp_path_factory.mktemp("tls"))


def blocks(path: Path) -> Iterator[tuple[int, bytes]]:
    data, at = path.read_bytes(), 0
    while at < len(data):
        kind, length = struct.unpack_from("<II", data, at)
        yield kind, data[at + 8 : at + length - 4]
        at += length


def secrets_in(path: Path) -> list[bytes]:
    """The key logs in the blocks of a pcapng; each comes before the first packet."""
    found, kinds = [], []
    for kind, body in blocks(path):
        kinds.append(kind)
        if kind == SECRETS:
            assert ENHANCED not in kinds
            assert body[:4] == struct.pack("<I", 0x544C534B)
            found.append(body[8 : 8 + struct.unpack_from("<I", body, 4)[0]])
    return found


def rows(captures: Path, **options: Any) -> dict[int, dict[str, Any]]:
    table = kafkatap.analyze(captures, **options).exchanges.drop_columns(PACKETS)
    return {row["exchange"]: row for row in table.to_pylist()}


def extract_encrypted(tls: TlsCaptures, output: Path, filter: str | None, **options: Any) -> Summary:
    return extracted(tls.capture, output, filter, read=ReadOptions(key_log=KeyLog([str(tls.key_log)])), **options)


@pytest.mark.parametrize("filter", FILTERS)
def test_rows_are_the_same_with_the_same_key_log(tls: TlsCaptures, tmp_path: Path, filter: str) -> None:
    """The copy begins at each connection's beginning and is no longer than needed."""
    output = tmp_path / "x.pcapng"
    made = extract_encrypted(tls, output, filter)
    assert (made.different, made.whole) == (0, [])
    assert made.packets < len(tls.packets)
    expected = rows(tls.capture, keylog=tls.key_log, filter=filter)
    assert len(expected) == made.exchanges > 0
    found = rows(output, keylog=tls.key_log)
    assert {key: found[key] for key in expected} == expected
    assert secrets_in(output) == []
    assert rows(output) == {}


@pytest.mark.parametrize("filter", FILTERS)
def test_with_secrets_of_the_chosen_connections_alone(tls: TlsCaptures, tmp_path: Path, filter: str) -> None:
    output = tmp_path / "x.pcapng"
    made = extract_encrypted(tls, output, filter, secrets=True)
    expected = rows(tls.capture, keylog=tls.key_log, filter=filter)
    found = rows(output)
    assert {key: found[key] for key in expected} == expected
    lines = b"".join(secrets_in(output)).splitlines()
    randoms = {line.split()[1] for line in lines}
    chosen = {row["client_port"] for row in expected.values()}
    assert made.secrets == len(randoms) == len(chosen)
    assert set(lines) <= set(tls.key_log.read_bytes().splitlines())
    assert len(lines) == len(set(lines))
    assert stat.S_IMODE(output.stat().st_mode) == 0o600


def test_everything_and_whole_connections(tls: TlsCaptures, tmp_path: Path) -> None:
    output = tmp_path / "x.pcapng"
    assert extract_encrypted(tls, output, None, secrets=True).packets == len(tls.packets)
    assert rows(output) == rows(tls.capture, keylog=tls.key_log)
    made = extract_encrypted(tls, output, FILTERS[0], connections=True)
    expected = rows(tls.capture, keylog=tls.key_log, filter="client ~ 'app-1'")
    assert rows(output, keylog=tls.key_log) == expected
    assert made.copied == len(expected)


@pytest.fixture(scope="module")
def with_secrets(tls: TlsCaptures, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A capture that has the secrets of all connections."""
    whole = pcapng_bytes(tls.packets)
    end = int.from_bytes(whole[4:8], "little")
    path = tmp_path_factory.mktemp("secrets") / "x.pcapng"
    path.write_bytes(whole[:end] + decryption_secrets(tls.key_log.read_bytes()) + whole[end:])
    return path


def test_secrets_of_the_source_are_left_out_and_a_line_says_so(
    tls: TlsCaptures, with_secrets: Path, tmp_path: Path
) -> None:
    output = tmp_path / "x.pcapng"
    done = run("extract", with_secrets, "-f", FILTERS[0], "-o", output)
    assert done.code == 0
    assert "the TLS secrets in the captures are not copied; --with-secrets copies those" in done.err
    assert secrets_in(output) == []
    assert rows(output, keylog=tls.key_log) != {}
    done = run("extract", with_secrets, "-f", FILTERS[0], "-o", output, "--with-secrets")
    assert f"with the TLS secrets of 1 connection: keep {output} as safe as a key" in done.err
    assert len({line.split()[1] for line in b"".join(secrets_in(output)).splitlines()}) == 1
    assert rows(output) == rows(output, keylog=tls.key_log)


def test_nothing_to_write(tls: TlsCaptures, tmp_path: Path) -> None:
    """A capture in the clear has no secrets, and one that is not decrypted has no exchanges."""
    done = run("extract", tls.plain, "--with-secrets", "-o", tmp_path / "x.pcapng")
    assert done.code == 0
    assert "no copied connection was decrypted" in done.err
    assert secrets_in(tmp_path / "x.pcapng") == []
    done = run("extract", tls.capture, "--with-secrets", "-f", "error", "-o", tmp_path / "y.pcapng")
    assert done.code != 0
    assert not (tmp_path / "y.pcapng").exists()


def test_no_file_is_left_behind(tls: TlsCaptures, tmp_path: Path) -> None:
    output = tmp_path / "x.pcapng"
    extract_encrypted(tls, output, FILTERS[0], secrets=True)
    assert [path.name for path in tmp_path.iterdir()] == ["x.pcapng"]


def test_library(tls: TlsCaptures, tmp_path: Path) -> None:
    output = tmp_path / "x.pcapng"
    kafkatap.analyze(tls.capture, keylog=tls.key_log, filter="error").extract(output, secrets=True)
    assert len(rows(output, filter="error")) > 0


@pytest.mark.skipif(shutil.which("tshark") is None, reason="needs the program tshark, which is not installed")
def test_tshark_decrypts_the_copy(tls: TlsCaptures, tmp_path: Path) -> None:
    """tshark finds each request of the copy in it, without an option, and none without the secrets."""
    output = tmp_path / "x.pcapng"
    extract_encrypted(tls, output, "error", secrets=True)
    assert _tshark(output) == sorted(row["correlation_id"] for row in rows(output).values())
    extract_encrypted(tls, output, "error")
    assert _tshark(output) == []


def _tshark(capture: Path) -> list[int]:
    """The correlation ids of the requests that tshark decodes."""
    fields = ["-T", "fields", "-e", "kafka.correlation_id", "-Y", "kafka.request_key"]
    command = ["tshark", "-n", "-r", str(capture), "-d", "tls.port==9093,kafka", *fields]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    return sorted(int(number) for line in done.stdout.split() for number in line.split(","))


def test_connections_without_their_handshake(tls: TlsCaptures, tmp_path: Path) -> None:
    """A capture that begins in mid-connection: commands that read twice decrypt twice, and the copy is as readable."""
    capture, output = tmp_path / "middle.pcap", tmp_path / "x.pcapng"
    after = [packet for packet in tls.packets if (packet.time_ns - START_NS) % (2 * 10**9) > 10**9]
    capture.write_bytes(pcap_bytes(after))
    analysis = kafkatap.analyze(capture, keylog=tls.key_log, filter="error")
    expected = {row["exchange"]: row for row in analysis.exchanges.drop_columns(PACKETS).to_pylist()}
    assert {row["client_port"] for row in expected.values()} == {30_000, 30_002}
    assert len(list(analysis.messages(body=False))) == 2 * len(expected)
    for with_secrets in (False, True):
        made = analysis.extract(output, secrets=with_secrets)
        assert (made.different, made.secrets) == (0, 2 * with_secrets)
        found = rows(output, keylog=None if with_secrets else tls.key_log)
        assert {key: found[key] for key in expected} == expected
