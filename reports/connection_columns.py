"""The columns of connections, each declared once, with the rule by which the rows of splits become one.

`COLUMNS` are those of CONNECTION_ROW, in the order of the table `connections`. Splits that share a connection have a
row each: what the split counted itself is added up. What it knows of the whole connection so far is that of the latest
row, as a later split has it from the one before.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from kafkatap.kernels.arrays import is_among
from kafkatap.kernels.column_spec import (
    ADDRESS,
    BYTES,
    FIRST,
    FLAG,
    GREATEST,
    LATEST,
    LEAST,
    NAMED,
    NS,
    NUMBER,
    OF_LATEST,
    STRING,
    SUM,
    TIME,
    WORD,
    ColumnSpec,
    Merge,
    dtype_of,
)

from .connection_words import (
    CLOSERS,
    D_CUT,
    D_DECRYPTED,
    D_FAILED_HANDSHAKE,
    D_LATE_KEY,
    D_NO_HANDSHAKE,
    D_NO_KEY,
    D_NO_KEY_LOG,
    D_NOT_TLS,
    D_UNSUPPORTED,
    D_WRONG_KEY,
    DECRYPTIONS,
    ENDS,
    HANDSHAKES,
    NOT_CLOSED,
    P_TLS,
    P_UNKNOWN,
    PROTOCOLS,
    SCALE_UNKNOWN,
    TLS_SESSIONS,
)

Array = np.ndarray[Any, np.dtype[Any]]

#: Alerts that may come at any time (RFC 8446, 6): unexpected_message, bad_record_mac, decryption_failed,
#: record_overflow, decompression_failure, decode_error, internal_error, user_canceled, no_renegotiation.
_ALERTS_OF_RECORDS = (10, 20, 21, 22, 30, 50, 80, 90, 100)


def decryptions(rows: Array) -> Array:
    """Why TLS connections (CONNECTION_ROW) were decrypted or not: D_..., uint8 (n,); D_NOT_TLS for others.

    Connections of the protocol TLS of which nothing else is known count as D_NO_KEY_LOG.
    """
    is_unknown = (rows["tls_decryption"] == D_NOT_TLS) & (rows["protocol"] == P_TLS)
    return np.where(is_unknown, D_NO_KEY_LOG, rows["tls_decryption"])


def failed_handshakes(rows: Array) -> Array:
    """The TLS connections (CONNECTION_ROW) whose handshake failed: bool (n,).

    A broker may refuse the certificate of a client after the client's handshake is complete. So alerts that belong to
    handshakes count then, too.
    """
    alert = rows["tls_alert"]
    refused = (alert > 0) & ((rows["tls_handshake_ns"] < 0) | ~is_among(alert, _ALERTS_OF_RECORDS))
    failed: Array = (rows["tls_decryption"] == D_FAILED_HANDSHAKE) | ((decryptions(rows) != D_NOT_TLS) & refused)
    return failed


def _is_oriented(rows: Array) -> Array:
    known: Array = rows["orientation_known"] != 0
    return known


def _has_protocol(rows: Array) -> Array:
    known: Array = rows["protocol"] != P_UNKNOWN
    return known


def _is_tls(rows: Array) -> Array:
    known: Array = decryptions(rows) != D_NOT_TLS
    return known


def _has_session(rows: Array) -> Array:
    return _is_tls(rows) & (rows["tls_handshake_ns"] >= 0)


def _is_measured(rows: Array) -> Array:
    measured: Array = rows["is_measured"] != 0
    return measured


def _has_syn(end: str, rows: Array) -> Array:
    known: Array = rows[f"{end}_window_scale"] != SCALE_UNKNOWN
    return known


def _has_rtt(end: str, rows: Array) -> Array:
    return _is_measured(rows) & (rows[f"{end}_rtt_count"] > 0)


#: Of the latest row in which the broker's end is known.
_ORIENTED = Merge("latest", _is_oriented)
#: The most telling decryption.
_MOST_TELLING = Merge("greatest", order=(
    D_NOT_TLS, D_NO_HANDSHAKE, D_CUT, D_NO_KEY_LOG, D_NO_KEY, D_UNSUPPORTED, D_FAILED_HANDSHAKE, D_WRONG_KEY,
    D_LATE_KEY, D_DECRYPTED,
))  # fmt: skip


def _of_row(name: str, kind: str, dtype: str, merge: Merge, doc: str) -> ColumnSpec:
    """A column that the table does not have."""
    return ColumnSpec(name, kind, dtype, merge, doc, in_table=False)


def _of_ends(name: str, kind: str, merge: Merge, client: str, broker: str, dtype: str = "i8") -> tuple[ColumnSpec, ...]:
    """A column of each end."""
    return tuple(
        ColumnSpec(f"{end}_{name}", kind, dtype, merge, doc) for end, doc in zip(ENDS, (client, broker), strict=True)
    )


def _options(end: str) -> tuple[ColumnSpec, ...]:
    """The options of an end's SYN."""
    known, of_end = partial(_has_syn, end), f"in the SYN of the {end}"
    mss, scale = "maximum segment size", "no such option, as in Wireshark; null: not captured"
    return (
        ColumnSpec(f"{end}_mss", NUMBER, "i4", LATEST, f"{mss} {of_end}; null: none, or not captured", 0, known),
        ColumnSpec(
            f"{end}_window_scale", NUMBER, "i1", LATEST, f"window scale {of_end}; -2: {scale}", None, known,
            SCALE_UNKNOWN,
        ),
        ColumnSpec(
            f"{end}_sack_permitted", FLAG, "u1", LATEST,
            f"whether the SYN of the {end} permits SACK; null: not captured", None, known,
        ),
        ColumnSpec(
            f"{end}_timestamps", FLAG, "u1", LATEST,
            f"whether the SYN of the {end} has TCP timestamps; null: not captured", None, known,
        ),
    )  # fmt: skip


