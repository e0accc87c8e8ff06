"""The input of reports: batches of rows, and a context with the meaning of the numbers in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import numpy as np

from kafkatap.dissector.dtypes import ERROR_COUNT, RESULT
from kafkatap.kernels.arrays import is_among, taken
from kafkatap.kernels.decorator import record_dtype

Array = np.ndarray[Any, np.dtype[Any]]

#: Columns of rows, and of the keys of counts, that hold numbers of strings, and of addresses.
STRING_COLUMNS = frozenset((
    "client_id", "client_software", "client_software_version", "software", "software_version", "sasl_mechanism",
    "topic", "topic_id", "name", "request_problem", "response_problem",
    "tls_server_name", "tls_alpn", "tls_server_certificate", "tls_client_certificate",
))  # fmt: skip
ADDRESS_COLUMNS = frozenset(("client_ip", "broker_ip", "proxy_ip"))
#: A dense lookup table is used for up to this many numbers for each exchange.
_DENSE = 16

PROTOCOLS = ("unknown", "kafka", "tls", "foreign")
P_UNKNOWN, P_KAFKA, P_TLS, P_FOREIGN = range(4)

#: How the handshake of a connection went: its SYN and SYN-ACK were not captured; its SYN was not answered; its SYN-ACK
#: was not acknowledged; its SYN was answered by a RST; it is complete. Later ones are better known.
HANDSHAKES = ("not captured", "unanswered", "unfinished", "refused", "complete")
H_NOT_CAPTURED, H_UNANSWERED, H_UNFINISHED, H_REFUSED, H_COMPLETE = range(5)
#: What closed a connection first, if anything.
CLOSERS = ("", "FIN", "RST")
NOT_CLOSED, WITH_FIN, WITH_RST = range(3)
#: `client_window_scale` and `broker_window_scale` if the SYN had no such option, and if it was not captured.
NO_SCALE, SCALE_UNKNOWN = -2, -1

#: What a run that measures has of each end of a connection; 0 if it does not measure.
_MEASURED = (
    ("window_max", "i8"),  # the largest receive window that it advertised, bytes
    ("in_flight_max", "i8"),  # the most bytes that it had sent and that were not acknowledged
    ("zero_window_ns", "i8"),  # how long its receive window was closed
    ("rtt_count", "i8"),  # round trips from the capture point to it: data to its acknowledgement
    ("rtt_sum_ns", "i8"),
    ("rtt_min_ns", "i8"),
    ("rtt_max_ns", "i8"),
    ("retransmission_wait_sum_ns", "i8"),  # from the data segment before a retransmission to it
    ("retransmission_wait_max_ns", "i8"),
    ("retransmissions", "i8"),  # its segments with data that it had sent before, whether that was captured or not
    ("retransmission_timeouts", "i8"),  # those by a timer
)
#: The options of an end's SYN.
_OPTIONS = (
    ("mss", "i4"),  # 0: none
    ("window_scale", "i1"),  # the shift; -2: without the option, -1: not captured
    ("sack_permitted", "u1"),
    ("timestamps", "u1"),
)
#: Sums over the messages of a connection, ns: from first to last byte, and parts of that. The rest is the path's.
#: `wait_loss_ns`: of the time between request and response, while one of them was lost.
TRANSFER_SUMS = (
    *(f"{message}_{name}_ns" for message in ("request", "response") for name in (
        "transfer", "loss", "receiver", "sender", "unexplained",
    )),
    "wait_loss_ns",
)  # fmt: skip
#: Other sums over the exchanges of a connection: their number, how many lack the response that was expected, and the
#: times of answered ones. `broker_ns`: without APIs that wait at the broker (`dissector.dtypes.WAITS`).
EXCHANGE_SUMS = ("exchanges", "unanswered", "total_ns", "hol_wait_ns", "throttle_wait_ns", "broker_ns")

#: Whether a TLS connection was decrypted, and why not: it is no TLS connection; it was decrypted; no key log was given;
#: the key log has no secret of its client random; its handshake was not captured, and no secret fits; its version or
#: cipher suite is not supported; the secret does not decrypt it; its handshake failed, so there was nothing to decrypt.
DECRYPTIONS = (
    "", "decrypted", "no key log", "no key", "no handshake", "unsupported suite", "wrong key", "failed handshake",
)  # fmt: skip
(
    D_NOT_TLS,
    D_DECRYPTED,
    D_NO_KEY_LOG,
    D_NO_KEY,
    D_NO_HANDSHAKE,
    D_UNSUPPORTED,
    D_WRONG_KEY,
    D_FAILED_HANDSHAKE,
) = range(8)
#: Those of TLS connections that were not decrypted.
NOT_DECRYPTED = (D_NO_KEY_LOG, D_NO_KEY, D_NO_HANDSHAKE, D_UNSUPPORTED, D_WRONG_KEY, D_FAILED_HANDSHAKE)
#: How a TLS session began: with a full handshake; resumed by session id, ticket or PSK; resumed with early data.
TLS_SESSIONS = ("full handshake", "resumed", "early data")
TLS_FULL, TLS_RESUMED, TLS_EARLY_DATA = range(3)
#: Alerts that may come at any time (RFC 8446, 6): unexpected_message, bad_record_mac, decryption_failed,
#: record_overflow, decompression_failure, decode_error, internal_error, user_canceled, no_renegotiation.
_ALERTS_OF_RECORDS = (10, 20, 21, 22, 30, 50, 80, 90, 100)
#: What is known of the TLS of a connection. 0 if it is no TLS connection or unknown, unless said otherwise.
_TLS = (
    ("tls_handshake_ns", "i8"),  # from the first byte of the ClientHello to the client's last handshake record; -1
    ("tls_decrypted_bytes", "i8"),  # TCP payload of records that were decrypted, with their headers and tags
    ("tls_failed_records", "i8"),  # records with application data that could not be decrypted though others could
    ("tls_lost_records", "i8"),  # records of which bytes are missing
    ("tls_records", "i8"),  # records with application data, of both directions
    ("tls_estimated", "i8"),  # its rows of ESTIMATE
    ("tls_server_certificate_end", "i8"),  # when it expires, ns since the epoch
    ("tls_client_certificate_end", "i8"),
    ("tls_server_name", "i4"),  # of the extension server_name; -1
    ("tls_alpn", "i4"),  # the chosen protocol, -1
    ("tls_server_certificate", "i4"),  # the first DNS name, or the common name; -1
    ("tls_client_certificate", "i4"),  # the subject as a text of RFC 4514; -1
    ("tls_version", "u2"),  # 0x0303 for TLS 1.2
    ("tls_suite", "u2"),  # the number of the cipher suite
    ("tls_alert", "i2"),  # the description of the first fatal alert that can be read; -1
    ("tls_alert_by", "i1"),  # the end that sent it: 0 the client, 1 the broker, -1 none
    ("tls_decryption", "u1"),  # D_...
    ("tls_session", "u1"),  # TLS_FULL, ...
    ("tls_asks_certificate", "u1"),  # 1: the server requested a certificate of the client
)
TLS_COLUMNS = tuple(name for name, _ in _TLS)
#: Columns that are -1 if unknown.
TLS_UNKNOWN = (
    "tls_handshake_ns", "tls_server_name", "tls_alpn", "tls_server_certificate", "tls_client_certificate", "tls_alert",
    "tls_alert_by",
)  # fmt: skip
#: A response time that was estimated from sizes and times of TLS records alone. Addresses are numbers of the context.
ESTIMATE = record_dtype(
    ("connection", "i8"),  # its key
    ("at", "i8"),  # the last byte of the request, ns since the epoch
    ("ns", "i8"),  # from there to the first byte of the response
    ("client_ip", "i4"),
    ("broker_ip", "i4"),
    ("client_port", "i4"),
    ("broker_port", "i4"),
    ("request_bytes", "i4"),  # of application data, estimated
    ("response_bytes", "i4"),
)

#: One TCP connection. Strings and addresses are numbers in the tables of a Context (-1: null).
CONNECTION_ROW = record_dtype(
    ("connection", "i8"),
    ("first", "i8"),  # ns since the epoch
    ("last", "i8"),
    ("closed_at", "i8"),  # when the first FIN or RST came; -1: none did
    ("handshake_rtt_ns", "i8"),  # from the SYN to the ACK of the SYN-ACK; -1: unknown
    ("packets", "i8"),
    ("first_packet", "i8"),  # its number
    ("client_packets", "i8"),
    ("broker_packets", "i8"),
    ("client_bytes", "i8"),  # TCP payload of the client, without retransmissions
    ("broker_bytes", "i8"),
    ("client_retransmitted_bytes", "i8"),
    ("broker_retransmitted_bytes", "i8"),
    ("client_retransmitted_packets", "i8"),
    ("broker_retransmitted_packets", "i8"),
    ("client_spurious_retransmissions", "i8"),  # of them, those that the broker did not need
    ("broker_spurious_retransmissions", "i8"),
    ("client_lost_bytes", "i8"),  # its last bytes, if it sent the first of them again and nothing acknowledged it
    ("client_lost_at", "i8"),  # when it sent them last, ns since the epoch
    ("client_out_of_order", "i8"),
    ("broker_out_of_order", "i8"),
    ("client_duplicates", "i8"),  # its packets that were captured twice; nothing else counts these
    ("broker_duplicates", "i8"),
    ("client_gap_bytes", "i8"),
    ("broker_gap_bytes", "i8"),
    ("client_unacknowledged_bytes", "i8"),  # sent, and not acknowledged when the connection ended
    ("broker_unacknowledged_bytes", "i8"),
    ("client_gaps", "i4"),
    ("broker_gaps", "i4"),
    ("client_zero_windows", "i4"),
    ("broker_zero_windows", "i4"),
    ("client_ip", "i4"),
    ("broker_ip", "i4"),
    ("client_port", "i4"),
    ("broker_port", "i4"),
    ("proxy_ip", "i4"),  # the TCP peer, if a PROXY header says where the client is; -1
    ("proxy_port", "i4"),
    ("client_id", "i4"),  # the last one
    ("software", "i4"),
    ("software_version", "i4"),
    ("sasl_mechanism", "i4"),
    ("protocol", "u1"),  # P_...
    ("orientation_known", "u1"),  # 1: the broker's end is known
    ("handshake", "u1"),  # H_...
    ("closed_with", "u1"),  # the first FIN or RST: NOT_CLOSED, ...
    ("closed_by", "i1"),  # the end that sent it: 0 the client, 1 the broker, -1 none
    ("reset_by", "i1"),  # the end whose RST closed it; -1
    *((f"{end}_{name}", kind) for end in ("client", "broker") for name, kind in _OPTIONS),
    *_TLS,
    *((name, "i8") for name in (*TRANSFER_SUMS, *EXCHANGE_SUMS)),
    ("is_measured", "u1"),  # the columns after this one are known
    *((f"{end}_{name}", kind) for end in ("client", "broker") for name, kind in _MEASURED),
)
MEASURED_COLUMNS = tuple(name for name, _ in _MEASURED)
OPTION_COLUMNS = tuple(name for name, _ in _OPTIONS)
#: Columns of CONNECTION_ROW that are known only if `is_measured`.
ALL_MEASURED = tuple(f"{end}_{name}" for end in ("client", "broker") for name in MEASURED_COLUMNS)
#: Sums of CONNECTION_ROW over its exchanges.
ALL_SUMS = (*TRANSFER_SUMS, *EXCHANGE_SUMS)


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


class Batch(NamedTuple):
    """Finished EXCHANGE and RESULT records.

    `results`: a result's exchange is in the same batch, and the results of an exchange are adjacent. Without topics,
    `results` has only non-zero error codes.
    `marks`: uint64, one for each exchange: matches that inspectors found in the messages, or None.
    `topics`: EXCHANGE_TOPIC records, the topics of the requests, or None in a run without topics.
    `provisional`: uint8, one for each exchange, or None. 0: the exchange had no provisional row. Otherwise that of
    its LINK: the outcome in that row, and who closed the connection.
    `facts`: FACT rows in order of their exchanges, or None in a run that collects none.
    `estimates`: ESTIMATE rows, of encrypted connections; they belong to no exchange. None without any.
    `tokens`: bare SASL tokens of clients and their answers as a batch of their own, with facts; they are no exchanges.
    None without any, and in a run that collects no facts of them.
    """

    exchanges: Array
    results: Array
    marks: Array | None = None
    topics: Array | None = None
    provisional: Array | None = None
    facts: Array | None = None
    estimates: Array | None = None
    tokens: Batch | None = None

    def picked(self, mask: Array) -> Batch:
        """A copy of the exchanges in `mask` (bool, one for each exchange) with all their rows. Estimates, which belong
        to no exchange, stay."""
        exchanges = taken(self.exchanges, np.flatnonzero(mask))
        numbers, topics, facts = exchanges["exchange"], self.topics, self.facts
        if topics is not None:
            topics = taken(topics, np.flatnonzero(is_among(topics["exchange"], numbers)))
        if facts is not None:
            facts = taken(facts, np.flatnonzero(is_among(facts["exchange"], numbers)))
        return Batch(
            exchanges,
            taken(self.results, np.flatnonzero(is_among(self.results["exchange"], numbers))),
            None if self.marks is None else self.marks[mask],
            topics,
            None if self.provisional is None else self.provisional[mask],
            facts,
            self.estimates,
            self.tokens,
        )


def rows_of(numbers: Array, wanted: Array) -> Array:
    """The index in `numbers` (distinct) of each wanted exchange number: int64 (n,), -1 if it is missing."""
    if not len(numbers):
        return np.full(len(wanted), -1, np.int64)
    low, high = int(numbers.min()), int(numbers.max())
    if high - low < _DENSE * len(numbers):
        places = np.full(high - low + 2, -1, np.int64)
        places[numbers - low] = np.arange(len(numbers))
        found: Array = places[np.where((wanted >= low) & (wanted <= high), wanted - low, -1)]
        return found
    order = np.argsort(numbers, kind="stable")
    at = order[np.minimum(np.searchsorted(numbers[order], wanted), len(numbers) - 1)]
    return np.where(numbers[at] == wanted, at, -1).astype(np.int64)


def as_results(topics: Array) -> Array:
    """EXCHANGE_TOPIC rows as RESULT rows that have only a topic."""
    rows = np.zeros(len(topics), RESULT)
    for name in ("exchange", "topic", "topic_id"):
        rows[name] = topics[name]
    return rows


class Names(Protocol):
    """The meaning of the numbers in rows. The tables may grow while batches are added."""

    @property
    def strings(self) -> Sequence[bytes | None]: ...
    @property
    def addresses(self) -> Sequence[str]: ...
    @property
    def topic_names(self) -> Mapping[int, int]: ...


#: `FileInfo.kind` of a live capture. Its `path` is the names of the interfaces.
LIVE = "live"


class FileInfo(NamedTuple):
    """One capture file. `first_packet` is the number of its first packet, counted over all files. `capture`: its
    `captures.identity`, 0 if nobody needs it."""

    path: str
    kind: str
    first_packet: int
    packets: int
    bytes: int
    link_types: tuple[str, ...] = ()
    first: int | None = None  # ns since the epoch
    last: int | None = None
    drops: int | None = None  # packets dropped during capture, if the file records them
    damage: str | None = None
    duplicates: int = 0  # packets in it that were captured twice, in this file or in another one
    capture: int = 0


class ConnectionTotals(Protocol):
    """Counts of TCP connections. `counting.connection_counts.ConnectionCounts` implements it.

    `table`: a CountTable with a row for each combination of client, address, software and protocol. `tls`: a CountTable
    of TLS connections and certificates.
    """

    @property
    def table(self) -> Any: ...
    @property
    def tls(self) -> Any: ...
    def total(self, value: str) -> int: ...
    def of_protocol(self, protocol: int) -> int: ...
    def median_rtts(self, groups: Array, count: int) -> list[int | None]: ...


class Context(NamedTuple):
    """Facts about a run besides its counts: names, connections, files and the ledger.

    `ledger` has a section for packets, payload bytes, requests, responses, and packets in tunnels if there are any. The
    parts of a section, without "total", add up to its "total". `known_versions`: by api_key, the ranges of
    request versions that can be decoded, or None if that is unknown. `encrypted_share`: share of the TCP payload that
    is TLS and was not decrypted, 0 to 1. `connections`: rows for tables. A run without tables has no rows; then
    `counted` has the counts of connections.
    """

    strings: Sequence[bytes | None] = ()
    addresses: Sequence[str] = ()
    topic_names: Mapping[int, int] = MappingProxyType({})
    connections: Array = np.zeros(0, CONNECTION_ROW)
    files: Sequence[FileInfo] = ()
    ledger: Mapping[str, Mapping[str, int]] = MappingProxyType({})
    first: int | None = None  # ns since the epoch
    last: int | None = None
    packets: int = 0
    encrypted_share: float = 0.0
    known_versions: Mapping[int, Sequence[tuple[int, int]]] | None = None
    not_captured: int = 0  # bytes of TCP payload that the snap length cut off
    interrupted: bool = False  # the user interrupted the reading
    counted: ConnectionTotals | None = None
    options: tuple[tuple[str, str], ...] = ()  # those of `commands.KEPT` that the user set, with their values

    @property
    def packet_places(self) -> None:
        """Only a run has them."""

    def __repr__(self) -> str:
        files = f"{len(self.files):,} file{'' if len(self.files) == 1 else 's'}"
        return f"<Context of {files}, {self.packets:,} packets, {len(self.strings):,} strings>"

    def text(self, number: int) -> str | None:
        """A string from the wire by its number, unescaped. None for null."""
        value = self.strings[number] if number >= 0 else None
        return None if value is None else value.decode("utf-8", "replace")

    def topic(self, topic: int, topic_id: int) -> str | None:
        """The name of a topic, or else its id in Kafka's 22-character form, or else None."""
        if topic < 0 and topic_id >= 0:
            topic = self.topic_names.get(topic_id, -1)
            if topic < 0:
                return uuid_text(self.strings[topic_id])
        return self.text(topic)

    def address(self, number: int) -> str | None:
        return self.addresses[number] if number >= 0 else None


def error_counts(results: Array) -> Array:
    """The non-zero error codes of RESULT rows: ERROR_COUNT (n,), ascending by exchange and code."""
    failed = results[results["error_code"] != 0]
    key = failed["exchange"] * 65_536 + (failed["error_code"].astype(np.int64) + 32_768)
    distinct, counts = np.unique(key, return_counts=True)
    rows = np.zeros(len(distinct), ERROR_COUNT)
    rows["exchange"] = distinct >> 16
    rows["code"] = (distinct & 65_535) - 32_768
    rows["count"] = counts
    return rows


def uuid_text(value: bytes | None) -> str | None:
    """A 16-byte id in Kafka's form: 22 characters of URL-safe base64. The name in place of ids beyond a limit stays."""
    if value is None:
        return None
    if len(value) != 16:
        return value.decode("utf-8", "replace")
    from base64 import urlsafe_b64encode

    return urlsafe_b64encode(value).rstrip(b"=").decode()


def endpoint(address: str | None, port: int) -> str:
    """`10.0.0.1:9092`, `[::1]:9092`."""
    if address is None:
        return f"?:{port}"
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
