"""`read_line`: one line of a broker's request log.

Since 2.7 the logger writes JSON (KIP-673). Before, it writes text, and before 0.9 text of another form. Whatever a
layout puts before or behind is skipped: the line counts from "Completed request:" on. Its time is the latest one in
front of that. JSON inside of a JSON string (log4j's JSON layouts, container logs) is unescaped first.

A line is other people's text. What does not fit is refused, and nothing of it is evaluated.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta, timezone
from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from typing import Any, NamedTuple

MARK = "Completed request:"
#: Times of lines are from 1970 to 2116, ns: sums and differences of two fit in 64 bits.
LATEST_NS = 1 << 62
#: Characters of a connection's name that are read.
LONGEST_CONNECTION = 200
#: The parts of a request's time, as the columns of LINE; the names in JSON, and those in text.
PARTS = ("total", "request_queue", "local", "remote", "throttle", "response_queue", "send")
_IN_JSON = ("totalTimeMs", "requestQueueTimeMs", "localTimeMs", "remoteTimeMs", "throttleTimeMs", "responseQueueTimeMs",
            "sendTimeMs")  # fmt: skip
_IN_TEXT = ("totalTime", "requestQueueTime", "localTime", "remoteTime", "throttleTime", "responseQueueTime", "sendTime")
_TIME = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[ T](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?\s?(Z\b|UTC\b|[+-]\d\d:?\d\d(?=\D|$))?"
)
#: In JSON layouts of log4j: the time in ms since the epoch.
_EPOCH = re.compile(r'"(?:timeMillis|epochMillis|timestamp)"\s*:\s*"?(\d{13})\b')
#: Both ends; since Kafka 1.0 also a number that makes it unique, and since 4.0 that of the network thread.
_CONNECTION = re.compile(r"(.+):(\d{1,5})-(.+):(\d{1,5})(?:-\d+){0,2}")
#: The end of a line of text: other people's text (client ids, bodies) stands before it.
_TAIL = re.compile(r" from (connection|client) ([^ ;]+);(totalTime:[^;]*)$")
_CORRELATION = re.compile(r"correlation_?id(?:=|: ?)(-?\d+)", re.IGNORECASE)
_API_NAME = re.compile(r"(?:api_?key=|Name: )([A-Za-z_0-9]+)", re.IGNORECASE)
_LISTENER = re.compile(r",listener:(?:ListenerName\()?([^,)]*)")


class LogLine(NamedTuple):
    """One request as the broker logged it.

    `end`: when it was complete, ns since the epoch (a time without a zone as UTC); -1: unknown. `times`: ns by PARTS,
    -1: not logged. `api_name`: as the log has it, "" if `api_key` is known; -1: it is not. `broker`: "" and -1
    where the format has only the client. `is_forwarded`: another broker sent it in an Envelope.
    """

    end: int
    client: str
    client_port: int
    broker: str
    broker_port: int
    correlation_id: int
    api_key: int
    api_name: str
    times: tuple[int, ...]
    listener: str
    is_forwarded: bool


class CutLine(Exception):
    """A line of the request log that is not whole, or of an unknown form."""


def read_line(text: str) -> LogLine | None:
    """One line; None if it is not of the request log. CutLine if it cannot be read."""
    at = text.find(MARK)
    if at < 0:
        return None
    body = text[at + len(MARK) :].strip()
    head = text[:at]
    try:
        if body.startswith('{\\"'):
            body = json.loads('"' + body[: _end_of_string(body)] + '"')
        if body.startswith('{"'):
            end = _time_in(head)
            line = _of_json(body, end if end >= 0 else _time_in(text))
        else:
            line = _of_text(body, _time_in(head))
        if not -1 <= line.end < LATEST_NS:
            raise ValueError("no time of a request")
        return line
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise CutLine(str(error)) from None


def _end_of_string(body: str) -> int:
    """Where the JSON string ends in which `body` is."""
    at = 0
    while at < len(body):
        if body[at] == "\\":
            at += 2
            continue
        if body[at] == '"':
            return at
        at += 1
    raise ValueError("the line is cut")


_DECODER = json.JSONDecoder()


def _of_json(body: str, end: int) -> LogLine:
    entry: dict[str, Any] = _DECODER.raw_decode(body)[0]
    header = entry["requestHeader"]
    ends = _ends(entry["connection"])
    times = tuple(_ns(entry.get(name)) for name in _IN_JSON)
    key = header.get("requestApiKey")
    return LogLine(
        end, *ends, _int32(header["correlationId"]), -1 if key is None else _int16(key),
        str(header.get("requestApiKeyName", "")), times, str(entry.get("listener", "")),
        entry.get("isForwarded") is True,
    )  # fmt: skip


def _of_text(body: str, end: int) -> LogLine:
    body = re.sub(r" ?\([\w.]+\)$", "", body)  # the logger's name, which layouts put at the end
    tail = _TAIL.search(body)
    if tail is None:
        raise ValueError("the line is cut")
    header = body[: tail.start()]
    correlation, name = _CORRELATION.search(header), _API_NAME.search(header)
    if correlation is None:
        raise ValueError("there is no correlation id")
    ends = _ends(tail[2]) if tail[1] == "connection" else (*_client(tail[2]), "", -1)
    values = dict(part.split(":", 1) for part in tail[3].split(",") if ":" in part)
    if "sendTime" not in values:
        raise ValueError("the line is cut")
    listener = _LISTENER.search(tail[3])
    return LogLine(
        end, *ends, _int32(int(correlation[1])), -1, name[1] if name else "",
        tuple(_ns(float(values[name]) if name in values else None) for name in _IN_TEXT),
        listener[1] if listener else "", False,
    )  # fmt: skip


def _ns(milliseconds: Any) -> int:
    """Milliseconds as ns; -1 for None and for what no duration is."""
    if milliseconds is None:
        return -1
    value = float(milliseconds)
    if not 0 <= value < 1e12:
        return -1
    return round(value * 1_000_000)


def _int32(value: Any) -> int:
    if not isinstance(value, int) or not -(2**31) <= value < 2**31:
        raise ValueError(f"{value!r} is no int32")
    return value


def _int16(value: Any) -> int:
    return value if isinstance(value, int) and 0 <= value < 2**15 else -1


@lru_cache(10_000)
def _ends(connection: str) -> tuple[str, int, str, int]:
    """The client's and the broker's end of a connection id: `10.0.0.1:9092-10.0.0.7:41234-2-17`."""
    found = _CONNECTION.fullmatch(connection[:LONGEST_CONNECTION])
    if found is None:
        raise ValueError(f"{connection!r} is no connection")
    return _address(found[3]), int(found[4]), _address(found[1]), int(found[2])


def _client(text: str) -> tuple[str, int]:
    """The client's end, as logs before 0.9 have it: `/10.0.0.7:41234`."""
    host, _, port = text.rpartition(":")
    return _address(host.rpartition("/")[2]), int(port)


