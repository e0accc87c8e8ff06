"""The dtypes of exchanges and results, and their constants.

Strings are numbers of interned strings (-1: null), addresses numbers of the capture's address table. Times are int64
nanoseconds since the epoch (NO_TIME: none). Packet numbers are those of the capture reader (0: none).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kafkatap.kernels.column_spec import (
    ADDRESS,
    BYTES,
    FLAG,
    MS,
    NEVER,
    NS,
    NUMBER,
    STRING,
    TIME,
    TOPIC_ID,
    WORD,
    ColumnSpec,
    Mask,
    dtype_of,
    fields_of,
)
from kafkatap.kernels.decorator import record_dtype

Array = np.ndarray[Any, Any]

NO_TIME = -(2**63)
NO_INT32 = -(2**31)
NO_INT16 = -(2**15)

#: Outcomes of requests, and at last that of a response without one: those below ORPHAN_RESPONSE are requests.
OUTCOMES = ("answered", "no_reply_expected", "in_flight", "unanswered", "response_lost", "orphan_response")
ANSWERED, NO_REPLY_EXPECTED, IN_FLIGHT, UNANSWERED, RESPONSE_LOST, ORPHAN_RESPONSE = range(6)

#: Versions of TLS that can be decrypted (`tls_version`).
TLS_VERSIONS = ("TLS 1.2", "TLS 1.3")

#: Who closed the connection of a request without a response (`closed_by`).
CLOSED_BY = ("client", "broker")
CLOSED_BY_CLIENT, CLOSED_BY_BROKER = range(2)

#: Rows on the tape, and so fields, of one message at most. Of a message with more, the fields behind them are not read,
#: and its status is TOO_LARGE: a response of 100 MB may have 50 million error codes.
MOST_ROWS = 1 << 18

#: A request is late after this, ns: the default of request.timeout.ms.
LATE_NS = 30_000_000_000

STATUSES = (
    "ok", "trailing_bytes", "malformed", "incomplete", "unknown_api", "unknown_version", "not_decoded", "too_large",
)  # fmt: skip
OK, TRAILING_BYTES, MALFORMED, INCOMPLETE, UNKNOWN_API, UNKNOWN_VERSION, NOT_DECODED, TOO_LARGE = range(8)

#: The default bound of a frame, in bytes with its size field. Only the head of a larger one is decoded. The default is
#: that of brokers (socket.request.max.bytes).
MAX_FRAME = 100 << 20

#: APIs whose requests wait at the broker for data (Fetch, ShareFetch), or for other members (JoinGroup, SyncGroup).
FETCHES = (1, 78)
WAITS = (*FETCHES, 11, 14)

#: Types of columns that the tables have of several rows.
LIST_ERRORS, LIST_STRING = "list<struct<code:int16,count:int32>>", "list<string>"


def _is_answered(rows: Array) -> Array:
    answered: Array = rows["outcome"] == ANSWERED
    return answered


def _has_request(rows: Array) -> Array:
    known: Array = rows["outcome"] != ORPHAN_RESPONSE
    return known


def _has_response(rows: Array) -> Array:
    known: Array = (rows["response_first"] != NO_TIME) | (rows["response_bytes"] >= 0)
    return known


def in_no_row(rows: Array) -> Array:
    """Of a column whose values come from elsewhere."""
    return np.zeros(len(rows), bool)


def _column(
    name: str, kind: str, dtype: str, doc: str, null: int | None = None, known: Mask | None = None,
    words: tuple[str, ...] = (), row: str = "", in_table: bool = True, fill: int = 0,
) -> ColumnSpec:  # fmt: skip
    """A column of exchanges or results. No two rows are of one exchange: each is in one split."""
    return ColumnSpec(name, kind, dtype, NEVER, doc, null, known, fill, words, row, in_table)


def _duration(name: str, doc: str, in_table: bool = True) -> ColumnSpec:
    """A duration in ns, 0 where it does not apply. The parts of `time_parts` add up to total_ns."""
    return _column(name, NS, "i8", doc, known=_is_answered, in_table=in_table)


DURATION_COLUMNS = (
    _duration(
        "broker_ns",  # for a throttled answer of a broker before 2.0 less its throttling
        "broker time: from `request_last` to `response_first`, without `hol_wait_ns`, `throttle_wait_ns` and losses",
    ),
    _duration(
        "waiting_ns",
        "part of `broker_ns`: waiting for data (Fetch, ShareFetch: at most `max_wait_ms`) or for other group members "
        "(JoinGroup, SyncGroup: at most the `rebalance_timeout_ms` of the JoinGroup, if known)",
    ),
    _duration(
        "round_trip_ns",
        "part of `broker_ns`, without `waiting_ns`: the round trip from the capture point to the broker, if it is "
        "known to be 1 ms or more",
    ),
    _duration("hol_wait_ns", "head-of-line wait, behind an earlier request of the connection"),
    _duration("hol_throttle_wait_ns", "part of `hol_wait_ns` behind requests that a quota delayed"),
    _duration(
        "hol_poll_wait_ns",
        "part of `hol_wait_ns` behind requests that waited for data or members, as in `waiting_ns`",
    ),
    _duration(
        "hol_unknown_wait_ns",
        "part of `hol_wait_ns` behind requests that were at the broker, or delayed by a quota", in_table=False,
    ),
    _duration(
        "hol_loss_wait_ns",
        "part of `hol_wait_ns` behind requests and responses that waited for lost segments, as in `loss_ns`",
    ),
    _duration("hol_round_trip_ns", "part of `hol_wait_ns`: the rest of that round trip"),
    _duration("throttle_wait_ns", "throttle wait: the time on the wire because of a quota"),
    # Of the transfers of request and response.
    _duration(
        "loss_ns",
        "a lost segment of request or response, or one that the response waited behind, was missing, until it was "
        "sent again and acknowledged",
    ),
    _duration(
        "receiver_ns",
        "part of the transfers of request and response: the receive window was full or closed",
    ),
    _duration(
        "sender_ns",
        "part of the transfers: the sender, or its kernel, had room in the window and nothing under way, and did not "
        "send",
    ),
    _duration("nagle_ns", "part of `sender_ns`: Nagle's algorithm waited for an acknowledgement"),
    _duration("path_ns", "part of the transfers: data flowed, or a round trip was awaited"),
    _duration("unexplained_ns", "time in no other part"),
    _duration(
        "total_ns",
        "total time: from `request_first` to `response_last`, or until missing bytes before it had come. The sum of "
        "`broker_ns`, `hol_wait_ns`, `throttle_wait_ns`, `loss_ns`, `receiver_ns`, `sender_ns`, `path_ns`, "
        "`unexplained_ns`",
    ),
)  # fmt: skip
_PROBLEM = 'of malformed ones: path of the field at which decoding stopped, such as "Topics[3].Name"'
_PROBLEM_AT = "offset in the frame, with the size field at 0, of the error or the first trailing byte"
_STATUS = (
    "ok, trailing_bytes, malformed, incomplete, unknown_api, unknown_version, not_decoded, or too_large (larger than "
    f"`--max-frame`, of which the first 64 KiB are decoded, or with more than {MOST_ROWS:,} fields)"
)
#: Of columns of several tables, or of both ends: columns of one meaning share a row of the document.
_ADDRESS, _PORT = "its address", "its port"
_SOFTWARE = "client software, from an earlier ApiVersions request (KIP-511)"
HOST_DOC = "name of its address at that time, from `--hosts`"
TOPIC_DOC = "name of the topic, or its id if the name is unknown"
RESOURCE_DOC = "name of the group, transactional id or other resource"
#: Of numbers of packets.
_FIRST_BYTE, _LAST_BYTE = "packet with the first byte", "packet with the last byte (that came)"
#: Of arrivals.
_FIRST, _LAST = "arrival of the first byte (of the size field)", "arrival of the last byte (that came)"
_SIZE = "size, without the 4 bytes of the size field"
_CUT = "part of it that had not come when the connection was closed, or the capture ended"

#: The columns of EXCHANGE, in the order of the table `exchanges`. -1 bytes: there is no such frame.
EXCHANGE_COLUMNS = (
    _column("number", NUMBER, "i8", "its number in this run", row="exchange", in_table=False),
    _column("exchange", NUMBER, "i8", "[key](#keys) of this exchange", row="key"),
    _column("connection", NUMBER, "i8", "key in `connections`"),
    _column("client_ip", ADDRESS, "i4", _ADDRESS),
    _column("client_port", NUMBER, "i4", _PORT),
    _column("broker_ip", ADDRESS, "i4", _ADDRESS),
    _column("broker_port", NUMBER, "i4", _PORT),
    _column("client_host", WORD, "", HOST_DOC, known=in_no_row),
    _column("broker_host", WORD, "", HOST_DOC, known=in_no_row),
    _column("client_id", STRING, "i4", "client_id; any bytes are possible", -1),
    _column("client_software", STRING, "i4", _SOFTWARE, -1),
    _column("client_software_version", STRING, "i4", _SOFTWARE, -1),
    _column("tls_version", WORD, "i1", "TLS 1.2 or TLS 1.3, if it was decrypted", -1, words=TLS_VERSIONS),
    _column("api_key", NUMBER, "i2", "number of the API", known=_has_request, fill=-1),
    _column("api_name", WORD, "", "name of the API; `API 10001` if it has none", known=_has_request),
    _column("api_version", NUMBER, "i2", "version of the API", known=_has_request, fill=-1),
    _column("correlation_id", NUMBER, "i4", "correlation id"),
    _column("request_first", TIME, "i8", _FIRST, NO_TIME),
    _column("request_last", TIME, "i8", _LAST, NO_TIME),
    _column("response_first", TIME, "i8", _FIRST, NO_TIME),
    _column("response_last", TIME, "i8", _LAST, NO_TIME),
    *DURATION_COLUMNS,
    _column("request_packet_first", NUMBER, "i8", _FIRST_BYTE, 0),
    _column("request_packet_last", NUMBER, "i8", _LAST_BYTE, 0),
    _column("response_packet_first", NUMBER, "i8", _FIRST_BYTE, 0),
    _column("response_packet_last", NUMBER, "i8", _LAST_BYTE, 0),
    _column("request_bytes", BYTES, "i8", _SIZE, -1),
    _column("response_bytes", BYTES, "i8", _SIZE, -1),
    _column("request_cut_bytes", BYTES, "i8", _CUT, known=_has_request),
    _column("response_cut_bytes", BYTES, "i8", _CUT, known=_has_response),
    _column(
        "outcome", WORD, "u1",
        "answered; no_reply_expected (Produce with acks=0); in_flight (the capture ended, the connection was open, and "
        "the request had waited less than `--late`, 30 s, or than its body lets it wait and `--late`); unanswered; "
        "response_lost (in a gap, or not captured); orphan_response (the request was not captured, so its columns are "
        "null)", words=OUTCOMES,
    ),
    _column(
        "closed_by", WORD, "i1",
        "without a response: client or broker, whose FIN or RST closed the connection; null if it was open at the end",
        -1, words=CLOSED_BY,
    ),
    _column(
        "waited_ns", NS, "i8",
        "without a response: from `request_last` until the connection was closed, or the capture ended", -1,
    ),
    _column("long_poll", FLAG, "u1", "a Fetch that waited for its whole max_wait_ms, which is its broker time"),
    _column(
        "throttle_time_ms", MS, "i4",
        "throttle time in the response; null if it has no such field, or the field cannot be decoded",
        NO_INT32,
    ),
    _column(
        "errors", LIST_ERRORS, "",
        "the non-zero error codes at every level of the response, ascending",
    ),
    _column("request_status", WORD, "u1", _STATUS, known=_has_request, words=STATUSES),
    _column("request_problem", STRING, "i4", _PROBLEM, -1),
    _column("request_problem_at", NUMBER, "i4", _PROBLEM_AT, NO_INT32),
    _column("response_status", WORD, "u1", _STATUS, known=_has_response, words=STATUSES),
    _column("response_problem", STRING, "i4", _PROBLEM, -1),
    _column("response_problem_at", NUMBER, "i4", _PROBLEM_AT, NO_INT32),
    _column("acks", NUMBER, "i2", "of a Produce request", NO_INT16),
    _column("max_wait_ms", MS, "i4", "of a Fetch request", NO_INT32),
    _column("min_bytes", BYTES, "i4", "of a Fetch request", NO_INT32),
    _column(
        "topics", LIST_STRING, "",
        "its distinct topics: names, or ids of unknown names",
    ),
    _column(
        "behind_unread", FLAG, "u1", "it waited behind a response of which the throttle time was not captured",
        in_table=False,
    ),
)  # fmt: skip
#: A request with its response, or one without the other.
EXCHANGE = dtype_of(EXCHANGE_COLUMNS)
#: Columns that are numbers of strings.
EXCHANGE_STRINGS = fields_of(EXCHANGE_COLUMNS, STRING)

RESULT_KINDS = ("response", "topic", "partition", "group", "resource", "other")
KIND_RESPONSE, KIND_TOPIC, KIND_PARTITION, KIND_GROUP, KIND_RESOURCE, KIND_OTHER = range(6)

#: The columns of RESULT, in the order of the table `results`.
RESULT_COLUMNS = (
    _column("exchange", NUMBER, "i8", "key in `exchanges`"),
    _column(
        "kind", WORD, "u1", "response (all of it), topic, partition, group, resource, other",
        words=RESULT_KINDS,
    ),
    _column("topic", STRING, "i4", TOPIC_DOC, -1),
    _column("topic_id", TOPIC_ID, "i4", "id of the topic, in Kafka's 22-character form", -1),
    _column("partition", NUMBER, "i4", "partition", NO_INT32),
    _column("name", STRING, "i4", RESOURCE_DOC, -1),
    _column("error_code", NUMBER, "i2", "0: no error"),
    _column("error_message", STRING, "i4",
            "what the broker says of the error, of Produce about the first record that it refused; not of APIs whose "
            "messages may repeat secrets, such as AlterConfigs", -1),
    _column("offset", NUMBER, "i8", "base offset (Produce), high watermark (Fetch) and so on", -1),
    _column("bytes", BYTES, "i8", "size of the records", -1),
    _column("records", NUMBER, "i8",
            "number of records, without markers of transactions, if the headers of the batches have it", -1),
)  # fmt: skip
#: What an exchange answered about one topic-partition, group, resource, or (kind "response") the whole of it.
#: One row for each place of a response that has an error code, be it zero or not.
RESULT = dtype_of(RESULT_COLUMNS)
#: Columns that are numbers of strings.
RESULT_STRINGS = fields_of(RESULT_COLUMNS, STRING, TOPIC_ID)

#: The non-zero error codes of a response, ascending by code within an exchange.
ERROR_COUNT = record_dtype(("exchange", "i8"), ("count", "i4"), ("code", "i2"))