def _tls(
    name: str, kind: str, dtype: str, merge: Merge, doc: str, null: int | None = None, words: tuple[str, ...] = (),
    row: str = "",
) -> ColumnSpec:  # fmt: skip
    """A column on TLS: null for other connections."""
    return ColumnSpec(name, kind, dtype, merge, doc, null, _is_tls, words=words, row=row)


def _transfers(message: str, receiver: str) -> tuple[ColumnSpec, ...]:
    """Sums over the requests or the responses of a connection, ns: from first to last byte, and parts of that."""
    return tuple(
        ColumnSpec(f"{message}_{name}_ns", NS, "i8", SUM, doc)
        for name, doc in (
            ("transfer", f"time from the first to the last byte of {message}s, summed"),
            ("loss", "of it, while lost data was missing"),
            ("receiver", f"of it, while the receive window of the {receiver} was full or closed"),
            ("sender", "of it, while the sender had room in the window, and did not send"),
            ("unexplained", "of it, while the windows were not known; the rest is the path's"),
        )
    )


def _measured(end: str) -> tuple[ColumnSpec, ...]:
    """What a run that measures TCP has of an end. Round trips to it are those of the data of the other one."""
    own = f"{end}_rtt"
    trips = f"round trips that were measured from the capture point to the {end}: data to its acknowledgement"
    of_timer = "those that came 190 ms or more after the data before them: a timer sent them"
    sent = f"packets of the {end} with payload that it had sent before, whether the first copy was captured or not"
    in_flight = f"most bytes that the {end} had sent and that were not acknowledged, as captured"
    wait, has_rtt = f"{end}_retransmission_wait", partial(_has_rtt, end)

    def column(name: str, kind: str, merge: Merge, doc: str, known: Any = _is_measured) -> ColumnSpec:
        return ColumnSpec(name, kind, "i8", merge, doc, None, known)

    return (
        column(f"{end}_window_max", BYTES, GREATEST, f"largest receive window that the {end} advertised, bytes"),
        column(f"{end}_in_flight_max", BYTES, GREATEST, in_flight),
        column(f"{end}_zero_window_ns", NS, SUM, f"time in which the receive window of the {end} was closed"),
        column(f"{own}_count", NUMBER, SUM, f"{trips}, without retransmissions"),
        column(f"{own}_sum_ns", NS, SUM, "these round trips, summed; delayed acknowledgements count in them"),
        column(f"{own}_min_ns", NS, LEAST, "the shortest", has_rtt),
        column(f"{own}_max_ns", NS, GREATEST, "the longest", has_rtt),
        column(f"{wait}_sum_ns", NS, SUM, f"time from the last data of the {end} to a retransmission, summed"),
        column(f"{wait}_max_ns", NS, GREATEST, "the longest of these times"),
        column(f"{end}_retransmissions", NUMBER, SUM, sent),
        column(f"{end}_retransmission_timeouts", NUMBER, SUM, of_timer),
    )


