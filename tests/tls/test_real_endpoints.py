"""Decrypted connections of real TLS endpoints have the exchanges of the same traffic in the clear (samples/tls)."""

from __future__ import annotations

import json
import statistics
from pathlib import Path

import pytest

from kafkatap import analyze
from kafkatap.reports.connection_words import (
    D_DECRYPTED,
    D_FAILED_HANDSHAKE,
    D_NO_KEY,
    D_NO_KEY_LOG,
    D_UNSUPPORTED,
    TLS_EARLY_DATA,
    TLS_FULL,
    TLS_RESUMED,
)
from kafkatap.reports.tls_names import HIDDEN_NO_CERTIFICATE
from tests.support.captures import Interface, block, pcapng_bytes, read_bytes, read_capture

from .real_endpoints import FOLDER, Row, analysis, by_client, connections, exchanges, rows, same, truth, without_resumed

MATRIX = truth("matrix")
#: The connections to the terminator that came through, by case.
CASES: dict[str, list[Row]] = {}
for each in MATRIX["connections"]:
    if "back" in each:
        CASES.setdefault(each["case"], []).append(each)
#: What the terminator and the broker's scheduling add at most.
ADDED_NS = 100_000_000
VERSIONS = {"TLSv1.2": 0x0303, "TLSv1.3": 0x0304}
#: Suites without ECDHE, which need not be decrypted. Where they are, everything must be equal.
OPTIONAL = ("tls12-AES", "tls12-DHE")


def without_response(row: Row) -> Row:
    """An exchange as if the response had not come."""
    nothing = {"response_bytes": None, "response_status": None, "throttle_time_ms": None}
    return row | nothing | {"response_first": None, "outcome": "unanswered", "errors": []}


@pytest.mark.parametrize("case", CASES)
def test_exchanges_equal_those_behind_the_terminator(case: str) -> None:
    seen = connections("matrix", "matrix")
    for row in CASES[case]:
        front = by_client("matrix", "matrix").get(row["front"], [])
        behind = by_client("matrix", "matrix").get(row["back"], [])
        assert behind or case.startswith("tls12-")  # librdkafka opens some connections and sends nothing
        if case.startswith(OPTIONAL) and seen[row["front"]]["tls_decryption"] == D_UNSUPPORTED:
            assert front == []
            continue
        if case == "renegotiation":
            behind = behind[: len(front)]
            assert len(front) >= 3
        if seen[row["front"]]["closed_by"] == 0:  # the client closes before it has the last response
            behind = [
                without_response(b) if f["outcome"] == "unanswered" else b for f, b in zip(front, behind, strict=True)
            ]
        assert [same(each) for each in front] == [same(each) for each in behind]
        for ours, clear in zip(front, behind, strict=True):
            # The terminator passes on what it has decrypted, so each byte is later behind it, and back in front of it.
            for name in ("request_first", "request_last"):
                assert 0 <= clear[name] - ours[name] < ADDED_NS
            if clear["response_first"] is not None:
                for name in ("response_first", "response_last"):
                    assert 0 <= ours[name] - clear[name] < ADDED_NS


