"""TLS: who speaks which version with which certificate, what failed, what was decrypted, and estimated response times.

All tables but those of estimates have every TLS connection of the run, whatever exchanges are selected.

Estimates: what sizes and times of TLS records show of connections that were not decrypted. A request is a run of
records of the client, and its response the records of the broker after it. While requests overlap there is no estimate.
So a client that pipelines has few, and a Fetch that waits for data counts like any other request.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any, NamedTuple

import numpy as np

from kafkatap.kernels.arrays import is_among

from ..connection_columns import decryptions, failed_handshakes
from ..connection_words import D_NOT_TLS, DECRYPTIONS, TLS_EARLY_DATA, TLS_FULL, TLS_RESUMED
from ..counting.count_forms import ADDRESS, NUMBER, TEXT
from ..counting.histogram import P50, P99, percentiles
from ..counting.rollup import maybe
from ..encryption import NAMED_SHARE, encryption_of
from ..model import Column, ReportTable, Row, in_columns, largest_first
from ..section_parts.counted import (
    BROKER,
    CONNECTION,
    CONNECTIONS,
    ESTIMATES,
    KEPT,
    Counted,
    Made,
    Rows,
    Value,
    counted,
    largest,
    least,
    total,
)
from ..section_parts.section import OTHERS, CountRow, Section, SectionInput
from ..tls_names import alert_name, suite_name, version_name
from ..tls_software import probable_software
from .tls_findings import EXPIRES_SOON_NS, expiry_text

_WHERE = (
    Column(
        "client_ip", "client IP", "text", "IP address of the client", end="client", of=lambda r: _where(r).client_ip
    ),
    Column("broker", "broker", "text", "address and port of the broker", end="broker", of=lambda r: r.end("broker")),
)
COLUMNS = (
    *_WHERE,
    Column("tls_version", "version", "text", "TLS version; empty: the handshake was not captured",
           of=lambda r: version_name(r["version"])),
    Column("tls_cipher_suite", "cipher suite", "text", "name of the cipher suite, as IANA has it; 0x...: no name",
           of=lambda r: suite_name(r["suite"])),
    Column("connections", "conns", "count", "TLS connections"),
    Column("full_handshakes", "full", "count", "connections that began with a full handshake", 1, of="full"),
    Column("resumed_handshakes", "resumed", "count",
           "connections that resumed a session, or used a PSK", 1, of="resumed"),
    Column("early_data", "early\ndata", "count", "of these, with early data (0-RTT)", 3),
    Column("handshake_p50_ns", "hand-\nshake p50", "ns", "time of the TLS handshake, median",
           of=lambda r: maybe(r["p50"])),
    Column("handshake_p99_ns", "hand-\nshake p99", "ns", "time of the TLS handshake, 99th percentile",
           of=lambda r: maybe(r["p99"])),
    Column("handshake_max_ns", "hand-\nshake max", "ns", "the longest TLS handshake", 2,
           of=lambda r: r["handshake_ns"] if r["p50"] >= 0 else None),
    Column("failed_handshakes", "failed", "count", "handshakes that failed", of="failed"),
    Column("client_certificates", "client\ncerts", "count", "connections whose broker requested a client certificate",
           3, of="asks_certificate"),
    Column("decryption", "decryption", "text",
           f"whether they were decrypted, and why not: {', '.join(DECRYPTIONS[1:])}",
           of=lambda r: DECRYPTIONS[r["decryption"]]),
    Column("payload_bytes", "payload", "bytes", "TCP payload of both ends", 1),
    Column("decrypted_bytes", "decrypted", "bytes", "part of it in records that were decrypted", 2),
    Column("records", "records", "count", "TLS records with application data", 3),
    Column("failed_records", "failed\nrecords", "count", "records that could not be decrypted though others could", 1),
    Column("lost_records", "lost\nrecords", "count", "records of which bytes are missing", 1),
    Column("server_names", "server name", "texts", "names of the extension server_name (SNI)", 2),
    Column("alpn", "ALPN", "texts", "protocols that were chosen with ALPN", 4),
)  # fmt: skip
CERTIFICATE_COLUMNS = (
    Column("name", "name", "text", "server: the first DNS name, or the common name; client: the subject"),
    Column("of", "of", "text", "server: the certificate of a broker; client: that of a client"),
    Column("address", "address", "texts", "brokers, or IP addresses of clients, that presented it", end="host"),
    Column("connections", "conns", "count", "connections that it was presented on"),
    Column("expires", "expires", "time", "when it expires"),
    Column("finding", "finding", "text", "what stands out: expired, or expires within 30 days of the capture"),
)
FAILURE_COLUMNS = (
    *_WHERE,
    Column("client_id", "client", "text", "client_id, if the connection was decrypted", 1,
           of=lambda r: r.text("client_id")),
    Column("alert", "alert", "text", "description of the fatal alert (RFC 8446, 6); probably rejected: an encrypted "
           "one, by its length; empty: none", of=lambda r: alert_name(r["alert"]) if r["alert"] > 0 else None),
    Column("sent_by", "sent by", "text", "the end that sent the alert: client or broker",
           of=lambda r: ("client", "broker")[r["by"]] if r["alert"] > 0 and r["by"] >= 0 else None),
    Column("when", "when", "text", "in the handshake; or later, when the connection was in use",
           of=lambda r: "later" if r["is_late"] else "handshake"),
    Column("connections", "conns", "count", "connections that failed"),
    Column("first", "first", "time", "start of the first one", 1),
    Column("last", "last", "time", "start of the last one"),
)  # fmt: skip
SOFTWARE_COLUMNS = (
    Column("software", "probable software", "text",
           "software that probably sent these ClientHellos, by their JA4; empty: no recording has such ones"),
    Column("sure", "sure", "text",
           "likely: extensions and signature algorithms fit, too; perhaps: the cipher suites alone do"),
    Column("ja4", "JA4", "text", "fingerprint of the ClientHello: equal for equal software and settings"),
    Column("address", "address", "texts", "IP addresses of these clients", end="client"),
    Column("connections", "conns", "count", "their connections"),
)  # fmt: skip
_ESTIMATED = (
    Column("estimated_count", "estimated\nresponses", "count", "estimated response times", 1, of="count"),
    Column("coverage", "coverage", "share", "part of the requests, as records show them, whose response time was "
           "estimated; below three quarters the times are left out, as they favour idle moments"),
    Column("estimated_p50_ns", "estimated\np50", "ns", "response time, estimated from TLS records: median", of="p50"),
    Column("estimated_p99_ns", "estimated\np99", "ns",
           "response time, estimated from TLS records: 99th percentile", of="p99"),
    Column("estimated_max_ns", "estimated\nmax", "ns",
           "response time, estimated from TLS records: the longest", of="ns"),
)  # fmt: skip
ESTIMATE_COLUMNS = (*_WHERE, *_ESTIMATED)
CONNECTION_COLUMNS = (
    Column(
        "client", "client's end", "text", "address and port of the client", end="client", of=lambda r: r.end("client")
    ),
    _WHERE[1],
    *_ESTIMATED,
)
_WHO = {"client_ip": ADDRESS, **BROKER}
#: `what` of _NAMES.
_SERVER_NAME, _ALPN, _SERVER_CERTIFICATE, _CLIENT_CERTIFICATE, _JA4 = range(5)
_NAMED_BY = {
    _SERVER_NAME: "tls_server_name", _ALPN: "tls_alpn", _SERVER_CERTIFICATE: "tls_server_certificate",
    _CLIENT_CERTIFICATE: "tls_client_certificate", _JA4: "tls_ja4",
}  # fmt: skip
#: If this part of the requests has an estimate, or more, the times of estimates are shown.
COVERS = 0.75


def _is_tls(x: Rows) -> Any:
    return decryptions(x) != D_NOT_TLS


def _began(x: Rows) -> Any:
    return (x.tls_handshake_ns >= 0) & ~failed_handshakes(x)


def _sessions(*kinds: int) -> Value:
    return total(lambda x: _began(x) & is_among(x.tls_session, kinds))


_CONNECTIONS = counted(
    "tls.connections", _WHO, _is_tls, of=CONNECTIONS,
    more={"version": "tls_version", "suite": "tls_suite", "decryption": decryptions},
    other={"version": 0, "suite": 0, "decryption": KEPT},
    metrics={"handshake": lambda x: np.where(_began(x), x.tls_handshake_ns, -1)},
    connections=total(1), full=_sessions(TLS_FULL), resumed=_sessions(TLS_RESUMED, TLS_EARLY_DATA),
    early_data=_sessions(TLS_EARLY_DATA), failed=total(failed_handshakes),
    asks_certificate=total(lambda x: x.tls_asks_certificate != 0),
    payload_bytes=total(lambda x: x.client_bytes + x.broker_bytes), decrypted_bytes=total("tls_decrypted_bytes"),
    records=total("tls_records"), failed_records=total("tls_failed_records"), lost_records=total("tls_lost_records"),
    handshake_ns=largest("tls_handshake_ns"),
)  # fmt: skip
_NAMES = counted("tls.names", _WHO | {"what": NUMBER, "name": TEXT, "end": NUMBER}, other={"what": KEPT, "end": 0},
                 of=CONNECTIONS, connections=total(1))  # fmt: skip


def _names(what: int, column: str) -> Counted:
    """The names of a kind. `end`: when certificates expire; 0: never, or no certificate."""
    end: Made = f"{column}_end" if what in (_SERVER_CERTIFICATE, _CLIENT_CERTIFICATE) else 0
    return _NAMES.also(
        CONNECTIONS, lambda x: _is_tls(x) & ((x[column] >= 0) | (x.made(end) != 0)),
        {"what": what, "name": column, "end": end}, connections=1,
    )  # fmt: skip


_FAILURES = counted(
    "tls.failures", _WHO | {"client_id": TEXT}, (_is_tls, lambda x: failed_handshakes(x) | (x.tls_alert > 0)),
    of=CONNECTIONS,
    more={"alert": "tls_alert", "by": "tls_alert_by", "is_late": lambda x: ~failed_handshakes(x)},
    other={"alert": KEPT, "by": KEPT, "is_late": KEPT},
    connections=total(1), first=least("first"), last=largest("first"),
)  # fmt: skip
_BY_CLIENT, _BY_CONNECTION = (
    counted(
        name, by, of=ESTIMATES, metrics={"ns": lambda x: np.maximum(x.ns, 0)},
        count=total(1), ns=largest("ns"), requests=total(),
    )
    for name, by in (
        ("tls.estimates", _WHO),
        ("tls.estimated_connections", {**CONNECTION, "client_ip": ADDRESS, "client_port": NUMBER, **BROKER}),
    )
)  # fmt: skip
#: The requests beside which estimates stand.
_REQUESTS = tuple(
    form.also(CONNECTIONS, (_is_tls, lambda x: x.tls_requests > 0), requests="tls_requests")
    for form in (_BY_CLIENT, _BY_CONNECTION)
)


class Place(NamedTuple):
    """The columns of _WHERE."""

    client_ip: str
    broker: str


def _where(row: CountRow) -> Place:
    """The client's address, and the broker."""
    broker = row.end("broker")
    return Place(broker if broker == OTHERS else row.context.address(row["client_ip"]) or "?", broker)