_TRANSFERS = (
    *_transfers("request", "broker"),
    *_transfers("response", "client"),
    ColumnSpec("wait_loss_ns", NS, "i8", SUM, "time between request and response, while one of them was lost, summed"),
)
#: Other sums over the exchanges of a connection. `broker_ns`: without APIs that wait (`dissector.dtypes.WAITS`).
_EXCHANGES = (
    ColumnSpec("exchanges", NUMBER, "i8", SUM, "its exchanges in the columns around this one"),
    ColumnSpec(
        "unanswered", NUMBER, "i8", SUM,
        "its requests that expected a response, and have none: in_flight, unanswered, response_lost",
    ),
    ColumnSpec("total_ns", NS, "i8", SUM, "total time of its answered exchanges, summed"),
    ColumnSpec("hol_wait_ns", NS, "i8", SUM, "their head-of-line wait, summed"),
    ColumnSpec("throttle_wait_ns", NS, "i8", SUM, "their throttle wait, summed"),
    ColumnSpec("broker_ns", NS, "i8", SUM, "their broker time, summed, without APIs that wait at the broker"),
)  # fmt: skip
_TLS = (
    _tls(
        "tls_version", NAMED, "u2", FIRST,
        "TLS 1.2, TLS 1.3, or an older one; null: no TLS, or its handshake was not captured", 0,
    ),
    _tls(
        "tls_cipher_suite", NAMED, "u2", FIRST,
        "name of the cipher suite, as IANA has it, such as TLS_AES_128_GCM_SHA256; 0x00ff for one without a name here",
        0, row="tls_suite",
    ),
    _tls("tls_server_name", STRING, "i4", FIRST, "name of the server in the ClientHello (SNI)", -1),
    _tls("tls_alpn", STRING, "i4", FIRST, "protocol that was chosen with ALPN", -1),
    _tls(
        "tls_ja4", STRING, "i4", FIRST,
        "JA4 of the ClientHello: a fingerprint of what the client offers, equal for equal software and settings", -1,
    ),
    ColumnSpec(
        "tls_session", WORD, "u1", FIRST,
        "full handshake, resumed (by session id, ticket or PSK), or early data (resumed, with 0-RTT data)",
        None, _has_session, words=TLS_SESSIONS,
    ),
    _tls(
        "tls_handshake_ns", NS, "i8", FIRST, "time from the ClientHello to the client's last handshake record, ns", -1,
    ),
    _tls(
        "tls_server_certificate", STRING, "i4", FIRST,
        "first DNS name of the broker's certificate, or its common name. TLS 1.3 encrypts certificates: then it is "
        "known if the connection was decrypted", -1,
    ),
    _tls("tls_server_certificate_end", TIME, "i8", FIRST, "when that certificate expires", 0),
    _tls("tls_client_certificate", STRING, "i4", FIRST, "subject of the client's certificate (RFC 4514)", -1),
    _tls("tls_client_certificate_end", TIME, "i8", FIRST, "when that certificate expires", 0),
    _tls(
        "tls_asks_certificate", FLAG, "u1", GREATEST, "whether the broker requested a certificate of the client",
    ),
    _tls(
        "tls_alert", NAMED, "i2", FIRST,
        "description of the first fatal alert that can be read, such as unknown_ca (RFC 8446, 6). Without keys, "
        "alerts of TLS 1.3 are encrypted: then `probably rejected`, by the lengths of the last records", -1,
    ),
    _tls("tls_alert_by", WORD, "i1", FIRST, "end that sent it: client or broker", -1, ENDS),
    _tls(
        "tls_decryption", WORD, "u1", _MOST_TELLING,
        "decrypted, or why not: no key log, no key (the key log has no secret of this connection), no handshake (it "
        "was not captured), cut (bytes of its hellos were not captured), unsupported suite, wrong key, failed "
        "handshake, late key (decrypted from when it came); "
        "null: no TLS", None, DECRYPTIONS,
    ),
    _tls(
        "tls_decrypted_bytes", BYTES, "i8", SUM,
        "TCP payload of records that were decrypted, with their headers and tags",
    ),
    _tls("tls_records", NUMBER, "i8", SUM, "records with application data, of both ends"),
    _tls(
        "tls_failed_records", NUMBER, "i8", SUM,
        "of these, those that could not be decrypted though others could",
    ),
    _tls("tls_lost_records", NUMBER, "i8", SUM, "records of which bytes are missing"),
    _tls(
        "tls_requests", NUMBER, "i8", SUM,
        "requests that its records show, about, without those of the first turns; 0 for decrypted connections",
    ),
    _tls(
        "tls_estimated", NUMBER, "i8", SUM,
        "response times that were estimated from its records; 0 for decrypted connections",
    ),
)  # fmt: skip
_MEASURED = tuple(column for end in ENDS for column in _measured(end))