@pytest.mark.parametrize("case", CASES)
def test_connections_have_the_endpoint_s_own_facts(case: str) -> None:
    for keys in (("matrix",), ()):
        for number, row in enumerate(CASES[case]):
            seen = connections("matrix", *keys)[row["front"]]
            assert seen["tls_version"] == VERSIONS[row["version"]]
            assert analysis_suite(seen["tls_suite"]) == row["suite"]
            wanted = TLS_EARLY_DATA if row["early"] else TLS_RESUMED if row["resumed"] else TLS_FULL
            assert seen["tls_session"] == wanted, (case, number)
            # The broker names itself by its address, so only the first connection of librdkafka has a name.
            assert seen["tls_server_name"] in ("localhost", None)
            if keys or not row["early"]:  # without keys, early data looks like the end of the handshake
                assert seen["tls_handshake_ns"] > 0
            if case == "alpn" and (keys or row["version"] == "TLSv1.2"):
                assert seen["tls_alpn"] == "kafka"
            certificate = seen["tls_server_certificate"]
            if not row["resumed"] and (keys or row["version"] == "TLSv1.2"):
                assert certificate == "localhost"
                assert seen["tls_server_certificate_end"] > seen["last"]
            elif row["version"] == "TLSv1.3":
                assert certificate is None
            if case == "client-certificate-12" or (case == "client-certificate-13" and keys):
                assert seen["tls_asks_certificate"] == 1
                assert "checkout" in seen["tls_client_certificate"]
            elif not case.startswith("client-certificate"):
                assert seen["tls_client_certificate"] is None


def analysis_suite(number: int) -> str:
    return {
        0x1301: "TLS_AES_128_GCM_SHA256", 0x1302: "TLS_AES_256_GCM_SHA384", 0x1303: "TLS_CHACHA20_POLY1305_SHA256",
        0x1304: "TLS_AES_128_CCM_SHA256", 0x1305: "TLS_AES_128_CCM_8_SHA256",
        0xC02F: "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", 0xC030: "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
        0xC02B: "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", 0xC02C: "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
        0xCCA8: "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", 0xCCA9: "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
        0xC013: "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA", 0xC014: "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
        0xC027: "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256", 0xC028: "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA384",
        0xC009: "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA", 0xC024: "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA384",
        0xC023: "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256",
        0xC0AC: "TLS_ECDHE_ECDSA_WITH_AES_128_CCM", 0xC0AD: "TLS_ECDHE_ECDSA_WITH_AES_256_CCM",
        0xC0AE: "TLS_ECDHE_ECDSA_WITH_AES_128_CCM_8", 0x009C: "TLS_RSA_WITH_AES_128_GCM_SHA256",
        0x003D: "TLS_RSA_WITH_AES_256_CBC_SHA256", 0x009F: "TLS_DHE_RSA_WITH_AES_256_GCM_SHA384",
    }[number]  # fmt: skip


def test_every_case_came_through() -> None:
    ecdhe = {row["suite"] for several in CASES.values() for row in several if "ECDHE" in row["suite"]}
    assert len(ecdhe) >= 14
    assert {row["suite"] for several in CASES.values() for row in several if row["version"] == "TLSv1.3"} == {
        analysis_suite(0x1301 + number) for number in range(5)
    }
    assert [[row["resumed"] for row in CASES[f"resumed-{kind}"]] for kind in ("ticket", "id", "psk")] == [
        [False, True, True]
    ] * 3
    assert [row["early"] > 0 for row in CASES["early-data"]] == [False, True, True]


def test_without_keys_everything_but_tls_is_the_same() -> None:
    front = {row["front"] for row in MATRIX["connections"]}
    encrypted = exchanges("matrix")
    assert not [row for row in encrypted if row["client_port"] in front]
    clear = [row for row in exchanges("matrix", "matrix") if row["client_port"] not in front]
    assert list(encrypted) == clear
    seen = connections("matrix")
    for several in CASES.values():
        assert {seen[row["front"]]["tls_decryption"] for row in several} == {D_NO_KEY_LOG}


def test_keys_of_other_sessions_decrypt_nothing() -> None:
    assert list(exchanges("matrix", "broker")) == list(exchanges("matrix"))
    seen = connections("matrix", "broker")
    for several in CASES.values():
        assert {seen[row["front"]]["tls_decryption"] for row in several} == {D_NO_KEY}


