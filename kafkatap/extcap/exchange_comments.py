"""What the comment of a packet says of an exchange: one line on the last packet of its response.

That packet completes the exchange, so it is still there when the comment is known. Wireshark shows the whole response
there, too. Without a response the comment is on the last packet of the request, if that still waits. Client ids are
other people's text: they are escaped and cut.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from kafkatap.dissector import dtypes as r
from kafkatap.dissector.time_parts import DURATIONS, parts_of
from kafkatap.engine.engine import Engine
from kafkatap.reports import units
from kafkatap.reports.batch import Array
from kafkatap.reports.exchange_texts import (
    client_text,
    codes_text,
    exchange_name,
    outcome_text,
    parts_text,
    status_text,
)

_PACKETS = ("request_packet_first", "request_packet_last", "response_packet_first", "response_packet_last")
_FIELDS = [
    *_PACKETS, "exchange", "key", "outcome", "closed_by", "api_key", "api_version", "client_id", "total_ns",
    "throttle_time_ms",
    "request_status", "response_status", *(name for name in DURATIONS if name != "total_ns"),
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
        return text + outcome_text(x["outcome"], x["closed_by"])
    text += units.duration(x["total_ns"]) + parts_text(parts_of(x))
    text += f"; {codes_text(sorted(Counter(codes).items()))}" if codes else ""
    if x["throttle_time_ms"] > 0:
        text += f"; throttle_time_ms {x['throttle_time_ms']}"
    return text + "".join(status_text(x[f"{message}_status"], f"{message} ") for message in ("request", "response"))


def _name(x: Values, engine: Engine) -> str:
    raw = engine.strings[x["client_id"]] if x["client_id"] >= 0 else None
    client = None if raw is None else raw.decode("utf-8", "replace")
    if x["outcome"] == r.ORPHAN_RESPONSE:
        return "response" + client_text(client)
    return exchange_name(x["api_key"], x["api_version"], client)
