"""The commands that print the packets and exchanges of a table's row: `kafkatap show ...`, or copy them: `extract`.

A command has names from the wire in it. It is left out if a terminal does not show one of them as it is, or if it
would select other exchanges too.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from itertools import pairwise

from .. import units
from ..addresses import is_end
from ..commands import CAPTURE, is_showable, kept_words, with_captures
from ..model import Report, ReportTable, Row, Traffic, Value, as_number

#: A condition of a filter expression; "" for none; None: the row cannot be selected.
Condition = Callable[[Row], str | None]
#: Tables whose rows are single exchanges: these have a command that copies the packets for Wireshark, too.
EXTRACTED = frozenset(("slowest", "first_errors"))
#: Where `RowCommander.template` has its condition.
PLACE = "THE CONDITION"
#: The option that selects one connection.
_CONNECTION = "--connection"
#: Longer expressions are left out: nobody reads them.
_LONGEST = 300


def _name(column: str, name: str) -> Condition:
    """A text column. A missing value selects exchanges without one."""

    def condition(row: Row) -> str | None:
        value = row.get(column)
        return f"{name} == null" if value is None else _equals(name, str(value))

    return condition


def _known(column: str, name: str) -> Condition:
    """A text column. A missing value selects nothing."""

    def condition(row: Row) -> str | None:
        value = row.get(column)
        return "" if value in (None, "", "-") else _equals(name, str(value))

    return condition


def _equals(name: str, text: str) -> str | None:
    if text == "(other)" or not is_showable(text):
        return None
    if text and text.isascii() and text.isidentifier() and text.lower() not in ("and", "or", "not", "in", "null"):
        return f"{name} == {text}"
    return f"{name} == '{text}'" if '"' in text and "'" not in text else _quoted(name, text)


def _quoted(name: str, text: str) -> str | None:
    return None if '"' in text else f'{name} == "{text}"'


def _api(row: Row) -> str | None:
    label = str(row["api"])
    if label.startswith("("):
        return None
    plain = label.removesuffix(" (long poll)")
    long_poll = row.get("long_poll")
    waits = "" if long_poll is None else " and long_poll" if long_poll else " and long_poll == false"
    return f"api == {plain.removeprefix('API ')}{waits if plain in ('Fetch', 'ShareFetch') else ''}"


def _error(row: Row) -> str | None:
    return f"error == {row['code'] if '(no name)' in str(row['error']) else row['error']}"


def _number(column: str, name: str) -> Condition:
    return lambda row: f"{name} == {row[column]}" if row.get(column) is not None else ""


def _end(column: str) -> Condition:
    """The client's address and port, as an option."""

    def condition(row: Row) -> str | None:
        end = str(row.get(column) or "")
        return f"{_CONNECTION} {end}" if is_end(end) else None

    return condition


def _address(column: str, name: str) -> Condition:
    def condition(row: Row) -> str | None:
        value = row.get(column)
        return "" if value in (None, "") else f'{name} == "{value}"'

    return condition


def _resource(row: Row) -> str | None:
    """What an error code refers to."""
    value, kind = row.get("name"), row.get("kind")
    if value is None:
        return ""
    return _equals("topic" if kind in ("topic", "partition") else "name", str(value))


def _apis(*names: str) -> Condition:
    return lambda row: f"api in ({', '.join(names)})" if len(names) > 1 else f"api == {names[0]}"


_ROLES = {"writes": ("Produce",), "reads": ("Fetch", "ShareFetch"), "replicates": ("Fetch",)}


def _role(row: Row) -> str | None:
    names = _ROLES.get(str(row.get("role")))
    return "" if names is None else _apis(*names)(row)


def _direction(row: Row) -> str | None:
    return _apis("Produce" if row["direction"] == "produce" else "Fetch")(row)


def _error_name(row: Row) -> str | None:
    error = str(row["error"])
    return f"error == {error.partition(' ')[0]}" if is_showable(error) else None


def _throttled(row: Row) -> str | None:
    return "throttle > 0ms" if row.get("throttled") else "throttle_wait > 0ms" if row.get("throttle_waits") else None


def _span(start: str, end: str) -> Condition:
    def condition(row: Row) -> str | None:
        first, last = row.get(start), row.get(end)
        if not isinstance(first, int) or not isinstance(last, int) or first == last:
            return None  # one time may be that of a response: no exchange begins then
        return f"time >= {_moment(first)} and time <= {_moment(last)}"

    return condition


