"""The names in expressions: short names, and every column of the tables `exchanges` and `results`.

The kind of a name determines its values:

number    1, 0x10, 1_000                    size      bytes: 1000, 64KiB, 1MB
duration  50ms, 1.5 s (`unit`: ns of the column's unit; None: ns, and a bare number is refused)
bytes     a text, or 0x0A1F
time      15:10:39.5, 2026-11-21 15:10:39.5, +10s: `literals.read_moment`
flag      true, false                       text      a word, or a text in quotes
word      one of `words`                    api, error    Kafka's name or number
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Any

from kafkatap.dissector import dtypes as r
from kafkatap.dissector.time_parts import DURATIONS
from kafkatap.kernels.column_spec import ADDRESS, BYTES, FLAG, MS, NS, NUMBER, STRING, TIME, TOPIC_ID, WORD, ColumnSpec

from ..addresses import canonical_address, canonical_broker
from . import exchange_columns as c
from .exchange_columns import ReadColumn, Spelling

MILLISECOND = 1_000_000
#: The source of a name's values: the exchange, its results, its error codes (0 if it has none), or fields of its
#: messages, or the records in its messages.
EXCHANGE, RESULT, ERRORS, FIELD, RECORD = "exchange", "result", "errors", "field", "record"
#: The name that has a value only while its request waits.
WAITING = "waiting"
#: The name that the values of `client` are of which are an address and a port.
CLIENT_END = "client_end"
_NO_WORDS: Mapping[str, int] = MappingProxyType({})


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Name:
    """A name in expressions.

    `parts`: its columns; one match is enough. Each has a function that returns the texts of a number, or None for plain
    numbers. `words`: numbers by their names. `apis`: the only APIs in which it has a value. `in_requests`: values in
    requests count, too. `role`: the role of its fields (FIELD). `spell`: converts a text to the form in the column;
    ValueError for a text that cannot be there.
    """

    name: str
    kind: str
    help: str
    parts: tuple[tuple[ReadColumn, Spelling | None], ...] = ()
    per: str = EXCHANGE
    unit: int | None = 1
    words: Mapping[str, int] = field(default_factory=lambda: _NO_WORDS)
    apis: frozenset[int] | None = None
    in_requests: bool = False
    role: str | None = None
    spell: Callable[[str], str] | None = None

    def __repr__(self) -> str:
        return f"<Name {self.name}>"

    def __reduce__(self) -> tuple[Any, ...]:
        """A name of `NAMES` stays the same object wherever it is unpickled."""
        return find_name, (self.name,)


#: Aliases of names.
ALIASES = {
    "waited_ns": "waited", "tls_version": "tls",
    "api_name": "api", "api_key": "api", "api_version": "version", "software": "client_software",
    "software_version": "client_software_version", "total": "latency", "total_time": "latency",
    "throttle_time_ms": "throttle", "errors": "error", "topics": "topic",
}  # fmt: skip
#: Names of Wireshark's display filters that mean the same.
WIRESHARK = {
    "ip.addr": "address", "ipv6.addr": "address", "tcp.port": "port", "frame.number": "packet", "frame.time": "time",
    "kafka.api_key": "api", "kafka.request_key": "api", "kafka.api_version": "version",
    "kafka.request.version": "version", "kafka.client_id": "client_id", "kafka.consumer_group": "group",
    "kafka.correlation_id": "correlation_id", "kafka.topic_name": "topic", "kafka.partition_id": "partition",
    "kafka.error": "error", "kafka.group_id": "group", "kafka.transactional_id": "transactional_id",
    "kafka.len": "size", "kafka.required_acks": "acks", "kafka.max_wait_time": "max_wait_ms",
    "kafka.min_bytes": "min_bytes", "kafka.throttle_time": "throttle", "kafka.offset": "offset",
    "kafka.message_key": "record.key", "kafka.message_value": "record.value",
}  # fmt: skip
#: What to write for others.
ELSEWHERE = {
    **dict.fromkeys(("ip.src", "ip.dst", "ipv6.src", "ipv6.dst"), "an exchange has both ends: client_ip or broker_ip"),
    **dict.fromkeys(("tcp.srcport", "tcp.dstport"), "an exchange has both ends: client_port or broker_port"),
    "tcp.stream": "a connection is client == ADDRESS:PORT, as reports print it, or its key: connection == KEY; "
    "--connection ADDRESS:PORT follows it",
    **dict.fromkeys(("kafka.request_frame", "kafka.response_frame"), "packet == N finds the exchange of a packet"),
    **dict.fromkeys(("frame.len", "tcp.len"), "sizes are of messages: size, request_bytes, response_bytes"),
    "kafka": "everything here is Kafka",
    **{name: f"of records, it is record.{what}, in kafkatap records and kafkatap show" for name, what in (
        ("key", "key"), ("value", "value"), ("header", "header.NAME"), ("headers", "header.NAME"))},
    **dict.fromkeys(("tcp.analysis.retransmission", "tcp.flags.reset"),
                    "packets are not selected: --sections connections has retransmissions and resets"),
}  # fmt: skip
#: The kinds of names by those of columns, the unit of their numbers, and the texts of these.
_KINDS: Mapping[str, tuple[str, int, Spelling | None]] = {
    NUMBER: ("number", 1, None),
    BYTES: ("size", 1, None),
    NS: ("duration", 1, None),
    MS: ("duration", MILLISECOND, None),
    TIME: ("time", 1, None),
    FLAG: ("flag", 1, None),
    STRING: ("text", 1, c.string_text),
    TOPIC_ID: ("text", 1, c.id_text),
    ADDRESS: ("text", 1, c.address_text),
}
_EXCHANGE = {column.name: column for column in r.EXCHANGE_COLUMNS if column.in_table and column.dtype}
_RESULT = {column.name: column for column in r.RESULT_COLUMNS}


def _part(column: ColumnSpec, spelling: Spelling | None = None) -> tuple[ReadColumn, Spelling | None]:
    """A column with its nulls and its texts."""
    own = partial(c.word_text, column.words) if column.kind == WORD else _KINDS[column.kind][2]
    return partial(c.column, column), spelling or own


def _host(end: str) -> tuple[ReadColumn, Spelling | None]:
    """The name of an end's address."""
    return partial(c.host, end), c.host_text


