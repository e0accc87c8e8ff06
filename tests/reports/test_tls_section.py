"""The section `tls`, the sentence on encryption and the findings, over rows made by hand: in one run and in several."""

from __future__ import annotations

import io

import numpy as np
import pytest

from kafkatap.engine.selection import Selection, Selector
from kafkatap.reports import units
from kafkatap.reports.batch import ESTIMATE, Array, Context
from kafkatap.reports.build import build_report
from kafkatap.reports.connection_columns import TLS_UNKNOWN
from kafkatap.reports.connection_words import (
    D_DECRYPTED,
    D_FAILED_HANDSHAKE,
    D_NO_HANDSHAKE,
    D_NO_KEY,
    D_NO_KEY_LOG,
    P_KAFKA,
    P_TLS,
    TLS_EARLY_DATA,
    TLS_RESUMED,
)
from kafkatap.reports.encryption import encryption_of
from kafkatap.reports.model import Report
from kafkatap.reports.rendering.text import write_text
from kafkatap.reports.section_parts.section_counts import SectionCounts
from kafkatap.reports.sections.tls_findings import expiry_text, tls_findings
from kafkatap.reports.sections.tls_remedies import tls_remedy
from kafkatap.reports.tables import connections_table
from kafkatap.reports.tls_names import ALERTS, SUITES, VERSIONS, alert_name, suite_name, version_name
from kafkatap.splits.split_counts import merged_connections

from .rows import HOSTILE, MS, START, STRINGS, batch, connection, context, counted, exchange

DAY = 86_400_000_000_000
NAMES = [*STRINGS, b"kafka-1.example", b"CN=billing,O=Example", b"other.example", b"h2", b"(other)"]
SERVER, CLIENT, OLD, ALPN, OTHERS = range(len(STRINGS), len(NAMES))


def tls(**columns: object) -> Array:
    """A TLS connection that was not decrypted, as no key log was given."""
    values: dict[str, object] = {
        **dict.fromkeys(TLS_UNKNOWN, -1), "protocol": P_TLS, "tls_version": 0x0304, "tls_suite": 0x1301,
        "tls_handshake_ns": 2 * MS, "tls_decryption": D_NO_KEY_LOG, "client_id": -1, "broker_port": 9093,
    }  # fmt: skip
    return connection(**{**values, **columns})


def decrypted(**columns: object) -> Array:
    values: dict[str, object] = {"protocol": P_KAFKA, "tls_decryption": D_DECRYPTED, "tls_decrypted_bytes": 9_500}
    return tls(**{**values, "client_id": 0, **columns})


ROWS = np.concatenate([
    decrypted(tls_server_certificate=SERVER, tls_server_certificate_end=START + 12 * DAY, tls_server_name=SERVER,
              tls_client_certificate=CLIENT, tls_client_certificate_end=START + 400 * DAY, tls_asks_certificate=1,
              tls_alpn=ALPN, tls_records=40, tls_failed_records=1, tls_lost_records=2),
    decrypted(tls_session=TLS_RESUMED, tls_handshake_ns=MS),
    decrypted(tls_session=TLS_EARLY_DATA, tls_handshake_ns=MS, client_ip=2),
    tls(tls_decryption=D_NO_KEY, tls_version=0x0303, tls_suite=0xC02F, client_ip=2, tls_server_certificate=OLD,
        tls_server_certificate_end=START - 3 * DAY),
    tls(tls_decryption=D_NO_HANDSHAKE, tls_version=0, tls_suite=0, tls_handshake_ns=-1),
    *(tls(tls_decryption=D_FAILED_HANDSHAKE, tls_alert=48, tls_alert_by=0, tls_handshake_ns=-1, client_ip=2,
          client_bytes=300, broker_bytes=1200) for _ in range(3)),
    tls(tls_decryption=D_FAILED_HANDSHAKE, tls_handshake_ns=-1, client_bytes=300, broker_bytes=0),
    connection(**dict.fromkeys(TLS_UNKNOWN, -1)),
])  # fmt: skip


def estimates(*times: int, port: int = 40_000, at: int = START) -> Array:
    rows = np.zeros(len(times), ESTIMATE)
    rows["ns"], rows["at"], rows["client_port"] = times, at, port
    rows["connection"], rows["broker_ip"], rows["broker_port"] = port, 1, 9093
    return rows


ESTIMATES = np.concatenate([estimates(*[MS] * 90, *[9 * MS] * 10), estimates(5 * MS, 7 * MS, port=40_001)])