def test_resumed_sessions_have_the_secret_of_the_full_handshake(tmp_path: Path) -> None:
    lines = (FOLDER / "matrix.keys.log").read_text()
    fewer = tmp_path / "keys.log"
    fewer.write_text(without_resumed(lines))
    resumed = sum(row["resumed"] and row["version"] == "TLSv1.2" for several in CASES.values() for row in several)
    assert resumed >= 4
    assert lines.count("CLIENT_RANDOM") - fewer.read_text().count("CLIENT_RANDOM") >= resumed
    assert rows(analyze(FOLDER / "matrix.pcap.zst", keylog=fewer).exchanges) == list(exchanges("matrix", "matrix"))


def test_secrets_in_the_capture_decrypt_as_a_key_log_does(tmp_path: Path) -> None:
    """The decryption secrets block of a pcapng, as Wireshark's tools write it."""
    secrets = (FOLDER / "matrix.keys.log").read_bytes()
    data = pcapng_bytes(read_capture(FOLDER / "matrix.pcap.zst").packets, [Interface(tsresol=9)])
    first = int.from_bytes(data[4:8], "little")
    block_of_secrets = block(10, b"KSLT" + len(secrets).to_bytes(4, "little") + secrets)
    path = tmp_path / "matrix.pcapng"
    path.write_bytes(data[:first] + block_of_secrets + data[first:])
    assert rows(analyze(path).exchanges) == list(exchanges("matrix", "matrix"))


def test_the_ledger_adds_up() -> None:
    for keys in ((), ("matrix",), ("broker",)):
        for places in analysis("matrix", *keys).context.ledger.values():
            counts = dict(places)
            total = counts.pop("total")
            assert sum(counts.values()) == total


def test_estimates_are_near_the_truth() -> None:
    """Estimates from sizes and directions alone, against the same connections decrypted."""
    errors = []
    estimates = _estimates()
    for several in CASES.values():
        for row in several:
            found = sorted(estimates.get(row["front"], ()))
            answered = {
                each["request_last"]: each["response_first"] - each["request_last"]
                for each in by_client("matrix", "matrix").get(row["front"], [])
                if each["response_first"] is not None
            }
            errors += [abs(ns - answered[at]) for at, ns in found if at in answered]
    assert len(errors) > 600
    assert statistics.median(errors) <= 1_000_000


def _estimates() -> dict[int, list[tuple[int, int]]]:
    from kafkatap.engine.engine import Engine
    from kafkatap.run import Run

    run = Run([str(FOLDER / "matrix.pcap.zst")], Engine(), threaded=False)
    found: dict[int, list[tuple[int, int]]] = {}
    for batch in run.batches():
        for row in () if batch.estimates is None else batch.estimates:
            found.setdefault(int(row["client_port"]), []).append((int(row["at"]), int(row["ns"])))
    return found


# ---------------------------------------------------------------- a real broker

LOG_LISTENERS = ("TLS", "TLS12", "LOGIN")
SASL = (17, 36)


def logged() -> dict[tuple[int, int, int], Row]:
    """The broker's lines about its TLS listeners, by the client's port, correlation id and API."""
    found = {}
    for line in read_bytes(FOLDER / "broker.request.log.zst").decode().splitlines():
        row = json.loads(line[line.index("{") :])
        if row["listener"] in LOG_LISTENERS:
            header = row["requestHeader"]
            port = int(row["connection"].split("-")[1].rpartition(":")[2])
            found[port, header["correlationId"], header["requestApiKey"]] = row
    return found


def test_a_broker_s_log_has_the_decrypted_requests() -> None:
    lines = logged()
    ours = {(r["client_port"], r["correlation_id"], r["api_key"]): r for r in exchanges("broker", "broker")}
    assert len(lines) > 60
    assert not set(lines) - set(ours)
    for key, line in lines.items():
        row, header = ours[key], line["requestHeader"]
        assert (row["api_version"], row["client_id"]) == (header["requestApiVersion"], header["clientId"])
        assert row["outcome"] == "answered"
        # The capture has the request before the broker's clock starts, and the response after it ends.
        total = row["response_first"] - row["request_last"]
        assert total > line["totalTimeMs"] * 1e6 - 20e6
    login = truth("broker")["ports"]["LOGIN"]
    for key in set(ours) - set(lines):  # the log has no requests of the authentication
        assert ours[key]["broker_port"] == login
        assert key[2] in (*SASL, 18)
    clients = {row["client_id"] for row in ours.values()}
    assert clients >= {f"{name}-{v}" for name in ("java", "librd", "kafka-python", "aiokafka") for v in (12, 13)}
    assert clients >= {"java-scram", "librd-plain"}


