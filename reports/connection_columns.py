"""The columns of connections, each declared once, with the rule by which the rows of splits become one.

`COLUMNS` are those of CONNECTION_ROW, in the order of the table `connections`. Splits that share a connection have a
row each: what the split counted itself is added up. What it knows of the whole connection so far is that of the latest
row, as a later split has it from the one before.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from kafkatap.dissector.dtypes import HOST_DOC, in_no_row
from kafkatap.dissector.framing.samples import SAMPLES
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
    O_TLS_ALERT,
    OPENINGS,
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


def decryptions(rows: Any) -> Array:
    """Why TLS connections (CONNECTION_ROW, or `Rows` of counts) were decrypted or not: D_..., uint8 (n,); D_NOT_TLS for
    others.

    Connections of the protocol TLS of which nothing else is known count as D_NO_KEY_LOG.
    """
    is_unknown = (rows["tls_decryption"] == D_NOT_TLS) & (rows["protocol"] == P_TLS)
    return np.where(is_unknown, D_NO_KEY_LOG, rows["tls_decryption"])


def failed_handshakes(rows: Any) -> Array:
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


def _was_stuck(rows: Array) -> Array:
    stuck: Array = rows["broker_stuck_ns"] > 0
    return stuck


#: Of the latest row in which the broker's end is known.
_ORIENTED = Merge("latest", _is_oriented)
#: Of the latest row in which nothing acknowledged the broker's packets.
_STUCK = Merge("latest", _was_stuck)
#: The most telling decryption.
_MOST_TELLING = Merge("greatest", order=(
    D_NOT_TLS, D_NO_HANDSHAKE, D_CUT, D_NO_KEY_LOG, D_NO_KEY, D_UNSUPPORTED, D_FAILED_HANDSHAKE, D_WRONG_KEY,
    D_LATE_KEY, D_DECRYPTED,
))  # fmt: skip


def _has_opening(end: str, rows: Array) -> Array:
    found: Array = rows[f"{end}_opening"] >= O_TLS_ALERT
    return found


def _of_row(name: str, kind: str, dtype: str, merge: Merge, doc: str) -> ColumnSpec:
    """A column that the table does not have."""
    return ColumnSpec(name, kind, dtype, merge, doc, in_table=False)


def _of_ends(name: str, kind: str, merge: Merge, doc: str, dtype: str = "i8") -> tuple[ColumnSpec, ...]:
    """A column of each end."""
    return tuple(ColumnSpec(f"{end}_{name}", kind, dtype, merge, doc) for end in ENDS)


def _has_sequence(end: str, rows: Array) -> Array:
    known: Array = rows[f"{end}_sequence"] != 0
    return known


def _of_samples() -> tuple[ColumnSpec, ...]:
    """By what a connection is recognised under other addresses (`twins`)."""
    sampled = tuple(
        _of_row(f"{message}_sample_{n}", NUMBER, "i8", GREATEST, "a sample (`dissector.framing.samples`); 0: none")
        for message in ("request", "response") for n in range(SAMPLES)
    )  # fmt: skip
    return (
        *(
            _of_row(
                f"{end}_sequence", NUMBER, "i8", Merge("first", partial(_has_sequence, end)),
                "1 + the sequence number of its first byte; 0: not known",
            )
            for end in ENDS
        ),
        *sampled,
        _of_row(
            "sample_sequence", NUMBER, "i8", GREATEST,
            "the sample of the highest rank, with the sequence number behind its request as time",
        ),
    )  # fmt: skip


def _options(end: str) -> tuple[ColumnSpec, ...]:
    """The options of an end's SYN."""
    known = partial(_has_syn, end)
    return (
        ColumnSpec(f"{end}_mss", NUMBER, "i4", LATEST, "maximum segment size in its SYN", 0, known),
        ColumnSpec(
            f"{end}_window_scale", NUMBER, "i1", LATEST, "window scale in its SYN; -2: none, as in Wireshark",
            None, known, SCALE_UNKNOWN,
        ),
        ColumnSpec(
            f"{end}_sack_permitted", FLAG, "u1", LATEST,
            "its SYN permits SACK", None, known,
        ),
        ColumnSpec(
            f"{end}_timestamps", FLAG, "u1", LATEST,
            "its SYN has TCP timestamps", None, known,
        ),
    )  # fmt: skip


def _tls(
    name: str, kind: str, dtype: str, merge: Merge, doc: str, null: int | None = None, words: tuple[str, ...] = (),
    row: str = "",
) -> ColumnSpec:  # fmt: skip
    """A column on TLS: null for other connections."""
    return ColumnSpec(name, kind, dtype, merge, doc, null, _is_tls, words=words, row=row)