def whole(rows: Array = ROWS, encrypted: int = 21_800, **parts: object) -> Context:
    total = int(rows["client_bytes"].sum() + rows["broker_bytes"].sum())
    ledger = {"payload bytes": {"kafka_frames": total - encrypted, "encrypted": encrypted, "total": total}}
    return context(strings=NAMES, connections=rows, ledger=ledger, encrypted_share=encrypted / total, **parts)


def section(names: int = 1_000) -> SectionCounts:
    return SectionCounts(("tls",), names, lambda: OTHERS)


def report(parts: int = 1, names: int = 1_000) -> Report:
    """The report of ROWS and ESTIMATES, counted in some runs that are merged."""
    total = section(names)
    for rows, some in zip(np.array_split(ROWS, parts), np.array_split(ESTIMATES, parts), strict=True):
        counts = section(names)
        counts.add_connections(rows)
        counts.add(batch([])._replace(estimates=some))
        total.merge(counts)
    return build_report(counted([exchange(1)]), whole(), sections=("tls", "summary"), over_facts=total)


def rows_of(table: str, made: Report) -> list[dict[str, object]]:
    found = made.table(table)
    return [dict(zip([c.name for c in found.columns], row, strict=True)) for row in found.rows]


def test_connections_by_address_version_suite_and_decryption() -> None:
    rows = rows_of("tls", report())
    assert len(rows) == 6
    first = next(row for row in rows if row["decryption"] == "decrypted" and row["client_ip"] == "10.0.0.1")
    assert first["tls_version"] == "TLS 1.3"
    assert first["tls_cipher_suite"] == "TLS_AES_128_GCM_SHA256"
    assert (first["connections"], first["full_handshakes"], first["resumed_handshakes"]) == (2, 1, 1)
    assert first["handshake_max_ns"] == 2 * MS
    assert first["server_names"] == ("kafka-1.example",)
    assert first["alpn"] == ("h2",)
    assert (first["records"], first["failed_records"], first["lost_records"]) == (40, 1, 2)
    assert first["client_certificates"] == 1
    failed = next(row for row in rows if row["failed_handshakes"] == 3)
    assert failed["decryption"] == "failed handshake"
    assert failed["handshake_p50_ns"] is None
    unknown = next(row for row in rows if row["decryption"] == "no handshake")
    assert (unknown["tls_version"], unknown["tls_cipher_suite"]) == (None, None)


def test_certificates_that_expire_come_first() -> None:
    rows = rows_of("tls_certificates", report())
    assert [(row["name"], row["of"]) for row in rows] == [
        ("other.example", "server"), ("kafka-1.example", "server"), ("CN=billing,O=Example", "client"),
    ]  # fmt: skip
    assert str(rows[0]["finding"]).startswith("expired on 2026-11-")
    assert str(rows[1]["finding"]).endswith("in 11 days")  # after the capture, which takes two seconds
    assert rows[2]["finding"] == ""
    assert rows[1]["address"] == ("10.0.0.2:9093",)
    assert rows[2]["address"] == ("10.0.0.1",)


def test_failures_name_the_alert_and_its_sender() -> None:
    rows = rows_of("tls_failures", report())
    assert [(row["client_ip"], row["alert"], row["sent_by"], row["connections"]) for row in rows] == [
        ("10.0.0.9", "unknown_ca", "client", 3), ("10.0.0.1", None, None, 1),
    ]  # fmt: skip


def test_estimates_are_called_so_everywhere() -> None:
    made = report()
    for name in ("tls_estimates", "tls_estimated_connections"):
        table = made.table(name)
        assert "stimate" in table.title
        times = [c for c in table.columns if c.kind in ("ns", "count")]
        assert len(times) == 4
        assert all("estimated" in c.name and "estimated" in c.title and "estimated" in c.note for c in times)
        assert any("Estimated" in note for note in table.notes)
    (row,) = rows_of("tls_estimates", made)
    assert row["estimated_count"] == 102
    assert row["estimated_p50_ns"] == pytest.approx(MS, rel=0.01)
    assert row["estimated_p99_ns"] == pytest.approx(9 * MS, rel=0.01)
    assert row["estimated_max_ns"] == 9 * MS
    assert [row["estimated_count"] for row in rows_of("tls_estimated_connections", made)] == [100, 2]


@pytest.mark.parametrize("parts", [2, 3, 9])
def test_several_runs_add_up_to_one(parts: int) -> None:
    assert report(parts) == report()


