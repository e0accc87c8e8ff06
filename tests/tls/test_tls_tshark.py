"""tshark decrypts the same messages with the same key log; so does a broker's log of requests have them."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from kafkatap import analyze
from kafkatap.reports.connection_words import D_DECRYPTED
from tests.support.captures import PcapRecords, read_bytes
from tests.support.wireshark import TSHARK, read_decrypted

from .real_endpoints import FOLDER, Row, exchanges, rows, truth

needs_tshark = pytest.mark.skipif(TSHARK is None, reason="needs tshark")
#: Packet, direction, correlation id, size.
Message = tuple[int, int, int, int]
#: Cases that tshark 4.0 does not decrypt, or not completely: early data, and what follows a second handshake.
NOT_BY_TSHARK = {"early-data", "renegotiation"}


def messages(found: list[Row]) -> Counter[Message]:
    """The packets that complete the messages of exchanges."""
    result: Counter[Message] = Counter()
    for row in found:
        for direction, name in enumerate(("request", "response")):
            packet = row[f"{name}_packet_last"]
            if packet is not None:
                result[packet, direction, row["correlation_id"], row[f"{name}_bytes"]] += 1
    return result


@needs_tshark
@pytest.mark.parametrize("name", ["matrix", "broker"])
def test_tshark_decrypts_the_same_messages(name: str, tmp_path: Path) -> None:
    path = tmp_path / f"{name}.pcap"
    path.write_bytes(read_bytes(FOLDER / f"{name}.pcap.zst"))
    facts = truth(name)
    ports = [facts["front"]] if name == "matrix" else list(facts["ports"].values())
    theirs = read_decrypted(path, ports, FOLDER / f"{name}.keys.log")
    left_out = {row["front"] for row in facts.get("connections", ()) if row["case"] in NOT_BY_TSHARK}
    ours = [row for row in exchanges(name, name) if row["broker_port"] in ports]
    assert messages([row for row in ours if row["client_port"] not in left_out]) - theirs == Counter()
    assert theirs - messages(ours) == Counter()
    assert sum(theirs.values()) > (1_300 if name == "matrix" else 150)


# ---------------------------------------------------------------- the long recording

PORTS = (9093, 9096)
CLIENTS = {"aio-tls12", "aio-tls13", "aio-tls12-plain", "aio-tls13-scram"}


def cut(corpus: Path, path: Path) -> Path:
    """The connections with TLS of the long recording."""
    data = PcapRecords(corpus / "captures" / "apache-4.3-broker1.pcap.zst")
    path.write_bytes(data.keep(n for n in range(len(data)) if has_port(data.record(n)[16:], PORTS)))
    return path


def has_port(frame: bytes, ports: tuple[int, ...]) -> bool:
    at = 14 + (frame[14] & 15) * 4
    return frame[12:14] == b"\x08\x00" and frame[23] == 6 and (
        int.from_bytes(frame[at : at + 2]) in ports or int.from_bytes(frame[at + 2 : at + 4]) in ports
    )  # fmt: skip


def test_the_broker_s_log_has_every_decrypted_request(corpus: Path) -> None:
    captures = corpus / "captures"
    analysis = analyze(captures / "apache-4.3-broker1.pcap.zst", keylog=captures / "apache-4.3.keys.log")
    ours = {
        (row["client_port"], row["correlation_id"], row["api_key"], row["api_version"], row["client_id"])
        for row in rows(analysis.exchanges)
        if row["broker_port"] in PORTS
    }
    logged: dict[tuple[Any, ...], Row] = {}
    for line in read_bytes(captures / "apache-4.3-broker1.request.log.zst").decode().splitlines():
        row = json.loads(line[line.index("{") : line.rindex("}") + 1])
        header = row["requestHeader"]
        broker, client = row["connection"].split("-")[:2]
        if int(broker.rpartition(":")[2]) in PORTS:
            port = int(client.rpartition(":")[2])
            key = (
                port,
                header["correlationId"],
                header["requestApiKey"],
                header["requestApiVersion"],
                header["clientId"],
            )
            logged[key] = row
    seen = {int(row["client_port"]) for row in analysis.context.connections if row["broker_port"] in PORTS}
    decrypted = {
        int(row["client_port"])
        for row in analysis.context.connections
        if row["broker_port"] in PORTS and row["tls_decryption"] == D_DECRYPTED
    }
    assert decrypted == seen
    assert {key[4] for key in ours} == CLIENTS
    # The broker logs neither the authentication nor what its own shutdown cut off.
    assert {key for key in logged if key[0] in decrypted} <= ours
    missing = {key for key in ours if key not in logged}
    assert {key[2] for key in missing} <= {17, 18, 36}
    assert len(ours) == 561


@needs_tshark
def test_tshark_decrypts_the_same_messages_of_the_long_recording(corpus: Path, tmp_path: Path) -> None:
    path = cut(corpus, tmp_path / "tls.pcap")
    keys = corpus / "captures" / "apache-4.3.keys.log"
    theirs = read_decrypted(path, list(PORTS), keys)
    ours = messages(rows(analyze(path, keylog=keys).exchanges))
    assert ours - theirs == Counter()
    assert theirs - ours == Counter()
    assert sum(theirs.values()) > 1_000
