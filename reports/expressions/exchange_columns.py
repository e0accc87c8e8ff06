"""Columns of batches as arrays that can be compared, with the nulls of the tables.

A `ReadColumn` returns one or more `Values` for the rows of its table; one match is enough. A `Spelling` returns the
texts of a number.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from kafkatap.dissector import dtypes as r
from kafkatap.dissector.kafka.error_codes import error_name
from kafkatap.dissector.layouts.catalog import api_name
from kafkatap.kernels.column_spec import ColumnSpec

from ..addresses import broker_spellings
from ..batch import Array, Names, endpoint, uuid_text
from .verdicts import Values

#: Bits of a port in the number of an endpoint.
_PORT = 16


ReadColumn = Callable[[Array, Names], tuple[Values, ...]]
#: Returns the texts of a number.
Spelling = Callable[[Names, int], tuple[str, ...]]


def _single(values: Array, null: Array | None = None) -> Values:
    wide = values.astype(np.int64)
    return Values(wide, wide, null)


def column(declared: ColumnSpec, rows: Array, names: Names) -> tuple[Values, ...]:
    """A column with its nulls."""
    return (_single(rows[declared.field], declared.nulls(rows)),)


def began(rows: Array, names: Names) -> tuple[Values, ...]:
    """When an exchange began: its request's first byte, an orphan's own."""
    at = began_at(rows)
    return (_single(at, at == r.NO_TIME),)


def began_at(rows: Array) -> Array:
    """The same as int64 ns since the epoch; NO_TIME where that byte was not captured."""
    at: Array = np.where(rows["outcome"] == r.ORPHAN_RESPONSE, rows["response_first"], rows["request_first"])
    return at


def waiting(rows: Array, names: Names) -> tuple[Values, ...]:
    """How long a request waits that is in flight, ns."""
    return (_single(rows["waited_ns"], (rows["outcome"] != r.IN_FLIGHT) | (rows["waited_ns"] < 0)),)


def packets(rows: Array, names: Names) -> tuple[Values, ...]:
    """The packets of the request and those of the response, each a span."""
    found = []
    for end in ("request", "response"):
        low, high = rows[f"{end}_packet_first"].astype(np.int64), rows[f"{end}_packet_last"].astype(np.int64)
        found.append(Values(low, high, low == 0))
    return tuple(found)


def broker(rows: Array, names: Names) -> tuple[Values, ...]:
    """Address and port of the broker, as one number."""
    return (_single(rows["broker_ip"].astype(np.int64) << _PORT | rows["broker_port"]),)


def client_end(rows: Array, names: Names) -> tuple[Values, ...]:
    """Address and port of the client, as one number."""
    return (_single(rows["client_ip"].astype(np.int64) << _PORT | rows["client_port"]),)


def host(end: str, rows: Array, names: Names) -> tuple[Values, ...]:
    """The name of an end's address when the exchange began."""
    if names.hosts is None:
        return ()
    numbers = names.hosts.numbers(rows[f"{end}_ip"], began_at(rows), names.addresses)
    return (_single(numbers, numbers < 0),)


def topic(rows: Array, names: Names) -> tuple[Values, ...]:
    """Topics by name, also by an id whose name is known."""
    known = topic_numbers(rows, names)
    return (_single(known, known < 0),)


def topic_numbers(rows: Array, names: Names) -> Array:
    """Numbers of topics' names, int64 (n,); -1 where none is known."""
    number: Array = rows["topic"].astype(np.int64)
    by_id = np.flatnonzero((number < 0) & (rows["topic_id"] >= 0))
    if len(by_id):
        ids, inverse = np.unique(rows["topic_id"][by_id], return_inverse=True)
        number[by_id] = np.array([names.topic_names.get(i, -1) for i in ids.tolist()], np.int64)[inverse]
    return number


def unnamed_topics(rows: Array, names: Names) -> Array:
    """bool (n,): rows on a topic of which only the id is known so far."""
    found: Array = (rows["topic"] < 0) & (rows["topic_id"] >= 0)
    return found & (topic_numbers(rows, names) < 0) if found.any() else found


def string_text(names: Names, number: int) -> tuple[str, ...]:
    value = names.strings[number]
    return () if value is None else (value.decode("utf-8", "replace"),)


def address_text(names: Names, number: int) -> tuple[str, ...]:
    return (names.addresses[number] if number >= 0 else "",)


def host_text(names: Names, number: int) -> tuple[str, ...]:
    """The name of an address, and those of pods that share it."""
    return () if names.hosts is None else names.hosts.names[number].texts


def id_text(names: Names, number: int) -> tuple[str, ...]:
    text = uuid_text(names.strings[number])
    return () if text is None else (text,)


def endpoint_text(names: Names, number: int) -> tuple[str, ...]:
    """`10.0.0.1:9092`, `10.0.0.1` and `:9092` (`[::1]:9092`, `[::1]`, `::1`): each of them names the broker."""
    address, port = number >> _PORT, number & (1 << _PORT) - 1
    return broker_spellings(endpoint(None if address < 0 else names.addresses[address], port))


def api_text(names: Names, number: int) -> tuple[str, ...]:
    return (api_name(number),)


def error_text(names: Names, number: int) -> tuple[str, ...]:
    return (error_name(number),)


def word_text(words: tuple[str, ...], names: Names, number: int) -> tuple[str, ...]:
    return (words[number],) if number < len(words) else ()