def _transfers(message: str) -> tuple[ColumnSpec, ...]:
    """Sums over the requests or the responses of a connection, ns: from first to last byte, and parts of that."""
    return tuple(
        ColumnSpec(f"{message}_{name}_ns", NS, "i8", SUM, doc)
        for name, doc in (
            ("transfer", "transfers, summed; what is in no part of it is the path's"),
            ("loss", "part of it: lost data was missing"),
            ("receiver", "part of it: the receive window was full or closed"),
            ("sender", "part of it: the sender had room in the window, and did not send"),
            ("unexplained", "part of it: the windows were not known"),
        )
    )


def _measured(end: str) -> tuple[ColumnSpec, ...]:
    """What a run that measures TCP has of an end. Round trips to it are those of the data of the other one."""
    own = f"{end}_rtt"
    trips = "round trips from the capture point to this end: data to its acknowledgement, without retransmissions"
    of_timer = "those 190 ms or more after the data before them: a timer sent them"
    sent = "packets with payload that it had sent before, even if the first copy was not captured"
    wait, has_rtt = f"{end}_retransmission_wait", partial(_has_rtt, end)

    def column(name: str, kind: str, merge: Merge, doc: str, known: Any = _is_measured) -> ColumnSpec:
        return ColumnSpec(name, kind, "i8", merge, doc, None, known)

    return (
        column(f"{end}_window_max", BYTES, GREATEST, "largest receive window that it advertised"),
        column(f"{end}_in_flight_max", BYTES, GREATEST, "most bytes that it had sent and that were not acknowledged"),
        column(f"{end}_zero_window_ns", NS, SUM, "its receive window was closed"),
        column(f"{own}_count", NUMBER, SUM, trips),
        column(f"{own}_sum_ns", NS, SUM, "their sum; delayed acknowledgements count in it"),
        column(f"{own}_min_ns", NS, LEAST, "the shortest", has_rtt),
        column(f"{own}_max_ns", NS, GREATEST, "the longest", has_rtt),
        column(f"{wait}_sum_ns", NS, SUM, "sum of the times from its last data to a retransmission"),
        column(f"{wait}_max_ns", NS, GREATEST, "the longest of these times"),
        column(f"{end}_retransmissions", NUMBER, SUM, sent),
        column(f"{end}_retransmission_timeouts", NUMBER, SUM, of_timer),
    )