def _with_times(given: SectionInput, counts: Counted, metric: str = "ns", largest: str = "ns") -> list[CountRow]:
    """The rows of a form, with the median (p50) and the 99th percentile of each; -1 for a row without values."""
    top = given.values(counts.name)[largest]
    owner, bucket, times = given.sections.forms[counts.name].buckets(metric)
    found = percentiles(owner, bucket, times, len(top), (P50, P99), top).tolist() if len(top) else []
    rows = given.count_rows(counts.name)
    for row, (p50, p99) in zip(rows, found, strict=True):
        row |= {"p50": p50, "p99": p99}
    return rows


def connections(given: SectionInput) -> ReportTable:
    """TLS connections by address, broker, version, suite and decryption, the most first."""
    names: dict[tuple[int, str, str], set[str]] = defaultdict(set)
    for row in given.count_rows(_NAMES.name):
        names[(row["what"], *_where(row))].add(row.text("name") or "")
    found = _with_times(given, _CONNECTIONS, "handshake", "handshake_ns")
    for row in found:
        for column, what in (("server_names", _SERVER_NAME), ("alpn", _ALPN)):
            row[column] = tuple(sorted(filter(None, names.get((what, *_where(row)), ()))))
    rows = in_columns(COLUMNS, found, lambda r: (-r["connections"], _where(r), r["version"], r["suite"]))
    encryption = encryption_of(given.context)
    notes = (encryption.sentences(),) if encryption.tls > 0 and encryption.encrypted < NAMED_SHARE else ()
    return ReportTable("tls", "TLS connections", COLUMNS, rows, notes, empty="no TLS connections")


