"""TLS of captures with a snap length: records that were captured whole are decrypted, and the others are counted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kafkatap import analyze
from kafkatap.engine.tls.handshake import cut_client_random
from tests.support.captures import pcap_bytes, read_capture

from .real_endpoints import FOLDER, Row, exchanges

SAMPLE = "libraries"


def key(row: Row) -> tuple[object, ...]:
    return row["client_port"], row["api_key"], row["correlation_id"], row["client_id"]


@pytest.fixture(scope="module")
def cut(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """The recording with different snap lengths."""
    capture = read_capture(FOLDER / f"{SAMPLE}.pcap.zst")
    found = {}
    for length in (100, 128, 256, 600):
        packets = [replace(p, data=p.data[:length], original_length=len(p.data)) for p in capture.packets]
        found[length] = tmp_path_factory.mktemp("cut") / f"{length}.pcap"
        found[length].write_bytes(pcap_bytes(packets, capture.link_types[0], nanoseconds=True))
    return found


@pytest.mark.parametrize(("length", "least"), [(128, 30), (256, 850), (600, 1_450)])
def test_whole_records_are_decrypted(length: int, least: int, cut: dict[int, Path]) -> None:
    seen = analyze(cut[length], keylog=FOLDER / f"{SAMPLE}.keys.log")
    rows = seen.exchanges.to_pylist()
    assert len(rows) >= least
    whole = {key(row): row for row in exchanges(SAMPLE, SAMPLE)}
    responses = {(row["client_port"], row["correlation_id"]) for row in whole.values()}
    for row in rows:
        if row["api_key"] is None:  # of the request bytes are missing
            assert (row["client_port"], row["correlation_id"]) in responses
        else:
            assert row["api_version"] == whole[key(row)]["api_version"]
    decryption = {row["tls_decryption"] for row in seen.connections.to_pylist() if row["client_bytes"]}
    assert decryption == {"decrypted"}
    for parts in seen.context.ledger.values():
        assert sum(n for part, n in parts.items() if part != "total") == parts["total"]


def test_hellos_that_are_cut_are_the_reason(cut: dict[int, Path]) -> None:
    seen = analyze(cut[100], keylog=FOLDER / "broker.keys.log")
    assert {row["tls_decryption"] for row in seen.connections.to_pylist() if row["client_bytes"]} == {"cut"}
    assert len(seen.exchanges) == 0


def test_the_random_of_a_cut_hello() -> None:
    hello = b"\1\0\2\0\3\3" + bytes(range(32)) + b"\x20rest"
    assert cut_client_random(hello) == bytes(range(32))
    assert cut_client_random(hello[:38]) == bytes(range(32))
    assert cut_client_random(hello[:37]) == b""
    assert cut_client_random(b"\2" + hello[1:]) == b""
    assert cut_client_random(b"") == b""