_TRANSFERS = (
    *_transfers("request"),
    *_transfers("response"),
    ColumnSpec(
        "response_resent_ns",
        NS,
        "i8",
        SUM,
        "how much later responses arrived than they were captured, as their last bytes were lost behind the capture "
        "point and sent again; no column of exchanges has this time",
    ),
    ColumnSpec("wait_loss_ns", NS, "i8", SUM, "time between requests and responses, while one of them was lost"),
)
_SUMMED = "sum over its answered exchanges"
#: Other sums over the exchanges of a connection. `broker_ns`: without APIs that wait (`dissector.dtypes.WAITS`).
_EXCHANGES = (
    ColumnSpec("exchanges", NUMBER, "i8", SUM, "its exchanges in the columns beside this one"),
    ColumnSpec(
        "unanswered", NUMBER, "i8", SUM,
        "its requests with the outcomes in_flight, unanswered, response_lost",
    ),
    ColumnSpec("total_ns", NS, "i8", SUM, _SUMMED),
    ColumnSpec("hol_wait_ns", NS, "i8", SUM, _SUMMED),
    ColumnSpec("throttle_wait_ns", NS, "i8", SUM, _SUMMED),
    ColumnSpec("broker_ns", NS, "i8", SUM, "the same without Fetch, ShareFetch, JoinGroup, SyncGroup"),
)  # fmt: skip
_TLS = (
    _tls(
        "tls_version", NAMED, "u2", FIRST,
        "TLS 1.2, TLS 1.3, or an older one; null: no TLS, or no handshake was captured", 0,
    ),
    _tls(
        "tls_cipher_suite", NAMED, "u2", FIRST,
        "IANA's name of the cipher suite, or its number, such as 0x00ff",
        0, row="tls_suite",
    ),
    _tls("tls_server_name", STRING, "i4", FIRST, "server name in the ClientHello (SNI)", -1),
    _tls("tls_alpn", STRING, "i4", FIRST, "protocol chosen with ALPN", -1),
    _tls(
        "tls_ja4", STRING, "i4", FIRST,
        "JA4 of the ClientHello: a fingerprint of software and settings", -1,
    ),
    ColumnSpec(
        "tls_session", WORD, "u1", FIRST,
        "full handshake, resumed (by session id, ticket or PSK), or early data (resumed, with 0-RTT data)",
        None, _has_session, words=TLS_SESSIONS,
    ),
    _tls(
        "tls_handshake_ns", NS, "i8", FIRST, "from the ClientHello to the client's last handshake record", -1,
    ),
    _tls(
        "tls_server_certificate", STRING, "i4", FIRST,
        "first DNS name of the broker's certificate, or its common name; of TLS 1.3 only if decrypted", -1,
    ),
    _tls("tls_server_certificate_end", TIME, "i8", FIRST, "when this certificate expires", 0),
    _tls("tls_client_certificate", STRING, "i4", FIRST, "subject of the client's certificate (RFC 4514)", -1),
    _tls("tls_client_certificate_end", TIME, "i8", FIRST, "when this certificate expires", 0),
    _tls("tls_asks_certificate", FLAG, "u1", GREATEST, "the broker requested a certificate of the client"),
    _tls(
        "tls_alert", NAMED, "i2", FIRST,
        "the first fatal alert that can be read, such as unknown_ca (RFC 8446, 6). Of TLS 1.3 without keys "
        "`probably rejected`, by the lengths of the last records", -1,
    ),
    _tls("tls_alert_by", WORD, "i1", FIRST, "the end that sent it", -1, ENDS),
    _tls(
        "tls_decryption", WORD, "u1", _MOST_TELLING,
        "decrypted, or why not: no key log, no key (not in the key log), no handshake (not captured), cut (bytes of "
        "its hellos were not captured), unsupported suite, wrong key, failed handshake, late key (decrypted from when "
        "it came); null: no TLS", None, DECRYPTIONS,
    ),
    _tls(
        "tls_decrypted_bytes", BYTES, "i8", SUM,
        "TCP payload of decrypted records, with their headers and tags",
    ),
    _tls("tls_records", NUMBER, "i8", SUM, "records with application data"),
    _tls(
        "tls_failed_records", NUMBER, "i8", SUM,
        "those that could not be decrypted though others could",
    ),
    _tls("tls_lost_records", NUMBER, "i8", SUM, "records with missing bytes"),
    _tls(
        "tls_requests", NUMBER, "i8", SUM,
        "estimated requests, without those of the first turns; 0 if decrypted",
    ),
    _tls(
        "tls_estimated", NUMBER, "i8", SUM,
        "estimated response times; 0 if decrypted",
    ),
)  # fmt: skip
_MEASURED = tuple(column for end in ENDS for column in _measured(end))

_FIRST_LAST = "time of the first and of the last packet"

