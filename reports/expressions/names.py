"""The names in expressions: short names, and every column of the tables `exchanges` and `results`.

The kind of a name determines its values:

number    1, 0x10, 1_000                    size      bytes: 1000, 64KiB, 1MB
duration  50ms, 1.5 s (`unit`: ns of the column's unit; None: ns, and a bare number is refused)
time      15:10:39.5, 2026-11-21 15:10:39.5, +10s: `literals.read_moment`
flag      true, false                       text      a word, or a text in quotes
word      one of `words`                    api, error    Kafka's name or number
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Any

from kafkatap.dissector import dtypes as r
from kafkatap.dissector.time_parts import DURATIONS

from ..addresses import canonical_address, canonical_broker
from . import exchange_columns as c
from .exchange_columns import ReadColumn, Spelling

MS = 1_000_000
#: The source of a name's values: the exchange, its results, its error codes (0 if it has none), or fields of its
#: messages.
EXCHANGE, RESULT, ERRORS, FIELD = "exchange", "result", "errors", "field"
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


def _words(words: tuple[str, ...]) -> Mapping[str, int]:
    return MappingProxyType({word: number for number, word in enumerate(words)})


def _exchange_names() -> list[Name]:
    found = [
        Name("api", "api", "API of the request, by name or key", ((partial(c.of_request, "api_key"), c.api_text),)),
        Name("version", "number", "version of the API", ((partial(c.of_request, "api_version"), None),)),
        Name("client", "text", "client_id, or the client's address",
             ((partial(c.natural, "client_id"), c.string_text), (partial(c.plain, "client_ip"), c.address_text))),
        Name("broker", "text", "the broker as ADDRESS, ADDRESS:PORT or :PORT", ((c.broker, c.endpoint_text),),
             spell=canonical_broker),
        Name("error", "error", "error codes at any level of the response, by name or number; NONE if there is none",
             ((partial(c.plain, "error_code"), c.error_text),), per=ERRORS),
        Name("latency", "duration", "total time: from the request's first byte to the response's last byte",
             ((partial(c.of_answer, "total_ns"), None),), unit=None),
        Name("broker_time", "duration",
             "broker time: the part of the total time in which the broker worked or waited for data",
             ((partial(c.of_answer, "broker_ns"), None),), unit=None),
        Name("hol_wait", "duration", "head-of-line wait: the time behind earlier requests of the connection",
             ((partial(c.of_answer, "hol_wait_ns"), None),), unit=None),
        Name("throttle_wait", "duration", "throttle wait: the time on the wire because of a quota",
             ((partial(c.of_answer, "throttle_wait_ns"), None),), unit=None),
        Name("throttle", "duration", "throttle time: throttle_time_ms in the response",
             ((partial(c.optional, "throttle_time_ms", r.NO_INT32), None),), unit=MS),
        Name("size", "size", "size of the request or the response",
             ((partial(c.natural, "request_bytes"), None), (partial(c.natural, "response_bytes"), None))),
        Name("packet", "number", "with ==: the exchanges with bytes in that packet; else any packet of a message",
             ((c.packets, None),)),
        Name("time", "time", "time of the request's first byte", ((c.began, None),)),
        Name("exchange", "number", "key of the exchange", ((partial(c.plain, "key"), None),)),
    ]  # fmt: skip
    for name, text in (
        ("connection", "key of the connection"),
        ("client_port", "port of the client"), ("broker_port", "port of the broker"),
        ("correlation_id", "correlation_id of the request"),
    ):  # fmt: skip
        found.append(Name(name, "number", text, ((partial(c.plain, name), None),)))
    for name, text in (("client_ip", "address of the client"), ("broker_ip", "address of the broker")):
        found.append(Name(name, "text", text, ((partial(c.plain, name), c.address_text),), spell=canonical_address))
    for name, text in (
        ("client_id", "client_id of the request"), ("client_software", "name of the client software, from ApiVersions"),
        ("client_software_version", "version of the client software"),
    ):  # fmt: skip
        found.append(Name(name, "text", text, ((partial(c.natural, name), c.string_text),)))
    for end in ("request", "response"):
        for part in ("first", "last"):
            name = f"{end}_{part}"
            found.append(Name(name, "time", f"arrival of the {end}'s {part} byte",
                              ((partial(c.optional, name, r.NO_TIME), None),)))  # fmt: skip
            name = f"{end}_packet_{part}"
            found.append(Name(name, "number", f"packet of the {end}'s {part} byte",
                              ((partial(c.optional, name, 0), None),)))  # fmt: skip
        found.append(Name(f"{end}_bytes", "size", f"size of the {end}", ((partial(c.natural, f"{end}_bytes"), None),)))
    for name in DURATIONS:
        found.append(Name(name, "duration", "the column of the table exchanges; in ns without a unit",
                          ((partial(c.of_answer, name), None),)))  # fmt: skip
    status = _words(r.STATUSES)
    found += [
        Name("outcome", "word", "outcome of the request",
             ((partial(c.plain, "outcome"), partial(c.word_text, r.OUTCOMES)),), words=_words(r.OUTCOMES)),
        Name("waited", "duration", "without a response: how long it waited, until its connection or the capture ended",
             ((partial(c.natural, "waited_ns"), None),)),
        Name("closed_by", "word", "of a request without a response, the end that closed its connection",
             ((partial(c.optional, "closed_by", -1), partial(c.word_text, r.CLOSED_BY)),), words=_words(r.CLOSED_BY)),
        Name("request_status", "word", "result of decoding the request",
             ((partial(c.of_request, "request_status"), partial(c.word_text, r.STATUSES)),), words=status),
        Name("response_status", "word", "result of decoding the response",
             ((c.response_status, partial(c.word_text, r.STATUSES)),), words=status),
        *(Name(f"{end}_problem", "text", f"path of the field at which the {end} is malformed",
               ((partial(c.natural, f"{end}_problem"), c.string_text),)) for end in ("request", "response")),
        *(Name(f"{end}_problem_at", "number", f"offset of the malformed field, or of trailing bytes, in the {end}",
               ((partial(c.optional, f"{end}_problem_at", r.NO_INT32), None),)) for end in ("request", "response")),
        Name("long_poll", "flag", "true for a Fetch that waited for its whole max_wait_ms",
             ((partial(c.plain, "long_poll"), None),)),
        Name("acks", "number", "acks of a Produce request: 0 (none), 1 (leader) or -1 (all)",
             ((partial(c.optional, "acks", r.NO_INT16), None),), words={"all": -1, "leader": 1, "none": 0},
             apis=frozenset((0,))),
        Name("max_wait_ms", "duration", "max_wait_ms of a Fetch request; in ms without a unit",
             ((partial(c.optional, "max_wait_ms", r.NO_INT32), None),), unit=MS, apis=frozenset((1, 78))),
        Name("min_bytes", "size", "min_bytes of a Fetch request",
             ((partial(c.optional, "min_bytes", r.NO_INT32), None),), apis=frozenset((1, 78))),
    ]  # fmt: skip
    return found


def _result_names() -> list[Name]:
    natural = c.natural
    return [
        Name("topic", "text", "a topic of the request or the response, by name or id",
             ((c.topic, c.string_text), (partial(natural, "topic_id"), c.id_text)), per=RESULT, in_requests=True),
        Name("topic_id", "text", "id of a topic", ((partial(natural, "topic_id"), c.id_text),), per=RESULT,
             in_requests=True),
        Name("partition", "number", "a partition in the response",
             ((partial(c.optional, "partition", r.NO_INT32), None),), per=RESULT),
        Name("error_code", "error", "an error code of the response, including 0 (NONE)",
             ((partial(c.plain, "error_code"), c.error_text),), per=RESULT),
        Name("kind", "word", "level of a result",
             ((partial(c.plain, "kind"), partial(c.word_text, r.RESULT_KINDS)),), per=RESULT,
             words=_words(r.RESULT_KINDS)),
        Name("name", "text", "group, transactional id or other resource of a result",
             ((partial(natural, "name"), c.string_text),), per=RESULT),
        Name("offset", "number", "offset of a result (Produce: base offset, Fetch: high watermark)",
             ((partial(natural, "offset"), None),), per=RESULT),
        Name("bytes", "size", "size of the records of a result", ((partial(natural, "bytes"), None),), per=RESULT),
        Name("records", "number", "number of records of a result", ((partial(natural, "records"), None),), per=RESULT),
        Name("group", "text", "a group id at any level of the request or the response",
             per=FIELD, role="group_id"),
        Name("transactional_id", "text", "a transactional id at any level of the request or the response",
             per=FIELD, role="transactional_id"),
    ]  # fmt: skip


#: Aliases of names.
ALIASES = {
    "waited_ns": "waited",
    "api_name": "api", "api_key": "api", "api_version": "version", "software": "client_software",
    "software_version": "client_software_version", "total": "latency", "total_time": "latency",
    "throttle_time_ms": "throttle", "errors": "error", "topics": "topic",
}  # fmt: skip
NAMES: Mapping[str, Name] = MappingProxyType({n.name: n for n in (*_exchange_names(), *_result_names())})


def find_name(word: str) -> Name | None:
    """A name or one of its aliases, in any case."""
    plain = word.lower()
    return NAMES.get(ALIASES.get(plain, plain))


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
    "",
    "comparisons:",
    "  == != < <= > >=    in (A, B)    not in (A, B)    ~ !~ (matches a regular expression, or does not)",
    "  a name alone: it has a value, or is true; == null: it has no value",
    "  and or not (also && || !), parentheses",
    "",
    "values:",
    "  1  1_000  0x10     50ms  1.5s (ns us ms s m h d)     64KiB  1MB (B kB KiB MB MiB GB GiB)",
    "  Fetch  orders      \"orders-1\"  'a text'              2026-11-21T15:10:39.5",
    "",
    "examples:",
    '  api == Fetch and error != NONE and latency > 50ms and topic ~ "orders.*"',
    "  outcome == unanswered or (acks == all and throttle > 100ms)",
)