def test_forms_are_bounded() -> None:
    counts = section(names=10)
    for n in range(200):
        counts.add_connections(tls(client_ip=n, tls_server_name=SERVER, tls_alert=n % 100, tls_alert_by=0))
        counts.add(batch([])._replace(estimates=estimates(n * MS, port=n)))
        counts.finish()
    assert all(len(form) <= 10 for form in counts.forms.values())
    assert sum(counts.forms["tls.estimated_connections"].values()["count"].tolist()) <= 200
    assert sum(counts.forms["tls.estimates"].values()["count"].tolist()) == 200
    made = build_report(
        counted([exchange(1)]),
        whole(addresses=[f"10.0.1.{n}" for n in range(200)]),
        sections=("tls",),
        over_facts=counts,
    )
    assert "(other)" in {row["client_ip"] for row in rows_of("tls", made)}


def test_the_sentence() -> None:
    words = encryption_of(whole()).in_words()
    total = int(ROWS["client_bytes"].sum() + ROWS["broker_bytes"].sum())
    shares = [f"{100 * n / total:.1f} %" for n in (30_000 + 21_800, 30_000, 21_800)]
    assert words == (
        f"{shares[0]} of the payload is TLS: {shares[1]} was decrypted; {shares[2]} was not, as the key log has no "
        "secret for it (1 connection), the handshake was not captured (1 connection) or the handshake failed "
        "(4 connections)"
    )


def test_the_sentence_without_a_key_log() -> None:
    found = encryption_of(whole(np.concatenate([tls(), tls(), connection()]), 20_000))
    assert found.sentences() == (
        "66.7 % of the payload is TLS and was not decrypted: no key log was given (2 connections). --keylog FILE "
        "decrypts it with the secrets of clients or brokers; `kafkatap keys --pid PID -o FILE` takes those of open "
        "connections out of a running JVM (docs/tls.md)."
    )


def test_the_sentence_if_all_is_decrypted_or_nothing_is_tls() -> None:
    found = encryption_of(whole(np.concatenate([decrypted(), connection()]), 0))
    assert found.sentences() == "50.0 % of the payload is TLS and was decrypted."
    assert encryption_of(whole(connection(), 0)).sentences() == ""


def test_the_heading_and_the_warnings_say_the_same() -> None:
    made = report()
    heading = dict(zip((c.name for c in made.heading.columns), made.heading.rows[0], strict=True))
    assert heading["encryption"] == encryption_of(whole()).in_words()
    assert (heading["decrypted_connections"], heading["tls_connections"]) == (3, 6)
    assert "was not, as" in str(heading["encryption"])
    assert any("was not decrypted" in warning for warning in made.warnings)
    assert any(warning == encryption_of(whole()).sentences() for warning in made.warnings)


def test_findings() -> None:
    found = {one.id: one.text for one in tls_findings(whole(encrypted=40_000))}
    assert found["tls_failed"] == (
        "4 TLS handshakes failed: unknown_ca, sent by the client (3), closed without an alert that can be read (1); "
        "3 by 10.0.0.9, others by 1 more"
    )
    assert found["certificate"].startswith("other.example of 10.0.0.2 expired on 2026-11-18, 3 days before")
    assert found["certificate"].endswith("; 1 more")
    assert "of the payload is TLS" in found["encrypted"]
    made = {one.id: one for one in tls_findings(whole(encrypted=40_000))}
    assert made["tls_failed"].setting == "ssl.truststore.location"
    assert made["tls_failed"].remedy.startswith("unknown_ca, sent by the client: Put the CA ")
    assert made["certificate"].remedy == "Renew the certificate in `ssl.keystore.location` of the brokers."
    due = [
        tls(tls_server_certificate=name, tls_server_certificate_end=START + DAY + name, broker_ip=ip)
        for name, ip in ((SERVER, 1), (OLD, 2))
    ]
    (one,) = tls_findings(whole(np.concatenate(due), 0))
    assert [party.name for party in one.parties] == ["10.0.0.2", "10.0.0.9"]  # each broker whose certificate is due
    assert [row["finding"] for row in rows_of("summary", report())] == ["tls_failed", "certificate", "encrypted"]
    assert not tls_findings(whole(connection(), 0))