COLUMNS = (
    ColumnSpec("connection", NUMBER, "i8", OF_LATEST, "key of this connection"),
    ColumnSpec(
        "client_ip", ADDRESS, "i4", _ORIENTED,
        "the client's address (behind a proxy, that in its PROXY header), or either end's if not `orientation_known`",
    ),
    ColumnSpec("client_port", NUMBER, "i4", _ORIENTED, "its port"),
    ColumnSpec("broker_ip", ADDRESS, "i4", _ORIENTED, "its address"),
    ColumnSpec("broker_port", NUMBER, "i4", _ORIENTED, "its port"),
    ColumnSpec("connection_first", TIME, "i8", LEAST, _FIRST_LAST, row="first"),
    ColumnSpec("connection_last", TIME, "i8", GREATEST, _FIRST_LAST, row="last"),
    ColumnSpec(
        "handshake_rtt_ns", NS, "i8", LATEST,
        "round trip of the handshake, from the SYN to the ACK of the SYN-ACK; null if it was not captured", -1,
    ),
    ColumnSpec("packets", NUMBER, "i8", SUM, "packets of both directions"),
    _of_row("first_packet", NUMBER, "i8", LEAST, "its number"),
    _of_row("client_packets", NUMBER, "i8", SUM, "packets of the client"),
    _of_row("broker_packets", NUMBER, "i8", SUM, "packets of the broker"),
    *_of_ends("bytes", BYTES, SUM, "TCP payload, without retransmissions"),
    *_of_ends("retransmitted_bytes", BYTES, SUM, "payload of every retransmission"),
    *_of_ends("retransmitted_packets", NUMBER, SUM, "retransmitted packets"),
    *_of_ends(
        "spurious_retransmissions", NUMBER, SUM,
        "those that the other end did not need, as D-SACK, TCP time stamps or an earlier acknowledgement show",
    ),
    *_of_ends("out_of_order", NUMBER, SUM, "out-of-order packets"),
    *_of_ends("gaps", NUMBER, SUM, "gaps in its stream", "i4"),
    *_of_ends("gap_bytes", BYTES, SUM, "bytes in its gaps"),
    *_of_ends("zero_windows", NUMBER, SUM, "how often it closed its receive window", "i4"),
    *_of_ends("duplicates", NUMBER, SUM, "packets that were captured twice; no other column counts them"),
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
    _of_row(
        "broker_stuck_ns", NS, "i8", _STUCK,
        "how long nothing acknowledged what the broker sent again: the latest time of 1 s or more",
    ),
    _of_row("broker_stuck_at", TIME, "i8", _STUCK, "when that time began"),
    ColumnSpec("client_id", STRING, "i4", OF_LATEST, "the last client_id", -1),
    ColumnSpec(
        "client_software", STRING, "i4", OF_LATEST, "client software (KIP-511)", -1, row="software"
    ),
    ColumnSpec(
        "client_software_version", STRING, "i4", OF_LATEST, "client software (KIP-511)", -1,
        row="software_version",
    ),
    ColumnSpec("sasl_mechanism", STRING, "i4", OF_LATEST, "in its SaslHandshake request", -1),
    ColumnSpec(
        "protocol", WORD, "u1", Merge("latest", _has_protocol),
        "kafka (confirmed by a request body, a response or a second request; also in decrypted TLS), tls (not "
        "decrypted), foreign, unknown (too little data)", words=PROTOCOLS,
    ),
    *(
        ColumnSpec(
            f"{end}_opening", WORD, "u1", GREATEST,
            f"what the first bytes of the {end} are, if no Kafka: TLS alert, TLS, HTTP", None,
            partial(_has_opening, end), words=OPENINGS,
        )
        for end in ENDS
    ),
    ColumnSpec("orientation_known", FLAG, "u1", _ORIENTED, "whether it is known which end is the broker"),
    ColumnSpec(
        "proxy_ip", ADDRESS, "i4", _ORIENTED,
        "the proxy that opened the TCP connection, if a PROXY header names another client", -1,
    ),
    ColumnSpec("proxy_port", NUMBER, "i4", _ORIENTED, "its port", -1),
    ColumnSpec(
        "twin_of", NUMBER, "i8", LATEST,
        "key of the connection that carries the same messages at an address nearer to the broker: behind NAT or a "
        "proxy; null: none is known", 0,
    ),
    ColumnSpec(
        "handshake", WORD, "u1", GREATEST,
        "complete, unanswered (only the SYN came), unfinished (a SYN-ACK that was not acknowledged), refused (answered "
        "by a RST or by ICMP), not captured", words=HANDSHAKES,
    ),
    ColumnSpec(
        "closed_by", WORD, "i1", FIRST, "the end that sent the first FIN or RST: client or broker", -1,
        words=ENDS,
    ),
    ColumnSpec("closed_with", WORD, "u1", FIRST, "FIN or RST", NOT_CLOSED, words=CLOSERS),
    ColumnSpec("closed_at", TIME, "i8", FIRST, "when it came", -1),
    ColumnSpec("closed_packet", NUMBER, "i8", FIRST, "its number", -1, in_table=False),
    ColumnSpec(
        "reset_by", WORD, "i1", LATEST, "the end whose RST closed the connection", -1, words=ENDS
    ),
    *(column for end in ENDS for column in _options(end)),
    *_TLS,
    *_TRANSFERS,
    *_EXCHANGES,
    *_of_samples(),
    _of_row("is_measured", FLAG, "u1", GREATEST, "1: the columns after this one are known"),
    *_MEASURED,
)  # fmt: skip

#: One TCP connection. Strings and addresses are numbers in the tables of a Context (-1: null).
CONNECTION_ROW = dtype_of(COLUMNS)
_IN_TABLE = [column for column in COLUMNS if column.in_table]
_BEHIND_ENDS = 1 + next(place for place, column in enumerate(_IN_TABLE) if column.name == "broker_port")
#: The columns of the table `connections`.
CONNECTIONS = (
    *_IN_TABLE[:_BEHIND_ENDS],
    *(ColumnSpec(f"{end}_host", WORD, "", OF_LATEST, HOST_DOC, known=in_no_row) for end in ENDS),
    *_IN_TABLE[_BEHIND_ENDS:],
)

#: What a run that measures has of each end, without the end's name.
MEASURED_COLUMNS = tuple(column.field.removeprefix("client_") for column in _measured("client"))
#: Of TLS. Those that are -1 if unknown: the others are 0 then.
TLS_COLUMNS = tuple(column.field for column in _TLS)
TLS_UNKNOWN = tuple(column.field for column in _TLS if column.missing == -1)
