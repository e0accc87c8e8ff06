"""The dtypes of exchanges and results, and their constants.

Strings are numbers of interned strings (-1: null), addresses numbers of the capture's address table. Times are int64
nanoseconds since the epoch (NO_TIME: none). Packet numbers are those of the capture reader (0: none).
"""

from __future__ import annotations

from kafkatap.kernels.decorator import record_dtype

NO_TIME = -(2**63)
NO_INT32 = -(2**31)
NO_INT16 = -(2**15)

#: Outcomes of requests, and at last that of a response without one: those below ORPHAN_RESPONSE are requests.
OUTCOMES = ("answered", "no_reply_expected", "in_flight", "unanswered", "response_lost", "orphan_response")
ANSWERED, NO_REPLY_EXPECTED, IN_FLIGHT, UNANSWERED, RESPONSE_LOST, ORPHAN_RESPONSE = range(6)

#: Who closed the connection of a request without a response (`closed_by`).
CLOSED_BY = ("client", "broker")
CLOSED_BY_CLIENT, CLOSED_BY_BROKER = range(2)

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

#: A request with its response, or one without the other. -1 bytes: there is no such frame.
EXCHANGE = record_dtype(
    ("exchange", "i8"),  # its number in this run
    ("key", "i8"),  # the same in every run
    ("connection", "i8"),  # the connection's key
    ("request_first", "i8"),
    ("request_last", "i8"),
    ("response_first", "i8"),
    ("response_last", "i8"),
    ("request_packet_first", "i8"),
    ("request_packet_last", "i8"),
    ("response_packet_first", "i8"),
    ("response_packet_last", "i8"),
    ("request_bytes", "i8"),
    ("response_bytes", "i8"),
    # Durations in ns, 0 where they do not apply. The parts of `time_parts` add up to total_ns.
    ("broker_ns", "i8"),  # the broker's own time (for a throttled answer of a broker before 2.0 less its throttling)
    ("waiting_ns", "i8"),  # of it, waiting for data (FETCHES: at most max_wait_ms) or group members
    ("hol_wait_ns", "i8"),  # waiting behind an earlier request of the same connection
    ("hol_throttle_wait_ns", "i8"),  # of it, while the requests ahead were delayed by a quota
    ("hol_poll_wait_ns", "i8"),  # of it, while the requests ahead waited at the broker (APIs of WAITS)
    ("hol_unknown_wait_ns", "i8"),  # of it, while the requests ahead were at the broker, or delayed by a quota
    ("throttle_wait_ns", "i8"),  # waiting because of a quota, as it was on the wire
    (
        "waited_ns",
        "i8",
    ),  # without a response: from the request's last byte to the end of its connection or the capture; -1
    # Of the transfers of request and response. With the times above they are total_ns (`time_parts`).
    ("loss_ns", "i8"),  # until a lost segment was sent again and acknowledged
    ("receiver_ns", "i8"),  # the receiver's window was full or closed
    ("sender_ns", "i8"),  # the sender had room in the window, and did not send
    ("nagle_ns", "i8"),  # of it, Nagle's algorithm waited for a delayed ACK
    ("path_ns", "i8"),  # round trips, bandwidth, congestion window
    ("unexplained_ns", "i8"),  # in no other part
    ("total_ns", "i8"),  # request_first to response_last, or until missing bytes before it had come
    ("client_ip", "i4"),
    ("broker_ip", "i4"),
    ("client_port", "i4"),
    ("broker_port", "i4"),
    ("client_id", "i4"),
    ("client_software", "i4"),
    ("client_software_version", "i4"),
    ("request_problem", "i4"),  # path of the field at which a malformed request could not be decoded further
    ("response_problem", "i4"),
    ("request_problem_at", "i4"),  # place of that field in the frame, or of trailing bytes; NO_INT32: decoded well
    ("response_problem_at", "i4"),
    ("correlation_id", "i4"),
    ("throttle_time_ms", "i4"),  # NO_INT32: that version has no such field, or there is no readable response
    ("max_wait_ms", "i4"),  # NO_INT32 where the request has none
    ("min_bytes", "i4"),
    ("api_key", "i2"),
    ("api_version", "i2"),
    ("acks", "i2"),  # NO_INT16 where the request has none
    ("outcome", "u1"),
    ("closed_by", "i1"),  # CLOSED_BY_*, of a request without a response; -1: neither end did, as far as was captured
    ("request_status", "u1"),
    ("response_status", "u1"),
    ("long_poll", "u1"),  # 1: a Fetch that waited out its max_wait_ms (broker_ns holds that wait)
    ("behind_unread", "u1"),  # 1: it waited behind a response of which the throttle time was not captured
)

#: Columns that are numbers of strings.
EXCHANGE_STRINGS = ("client_id", "client_software", "client_software_version", "request_problem", "response_problem")

RESULT_KINDS = ("response", "topic", "partition", "group", "resource", "other")
KIND_RESPONSE, KIND_TOPIC, KIND_PARTITION, KIND_GROUP, KIND_RESOURCE, KIND_OTHER = range(6)

#: What an exchange answered about one topic-partition, group, resource, or (kind "response") the whole of it.
#: One row for each place of a response that has an error code, be it zero or not.
RESULT = record_dtype(
    ("exchange", "i8"),
    ("offset", "i8"),  # base offset of a Produce, high watermark of a Fetch ...; -1
    ("bytes", "i8"),  # size of the records; -1
    ("records", "i8"),  # their number, where the batch headers tell it; -1
    ("topic", "i4"),
    ("topic_id", "i4"),  # number of a 16-byte string in the Strings table; -1
    ("partition", "i4"),  # NO_INT32
    ("name", "i4"),  # group, transactional id, resource ...; -1
    ("error_code", "i2"),
    ("kind", "u1"),
)
#: Columns that are numbers of strings.
RESULT_STRINGS = ("topic", "topic_id", "name")

#: The non-zero error codes of a response, ascending by code within an exchange.
ERROR_COUNT = record_dtype(("exchange", "i8"), ("count", "i4"), ("code", "i2"))
