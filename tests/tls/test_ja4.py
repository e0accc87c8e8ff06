"""JA4 beside published values, and the software of recorded clients by it."""

from __future__ import annotations

import json

import pytest

from kafkatap import analyze
from kafkatap.engine.tls.handshake import ClientHello, read_client_hello
from kafkatap.engine.tls.ja4 import ja4
from kafkatap.reports.tls_names import TLS_1_2, TLS_1_3
from kafkatap.reports.tls_software import LIKELY, PERHAPS, probable_software

from .crafted import client_hello, extension
from .real_endpoints import FOLDER, connections, truth

#: The example in FoxIO's description of the method: a browser's ClientHello, with GREASE in all lists.
SUITES = (
    0x0A0A, 0x1301, 0x1302, 0x1303, 0xC02B, 0xC02F, 0xC02C, 0xC030, 0xCCA9, 0xCCA8, 0xC013, 0xC014, 0x009C, 0x009D,
    0x002F, 0x0035,
)  # fmt: skip
EXTENSIONS = (
    0xFAFA, 0x001B, 0x0000, 0x0033, 0x0010, 0x4469, 0x0017, 0x002D, 0x000D, 0x0005, 0x0023, 0x0012, 0x002B, 0xFF01,
    0x000B, 0x000A, 0x0015, 0x5A5A,
)  # fmt: skip
ALGORITHMS = (0x0403, 0x0804, 0x0401, 0x0503, 0x0805, 0x0501, 0x0806, 0x0601)


def hello(**changes: object) -> ClientHello:
    made = ClientHello(b"", b"", TLS_1_3, SUITES, "example", ("h2", "http/1.1"), False, b"", EXTENSIONS, ALGORITHMS)
    return made._replace(**changes)  # type: ignore[arg-type]


def test_the_published_example() -> None:
    assert ja4(hello()) == "t13d1516h2_8daaf6152771_e5627efa2ab1"


def test_parts() -> None:
    assert ja4(hello(alpn=(), extensions=(10, 11), version=TLS_1_2)).startswith("t12i150200_8daaf6152771_")
    assert ja4(hello(alpn=("http/1.1",))).startswith("t13d1516h1_")
    assert ja4(hello(alpn=("-x-",))).startswith("t13d15162d_")  # 2d782d
    assert ja4(hello(suites=(), extensions=(0, 16), alpn=("h2",))) == "t13d0002h2_000000000000_000000000000"
    assert ja4(hello(suites=tuple(range(1, 200)))).startswith("t13d9916h2_")
    without = ja4(hello(signature_algorithms=()))
    assert without != ja4(hello())
    assert without.startswith("t13d1516h2_8daaf6152771_")


def test_a_client_hello_on_the_wire() -> None:
    extensions = extension(13, b"\0\4\4\3\x08\4") + extension(0x1A1A, b"") + extension(10, b"\0\2\0\x1d")
    read = read_client_hello(client_hello(bytes(32), [0x2A2A, 0x1301, 0x1302], extensions)[4:])
    assert read is not None
    assert (read.extensions, read.signature_algorithms) == ((13, 0x1A1A, 10, 43), (0x0403, 0x0804))
    assert ja4(read).startswith("t13i020300_")


#: What recorded clients are.
SOFTWARE = {
    "java": "Java", "librdkafka": "OpenSSL client", "kafka-python": "Python", "aiokafka": "Python",
    "kafkajs": "Node.js", "franz-go": "Go", "sarama": "Go", "segmentio": "Go",
}  # fmt: skip


def test_recorded_clients_are_recognized_without_keys() -> None:
    names: dict[int, str] = {}
    for row in analyze(FOLDER / "libraries.pcap.zst", keylog=FOLDER / "libraries.keys.log").connections.to_pylist():
        if row["client_id"]:
            names[row["client_port"]] = row["client_id"].rpartition("-")[0]
    assert set(names.values()) == set(SOFTWARE)
    port = truth("libraries")["ports"]["TLS"]
    seen = [row for row in analyze(FOLDER / "libraries.pcap.zst").connections.to_pylist() if row["broker_port"] == port]
    assert len(seen) > 40
    for row in seen:
        found = probable_software(row["tls_ja4"])
        assert found == (SOFTWARE[names[row["client_port"]]], LIKELY) if row["client_port"] in names else found


@pytest.mark.parametrize("name", ["libraries", "broker", "matrix", "failures"])
def test_the_fingerprints_of_tshark(name: str) -> None:
    """samples/tls/ja4.json has what tshark 4.6.9 printed (`tls.handshake.ja4`), with the ports of clients."""
    theirs = {
        port: found for found, ports in json.loads((FOLDER / "ja4.json").read_text())[name].items() for port in ports
    }
    ours = analyze(FOLDER / f"{name}.pcap.zst").connections.to_pylist()
    assert {row["client_port"]: row["tls_ja4"] for row in ours if row["tls_ja4"]} == theirs


@pytest.mark.parametrize("name", ["broker", "matrix"])
def test_no_client_counts_as_another(name: str) -> None:
    """librdkafka and the client with OpenSSL; Java; Python's clients."""
    table = analyze(FOLDER / f"{name}.pcap.zst", keylog=FOLDER / f"{name}.keys.log").connections.to_pylist()
    for row in table:
        found = probable_software(row["tls_ja4"] or "")
        if found is not None and row["client_id"]:
            wanted = (
                "Java"
                if row["client_id"].startswith("java")
                else "Python"
                if "kafka" in row["client_id"]
                else "OpenSSL client"
            )
            assert found.software in (wanted, "OpenSSL client"), row["client_id"]
    assert connections(name)


def test_what_is_not_known() -> None:
    assert probable_software("") is None
    assert probable_software("t13d1516h2_8daaf6152771_e5627efa2ab1") is None
    assert probable_software("t13i371100_db35923f8641_000000000000") == ("Java", PERHAPS)