COLUMNS = (
    ColumnSpec("connection", NUMBER, "i8", OF_LATEST, "key of this connection"),
    ColumnSpec(
        "client_ip", ADDRESS, "i4", _ORIENTED,
        "the client's address (behind a proxy, that in its PROXY header), or the address of either end if "
        "`orientation_known` is false",
    ),
    ColumnSpec("client_port", NUMBER, "i4", _ORIENTED, "the client's port"),
    ColumnSpec("broker_ip", ADDRESS, "i4", _ORIENTED, "the broker's address"),
    ColumnSpec("broker_port", NUMBER, "i4", _ORIENTED, "the broker's port"),
    ColumnSpec("connection_first", TIME, "i8", LEAST, "time of its first packet", row="first"),
    ColumnSpec("connection_last", TIME, "i8", GREATEST, "time of its last packet", row="last"),
    ColumnSpec(
        "handshake_rtt_ns", NS, "i8", LATEST,
        "round trip time of the handshake (from the SYN to the ACK of the SYN-ACK), ns; null if the handshake is not "
        "in the capture", -1,
    ),
    ColumnSpec("packets", NUMBER, "i8", SUM, "packets of both directions"),
    _of_row("first_packet", NUMBER, "i8", LEAST, "its number"),
    _of_row("client_packets", NUMBER, "i8", SUM, "packets of the client"),
    _of_row("broker_packets", NUMBER, "i8", SUM, "packets of the broker"),
    *_of_ends("bytes", BYTES, SUM, "payload of the client, bytes", "payload of the broker, bytes"),
    *_of_ends(
        "retransmitted_bytes", BYTES, SUM,
        "retransmitted payload of the client, bytes", "retransmitted payload of the broker, bytes",
    ),
    *_of_ends(
        "retransmitted_packets", NUMBER, SUM,
        "retransmitted packets of the client", "retransmitted packets of the broker",
    ),
    *_of_ends(
        "spurious_retransmissions", NUMBER, SUM,
        "retransmissions of the client that the broker did not need, as D-SACK, TCP time stamps or an earlier "
        "acknowledgement show", "the same of the broker",
    ),
    *_of_ends(
        "out_of_order", NUMBER, SUM, "out-of-order packets of the client", "out-of-order packets of the broker"
    ),
    *_of_ends(
        "gaps", NUMBER, SUM, "gaps in the client's stream: ranges of bytes that are in no packet of the capture",
        "gaps in the broker's stream", "i4",
    ),
    *_of_ends("gap_bytes", BYTES, SUM, "bytes in the client's gaps", "bytes in the broker's gaps"),
    *_of_ends(
        "zero_windows", NUMBER, SUM,
        "number of times that the client closed its receive window, because it did not keep up",
        "number of times that the broker closed its receive window", "i4",
    ),
    *_of_ends(
        "duplicates", NUMBER, SUM,
        "packets of the client that were captured twice; no other column counts them",
        "packets of the broker that were captured twice",
    ),
    _of_row(
        "client_lost_bytes", BYTES, "i8", OF_LATEST,
        "its last bytes, if it sent the first of them again and nothing acknowledged it",
    ),
    _of_row("client_lost_at", TIME, "i8", OF_LATEST, "when it sent them last"),
    _of_row(
        "client_unacknowledged_bytes", BYTES, "i8", OF_LATEST,
        "bytes of the client that were not acknowledged when the connection ended",
    ),
    _of_row("broker_unacknowledged_bytes", BYTES, "i8", OF_LATEST, "the same of the broker"),
    ColumnSpec("client_id", STRING, "i4", OF_LATEST, "the last client_id of the connection", -1),
    ColumnSpec(
        "client_software", STRING, "i4", OF_LATEST, "name of the client software (KIP-511)", -1, row="software"
    ),
    ColumnSpec(
        "client_software_version", STRING, "i4", OF_LATEST, "version of the client software", -1,
        row="software_version",
    ),
    ColumnSpec("sasl_mechanism", STRING, "i4", OF_LATEST, "mechanism in its SaslHandshake request", -1),
    ColumnSpec(
        "protocol", WORD, "u1", Merge("latest", _has_protocol),
        "kafka (confirmed by a request body, a response or a second request; also in decrypted TLS), tls (not "
        "decrypted), foreign (neither), or unknown (too little data)", words=PROTOCOLS,
    ),
    ColumnSpec("orientation_known", FLAG, "u1", _ORIENTED, "true if kafkatap knows which end is the broker"),
    ColumnSpec(
        "proxy_ip", ADDRESS, "i4", _ORIENTED,
        "address of the proxy that opened the TCP connection; null if no PROXY header names another client", -1,
    ),
    ColumnSpec("proxy_port", NUMBER, "i4", _ORIENTED, "the proxy's port on this connection", -1),
    ColumnSpec(
        "handshake", WORD, "u1", GREATEST,
        "complete; unanswered (only the SYN came); unfinished (a SYN-ACK that was not acknowledged); refused (answered "
        "by a RST or by ICMP); or not captured", words=HANDSHAKES,
    ),
    ColumnSpec(
        "closed_by", WORD, "i1", FIRST, "end that sent the first FIN or RST: client or broker; null if none came", -1,
        words=ENDS,
    ),
    ColumnSpec("closed_with", WORD, "u1", FIRST, "what it sent: FIN or RST", NOT_CLOSED, words=CLOSERS),
    ColumnSpec("closed_at", TIME, "i8", FIRST, "when that FIN or RST came; null if none came", -1),
    ColumnSpec(
        "reset_by", WORD, "i1", LATEST, "end whose RST closed the connection; null if none did", -1, words=ENDS
    ),
    *(column for end in ENDS for column in _options(end)),
    *_TLS,
    *_TRANSFERS,
    *_EXCHANGES,
    _of_row("is_measured", FLAG, "u1", GREATEST, "1: the columns after this one are known"),
    *_MEASURED,
)  # fmt: skip

#: One TCP connection. Strings and addresses are numbers in the tables of a Context (-1: null).
CONNECTION_ROW = dtype_of(COLUMNS)
#: The columns of the table `connections`.
CONNECTIONS = tuple(column for column in COLUMNS if column.in_table)

#: What a run that measures has of each end, without the end's name.
MEASURED_COLUMNS = tuple(column.field.removeprefix("client_") for column in _measured("client"))
#: Of TLS. Those that are -1 if unknown: the others are 0 then.
TLS_COLUMNS = tuple(column.field for column in _TLS)
TLS_UNKNOWN = tuple(column.field for column in _TLS if column.missing == -1)