def certificates(given: SectionInput) -> ReportTable:
    """Certificates, those first that expire first."""
    found: dict[tuple[int, str, str], tuple[set[str], list[int]]] = {}
    for row in given.count_rows(_NAMES.name):
        if row["what"] not in (_SERVER_CERTIFICATE, _CLIENT_CERTIFICATE):
            continue
        is_server = row["what"] == _SERVER_CERTIFICATE
        name = row.text("name") or "(no name)"
        who, counts = found.setdefault((row["end"], name, "server" if is_server else "client"), (set(), []))
        who.add(_where(row)[1 if is_server else 0])
        counts.append(row["connections"])
    at = given.context.last
    rows: list[Row] = []
    for (end, name, kind), (who, counts) in sorted(found.items(), key=lambda item: (item[0][0] or 2**63, item[0][1:])):
        is_due = at is not None and end and end < at + EXPIRES_SOON_NS
        rows.append({
            "name": name, "of": kind, "address": tuple(sorted(who)), "connections": sum(counts),
            "expires": end or None, "finding": expiry_text(end, at or 0) if is_due else "",
        })  # fmt: skip
    notes = ("TLS 1.3 encrypts certificates: these are known of connections that were decrypted.",)
    return ReportTable(
        "tls_certificates", "Certificates", CERTIFICATE_COLUMNS, in_columns(CERTIFICATE_COLUMNS, rows), notes,
        empty="no certificate was seen",
    )  # fmt: skip