def _named(column: ColumnSpec, text: str, name: str = "", per: str = EXCHANGE, **more: Any) -> Name:
    """The name of a column: its kind, unit, nulls and words are those of the declaration."""
    if column.kind == WORD:
        kind, unit = "word", 1
        more["words"] = MappingProxyType({word: number for number, word in enumerate(column.words)})
    else:
        kind, unit, _ = _KINDS[column.kind]
    if column.kind == ADDRESS:
        more["spell"] = canonical_address
    return Name(name or column.name, kind, text, **{"parts": (_part(column),), "per": per, "unit": unit, **more})


def _exchange_names() -> Iterator[Name]:
    """Short names, then the columns of the table `exchanges`."""
    of = _EXCHANGE
    yield Name("api", "api", "API of the request, by name or key", (_part(of["api_key"], c.api_text),))
    yield _named(of["api_version"], "version of the API", "version")
    yield Name("client", "text", "client_id, or the client's address or name; with == also ADDRESS:PORT",
               (_part(of["client_id"]), _part(of["client_ip"]), _host("client")))  # fmt: skip
    yield Name(CLIENT_END, "text", "the client as ADDRESS, ADDRESS:PORT or :PORT", ((c.client_end, c.endpoint_text),),
               spell=canonical_broker)  # fmt: skip
    for end in ("client", "broker"):
        yield Name(f"{end}_host", "text", f"name of the {end}'s address at that time, from --hosts", (_host(end),))
    yield Name("broker", "text", "the broker as ADDRESS, ADDRESS:PORT or :PORT", ((c.broker, c.endpoint_text),),
               spell=canonical_broker)  # fmt: skip
    yield Name("error", "error", "error codes at any level of the response, by name or number; NONE if there is none",
               (_part(_RESULT["error_code"], c.error_text),), per=ERRORS)  # fmt: skip
    for name, source, text in (
        ("latency", "total_ns", "total time: from the request's first byte to the response's last byte"),
        ("broker_time", "broker_ns",
         "broker time: the part of the total time in which the broker worked or waited for data"),
        ("hol_wait", "hol_wait_ns", "head-of-line wait: the time behind earlier requests of the connection"),
        ("throttle_wait", "throttle_wait_ns", "throttle wait: the time on the wire because of a quota"),
    ):  # fmt: skip
        yield _named(of[source], text, name, unit=None)
    yield _named(of["throttle_time_ms"], "throttle time: throttle_time_ms in the response", "throttle")
    yield Name("port", "number", "the port of either end", (_part(of["client_port"]), _part(of["broker_port"])))
    yield Name("address", "text", "the address of either end", (_part(of["client_ip"]), _part(of["broker_ip"])),
               spell=canonical_address)  # fmt: skip
    sizes = (_part(of["request_bytes"]), _part(of["response_bytes"]))
    yield Name("size", "size", "size of the request or the response", sizes)
    yield Name("packet", "number", "with ==: the exchanges with bytes in that packet; else any packet of a message",
               ((c.packets, None),))  # fmt: skip
    yield Name("time", "time", "time of the request's first byte", ((c.began, None),))
    yield Name(WAITING, "duration", "in `live --on` alone: how long a request waits now, beyond what it may",
               ((c.waiting, None),), unit=None)  # fmt: skip
    for name, text in _TEXTS.items():
        yield _named(of[name], text, **_MORE_OF.get(name, {}))
    for column in of.values():
        if column.name not in _TEXTS and column.name not in ALIASES:
            yield _named(column, column.doc)


