"""What the comment of a packet says of an exchange: one line on the last packet of its response.

That packet completes the exchange, so it is still there when the comment is known. Wireshark shows the whole response
there, too. Without a response the comment is on the last packet of the request, if that still waits. Client ids are
other people's text: they are escaped and cut.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from kafkatap.dissector import dtypes as r
from kafkatap.dissector.kafka.error_codes import error_name
from kafkatap.engine import Engine
from kafkatap.reports import units
from kafkatap.reports.batch import Array
from kafkatap.reports.counting.rollup import api_label

#: Characters of a client id that are quoted, and error codes that are named.
LONGEST_NAME, MOST_CODES = 100, 5

_OUTCOMES = {
    r.NO_REPLY_EXPECTED: "no response expected (acks=0)",
    r.UNANSWERED: "no response",
    r.RESPONSE_LOST: "response not captured",
    r.ORPHAN_RESPONSE: "response without its request",
}
_WAITS = (("hol_wait_ns", "head-of-line wait"), ("throttle_wait_ns", "throttle wait"), ("broker_ns", "broker time"))


_PACKETS = ("request_packet_first", "request_packet_last", "response_packet_first", "response_packet_last")
_FIELDS = [
    *_PACKETS, "exchange", "key", "outcome", "api_key", "api_version", "client_id", "total_ns", "throttle_time_ms",
    "request_status", "response_status", *(name for name, _ in _WAITS),
]  # fmt: skip
#: The fields of an exchange that this module reads, by name: numpy takes long for a field of a single row.
Values = Mapping[str, int]


def values_of(rows: Array) -> Iterator[Values]:
    """The values of EXCHANGE rows."""
    return (dict(zip(_FIELDS, row, strict=True)) for row in rows[_FIELDS].tolist())


def packets_of(x: Values) -> tuple[int, int]:
    """The first and the last packet of an exchange, by number."""
    known = [x[name] for name in _PACKETS if x[name] > 0]
    return min(known, default=0), max(known, default=0)


def commented_packet(x: Values) -> int:
    """The packet that has the comment on an exchange."""
    return x["response_packet_last"] or x["request_packet_last"] or x["request_packet_first"]


def comment_on(x: Values, codes: Sequence[int], engine: Engine) -> str:
    """The comment on an exchange, with the non-zero error codes of its response."""
    text = f"kafkatap: {_name(x, engine)}, exchange {x['key']}: "
    if x["outcome"] != r.ANSWERED:
        return text + _OUTCOMES.get(x["outcome"], r.OUTCOMES[x["outcome"]])
    parts = [f"{label} {units.duration(x[name])}" for name, label in _WAITS if x[name] > 0]
    text += units.duration(x["total_ns"]) + (f" ({', '.join(parts)})" if parts else "")
    text += f"; {_codes(codes)}" if codes else ""
    if x["throttle_time_ms"] > 0:
        text += f"; throttle_time_ms {x['throttle_time_ms']}"
    return text + "".join(_status(x, message) for message in ("request", "response"))


def _name(x: Values, engine: Engine) -> str:
    text = "response" if x["outcome"] == r.ORPHAN_RESPONSE else f"{api_label(x['api_key'])} v{x['api_version']}"
    raw = engine.strings[x["client_id"]] if x["client_id"] >= 0 else None
    if raw is None:
        return text
    return f'{text} of client "{units.cut(units.safe(raw.decode("utf-8", "replace")), LONGEST_NAME)}"'


def _codes(codes: Sequence[int]) -> str:
    named = [error_name(code) + (f" x{count}" if count > 1 else "") for code, count in sorted(Counter(codes).items())]
    more = [f"{len(named) - MOST_CODES} more error codes"] if len(named) > MOST_CODES else []
    return ", ".join(named[:MOST_CODES] + more)


def _status(x: Values, message: str) -> str:
    status = x[f"{message}_status"]
    return "" if status in (r.OK, r.NOT_DECODED) else f"; {message} {r.STATUSES[status]}"