def software(given: SectionInput) -> ReportTable:
    """Clients by what they offer, the most connections first."""
    found: dict[str, tuple[set[str], list[int]]] = {}
    for row in given.count_rows(_NAMES.name):
        if row["what"] == _JA4:
            who, counts = found.setdefault(row.text("name") or OTHERS, (set(), []))
            who.add(_where(row).client_ip)
            counts.append(row["connections"])
    rows: list[Row] = []
    for ja4, (who, counts) in found.items():
        probable = probable_software(ja4)
        name, sure = (None, None) if probable is None else probable
        rows.append({
            "software": name, "sure": sure, "ja4": ja4, "address": tuple(sorted(who)), "connections": sum(counts),
        })  # fmt: skip
    return ReportTable(
        "tls_software", "Software of TLS clients", SOFTWARE_COLUMNS,
        largest_first(SOFTWARE_COLUMNS, in_columns(SOFTWARE_COLUMNS, rows), "connections", then=("ja4",)),
        empty="no ClientHello was seen",
    )  # fmt: skip


def failures(given: SectionInput) -> ReportTable:
    """Failed handshakes and alerts by client, the most first."""
    rows = in_columns(FAILURE_COLUMNS, given.count_rows(_FAILURES.name))
    rows = largest_first(FAILURE_COLUMNS, rows, "connections")
    return ReportTable("tls_failures", "Failed TLS handshakes, and alerts", FAILURE_COLUMNS, rows, empty="none failed")


def _estimated(given: SectionInput, counts: Counted) -> list[CountRow]:
    """The rows of estimates. Connections count their requests when they are over."""
    rows = _with_times(given, counts)
    for row in rows:
        coverage = row["coverage"] = min(row["count"] / row["requests"], 1.0) if row["requests"] else None
        if not row["count"] or (coverage is not None and coverage < COVERS):
            row |= dict.fromkeys(("p50", "p99", "ns"))
    return rows


_ESTIMATE_NOTES = (
    "Estimated from the sizes and times of TLS records, from a request's last byte to its response's first.",
    f"There is no estimate while requests overlap, and no percentile where less than {COVERS:.0%} is covered.",
)


def estimates(given: SectionInput) -> tuple[ReportTable, ReportTable]:
    """Estimated response times by client and broker, and by connection, the longest first."""
    by = ("estimated_p99_ns", "estimated_count")
    clients = in_columns(ESTIMATE_COLUMNS, _estimated(given, _BY_CLIENT))
    connections = in_columns(CONNECTION_COLUMNS, (r for r in _estimated(given, _BY_CONNECTION) if r["count"]))
    empty = "no estimates: no connection that was not decrypted has a response time that can be estimated"
    return (
        ReportTable("tls_estimates", "Estimated response times", ESTIMATE_COLUMNS,
                    largest_first(ESTIMATE_COLUMNS, clients, *by, then=Place._fields), _ESTIMATE_NOTES, empty=empty),
        ReportTable("tls_estimated_connections", "Estimated response times by connection", CONNECTION_COLUMNS,
                    largest_first(CONNECTION_COLUMNS, connections, *by, then=("client", "broker")),
                    _ESTIMATE_NOTES, shown_from=2, empty=empty),
    )  # fmt: skip


def tables(given: SectionInput) -> tuple[ReportTable, ...]:
    """Who uses which TLS, what failed, and what can be estimated."""
    return connections(given), software(given), certificates(given), failures(given), *estimates(given)


SECTION = Section(
    "tls", "Who uses TLS, with which versions and certificates, what fails, and what was decrypted?",
    columns={
        "tls": COLUMNS, "tls_software": SOFTWARE_COLUMNS, "tls_certificates": CERTIFICATE_COLUMNS,
        "tls_failures": FAILURE_COLUMNS,
        "tls_estimates": ESTIMATE_COLUMNS, "tls_estimated_connections": CONNECTION_COLUMNS,
    },
    tables=tables,
    reads_notable=True,
    counts=(
        _CONNECTIONS, *(_names(*each) for each in _NAMED_BY.items()), _FAILURES, _BY_CLIENT, _BY_CONNECTION, *_REQUESTS,
    ),
    under_selection="These tables have all TLS connections: filters select exchanges. Estimates are those of the time "
    "window.",
)  # fmt: skip