#: What the help says on columns, in its order. It says what the documents say on columns that are not here.
_TEXTS = {
    "exchange": "key of the exchange", "connection": "key of the connection",
    "client_port": "the port", "broker_port": "the port",
    "correlation_id": "correlation_id of the request",
    "client_ip": "the address", "broker_ip": "the address",
    "client_id": "client_id of the request", "client_software": "name of the client software, from ApiVersions",
    "client_software_version": "version of the client software",
    "tls_version": "has a value if the exchange came over TLS and was decrypted: its version",
    **{f"{end}_{name}": text for end in ("request", "response") for name, text in (
        ("first", "arrival of the first byte"), ("packet_first", "packet of the first byte"),
        ("last", "arrival of the last byte"), ("packet_last", "packet of the last byte"), ("bytes", "the size"),
    )},
    **dict.fromkeys(DURATIONS, "the column of the table; in ns without a unit"),
    "outcome": "outcome of the request",
    "waited_ns": "without a response: how long it waited, until its connection or the capture ended",
    "closed_by": "without a response: the end that closed the connection",
    "request_status": "result of decoding", "response_status": "result of decoding",
    "request_problem": "path of the malformed field",
    "response_problem": "path of the malformed field",
    "request_problem_at": "offset of the malformed field, or of trailing bytes",
    "response_problem_at": "offset of the malformed field, or of trailing bytes",
    "long_poll": "true for a Fetch that waited for its whole max_wait_ms",
    "acks": "acks of a Produce request: 0 (none), 1 (leader) or -1 (all)",
    "max_wait_ms": "max_wait_ms of a Fetch request; in ms without a unit",
    "min_bytes": "min_bytes of a Fetch request",
}  # fmt: skip
#: What names of columns have beside what is declared.
_MORE_OF: Mapping[str, Mapping[str, Any]] = {
    "waited_ns": {"name": "waited"},
    "tls_version": {"name": "tls"},
    "acks": {"words": {"all": -1, "leader": 1, "none": 0}, "apis": frozenset((0,))},
    "max_wait_ms": {"apis": frozenset(r.FETCHES)},
    "min_bytes": {"apis": frozenset(r.FETCHES)},
}


