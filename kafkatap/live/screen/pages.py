"""Pages of the live screen and their rows: tables by API, client, topic or broker; one of these; its messages.

A page has sections, one below the other. `sections` reads counts and recent exchanges under the monitor's lock and
returns plain rows. `columns` and `drawing` decide how they look.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from kafkatap.reports import units
from kafkatap.reports.batch import Context
from kafkatap.reports.counting.counts import ReportCounts

from ..broker_health import BrokerRow
from ..governor import FULL, LEVELS
from ..sink import names_of
from .breakdown import BY, SECOND, Row, Scope, window_rows
from .columns import HEALTH, ROWS, Column, connection_columns, message_columns, result_of, shown_name
from .recent_exchanges import Connection, Message, Recent

if TYPE_CHECKING:
    from ..monitor import Monitor
    from ..status import Status

T = TypeVar("T")
#: Lengths of the windows, seconds; None: since the start.
WINDOWS = (10, 60, None)
#: Views: requests by one of BY, or the connections of brokers.
VIEWS = (*BY, "connections")
#: The breakdown of one row of a view.
PARTS = {"api": "client", "client": "api", "topic": "api", "broker": "client"}
_PLURALS = {"api": "APIs", "client": "clients"}
_SINGULARS = {"api": "API"}
CONNECTIONS, LAST, MESSAGES = 10, 20, 200
#: Kinds of pages without rows.
TEXTS = ("message", "help")


@dataclass(slots=True)
class Page:
    """`kind`: table (`by` one of VIEWS), detail (of `scope`), messages (of `scope`), message, help. `ends`: the name of
    the scope's connection. `cursor`: the key of the chosen row, None for the first; `at`: its last place. `top`: how
    many lines are scrolled out above."""

    kind: str
    by: str = "api"
    scope: Scope = ()
    ends: str = ""
    message: Message | None = None
    cursor: Any = None
    at: int = 0
    top: int = 0


@dataclass(frozen=True, slots=True)
class Section:
    """Rows of one kind. `keys` identify them from one second to the next. `scope`: the part of the traffic that the
    rows are of. A row other than a message opens its own part of that.

    `hidden`: how many rows did not pass the filter. `more`: a text about rows that are left out. `sort`: the column by
    which they are sorted, "" if they cannot be sorted.
    """

    title: str
    columns: Sequence[Column[Any]]
    rows: Sequence[Any]
    keys: Sequence[Any]
    scope: Scope
    empty: str
    hidden: int = 0
    more: str = ""
    sort: str = ""


class Live:
    """The rows that the monitor has now."""

    def __init__(self, monitor: Monitor, recent: Recent) -> None:
        self.monitor, self._recent = monitor, recent

    @property
    def status(self) -> Status:
        return self.monitor.status

    @contextmanager
    def reading(self, window: int | None) -> Iterator[tuple[ReportCounts, Context, Recent]]:
        """Counts, names and exchanges, valid until the end of the block."""
        with self.monitor.reading(window) as counts:
            yield counts, names_of(self.monitor.engine), self._recent

    def brokers(self, window: int | None) -> list[BrokerRow]:
        """The connections of brokers."""
        with self.monitor.reading(None):
            return self.monitor.health.rows(window)


class Frozen:
    """A copy of all rows at one moment: all windows, names and exchanges."""

    def __init__(self, live: Live) -> None:
        self.status = live.status
        self._counts: dict[int | None, ReportCounts] = {}
        with live.reading(None) as (_, names, recent):
            self._context = Context(
                strings=names.strings[:], addresses=list(names.addresses), topic_names=dict(names.topic_names)
            )
            self._recent = recent.frozen()
            self._brokers = {window: live.brokers(window) for window in WINDOWS}
            for window in WINDOWS:
                with live.monitor.reading(window) as counts:
                    self._counts[window] = ReportCounts(by_topic=counts.by_topic)
                    self._counts[window].merge(counts)

    @contextmanager
    def reading(self, window: int | None) -> Iterator[tuple[ReportCounts, Context, Recent]]:
        yield self._counts[window], self._context, self._recent

    def brokers(self, window: int | None) -> list[BrokerRow]:
        return self._brokers[window]


@dataclass(slots=True)
class Shown:
    """What all pages have in common: window, order and filter."""

    window: int | None = WINDOWS[0]
    sort: str = "requests"
    reverse: bool = False
    filter: str = ""
    utc: bool = False


def window_text(window: int | None) -> str:
    if window is None:
        return "since the start"
    return f"last {window} s" if window < 60 else f"last {window // 60} min"


def window_length(window: int | None, status: Status) -> int:
    """ns that the counts of a window cover."""
    since = max(status.now - status.started, SECOND)
    return since if window is None else min(window * SECOND, since)


def scope_text(page: Page) -> str:
    """`client billing > API Produce`; escaped."""
    parts = [(kind, page.ends if kind == "connection" and page.ends else name) for kind, name in page.scope]
    return " > ".join(
        f"{_SINGULARS.get(kind, kind)} {shown_name(None if name is None else str(name))}" for kind, name in parts
    )


def sections(page: Page, look: Live | Frozen, shown: Shown) -> list[Section]:
    """The sections of a page now."""
    if page.kind in TEXTS:
        return []
    if page.kind == "table" and page.by == "connections":
        return [_broker_section(look.brokers(shown.window), shown)]
    with look.reading(shown.window) as (counts, context, recent):
        length = window_length(shown.window, look.status)
        if page.kind == "table":
            rows = window_rows(counts, context, page.by, length)
            return [_row_section(page.by, rows, (), shown, "", _why_none(page.by, look.status, shown))]
        if page.kind == "messages":
            return [_message_section(recent.matching(page.scope, MESSAGES), page.scope, shown, "")]
        part = PARTS[page.scope[0][0]]
        rows = window_rows(counts, context, part, length, page.scope)
        connections = recent.active(page.scope, CONNECTIONS + 1)
        messages = recent.matching(page.scope, LAST)
        span = f"of the last {len(recent):,} exchanges, {units.duration(recent.span())}"
    return [
        _row_section(part, rows, page.scope, shown, f"{_PLURALS[part]}, {window_text(shown.window)}"),
        _connection_section(connections, page.scope, shown, f"connections {span}"),
        _message_section(messages, page.scope, shown, "last messages"),
    ]


def _why_none(by: str, status: Status, shown: Shown) -> str:
    """The text for a table without rows."""
    if not status.packets:
        return "no packets yet (does the filter let Kafka's through?)"
    if by == "topic" and status.level != FULL:
        return f"topics are not counted at the level “{LEVELS[status.level]}”"
    if status.encrypted_share > 0.5:
        share = units.share(status.encrypted_share)
        return f"no requests; {share} of the traffic is encrypted (TLS), and not decrypted (--keylog FILE decrypts it)"
    if status.waiting and not shown.filter:
        return f"no answers; {status.waiting:,} request{'s wait' if status.waiting > 1 else ' waits'}"
    return "no requests"


def _row_section(
    by: str, rows: list[Row], scope: Scope, shown: Shown, title: str, empty: str = "no requests"
) -> Section:
    kept = [row for row in rows if _passes(shown_name(row.name), shown)]
    column = _sorted(kept, ROWS, "requests", shown)
    if column in ("p50", "p99", "total"):  # rows that wait for something else always come last
        kept.sort(key=lambda row: row.waits or row.broker_p99 is None)
    columns = [replace(ROWS[0], title=_SINGULARS.get(by, by)), *ROWS[1:]]
    keys = [(by, row.name) for row in kept]
    return Section(title, columns, kept, keys, scope, _none(empty, shown), len(rows) - len(kept), sort=column)


def _broker_section(rows: list[BrokerRow], shown: Shown) -> Section:
    kept = [row for row in rows if _passes(row.name, shown)]
    column = _sorted(kept, HEALTH, "", shown)
    keys = [("broker", row.name) for row in kept]
    return Section("", HEALTH, kept, keys, (), _none("no connections", shown), len(rows) - len(kept), sort=column)


def _sorted(rows: list[T], columns: Sequence[Column[T]], usual: str, shown: Shown) -> str:
    """Sort rows by the chosen column, or by the usual one if these columns do not have it ("": do not sort). Return its
    name."""
    named = {column.name: column for column in columns}
    column = named.get(shown.sort) or named.get(usual)
    if column is None or column.key is None:
        return ""
    rows.sort(key=column.key, reverse=(column.name != "name") != shown.reverse)
    return column.name


def _connection_section(found: list[Connection], scope: Scope, shown: Shown, title: str) -> Section:
    columns = [c for c in connection_columns(shown.utc) if not _is_in_heading(c.name, scope)]
    rows = found[:CONNECTIONS]
    keys = [("connection", c.connection) for c in rows]
    more = f"the {CONNECTIONS} with the most requests" if len(found) > CONNECTIONS else ""
    return Section(title, columns, rows, keys, scope, "none", more=more)


def _message_section(found: list[Message], scope: Scope, shown: Shown, title: str) -> Section:
    columns = [c for c in message_columns(shown.utc) if not _is_in_heading(c.name, scope)]
    rows = [m for m in found if _passes(_text_of(m), shown)]
    keys = [("message", m.exchange) for m in rows]
    return Section(title, columns, rows, keys, scope, _none("no messages", shown), len(found) - len(rows))


def _is_in_heading(column: str, scope: Scope) -> bool:
    """Whether the heading has the value of a column already."""
    kinds = {kind for kind, _ in scope}
    return {"client_id": "client", "client": "connection", "broker": "broker"}.get(column, "?") in kinds


def _text_of(message: Message) -> str:
    return " ".join((
        f"{message.api} v{message.api_version}", shown_name(message.client_id), message.client, message.broker,
        result_of(message)[0], units.safe(" ".join(message.topics)),
    ))  # fmt: skip


def _passes(text: str, shown: Shown) -> bool:
    return shown.filter.lower() in text.lower()


def _none(what: str, shown: Shown) -> str:
    return f"{what} that match /{units.safe(shown.filter)}" if shown.filter else what