def _moment(ns: int) -> str:
    """A time as expressions read it, whatever the time zone of the reader."""
    return units.iso(ns).removesuffix("Z").rstrip("0").rstrip(".") + "Z"


def _has_exchanges(row: Row) -> str | None:
    """Connections without Kafka messages, such as those of TLS, have nothing to show."""
    return "" if row["exchanges"] else None


def _has_requests(row: Row) -> str | None:
    """Clients that were not decrypted have nothing to show."""
    return "" if row["requests"] else None


def _is_decrypted(row: Row) -> str | None:
    """TLS connections that were not decrypted have nothing to show."""
    return "" if row["decryption"] == "decrypted" else None


def _is_named(row: Row) -> str | None:
    """Without a commit that was captured, no request names both the group and the topic: Fetch names no group."""
    return "" if row["committed_at"] else None


def _sasl(row: Row) -> str | None:
    """Clients that should have used SASL or TLS sent other requests; those whose TLS handshake failed sent none."""
    if str(row["outcome"]).startswith("TLS "):
        return None
    return "" if row["outcome"] in ("no SASL", "no TLS") else _apis("SaslHandshake", "SaslAuthenticate")(row)


_CLIENT = _name("client_id", "client_id")
#: The conditions of the rows of each table.
CONDITIONS: dict[str, tuple[Condition, ...]] = {
    "throttle": (_CLIENT, _api, _throttled),
    "error_totals": (_error, _api),
    "errors": (_error, _api, _resource, _CLIENT),
    "clients": (_has_requests, _CLIENT, _address("address", "client_ip")),
    "throttle_obedience": (_CLIENT, lambda row: "throttle > 0ms" if row["throttled"] else None),
    "quota_rates": (_CLIENT, _known("broker", "broker"), _direction),
    "client_activity": (_CLIENT, _address("address", "client_ip")),
    "upgrade": (_CLIENT, _address("address", "client_ip")),
    "retried_batches": (_apis("Produce"), _CLIENT, _known("topic", "topic")),
    "replication_writers": (_apis("Produce"), _CLIENT, _known("topic", "topic")),
    "zone_readers": (
        _apis("Fetch", "ShareFetch"),
        _CLIENT,
        _address("client_ip", "client_ip"),
        _known("topic", "topic"),
    ),
    "topics": (_known("topic", "topic"),),
    "topic_clients": (_known("topic", "topic"), _role, _CLIENT, _address("address", "client_ip")),
    "groups": (_known("group", "group"),),
    "group_members": (_known("group", "group"), _CLIENT, _address("address", "client_ip")),
    "group_lag": (_is_named, _known("group", "group"), _known("topic", "topic")),
    "group_partitions": (
        _is_named,
        _known("group", "group"),
        _known("topic", "topic"),
        _number("partition", "partition"),
    ),
    "group_errors": (_known("group", "group"), _error_name, _api),
    "rebalances": (_known("group", "group"), _span("start", "end")),
    "transactions": (_known("transactional_id", "transactional_id"),),
    "auth": (_sasl, _CLIENT, _address("client_ip", "client_ip")),
    "tls": (_is_decrypted, _address("client_ip", "client_ip"), _known("broker", "broker")),
    "connections": (_has_exchanges, _address("client_ip", "client_ip"), _known("broker", "broker")),
    "slow_connections": (_has_exchanges, _end("client"), _known("broker", "broker")),
}
_LATENCY: dict[str, tuple[Condition, ...]] = {
    "client_id": (_CLIENT,),
    "broker": (_known("broker", "broker"),),
    "connection": (lambda row: _connected(row), lambda row: _connected_broker(row)),
    "api_version": (_number("api_version", "version"),),
    "topic": (_known("topic", "topic"),),
}
#: Tables whose rows are on exchanges of one connection each: its client's end, and the broker.
_OF_CONNECTIONS: dict[str, tuple[Condition, ...]] = {
    name: (_end("address"), _known("broker", "broker")) for name in ("slowest", "first_errors")
}


def _connected(row: Row) -> str | None:
    """The client's end of the text of a connection."""
    return _end("client")({"client": str(row["connection"]).partition(" ")[0]})