def _result_names() -> Iterator[Name]:
    of, result = _RESULT, partial(_named, per=RESULT)
    yield Name("topic", "text", "a topic of the request or the response, by name or id",
               ((c.topic, c.string_text), _part(of["topic_id"])), per=RESULT, in_requests=True)  # fmt: skip
    yield result(of["topic_id"], "id of a topic", in_requests=True)
    yield result(of["partition"], "a partition in the response")
    yield Name("error_code", "error", "an error code of the response, including 0 (NONE)",
               (_part(of["error_code"], c.error_text),), per=RESULT)  # fmt: skip
    yield result(of["error_message"], "what the broker says of an error")
    yield result(of["kind"], "level of a result")
    yield result(of["name"], "group, transactional id or other resource of a result")
    yield result(of["offset"], "offset of a result (Produce: base offset, Fetch: high watermark)")
    yield result(of["bytes"], "size of the records of a result")
    yield result(of["records"], "number of records of a result")
    for role in ("group", "transactional_id"):
        what = "a group id" if role == "group" else "a transactional id"
        text = f"{what} at any level of the request or the response"
        yield Name(role, "text", text, per=FIELD, role="group_id" if role == "group" else role)
    for part in ("key", "value"):
        text = f"in `records` and `show` alone: the {part} of a record"
        yield Name(f"record.{part}", "bytes", text, per=RECORD)


NAMES: Mapping[str, Name] = MappingProxyType({n.name: n for n in (*_exchange_names(), *_result_names())})


#: What names of headers begin with.
HEADER = "record.header."


def find_name(word: str) -> Name | None:
    """A name or one of its aliases, in any case. The names of headers are as in the record."""
    plain = word.lower()
    if plain.startswith(HEADER):
        return Name(HEADER + word[len(HEADER) :], "bytes", "the header of a record", per=RECORD)
    return NAMES.get(ALIASES.get(plain, WIRESHARK.get(plain, plain)))


def help_text() -> str:
    """All names with their kinds, one on a line."""
    also: dict[str, list[str]] = {}
    for alias, word in ALIASES.items():
        also.setdefault(word, []).append(alias)
    lines = ["names:"]
    for name in NAMES.values():
        words = f": {', '.join(name.words)}" if name.words else ""
        others = f" (also {', '.join(also[name.name])})" if name.name in also else ""
        lines.append(f"  {name.name:24} {name.kind:9} {name.help}{words if name.kind == 'word' else ''}{others}")
    return "\n".join([*lines, *_MORE])


_MORE = (
    "  request.PATH                       a decoded field, such as request.MaxWaitMs, Produce.request.Acks or",
    "  response.PATH                      response.Topics.Partitions.ErrorCode; any element of an array can match",
    "  record.header.NAME                 in `records` and `show` alone: a header of a record, such as",
    '                                     record.header.traceparent or record.header."content type"',
    "",
    "comparisons:",
    "  == != < <= > >=    in (A, B)    not in (A, B)    ~ !~ (matches a regular expression, or does not)",
    "  a name alone: it has a value, or is true; == null: it has no value",
    "  contains (a part of a text)",
    "  and or not (also && || !), parentheses",
    "  also as Wireshark has them: eq ne gt lt ge le matches; ip.addr tcp.port frame.number kafka.api_key ...",
    "",
    "values:",
    "  1  1_000  0x10     50ms  1.5s (ns us ms s m h d)     64KiB  1MB (B kB KiB MB MiB GB GiB)",
    "  Fetch  orders      \"orders-1\"  'a text'              2026-11-21T15:10:39.5",
    "",
    "examples:",
    '  api == Fetch and error != NONE and latency > 50ms and topic ~ "orders.*"',
    "  outcome == unanswered or (acks == all and throttle > 100ms)",
)