def test_every_connection_to_the_broker_is_decrypted() -> None:
    seen = [row for row in connections("broker", "broker").values() if row["client_bytes"]]  # one client only waited
    assert len(seen) > 20
    assert {row["tls_decryption"] for row in seen} == {D_DECRYPTED}
    assert {row["tls_version"] for row in seen} == {0x0303, 0x0304}
    assert {row["tls_server_certificate"] for row in seen if row["tls_session"] == TLS_FULL} == {"localhost"}


def test_keys_of_clients_give_the_same_as_keys_of_the_broker() -> None:
    """Python's key log has its own connections alone; both logs give the same rows for these."""
    ours = exchanges("broker", "broker.python")
    assert {row["client_id"].rpartition("-")[0] for row in ours} == {"kafka-python", "aiokafka"}
    ports = {row["client_port"] for row in ours}
    wanted = [row for row in exchanges("broker", "broker") if row["client_port"] in ports]
    assert [{**row, "exchange": 0} for row in ours] == [{**row, "exchange": 0} for row in wanted]
    assert {row["client_id"].rpartition("-")[0] for row in exchanges("broker", "broker") if row not in wanted} == {
        "java", "librd",
    }  # fmt: skip


def test_both_key_logs_together_give_the_same() -> None:
    assert list(exchanges("broker", "broker", "broker.python")) == list(exchanges("broker", "broker"))


# ---------------------------------------------------------------- handshakes that fail


@pytest.mark.parametrize("name", ["matrix", "broker"])
def test_what_came_through_did_not_fail(name: str) -> None:
    """The lengths of no record are taken for those of an alert that rejects."""
    came_through = {
        row["client_port"] for row in connections(name, name).values() if row["tls_decryption"] == D_DECRYPTED
    }
    assert len(came_through) > 20
    for port, row in connections(name).items():
        assert (row["tls_decryption"] == D_FAILED_HANDSHAKE) <= (port not in came_through)


@pytest.mark.parametrize("row", truth("failures")["connections"], ids=lambda row: row["case"])
def test_alerts_are_those_that_the_endpoints_received(row: Row) -> None:
    for keys in ((), ("failures",)):
        seen = connections("failures", *keys)[row["client"]]
        # With TLS 1.3 the server encrypts its alerts. OpenSSL's client does not while it reads certificates.
        if row["alert"] is not None and (keys or not row["case"].endswith("certificate-13")):
            assert (seen["tls_alert"], seen["tls_alert_by"]) == (
                row["alert"],
                ["client", "broker"].index(row["alert_by"]),
            )
        elif row["alert"] is not None:  # its length shows it
            assert (seen["tls_alert"], seen["tls_alert_by"]) == (HIDDEN_NO_CERTIFICATE, 1)
        elif row["case"] in ("good", "tls11"):
            assert seen["tls_alert"] == -1
        is_failed = row["alert"] is not None or row["case"] == "tls-to-plain"
        assert keys or (seen["tls_decryption"] == D_FAILED_HANDSHAKE) == is_failed
        answered = by_client("failures", *keys).get(row["client"], [])
        if row["case"] == "good":
            assert [each["outcome"] for each in answered] == (["answered"] * 6 if keys else [])
        elif "in-clear" not in row["case"] and row["case"] != "tls11":
            assert not [each for each in answered if each["outcome"] == "answered"]