def _connected_broker(row: Row) -> str | None:
    broker = str(row["connection"]).partition(" ")[2].rpartition(" ")[2]
    return f"broker == {broker}" if broker else None


def conditions_of(traffic: Traffic) -> tuple[tuple[str | None, ...], ...]:
    """The conditions of the APIs, clients and brokers of a picture; None: it cannot be selected."""
    named: tuple[tuple[str, Condition, Sequence[str | None]], ...] = (
        ("api", _api, traffic.apis), ("client_id", _CLIENT, traffic.clients), ("broker", _broker, traffic.brokers)
    )  # fmt: skip
    return tuple(tuple(_between_quotes(of({column: name})) for name in names) for column, of, names in named)


def _between_quotes(condition: str | None) -> str | None:
    return None if condition is None or "'" in condition else condition


_broker = _known("broker", "broker")


class RowCommander:
    """Makes the commands of a report's rows. `captures`: their names in commands."""

    def __init__(self, report: Report, captures: Sequence[str] = ()) -> None:
        (heading,) = report.heading.named_rows()
        self._captures = captures
        self._options = report.options
        self._is_live = bool(heading["interfaces"])
        self._words, self._filter = _without_filter(str(heading["filters"] or ""))
        self._interval = _interval(report)

    def commands(self, table: ReportTable, row: tuple[Value, ...]) -> tuple[str, ...]:
        """The commands of a row, the most specific first."""
        if self._is_live:
            return ()
        named = table.named(row)
        packet = named.get("packet")
        found = [self._command(f"packet == {packet}", "show --tree")] if packet else []
        if packet and table.name in EXTRACTED:
            found.append(self._command(f"packet == {packet}", "extract", f" -o packet-{packet}.pcapng"))
        for conditions in (self._conditions(table), _OF_CONNECTIONS.get(table.name, ())):
            parts = [condition(named) for condition in conditions]
            if any(parts) and None not in parts:
                found.append(self._of_parts([part for part in parts if part]))
        return tuple(filter(None, found))

    def template(self) -> str:
        """The command that prints exchanges, with PLACE for their condition, between quotes."""
        return "" if self._is_live else self._command(PLACE)

    def _conditions(self, table: ReportTable) -> tuple[Condition, ...]:
        if table.name == "timeline":
            return (self._in_interval,)
        if table.name == "latency":
            return (_api, *(each for c in table.columns for each in _LATENCY.get(c.name, ())))
        return CONDITIONS.get(table.name, ())

    def _in_interval(self, row: Row) -> str | None:
        start = row["start"]
        if not row["requests"] or not isinstance(start, int) or not self._interval:
            return None
        return f"time >= {_moment(start)} and time < {_moment(start + self._interval)}"

    def _of_parts(self, parts: Sequence[str]) -> str:
        """The command for conditions, of which some are options."""
        options = [part for part in parts if part.startswith(_CONNECTION)]
        return self._command(" and ".join(part for part in parts if part not in options), options=options)

    def _command(self, expression: str, name: str = "show", output: str = "", options: Sequence[str] = ()) -> str:
        if self._filter:
            expression = f"({self._filter}) and {expression}" if expression else self._filter
        if len(expression) > _LONGEST or any(f"{_CONNECTION} " in self._words for _ in options):
            return ""
        kept = kept_words(self._options, name)
        condition = f"--filter {units.shell_word(expression)}" if expression else ""
        words = " ".join(filter(None, (self._words, *options, condition, *kept)))
        return with_captures(f"kafkatap {name} {words}{output} {CAPTURE}", self._captures)


def _without_filter(selected: str) -> tuple[str, str]:
    """The options of a selection without --filter, and its expression."""
    try:
        words = shlex.split(selected)
    except ValueError:
        return selected, ""
    for n, word in enumerate(words):
        if word in ("--filter", "-f") and n + 1 < len(words):
            return " ".join(map(units.shell_word, words[:n] + words[n + 2 :])), words[n + 1]
    return selected, ""


def _interval(report: Report) -> int:
    """The length of the timeline's intervals, ns; 0 if it is not known."""
    table = next((t for t in report.tables if t.name == "timeline"), None)
    starts = [] if table is None else [int(as_number(row["start"])) for row in table.named_rows()]
    return min((b - a for a, b in pairwise(starts)), default=0)
