"""One line a message: time, addresses, API, latency, and the important facts.

Columns grow with wider values, so a stream of lines becomes a table in one pass. A line consists of spans of (text,
style). Text from the wire is always escaped.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kafkatap.dissector.kafka.error_codes import error_name
from kafkatap.dissector.tree.summary import Facts, NamedPlace
from kafkatap.reports import units
from kafkatap.reports.batch import uuid_text

from ..selected_messages.message import Message

Span = tuple[str, str]
Line = list[Span]

#: The most topics (or values of an array) in a line, and ranges of partitions of each.
TOPICS, RANGES = 4, 6
#: Widest texts of columns and values.
LONGEST_ID, LONGEST_VALUE = 24, 40
#: Columns of numbers, by number: packet, size, latency.
_RIGHT = frozenset((0, 6, 7))
#: Shorter waits are not shown.
SHORTEST_WAIT_NS = 1_000_000
#: Values that are shown even if they are 0 or false.
_ALWAYS = frozenset(("Committed", "GenerationId", "GenerationIdOrMemberEpoch", "MemberEpoch", "NodeId", "Coordinator"))
#: Values that are never shown, as they are at the top of most messages.
_NEVER = frozenset(
    ("ErrorMessage", "ThrottleTimeMs", "ClusterId", "SessionEpoch", "ReplicaEpoch", "CurrentLeaderEpoch")
)
_OUTCOMES = {
    "in_flight": ("in flight when the capture ended", "dim"),
    "unanswered": ("no response", "red"),
    "response_lost": ("response not captured", "yellow"),
    "no_reply_expected": ("no response expected", "dim"),
}
_STATUSES = {
    "malformed": ("malformed", "red"),
    "incomplete": ("not captured whole", "yellow"),
    "too_large": ("larger than --max-frame, or with too many fields", "yellow"),
    "trailing_bytes": ("trailing bytes", "yellow"),
    "unknown_api": ("unknown API", "yellow"),
    "unknown_version": ("newer than these definitions", "yellow"),
}


class LineMaker:
    """Makes lines; keeps the widths of columns and the day of the last message.

    `topic_names`: name by id; it may grow. `utc`: times in UTC, else local. `with_tls`: a line ends with the version of
    TLS that the message was decrypted from.
    """

    def __init__(self, topic_names: Mapping[bytes, str], utc: bool = False, with_tls: bool = False) -> None:
        self._topics = topic_names
        self._utc = utc
        self._with_tls = with_tls
        self._widths = [6, 9, 9, 12, 5, 8, 8, 7]
        self._day = ""
        self._second = (-1, "", "")  # the last one shown: its number, its day, its time of day

    def day(self, message: Message) -> str | None:
        """A line with the day and the time zone, if it is another day than the last message's."""
        shown = self._moment(message.time)[0]
        if shown == self._day:
            return None
        self._day = shown
        return f"{shown} {units.zone(message.time, self._utc)}"

    def _moment(self, time: int) -> tuple[str, str]:
        """The day, and the time of day with microseconds. The second before is kept, as most messages share it."""
        second, rest = divmod(time, units.SECOND)
        if second != self._second[0]:
            day, _, clock = units.clock(time, self._utc, 0, date=True).partition(" ")
            self._second = second, day, clock
        return self._second[1], f"{self._second[2]}.{rest // 1000:06d}"

    def line(self, message: Message) -> Line:
        """The line of one message, without its line end."""
        answer = message.is_response
        total = message.column("total_ns") if answer else 0
        latency = units.duration(total) if total else ""
        identity = "-" if message.client_id is None else _text(message.client_id, LONGEST_ID)
        cells = [
            str(message.packets[0]), message.client, message.broker, self._title(message),
            "" if message.token else f"#{message.column('correlation_id')}", identity,
            units.size(message.size), latency,
        ]  # fmt: skip
        padded = [self._pad(i, cell) for i, cell in enumerate(cells)]
        arrow, api_style = ("←", "green") if answer else ("→", "cyan")
        line: Line = [
            (padded[0], "dim"), (f" {self._moment(message.time)[1]} ", ""), (padded[1], ""),
            (f" {arrow} ", api_style), (padded[2], ""), (f"  {padded[3]}", f"bold {api_style}"),
            (f" {padded[4]}", "dim"), (f" {padded[5]}", ""), (f" {padded[6]}", "dim"), (f" {padded[7]}", "bold"),
        ]  # fmt: skip
        for text, style in self._facts(message):
            line += [("  ", ""), (text, style)]
        if self._with_tls and message.tls_version is not None:
            line.append((f"  {message.tls_version}, decrypted", "dim"))
        return line

    def _title(self, message: Message) -> str:
        if message.token:
            return "SASL token"
        if message.outcome == "orphan_response":
            return "response"
        return f"{message.api} v{message.column('api_version')}"

    def _pad(self, column: int, text: str) -> str:
        """A cell as wide as its column; numbers are right-aligned."""
        width, wide = units.cells(text), self._widths[column]
        if width >= wide:
            self._widths[column] = width
            return text
        return " " * (wide - width) + text if column in _RIGHT else text + " " * (wide - width)

    def _facts(self, message: Message) -> Line:
        """The facts of a message, the most important first."""
        if message.token:
            mechanism = "" if message.mechanism is None else f"{_text(message.mechanism, LONGEST_ID)}, "
            return [(f"{mechanism}{message.size} bytes, hidden", "dim")]
        facts = message.facts
        spans: Line = []
        if message.outcome == "orphan_response":
            spans.append(("its request was not captured", "yellow"))
        elif message.status in _STATUSES:
            word, style = _STATUSES[message.status]
            spans.append((f"{word} at {message.problem}" if message.problem else word, style))
        if not message.is_response and message.outcome in _OUTCOMES:
            spans.append(_OUTCOMES[message.outcome])
        for code, count in sorted(facts.errors.items()):
            spans.append((error_name(code) + (f" x {count}" if count > 1 else ""), "red"))
        spans += self._waits(message)
        spans += [(text, "magenta") for text in self._places(facts.places)]
        if facts.records is not None:
            spans.append((self._records(message), ""))
        if len(facts.offsets) == 1 and facts.offsets[0] >= 0:
            spans.append((f"@{facts.offsets[0]}", ""))
        return spans + [(f"{name}={value}", "dim") for name, value in _values(facts)]

    def _waits(self, message: Message) -> Line:
        if not message.is_response:
            return []
        spans: Line = []
        if message.facts.throttle_time_ms:
            spans.append((f"throttled {units.duration(message.facts.throttle_time_ms * 1_000_000)}", "yellow"))
        for name, word in (("hol_wait_ns", "HOL wait"), ("throttle_wait_ns", "throttle wait")):
            if message.column(name) >= SHORTEST_WAIT_NS:
                spans.append((f"{word} {units.duration(message.column(name))}", "yellow"))
        if message.column("long_poll"):
            spans.append(("waited for data", "dim"))
        return spans

    def _places(self, places: list[NamedPlace]) -> list[str]:
        named: dict[str, list[int]] = {}
        for place in places:
            if place.name is not None or place.topic_id is not None:  # a subtopology has partitions, but no topic
                named.setdefault(self._name(place), []).extend(place.partitions)
        shown = [name + _ranges(partitions) for name, partitions in list(named.items())[:TOPICS]]
        if len(named) > TOPICS:
            shown.append(f"and {len(named) - TOPICS} more")
        return shown

    def _name(self, place: NamedPlace) -> str:
        if not place.name and place.topic_id is not None:
            name = self._topics.get(place.topic_id)
            return uuid_text(place.topic_id) or "" if name is None else _shown(name, LONGEST_VALUE)
        return _text(place.name or b"", LONGEST_VALUE) or '""'

    @staticmethod
    def _records(message: Message) -> str:
        total = sum(length for _, length in message.facts.records or ())
        if not total:
            return "no records"
        size = units.size(total)
        if message.records is None:
            return f"records {size}"
        return f"{message.records} {'record' if message.records == 1 else 'records'} {size}"


