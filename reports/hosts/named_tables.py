"""Names beside the addresses in tables of reports: columns behind those with addresses, and words in sentences.

A name depends on the time: that of the row, if it has one, or else of the whole table. An address that had several
names then has all of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from ..model import Column, ReportTable, Value
from .host_table import HostTable

#: What a column with addresses is of (`Column.end`): the ends of connections; either end; both, as text; a party of a
#: finding, which may be no host; a sentence. The last one gets no column, but the names within.
CLIENT, BROKER, HOST, BOTH, PARTY, SENTENCE = "client", "broker", "host", "both", "party", "sentence"
ENDS = (CLIENT, BROKER, HOST, BOTH, PARTY, SENTENCE)
#: An address, perhaps with a port, in a sentence. Quoted ones are names of others.
_ADDRESS = re.compile(
    r"(?<![\w.:\"\[-])(\[[0-9a-fA-F:.]{2,45}\](?::\d{1,5})?|\d{1,3}(?:\.\d{1,3}){3}(?::\d{1,5})?"
    r"|[0-9a-fA-F]{0,4}(?::[0-9a-fA-F]{0,4}){2,7})(?![\w\"\]-]|[.:]\w)"
)
#: What stands between the ends of a connection.
_BETWEEN = " > "

#: The name of an address; None without one.
_Name = Callable[[str], str | None]


def with_hosts(table: ReportTable, hosts: HostTable | None, span: tuple[int, int]) -> ReportTable:
    """A table with the names of its addresses. `span`: from when to when it is, ns since the epoch."""
    if hosts is None or not table.rows or not any(column.end for column in table.columns):
        return table
    times = [place for place, column in enumerate(table.columns) if column.kind == "time"]
    names = [_naming(hosts, _span_of(row, times, span)) for row in table.rows]
    columns: list[Column] = []
    values: list[Sequence[Value]] = []
    for place, column in enumerate(table.columns):
        own = [row[place] for row in table.rows]
        if column.end == SENTENCE:
            own = [
                named_text(value, name) if isinstance(value, str) else value
                for value, name in zip(own, names, strict=True)
            ]
        columns.append(column)
        values.append(own)
        for made in _columns_of(column):
            found = [_named(value, made.end, name) for value, name in zip(own, names, strict=True)]
            if any(found):
                columns.append(made._replace(end=""))
                values.append(found)
    return table.replace(columns=tuple(columns), rows=list(zip(*values, strict=True)))


def _naming(hosts: HostTable, span: tuple[int, int]) -> _Name:
    return lambda address: hosts.text(address, *span)


def _span_of(row: tuple[Value, ...], times: Sequence[int], span: tuple[int, int]) -> tuple[int, int]:
    """From when to when a row is: between its times, those that are within the span."""
    found = [at for place in times if isinstance(at := row[place], int) and span[0] <= at <= span[1]]
    return (min(found), max(found)) if found else span


def _columns_of(column: Column) -> list[Column]:
    """The columns with the names of the addresses in a column. Their `end` says which part of its value is theirs."""
    if not column.end or column.end == SENTENCE:
        return []
    s = "s" if column.kind == "texts" else ""
    note = "name of the address at that time, from --hosts; several, if it changed"
    ends = (CLIENT, BROKER) if column.end == BOTH else (column.end,)
    return [
        Column(
            f"{end}_host{s}" if end != HOST else f"host{s}",
            f"{end}\nhost" if end == BROKER or column.end == BOTH else "host", column.kind, note, column.rank,
            end=f"{BOTH} {end}" if column.end == BOTH else end,
        )
        for end in ends
    ]  # fmt: skip


def _named(value: Value, part: str, name: _Name) -> Value:
    if isinstance(value, tuple):
        found = [name(address_of(text)) or "" for text in value if isinstance(text, str)]
        return tuple(found) if any(found) else None
    if not isinstance(value, str):
        return None
    if part.startswith(BOTH):
        client, _, broker = value.partition(_BETWEEN)
        value = broker if part.endswith(BROKER) else client
    return name(address_of(value))


def address_of(text: str) -> str:
    """The address of `10.0.0.1:9092`, `10.0.0.1`, `[::1]:9092` or `::1`."""
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.partition(":")[0] if text.count(":") == 1 else text


def named_text(text: str, name: _Name) -> str:
    """A sentence with the names of its addresses, each behind the first place that has it: `10.0.0.1:9092 (kafka-1)`,
    `broker 3 (10.0.0.1:9092, kafka-1)`."""
    known: set[str] = set()

    def shown(found: re.Match[str]) -> str:
        address = address_of(found[1])
        host = None if address in known else name(address)
        if host is None:
            return found[0]
        known.add(address)
        is_enclosed = text[: found.start()].endswith("(") and text[found.end() :].startswith(")")
        return f"{found[0]}, {host}" if is_enclosed else f"{found[0]} ({host})"

    return _ADDRESS.sub(shown, text)
