"""`Messages`: requests and responses as columns; `Message`: one of them.

Texts come from the wire and are not escaped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from kafkatap.dissector.dtypes import EXCHANGE, NO_TIME, OUTCOMES, STATUSES
from kafkatap.dissector.layouts.catalog import api_name
from kafkatap.dissector.tree.packed_facts import PACKED
from kafkatap.dissector.tree.summary import Facts
from kafkatap.kernels.arrays import joined, taken
from kafkatap.kernels.decorator import record_dtype

Array = np.ndarray[Any, Any]

#: Places of columns in a row of EXCHANGE.
COLUMN = {name: number for number, name in enumerate(EXCHANGE.names or ())}
#: The outcome of a message whose exchange is not finished.
NOT_FINISHED = len(OUTCOMES)
#: The sides of an exchange, by direction.
_SIDES = ("request", "response")

#: What a message has beside its exchange and its facts.
MESSAGE = record_dtype(
    ("id", "i8"),  # exchange * 2 + direction (0 request, 1 response)
    ("time", "i8"),  # of the first byte, ns since the epoch
    ("missing", "i8"),  # how many bytes behind the frame were not captured
    ("outcome", "u1"),  # of the exchange (OUTCOMES), or NOT_FINISHED
    ("token", "u1"),  # whether these are bare SASL bytes without a header
)
#: Places in a row of `Messages.objects`. CLIENT, BROKER: str. CLIENT_ID, MECHANISM: bytes or None. PROBLEM: the path of
#: the malformed field, str or None. FACTS: Facts. FRAME: the captured bytes from the size field on, if the collector
#: keeps frames. ENVELOPED: of an Envelope's response (API key, version) of the request inside, else None. CLIENT_HOST,
#: BROKER_HOST: names of the addresses, str or None.
CLIENT, BROKER, CLIENT_ID, MECHANISM, PROBLEM, FACTS, FRAME, ENVELOPED, CLIENT_HOST, BROKER_HOST = range(10)
OBJECTS = 10


class Messages(NamedTuple):
    """Messages, a row each: `heads` (MESSAGE), `rows` (EXCHANGE: final for responses, as far as known for requests),
    `numbers` (PACKED), `objects` (object (n, OBJECTS))."""

    heads: Array
    rows: Array
    numbers: Array
    objects: Array

    @property
    def total(self) -> int:
        """How many there are."""
        return len(self.heads)

    @property
    def are_responses(self) -> Array:
        """bool (n,)"""
        found: Array = (self.heads["id"] & 1).astype(bool)
        return found

    @property
    def began(self) -> Array:
        """The start of each exchange, int64 ns since the epoch; without a request, the message's own time."""
        first = self.rows["request_first"]
        found: Array = np.where(first == NO_TIME, self.heads["time"], first)
        return found

    def of_side(self, column: str) -> Array:
        """The column `request_...` or `response_...` of EXCHANGE, whichever is that of the message."""
        request, response = (self.rows[f"{side}_{column}"] for side in _SIDES)
        found: Array = np.where(self.are_responses, response, request)
        return found

    def rows_at(self, places: Array | slice) -> Messages:
        """These rows (int64 or a slice), in this order."""
        if isinstance(places, slice):
            return Messages(*(column[places] for column in self))
        heads, rows, numbers = (taken(column, places) for column in self[:3])
        return Messages(heads, rows, numbers, self.objects[places])

    def picked(self, mask: Array) -> Messages:
        """The rows in `mask` (bool (n,))."""
        return self if mask.all() else self.rows_at(np.flatnonzero(mask))

    def at(self, place: int) -> Message:
        """One of the messages."""
        return next(self.rows_at(slice(place, place + 1)).each())

    def each(self) -> Iterator[Message]:
        """The messages one by one."""
        columns = (self.heads, self.rows, self.numbers, self.objects)
        for head, row, numbers, objects in zip(*(column.tolist() for column in columns), strict=True):
            yield Message(*head, row, *numbers, *objects)  # type: ignore[call-arg]


def joined_messages(parts: Sequence[Messages]) -> Messages:
    """The messages of several tables, in this order."""
    if len(parts) == 1:
        return parts[0]
    heads, rows, numbers = (
        joined([part[place] for part in parts], dtype) for place, dtype in enumerate((MESSAGE, EXCHANGE, PACKED))
    )
    objects = [np.empty((0, OBJECTS), object), *(part.objects for part in parts)]
    return Messages(heads, rows, numbers, np.concatenate(objects))


@dataclass(slots=True)
class Message:
    """One request or response: a row of `Messages`. `row` has the columns of its exchange."""

    id: int
    time: int
    missing: int
    outcome_number: int
    token: int
    row: tuple[Any, ...]
    throttle_time_ms: int
    record_bytes: int
    records: int
    offset: int
    client: str
    broker: str
    client_id: bytes | None
    mechanism: bytes | None
    problem: str | None
    facts: Facts
    frame: bytes
    enveloped: tuple[int, int] | None
    client_host: str | None
    broker_host: str | None

    def column(self, name: str) -> Any:
        """A column of the exchange, as a number."""
        return self.row[COLUMN[name]]

    @property
    def is_response(self) -> bool:
        return bool(self.id & 1)

    @property
    def outcome(self) -> str:
        """The outcome of its exchange; "" where it is not finished."""
        return "" if self.outcome_number == NOT_FINISHED else OUTCOMES[self.outcome_number]

    @property
    def size(self) -> int:
        """The value of the size field."""
        return int(self.column(f"{_SIDES[self.id & 1]}_bytes"))

    @property
    def status(self) -> str:
        return STATUSES[self.column(f"{_SIDES[self.id & 1]}_status")]

    @property
    def api_key(self) -> int:
        """The API key; -1 for a bare token, and for a response whose request was not captured."""
        return int(self.column("api_key"))

    @property
    def api(self) -> str:
        return api_name(self.api_key)