def _text(raw: bytes, width: int) -> str:
    return _shown(raw.decode("utf-8", "replace"), width)


def _shown(text: str, width: int) -> str:
    return units.cut(units.safe(text), width)


def _ranges(partitions: list[int]) -> str:
    """`[0-3,7]`; "" for none."""
    if not partitions:
        return ""
    spans = units.ranges(sorted(set(partitions)))
    return f"[{','.join(spans[:RANGES])}{',…' if len(spans) > RANGES else ''}]"


def _values(facts: Facts) -> list[tuple[str, str]]:
    """The values at the top of a message that are not usual; the first few of an array."""
    found: dict[str, list[Any]] = {}
    for name, value in facts.values:
        if name in _NEVER or (not value and name not in _ALWAYS) or (value == -1 and name != "Acks"):
            continue
        found.setdefault(name, []).append(value)
    texts = []
    for name, values in found.items():
        more = f" and {len(values) - TOPICS} more" if len(values) > TOPICS else ""
        texts.append((name, ",".join(_value(name, value) for value in values[:TOPICS]) + more))
    return texts


def _value(name: str, value: Any) -> str:
    if isinstance(value, bytes):
        return _text(value, LONGEST_VALUE)
    if name == "Acks":
        return "all" if value == -1 else str(value)
    return str(value)
