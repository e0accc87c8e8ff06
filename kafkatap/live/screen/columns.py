"""Columns of the live screen, and which of them fit.

Widths depend on the terminal and not on the values, so nothing moves from one second to the next. All text from the
wire is escaped here. Colours are never the only sign of something.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from kafkatap.reports import units

from ..broker_health import BrokerRow
from .breakdown import Row
from .recent_exchanges import Connection, Message
from .waits import Wait

Span = tuple[str, str]  #: text and a rich style ("" for plain)
Line = list[Span]
T = TypeVar("T")

GAP = 1
#: Percent of the width that names have before further columns are shown.
NAME_SHARE = 26
NONE = "-"
BAD, WARN, DIM, HEAD = "bold red", "yellow", "dim", "bold cyan"


@dataclass(frozen=True, slots=True)
class Column(Generic[T]):
    """`rank`: columns of the highest rank are dropped first. `wish`: the width before columns of higher rank are added.
    `most`: the maximum width. Columns of numbers do not grow.

    `key`: the sort key; greater is worse, texts sort by the alphabet. None: rows are never sorted by this column.
    """

    name: str
    title: str
    rank: int
    width: int
    show: Callable[[T], Span]
    key: Callable[[T], Any] | None = None
    most: int = 0
    right: bool = True
    wish: int = 0


def fit(columns: Sequence[Column[T]], width: int, longest: int = 0) -> list[tuple[Column[T], int]]:
    """The columns that fit, with their widths. `longest`: the width of the longest name, for which the first column has
    a quarter of the screen before others get more."""
    name = min(columns, key=lambda c: c.rank)
    wide = max(name.width, min(longest, name.most, width * NAME_SHARE // 100))
    columns = [replace(c, wish=max(c.wish, wide)) if c is name else c for c in columns]
    shown = sorted(columns, key=lambda c: c.rank)
    while len(shown) > 1:
        wishes = [max(c.width, c.wish) for c in shown[:-1]]
        if sum(wishes) + shown[-1].width + GAP * len(wishes) <= width:
            break
        shown.pop()
    shown = [c for c in columns if c in shown]
    widths = {c.name: c.width for c in shown}
    left = width - sum(c.width + GAP for c in shown) + GAP
    if left < 0:  # a very narrow terminal
        return [(shown[0], max(width, 1))]
    for c in sorted(shown, key=lambda c: c.rank):
        wished = min(max(c.wish - widths[c.name], 0), left)
        widths[c.name] += wished
        left -= wished
    room = {c.name: max(c.most - widths[c.name], 0) for c in shown}
    for c in shown:  # in proportion
        more = -(-left * room[c.name] // (sum(room.values()) or 1))
        widths[c.name] += (more := min(more, left, room.pop(c.name)))
        left -= more
    return [(c, widths[c.name]) for c in shown]


def heading(shown: Sequence[tuple[Column[T], int]], sort: str = "", reverse: bool = False) -> Line:
    """The line of titles, with an arrow at the column that rows are sorted by."""
    line: Line = []
    for column, width in shown:
        arrow = ("▲" if reverse else "▼") if column.name == sort else ""
        title = units.cut(column.title, max(width - len(arrow), 1))
        line += [_padded((title + arrow, "bold" if arrow else HEAD), width, column.right), (" " * GAP, "")]
    return line[:-1]


def cells(shown: Sequence[tuple[Column[T], int]], row: T, selected: bool = False) -> Line:
    """The line of one row."""
    line: Line = []
    for column, width in shown:
        text, style = column.show(row)
        line += [_padded((units.cut(text, width), style), width, column.right), (" " * GAP, "")]
    if selected:
        return [(text, "bold reverse" if "bold" in style else "reverse") for text, style in line[:-1]]
    return line[:-1]


def _padded(span: Span, width: int, right: bool) -> Span:
    space = " " * (width - units.cells(span[0]))
    return (space + span[0] if right else span[0] + space), span[1]


def rate(value: float) -> str:
    """`0.3`, `47`, `12,345`, `1.23M` a second."""
    if value < 0.05:
        return "<0.1" if value > 0 else NONE
    if value < 9.95:
        return f"{value:.1f}"
    return f"{value:,.0f}" if value < 999_999.5 else f"{value / 1e6:.2f}M"


def shown_name(name: str | None) -> str:
    """A name from the wire, escaped."""
    return "(none)" if name is None else units.safe(name) or "(empty)"


def shown_time(value: int | None, style: str = "", waits: bool = False) -> Span:
    """A duration, in brackets if the request waited for something else than the broker."""
    if value is None:
        return NONE, DIM
    text = units.duration(value)
    return (f"({text})", DIM) if waits else (text, style)


def shown_count(value: int, style: str = "") -> Span:
    return (f"{value:,}" if value < 1_000_000 else f"{value / 1e6:.1f}M", style) if value else (NONE, DIM)


def shown_rate(value: float, style: str = "") -> Span:
    return (rate(value), style) if value else (NONE, DIM)


def shown_size(value: float | None) -> Span:
    return (units.size(int(value)), "") if value else (NONE, DIM)


def _prompt(row: Row, value: int | None) -> int:
    """The sort key of a time: rows that wait for something else come last."""
    return -2 if value is None else -1 if row.waits else value


ROWS: tuple[Column[Row], ...] = (
    Column("name", "name", 0, 14, lambda r: (shown_name(r.name), ""), lambda r: (r.name or "").lower(), 60, False),
    Column("addresses", "from", 7, 15, lambda r: (_ends(r.addresses), ""), None, 39, False),
    Column("requests", "req/s", 1, 7, lambda r: shown_rate(r.request_rate), lambda r: r.request_rate),
    Column("in", "in/s", 11, 8, lambda r: shown_size(r.in_rate), lambda r: r.in_rate),
    Column("out", "out/s", 10, 8, lambda r: shown_size(r.out_rate), lambda r: r.out_rate),
    Column("p50", "p50", 4, 9, lambda r: shown_time(r.broker_p50, waits=r.waits), lambda r: _prompt(r, r.broker_p50)),
    Column("p99", "p99", 2, 9, lambda r: shown_time(r.broker_p99, "bold", r.waits), lambda r: _prompt(r, r.broker_p99)),
    Column(
        "total", "total p99", 9, 10, lambda r: shown_time(r.total_p99, waits=r.waits), lambda r: _prompt(r, r.total_p99)
    ),
    Column("throttled", "throttled", 5, 9, lambda r: shown_count(r.throttled, WARN), lambda r: r.throttled),
    Column(
        "throttle_wait", "thr.wait", 8, 8, lambda r: shown_time(r.throttle_wait or None, WARN),
        lambda r: r.throttle_wait,
    ),
    Column("unanswered", "unans.", 12, 6, lambda r: shown_count(r.unanswered, WARN), lambda r: r.unanswered),
    Column("failed", "failed", 3, 7, lambda r: shown_count(r.failed, BAD), lambda r: r.failed),
    Column("error_codes", "codes/s", 13, 7, lambda r: shown_rate(r.error_code_rate, BAD), lambda r: r.error_code_rate),
    Column("error", "error code", 6, 12, lambda r: (r.top_error or "", BAD), None, 28, False, 22),
)  # fmt: skip


#: Columns of the connections view.
HEALTH: tuple[Column[BrokerRow], ...] = (
    Column("name", "broker", 0, 15, lambda r: (units.safe(r.name), ""), lambda r: r.name, 47, False, 21),
    Column("open", "open", 2, 7, lambda r: shown_count(r.open), lambda r: r.open),
    Column("opened", "opened", 6, 7, lambda r: shown_count(r.opened), lambda r: r.opened),
    Column("refused", "refused", 1, 7, lambda r: shown_count(r.refused, BAD), lambda r: r.refused),
    Column("no_answer", "no answer", 3, 9, lambda r: shown_count(r.unanswered, BAD), lambda r: r.unanswered),
    Column("resets", "resets", 4, 7, lambda r: shown_count(r.resets, WARN), lambda r: r.resets),
    Column("retransmitted", "retrans.", 5, 8, lambda r: shown_count(r.retransmitted, WARN), lambda r: r.retransmitted),
    Column("zero_windows", "zero win.", 8, 9, lambda r: shown_count(r.zero_windows, WARN), lambda r: r.zero_windows),
    Column("rtt", "rtt", 7, 9, lambda r: shown_time(r.round_trip), lambda r: r.round_trip or -1),
    Column("protocol", "protocol", 9, 8, lambda r: (r.protocol, DIM), lambda r: r.protocol, 0, False),
)


def connection_columns(utc: bool) -> tuple[Column[Connection], ...]:
    return (
        Column("client", "from", 0, 17, lambda c: (_end(c.client, c.client_host), ""), None, 47, False),
        Column("broker", "to", 3, 15, lambda c: (_end(c.broker, c.broker_host), ""), None, 47, False),
        Column("client_id", "client", 8, 10, lambda c: (shown_name(c.client_id), ""), None, 30, False),
        Column("requests", "requests", 1, 8, lambda c: shown_count(c.requests)),
        Column("p50", "p50", 4, 9, lambda c: shown_time(c.broker_p50)),
        Column("p99", "p99", 2, 9, lambda c: shown_time(c.broker_p99, "bold")),
        Column("throttled", "throttled", 6, 9, lambda c: shown_count(c.throttled, WARN)),
        Column("unanswered", "unans.", 9, 6, lambda c: shown_count(c.unanswered, WARN)),
        Column("failed", "failed", 5, 7, lambda c: shown_count(c.failed, BAD)),
        Column("last", "last", 7, 8, lambda c: (units.clock(c.last, utc, 0), "")),
    )


def message_columns(utc: bool) -> tuple[Column[Message], ...]:
    return (
        Column("at", "began", 1, 12, lambda m: (units.clock(m.at, utc), ""), None, 0, False),
        Column("api", "request", 0, 14, lambda m: (f"{m.api} v{m.api_version}", ""), None, 28, False),
        Column("client_id", "client", 4, 12, lambda m: (shown_name(m.client_id), ""), None, 24, False),
        Column("client", "from", 7, 17, lambda m: (_end(m.client, m.client_host), ""), None, 24, False),
        Column("broker_ns", "broker", 2, 9, lambda m: shown_time(m.broker_ns, "bold", m.waits)),
        Column("total_ns", "total", 8, 9, lambda m: shown_time(m.total_ns, waits=m.waits)),
        Column("in", "in", 10, 8, lambda m: shown_size(m.request_bytes)),
        Column("out", "out", 9, 8, lambda m: shown_size(m.response_bytes)),
        Column("result", "result", 3, 12, result_of, None, 34, False, 20),
        Column("topics", "topics", 6, 12, lambda m: (units.safe(", ".join(m.topics)), ""), None, 60, False, 18),
    )


#: Waits from which on they are marked, ns.
LONG, VERY_LONG = 1_000_000_000, 3_000_000_000


def wait_columns(utc: bool) -> tuple[Column[Wait], ...]:
    def style(wait: Wait) -> str:
        return BAD if wait.waited_ns >= VERY_LONG else WARN if wait.waited_ns >= LONG else ""

    def request(wait: Wait) -> Span:
        return f"{wait.oldest.api} v{wait.oldest.api_version}", ""

    return (
        Column("name", "client", 0, 14, lambda w: (shown_name(w.oldest.client_id), ""),
               lambda w: (w.oldest.client_id or "").lower(), 60, False),
        Column("waits", "waits", 1, 9, lambda w: (units.duration(w.waited_ns), style(w)), lambda w: w.waited_ns),
        Column("request", "for", 2, 14, request, None, 28, False),
        Column("broker", "at", 4, 15, lambda w: (_end(w.oldest.broker, w.oldest.broker_host), ""), None, 47, False),
        Column("client", "from", 3, 17, lambda w: (_end(w.oldest.client, w.oldest.client_host), ""), None, 47, False),
        Column("connections", "connections", 6, 11, lambda w: shown_count(w.connections), lambda w: w.connections),
        Column("at", "since", 5, 8, lambda w: (units.clock(w.oldest.at, utc, 0), ""), lambda w: -w.oldest.at),
    )  # fmt: skip


def _end(address: str, host: str | None) -> str:
    """`payments-7f9 10.0.0.1:40000`: the name first, as narrow columns cut the rest."""
    return units.safe(address) if host is None else f"{units.safe(host)} {units.safe(address)}"


def _ends(addresses: Sequence[str]) -> str:
    """The first address, and how many others there are."""
    first = units.safe(addresses[0]) if addresses else NONE
    return f"{first} +{len(addresses) - 1}" if len(addresses) > 1 else first


def result_of(message: Message) -> Span:
    """The result of a request: error codes, else the outcome without a response, else throttling."""
    if message.error_codes:
        return ", ".join(name if n == 1 else f"{name} x{n}" for name, n in message.error_codes), BAD
    if message.outcome == "no_reply_expected":
        return "no reply expected", DIM
    if message.outcome != "answered":
        return message.outcome.replace("_", " "), WARN
    if message.throttle_time_ms:
        return f"throttle {units.duration(message.throttle_time_ms * 1_000_000)}", WARN
    if message.throttle_wait_ns:
        return f"throttle wait {units.duration(message.throttle_wait_ns)}", WARN
    return "ok", DIM


def message_lines(m: Message, utc: bool) -> list[Line]:
    """All that is known of an exchange, one line each."""

    def time(value: int | None) -> str:
        return NONE if value is None else units.duration(value)

    def size(value: int | None) -> str:
        return NONE if value is None else f"{value:,} B"

    waits = "   (waits for data or for other members)" if m.waits and m.broker_ns is not None else ""
    throttle = NONE if m.throttle_time_ms is None else units.duration(m.throttle_time_ms * 1_000_000)
    fields: list[tuple[str, str, str]] = [
        ("request", f"{m.api} v{m.api_version}, correlation id {m.correlation_id}", "bold"),
        ("client", shown_name(m.client_id), ""),
        ("from", f"{_end(m.client, m.client_host)} to {_end(m.broker, m.broker_host)}", ""),
        ("began", f"{units.clock(m.at, utc, 6, date=True)} {units.zone(m.at, utc)}", ""),
        ("outcome", m.outcome.replace("_", " "), "" if m.outcome == "answered" else WARN),
        *([("waits", time(m.waited_ns) + "   beyond what its broker may hold it", BAD)] if m.waited_ns else []),
        ("size", f"{size(m.request_bytes)}, response {size(m.response_bytes)}", ""),
        ("broker", time(m.broker_ns) + waits, "bold"),
        ("head-of-line", f"{time(m.hol_wait_ns)}   wait behind earlier requests of the connection", ""),
        ("throttle", f"{time(m.throttle_wait_ns)}   wait on the wire because of throttling",
         WARN if m.throttle_wait_ns else ""),
        ("total", f"{time(m.total_ns)}   first byte of the request to last byte of the response", ""),
        ("", f"{throttle}   throttle_time_ms of the response", WARN if m.throttle_time_ms else ""),
    ]  # fmt: skip
    fields += [
        ("error codes" if n == 0 else "", f"{name} x{times}", BAD) for n, (name, times) in enumerate(m.error_codes)
    ]
    fields += [("topics" if n == 0 else "", units.safe(topic), "") for n, topic in enumerate(m.topics)]
    return [[(f"{name:<14}", DIM), (text, style)] for name, text, style in fields]
