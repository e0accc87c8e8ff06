"""One line a message: time, addresses, API, latency, and the important facts.

Lines are made of the columns of many messages, and each distinct text is made once. Columns grow with wider values, so
a stream of lines becomes a table in one pass. Text from the wire is always escaped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from kafkatap.dissector import dtypes as r
from kafkatap.dissector.kafka.error_codes import error_name
from kafkatap.dissector.layouts.catalog import api_name
from kafkatap.dissector.tree.summary import Facts, NamedPlace
from kafkatap.kernels.arrays import is_among
from kafkatap.reports import units
from kafkatap.reports.batch import uuid_text

from ..selected_messages import message as m
from ..selected_messages.message import Messages

Array = np.ndarray[Any, Any]
Span = tuple[str, str]
#: Returns the escape sequences that begin and end a style.
Styled = Callable[[str], tuple[str, str]]

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
_OUTCOMES = {
    r.IN_FLIGHT: ("in flight when the capture ended", "dim"),
    r.UNANSWERED: ("no response", "red"),
    r.RESPONSE_LOST: ("response not captured", "yellow"),
    r.NO_REPLY_EXPECTED: ("no response expected", "dim"),
}
#: Instead of INCOMPLETE, where the rest had not been sent when the connection or the capture ended.
_CUT = 255
_STATUSES = {
    r.MALFORMED: ("malformed", "red"),
    r.INCOMPLETE: ("not captured whole", "yellow"),
    _CUT: ("cut off before its end", "yellow"),
    r.TOO_LARGE: ("larger than --max-frame, or with too many fields", "yellow"),
    r.TRAILING_BYTES: ("trailing bytes", "yellow"),
    r.UNKNOWN_API: ("unknown API", "yellow"),
    r.UNKNOWN_VERSION: ("newer than these definitions", "yellow"),
}
#: The column of correlation ids.
_NUMBERS = 4
_PRODUCE = 0
#: Texts of facts that are kept.
_KEPT = 8_192
_Text = TypeVar("_Text")


class KeptTexts(Generic[_Text]):
    """Texts of facts, made once for facts that several messages share. `topics`: names by id, as of which the texts
    are; they may grow."""

    def __init__(self, topics: Mapping[bytes, str]) -> None:
        self._topics, self._topics_known = topics, 0
        self._known: dict[Facts, _Text] = {}

    def of(self, facts: list[Facts], make: Callable[[Facts], _Text]) -> list[_Text]:
        """The text of each of some facts; `make` makes one."""
        known = self._known
        if len(self._topics) != self._topics_known or len(known) > _KEPT:
            known.clear()
            self._topics_known = len(self._topics)
        made = {one: make(one) for one in set(facts).difference(known)}
        texts = [known[one] if one in known else made[one] for one in facts]
        known.update((one, text) for one, text in made.items() if one.is_shared)
        return texts


class _FactTexts(NamedTuple):
    """The facts of a message as parts of a line. `last_places`: `places` if nothing comes behind them."""

    errors: str
    places: str
    last_places: str
    values: str


class LineMaker:
    """Makes lines; keeps the widths of columns and the day of the last message.

    `topic_names`: name by id; it may grow. `styled`: of the output. `utc`: times in UTC, else local. `with_tls`: a line
    ends with the version of TLS that the message was decrypted from. `with_heading`: the first line names the columns.
    """

    def __init__(
        self, topic_names: Mapping[bytes, str], styled: Styled, utc: bool = False, with_tls: bool = False,
        with_heading: bool = False,
    ) -> None:  # fmt: skip
        self._topics = topic_names
        self._styled = styled
        self._utc = utc
        self._with_tls, self._needs_heading = with_tls, with_heading
        self._widths = [6, 9, 9, 12, 5, 8, 8, 7]
        self._day = ""
        self._texts = KeptTexts[_FactTexts](topic_names)

    def lines(self, messages: Messages) -> list[str]:
        """The line of each message, without its line end. The first one of a day has the day above it."""
        rows, objects = messages.rows, messages.objects
        answers, tokens = messages.are_responses, messages.heads["token"]
        titles = zip(tokens.tolist(), messages.heads["outcome"].tolist(), rows["api_key"].tolist(),
                     rows["api_version"].tolist(), strict=True)  # fmt: skip
        cells: list[list[str]] = [
            list(map(str, messages.of_side("packet_first").tolist())),
            _ends(objects, m.CLIENT, m.CLIENT_HOST), _ends(objects, m.BROKER, m.BROKER_HOST),
            each(list(titles), _title),
            [f"#{number}" for number in rows["correlation_id"].tolist()],
            each(objects[:, m.CLIENT_ID].tolist(), _identity), each(messages.of_side("bytes").tolist(), units.size),
            [units.duration(ns) if ns else "" for ns in np.where(answers, rows["total_ns"], 0).tolist()],
        ]  # fmt: skip
        for place in np.flatnonzero(tokens).tolist():
            cells[_NUMBERS][place] = ""
        dim, undim = self._styled("dim")
        bold, unbold = self._styled("bold")
        ways = [self._way("→", "cyan"), self._way("←", "green")]
        made = [
            (
                f"{dim}{packet}{undim} {time} {client}{way[0]}{broker}{way[1]}  {title}{way[2]}{dim} {number}{undim} "
                f"{identity}{dim} {size}{undim}"
                f"{f'{bold} {latency}{unbold}{tail}' if tail or not latency.isspace() else ''}"
            ).rstrip()
            for time, way, tail, packet, client, broker, title, number, identity, size, latency in zip(
                self._times(messages.heads["time"]), map(ways.__getitem__, answers.tolist()), self._tails(messages),
                *map(self._padded, range(len(cells)), cells), strict=True,
            )
        ]  # fmt: skip
        self._add_days(messages.heads["time"], made)
        if self._needs_heading and made:
            self._needs_heading = False
            made[0] = f"{self._heading()}\n{made[0]}"
        return made

    def _heading(self) -> str:
        """The names of the columns, as wide as these are so far."""
        packet, client, broker, api, number, identity, size, total = self._widths
        text = (
            f"{'packet':>{packet}} {'time':15} {'client':{client}}   {'broker':{broker}}  {'API':{api}} "
            f"{'id':>{number}} {'client id':{identity}} {'size':>{size}} {'total':>{total}}  what is in it"
        )
        return text.join(self._styled("dim"))

    def _way(self, arrow: str, style: str) -> tuple[str, str, str]:
        """The text between client and broker, and what begins and ends the title."""
        begin, end = self._styled(style)
        return (f"{begin} {arrow} {end}", *self._styled(f"bold {style}"))

    def _padded(self, column: int, texts: list[str]) -> list[str]:
        """Cells as wide as their column; numbers are right-aligned."""
        wide = self._widths[column]
        whole = "".join(texts)
        if (whole.isascii() or whole.replace("µ", "u").isascii()) and max(map(len, texts), default=0) <= wide:
            return [text.rjust(wide) for text in texts] if column in _RIGHT else [text.ljust(wide) for text in texts]
        padded = []
        for text in texts:
            width = units.cells(text)
            wide = max(wide, width)
            padded.append(" " * (wide - width) + text if column in _RIGHT else text + " " * (wide - width))
        self._widths[column] = wide
        return padded

    def _times(self, times: Array) -> list[str]:
        """Times of day with microseconds."""
        seconds, micros = (times // units.SECOND).tolist(), (times % units.SECOND // 1_000).tolist()
        clocks = each(seconds, lambda second: units.clock(second * units.SECOND, self._utc, 0))
        return [f"{clock}.{rest:06d}" for clock, rest in zip(clocks, micros, strict=True)]

    def _add_days(self, times: Array, lines: list[str]) -> None:
        """Put the day and the time zone above the first line of each day."""
        seconds = times // units.SECOND
        begin, end = self._styled("bold cyan")
        for place in np.flatnonzero(np.diff(seconds, prepend=seconds[:1] - 1)).tolist():
            ns = int(times[place])
            day = units.clock(ns, self._utc, 0, date=True).partition(" ")[0]
            if day != self._day:
                self._day = day
                lines[place] = f"{begin}{day} {units.zone(ns, self._utc)}{end}\n{lines[place]}"

    def _tails(self, messages: Messages) -> list[str]:
        """What comes behind the columns of each message: its facts, the most important first."""
        facts: list[Facts] = messages.objects[:, m.FACTS].tolist()
        texts = self._texts.of(facts, self._text_of)
        before, waits = self._states(messages), self._waits(messages)
        amounts = self._amounts(messages)
        ends = self._tls_versions(messages)
        made = [
            f"{state}{text.errors}{wait}{text.places if amount or text.values or end else text.last_places}{amount}"
            f"{text.values}{end}"
            for text, state, wait, amount, end in zip(texts, before, waits, amounts, ends, strict=True)
        ]
        for place in np.flatnonzero(messages.heads["token"]).tolist():
            mechanism = messages.objects[place, m.MECHANISM]
            named = "" if mechanism is None else f"{_text(mechanism, LONGEST_ID)}, "
            size = int(messages.of_side("bytes")[place])
            made[place] = self._span(f"{named}{size} bytes, hidden", "dim") + ends[place]
        return made

    def _span(self, text: str, style: str = "") -> str:
        return "  " + text.join(self._styled(style))

    def _text_of(self, facts: Facts) -> _FactTexts:
        errors = [
            self._span(error_name(code) + (f" x {count}" if count > 1 else ""), "red")
            for code, count in sorted(facts.errors.items())
        ]
        names = self._places(facts.places)
        places = [self._span(name, "magenta") for name in names]
        last = places[:]
        while last and not names[len(last) - 1].strip():
            last.pop()
        values = [self._span(f"{name}={value}", "dim") for name, value in _values(facts)]
        return _FactTexts(*map("".join, (errors, places, last, values)))

    def _states(self, messages: Messages) -> list[str]:
        """What is unusual about a message as a whole."""
        outcomes, statuses, answers = messages.heads["outcome"], messages.of_side("status"), messages.are_responses
        orphans = outcomes == r.ORPHAN_RESPONSE
        statuses = np.where((statuses == r.INCOMPLETE) & (messages.of_side("cut_bytes") > 0), _CUT, statuses)
        wrong = is_among(statuses, list(_STATUSES)) & ~orphans
        unusual = ~answers & is_among(outcomes, list(_OUTCOMES))
        found = [""] * messages.total
        for place in np.flatnonzero(orphans | wrong | unusual).tolist():
            if orphans[place]:
                found[place] = self._span("its request was not captured", "yellow")
            elif wrong[place]:
                word, style = _STATUSES[int(statuses[place])]
                problem = messages.objects[place, m.PROBLEM]
                found[place] = self._span(f"{word} at {problem}" if problem else word, style)
            if unusual[place]:
                found[place] += self._span(*_OUTCOMES[int(outcomes[place])])
        return found

    def _waits(self, messages: Messages) -> list[str]:
        """What a response waited for."""
        answers, rows, found = messages.are_responses, messages.rows, [""] * messages.total
        throttled = messages.numbers["throttle_time_ms"]
        for place, ms in _where(answers & (throttled != 0), throttled):
            found[place] += self._span(f"throttled {units.duration(ms * 1_000_000)}", "yellow")
        for name, word in (("hol_wait_ns", "HOL wait"), ("throttle_wait_ns", "throttle wait")):
            for place, ns in _where(answers & (rows[name] >= SHORTEST_WAIT_NS), rows[name]):
                found[place] += self._span(f"{word} {units.duration(ns)}", "yellow")
        for place, _ in _where(answers & (rows["long_poll"] != 0), rows["long_poll"]):
            found[place] += self._span("waited for data", "dim")
        return found

    def _amounts(self, messages: Messages) -> list[str]:
        """Records and offsets."""
        numbers, found = messages.numbers, [""] * messages.total
        for place, (_, size, count, _) in _where(numbers["record_bytes"] >= 0, numbers):
            found[place] = self._span(_records(size, count))
        keys, answers = messages.rows["api_key"], messages.are_responses
        are_marks, are_bases = answers & is_among(keys, sorted(r.FETCHES)), answers & (keys == _PRODUCE)
        for place, offset in _where(numbers["offset"] >= 0, numbers["offset"]):
            name = "HW" if are_marks[place] else "base offset" if are_bases[place] else "offset"
            found[place] += self._span(f"{name}={offset}")
        return found

    def _tls_versions(self, messages: Messages) -> list[str]:
        found = [""] * messages.total
        versions = messages.rows["tls_version"]
        if self._with_tls:
            begin, end = self._styled("dim")
            for place, version in _where(versions >= 0, versions):
                found[place] = f"{begin}  {r.TLS_VERSIONS[version]}, decrypted{end}"
        return found

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


def each(values: list[Any], text: Callable[[Any], str]) -> list[str]:
    """The text of each value; each distinct one is made once."""
    made = {value: text(value) for value in set(values)}
    return [made[value] for value in values]


def _ends(objects: Array, end: int, host: int) -> list[str]:
    """The addresses of ends, with the names behind those that have one."""
    texts, hosts = objects[:, end].tolist(), objects[:, host].tolist()
    if not any(hosts):
        return list(texts)
    named = each(hosts, lambda name: f" {_shown(name, LONGEST_ID)}" if name else "")
    return [text + name for text, name in zip(texts, named, strict=True)]


def _where(mask: Array, values: Array) -> Iterator[tuple[int, Any]]:
    """The places (int) of a mask, and the values there."""
    places = np.flatnonzero(mask)
    return zip(places.tolist(), values[places].tolist(), strict=True)


def _title(key: tuple[int, int, int, int]) -> str:
    token, outcome, api_key, version = key
    if token:
        return "SASL token"
    return "response" if outcome == r.ORPHAN_RESPONSE else f"{api_name(api_key)} v{version}"


def _identity(client_id: bytes | None) -> str:
    return "-" if client_id is None else _text(client_id, LONGEST_ID)


def _records(size: int, count: int) -> str:
    if not size:
        return "no records"
    if count < 0:
        return f"records {units.size(size)}"
    return f"{count} {'record' if count == 1 else 'records'} {units.size(size)}"


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
        if (not value and name not in _ALWAYS) or (value == -1 and name != "Acks"):
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