def _address(text: str) -> str:
    """An address as reports show it. Java writes IPv6 in full, and perhaps with a zone."""
    found = ip_address(text.strip("[]").partition("%")[0])
    mapped = found.ipv4_mapped if isinstance(found, IPv6Address) else None
    return str(mapped or found)


def _time_in(text: str) -> int:
    """The latest time in a text: ns since the epoch, -1: none."""
    times = [*_TIME.finditer(text[-4_000:])]
    if not times:
        epoch = _EPOCH.search(text)
        return int(epoch[1]) * 1_000_000 if epoch else -1
    *whole, fraction, zone = times[-1].groups()
    return _seconds(*whole, zone) * 1_000_000_000 + int((fraction or "0").ljust(9, "0"))


@lru_cache(100)
def _seconds(year: str, month: str, day: str, hour: str, minute: str, second: str, zone: str | None) -> int:
    """Seconds since the epoch."""
    minute_of = datetime(int(year), int(month), int(day), int(hour), int(minute), tzinfo=_zone(zone))
    moment = minute_of + timedelta(seconds=int(second))
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(seconds=1)


def _zone(text: str | None) -> timezone:
    if text is None or text in ("Z", "UTC"):
        return UTC
    sign = -1 if text[0] == "-" else 1
    return timezone(sign * timedelta(hours=int(text[1:3]), minutes=int(text[-2:])))
