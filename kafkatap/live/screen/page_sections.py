"""The sections of a page of the live screen: tables by API, client, topic or broker, of connections, waits, events,
groups and errors; the parts of one row; messages.

Counts and recent exchanges are read under the monitor's lock. What comes of it are plain rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from kafkatap.dissector.kafka.error_codes import error_codes
from kafkatap.reports import units
from kafkatap.reports.addresses import broker_spellings
from kafkatap.reports.batch import Context
from kafkatap.reports.counting.counts import ReportCounts
from kafkatap.reports.findings import Finding
from kafkatap.reports.section_parts.selected import Selected

from ..governor import FULL, LEVELS
from ..status import Status
from .breakdown import Row, Scope, window_rows
from .columns import HEALTH, ROWS, Column, connection_columns, message_columns, result_of, shown_name, wait_columns
from .error_rows import BY as ERRORS_BY
from .error_rows import ErrorRow, error_columns, error_rows
from .group_rows import cause_of, group_columns, group_rows, member_columns, members_of, rebalance_columns
from .last_events import event_columns
from .look import Frozen, Live
from .pages import SINGULARS, TEXTS, Page, Section, Shown, window_length, window_text
from .recent_exchanges import Connection, Message
from .waits import who_waits

T = TypeVar("T")
#: The breakdown of one row of a view.
PARTS = {"api": "client", "client": "api", "topic": "api", "broker": "client"}
_PLURALS = {"api": "APIs", "client": "clients", "broker": "brokers", "topic": "topics"}
CONNECTIONS, LAST, MESSAGES, ERRORS = 10, 20, 200, 8
#: Rebalances that a group's page shows.
REBALANCES = 20
_WAITING = "; {:,} wait for data, for members, or just came"
_NOT_COUNTED = "not counted with these --sections"
#: Addresses of a client that a heading names.
_ADDRESSES = 3


def sections(page: Page, look: Live | Frozen, shown: Shown) -> list[Section]:
    """The sections of a page now."""
    if page.kind in TEXTS:
        return []
    if page.kind == "table" and page.by in _OF_THEIR_OWN:
        return [_OF_THEIR_OWN[page.by](look, shown)]
    if page.scope and page.scope[0][0] == "group":
        return _group_sections(page, look, shown)
    with look.reading(shown.window, shown.selection) as (counts, context, recent):
        length = window_length(shown.window, look.status.now, look.since(shown.selection))
        if page.kind == "table":
            rows = window_rows(counts, context, page.by, length)
            return [_row_section(page.by, rows, (), shown, "", _why_none(page.by, look.status, shown))]
        if shown.selection is not None:
            recent = recent.picked(shown.selection)
        if page.kind == "messages":
            return [_message_section(recent.matching(page.scope, MESSAGES), page.scope, shown, "")]
        messages = recent.matching(page.scope, LAST)
        if page.scope[0][0] == "error":
            return [*_error_parts(page, counts, context, length, shown), _last_messages(messages, page.scope, shown)]
        part = PARTS[page.scope[0][0]]
        rows = window_rows(counts, context, part, length, page.scope)
        connections = recent.active(page.scope, CONNECTIONS + 1)
        span = f"of the last {len(recent):,} exchanges, {units.duration(recent.span())}"
        if page.scope[0][0] == "client":
            clients = window_rows(counts, context, "client", length)
            page.about = _from(next((row for row in clients if row.name == page.scope[0][1]), None))
    return [
        _row_section(part, rows, page.scope, shown, f"{_PLURALS[part]}, {window_text(shown.window)}"),
        _connection_section(connections, page.scope, shown, f"connections {span}"),
        _last_messages(messages, page.scope, shown),
    ]


def _from(row: Row | None) -> str:
    """The addresses of a client."""
    if row is None or not row.addresses:
        return ""
    others = len(row.addresses) - _ADDRESSES
    return f"from {', '.join(row.addresses[:_ADDRESSES])}" + (f" and {others:,} more" if others > 0 else "")


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
        return f"no answers; {status.waiting:,} request{'s wait' if status.waiting > 1 else ' waits'} (view 6)"
    return "no requests"


def _section(
    title: str, columns: Sequence[Column[T]], rows: list[T], text_of: Callable[[T], str],
    key_of: Callable[[T], Any], shown: Shown, empty: str, *, usual: str = "", scope: Scope = (), more: str = "",
    name_of: Callable[[T], str] | None = None,
) -> Section:  # fmt: skip
    """The rows that contain the word that was typed, in the chosen order, or by `usual`; "": as they come."""
    kept = [row for row in rows if _passes(text_of(row), shown)]
    column = _sorted(kept, columns, usual, shown) if usual else ""
    wide = max((units.cells((name_of or text_of)(row)) for row in kept), default=0)
    return Section(
        title, columns, kept, [key_of(row) for row in kept], scope, _none(empty, shown), len(rows) - len(kept), more,
        column, wide,
    )  # fmt: skip


def _row_section(
    by: str, rows: list[Row], scope: Scope, shown: Shown, title: str, empty: str = "no requests"
) -> Section:
    own = [column for column in ROWS if by == "client" or column.name != "addresses"]
    columns = [replace(own[0], title=SINGULARS.get(by, by)), *own[1:]]
    section = _section(
        title, columns, rows, lambda row: " ".join((shown_name(row.name), *row.addresses)),
        lambda row: (by, row.name), shown, empty, usual="requests", scope=scope,
        name_of=lambda row: shown_name(row.name),
    )  # fmt: skip
    if section.sort in ("p50", "p99", "total"):  # rows that wait for something else always come last
        kept = sorted(section.rows, key=lambda row: row.waits or row.broker_p99 is None)
        section = replace(section, rows=kept, keys=[(by, row.name) for row in kept])
    return section


def _broker_section(look: Live | Frozen, shown: Shown) -> Section:
    rows = look.brokers(shown.window)
    rows = [row for row in rows if _may_have(shown, broker=broker_spellings(row.name))]
    column = _sorted(rows, HEALTH, "", shown)
    section = _section(
        "", HEALTH, rows, lambda row: units.safe(row.name), lambda row: ("broker", row.name), shown, "no connections"
    )
    return replace(section, sort=column)


def _waiting_section(look: Live | Frozen, shown: Shown) -> Section:
    with look.reading(None) as (_, context, _recent):
        waits, by_broker = who_waits(look.waiting, context, shown.selection)
    total = by_broker.total()
    more = f"{total:,} connection{'' if total == 1 else 's'} wait{'s' if total == 1 else ''}"
    broker, most = by_broker.most_common(1)[0] if by_broker else ("", 0)
    more += f", {most:,} at {units.safe(broker)}" if len(by_broker) > 1 else ""
    others = look.status.waiting
    return _section(
        "", wait_columns(shown.utc), waits, lambda wait: _text_of(wait.oldest),
        lambda wait: ("message", wait.oldest.exchange), shown,
        "no overdue requests" + (_WAITING.format(others) if others and not shown.filter else ""), usual="waits",
        more=more if total else "", name_of=lambda wait: shown_name(wait.oldest.client_id),
    )  # fmt: skip


def _event_section(look: Live | Frozen, shown: Shown) -> Section:
    events = look.events
    numbers = {id(finding): number for number, finding in events}
    rows = [finding for _, finding in events if _is_on_selected(finding, shown)]
    return _section(
        "", event_columns(shown.utc), rows, lambda f: units.safe(f"{f.label} {f.text}"),
        lambda f: ("event", numbers[id(f)]), shown,
        "no events so far" if look.has_events else f"events are {_NOT_COUNTED}", name_of=lambda _: "",
    )  # fmt: skip


def _is_on_selected(finding: Finding, shown: Shown) -> bool:
    """Whether the filter can hold for exchanges of the parties of an event."""
    named: dict[str, Sequence[str]] = {}
    for party in finding.parties:
        kind = "client" if party.kind == "host" else party.kind
        named.setdefault(kind, broker_spellings(party.name) if kind == "broker" else (party.name,))
    return _may_have(shown, **named)


def _may_have(shown: Shown, **named: Sequence[str]) -> bool:
    expression = None if shown.selection is None else shown.selection.expression
    return expression is None or Selected(shown.filter, None, expression).may_have(named)


def _group_section(look: Live | Frozen, shown: Shown) -> Section:
    now = look.status.now
    since = now - window_length(shown.window, now, look.status.started)
    groups = [group for group in look.groups() if _may_have(shown, group=(group.name,))]
    rows = group_rows(groups, since, now)
    return _section(
        "", group_columns(shown.utc, look.has_lag), rows,
        lambda row: " ".join((shown_name(row.name), *map(units.safe, row.clients))),
        lambda row: ("group", row.name), shown,
        "no requests of groups so far" if look.has_groups else f"groups are {_NOT_COUNTED}", usual="rebalances",
        name_of=lambda row: shown_name(row.name),
    )  # fmt: skip


def _group_sections(page: Page, look: Live | Frozen, shown: Shown) -> list[Section]:
    """The members and the rebalances of a group."""
    name, now = page.scope[0][1], look.status.now
    group = next((group for group in look.groups() if group.name == name), None)
    members = [] if group is None else members_of(group, now)
    rebalances = [] if group is None else group.rebalances[: -REBALANCES - 1 : -1]
    there = sum(each.is_there for each in members)
    page.about = f"{there:,} member{'' if there == 1 else 's'}"
    return [
        _section("members", member_columns(shown.utc), members, lambda each: f"{each.row.client[1]} {each.name}",
                 lambda each: ("client", each.row.client[1]), shown, "none",
                 name_of=lambda each: shown_name(each.row.client[1])),
        _section("rebalances, the last first", rebalance_columns(shown.utc), rebalances,
                 lambda each: cause_of(each), lambda each: ("rebalance", each.number), shown, "none"),
    ]  # fmt: skip


def _error_section(look: Live | Frozen, shown: Shown) -> Section:
    with look.reading(shown.window, shown.selection) as (counts, context, _):
        length = window_length(shown.window, look.status.now, look.since(shown.selection))
        rows = error_rows(counts, context, "error", length)
    return _errors("error", rows, (), shown, "", "no error codes")


def _errors(by: str, rows: list[ErrorRow], scope: Scope, shown: Shown, title: str, empty: str = "none") -> Section:
    return _section(
        title, error_columns(by, shown.utc), rows,
        lambda row: " ".join(map(shown_name, (row.name, *(name for each in row.most.values() for name in each)))),
        lambda row: (by, row.name), shown, empty, usual="codes", scope=scope, name_of=lambda row: shown_name(row.name),
    )  # fmt: skip


def _error_parts(page: Page, counts: ReportCounts, context: Context, length: int, shown: Shown) -> list[Section]:
    """An error code by request, client, broker and topic."""
    code = next((each for each in error_codes().values() if each.name == page.scope[0][1]), None)
    page.about = "" if code is None else code.meaning
    found = []
    for by in ERRORS_BY:
        rows = error_rows(counts, context, by, length, page.scope)
        if by == "topic" and all(row.name is None for row in rows):
            continue
        section = _errors(by, rows, page.scope, shown, f"{_PLURALS[by]}, {window_text(shown.window)}")
        left_out = len(section.rows) - ERRORS
        more = f"{left_out:,} more" if left_out > 0 else ""
        found.append(replace(section, rows=section.rows[:ERRORS], keys=section.keys[:ERRORS], more=more))
    return found


#: The views that are not requests by one of BY.
_OF_THEIR_OWN = {
    "connections": _broker_section, "waiting": _waiting_section, "events": _event_section, "groups": _group_section,
    "errors": _error_section,
}  # fmt: skip


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


def _last_messages(found: list[Message], scope: Scope, shown: Shown) -> Section:
    return _message_section(found, scope, shown, "last messages")


def _message_section(found: list[Message], scope: Scope, shown: Shown, title: str) -> Section:
    columns = [c for c in message_columns(shown.utc) if not _is_in_heading(c.name, scope)]
    return _section(
        title, columns, found, _text_of, lambda m: ("message", m.exchange), shown, "no messages", scope=scope
    )


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
    return shown.word.lower() in text.lower()


def _none(what: str, shown: Shown) -> str:
    mark = "/" if shown.selection is None else ""
    return f"{what} that match {mark}{units.safe(shown.filter)}" if shown.filter else what