def test_remedies() -> None:
    """By the alert, and the end that sent it."""
    settings = {
        (48, 0): "truststore", (48, 1): "keystore", (46, 0): "truststore", (116, 1): "keystore", (256, 1): "keystore",
        (258, 0): "truststore", (45, 0): "", (70, 1): "enabled.protocols", (40, 0): "enabled.protocols",
    }  # fmt: skip
    for (alert, by), setting in settings.items():
        remedy = tls_remedy(alert, by)
        assert remedy is not None
        assert remedy.setting.removeprefix("ssl.").removesuffix(".location") == setting
    assert [(r := tls_remedy(45, by)) and r.remedy.split()[-1] for by in (0, 1, -1)] == ["brokers.", "client.", None]
    assert tls_remedy(48, -1) is tls_remedy(-1, -1) is tls_remedy(80, 0) is None


def test_tables_of_connections() -> None:
    table = connections_table(ROWS, context(strings=NAMES))
    first = table.slice(0, 1).to_pylist()[0]
    assert first["tls_version"] == "TLS 1.3"
    assert first["tls_cipher_suite"] == "TLS_AES_128_GCM_SHA256"
    assert first["tls_server_certificate"] == "kafka-1.example"
    assert first["tls_session"] == "full handshake"
    plain = table.slice(len(ROWS) - 1).to_pylist()[0]
    assert all(value is None for name, value in plain.items() if name.startswith("tls_"))


def test_names_are_those_of_the_registry() -> None:
    assert all(name.startswith("TLS_") for name in SUITES.values())
    for names in (SUITES, VERSIONS, ALERTS):
        assert len(set(names.values())) == len(names)
    assert (suite_name(0x1301), suite_name(0x00FF), suite_name(0)) == ("TLS_AES_128_GCM_SHA256", "0x00ff", None)
    assert (version_name(0x0303), version_name(0)) == ("TLS 1.2", None)
    assert (alert_name(48), alert_name(200), alert_name(-1)) == ("unknown_ca", "alert 200", None)


def test_rows_of_splits_become_one() -> None:
    """A split has the handshake, the next one decrypted more, the last one only its end."""
    rows = np.concatenate([
        decrypted(connection=7, last=START, tls_server_name=SERVER, tls_records=10, tls_decrypted_bytes=100),
        decrypted(connection=7, last=START + 1, tls_handshake_ns=-1, tls_records=5, tls_decrypted_bytes=50),
        tls(connection=7, last=START + 2, tls_decryption=D_NO_HANDSHAKE, tls_handshake_ns=-1, tls_version=0,
            tls_suite=0, tls_records=1, protocol=P_KAFKA),
    ])  # fmt: skip
    (merged,) = merged_connections(rows)
    assert merged["tls_decryption"] == D_DECRYPTED
    assert (merged["tls_version"], merged["tls_suite"], merged["tls_server_name"]) == (0x0304, 0x1301, SERVER)
    assert (merged["tls_records"], merged["tls_decrypted_bytes"]) == (16, 150)
    assert merged["tls_handshake_ns"] == 2 * MS


def test_selections_keep_estimates_of_their_time_window() -> None:
    class Names:
        packet_places = None
        strings, addresses, topic_names, first = NAMES, ["10.0.0.1"], {}, START

    from kafkatap.reports.literals import read_moment

    given = batch([exchange(1)])._replace(
        estimates=np.concatenate([estimates(MS), estimates(MS, at=START + 5_000 * MS)])
    )
    for selection, count in (
        (Selection.of(filter="api == Produce"), 2),
        (Selection.of(start=read_moment("+1s", True)), 1),
        (Selection.of(end=read_moment("+1s", True)), 1),
    ):
        found = list(Selector(selection, Names()).apply([given]))
        assert sum(0 if one.estimates is None else len(one.estimates) for one in found) == count


def test_names_from_the_wire_are_escaped() -> None:
    """Server names and certificates are what a client or broker sent."""
    rows = tls(tls_server_name=HOSTILE, tls_server_certificate=HOSTILE, tls_server_certificate_end=START + DAY)
    counts = section()
    counts.add_connections(rows)
    made = build_report(counted([exchange(1)]), whole(rows, 0), sections=("tls", "summary"), over_facts=counts)
    out = io.StringIO()
    write_text(made, out, width=160)
    assert "red" in out.getvalue()
    assert "\x1b" not in out.getvalue()


def test_a_certificate_that_expires_while_it_is_captured() -> None:
    day = 86_400 * units.SECOND
    end = 20_000 * day + 3 * 3600 * units.SECOND
    assert expiry_text(end, end + day, end - day) == "expired on 2024-10-04 at 03:00:00 UTC, while this was captured"
    assert expiry_text(end, end + day, end + 1) == "expired on 2024-10-04, 1 day before this capture ended"
