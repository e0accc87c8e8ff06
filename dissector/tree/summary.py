"""The facts of a message for one line: the names in it, its error codes, the plain values at its top.

They come from the rows of one job of the LINE profile. Texts are as on the wire, not escaped.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..programs.fields import K_ELEMENT, K_VALUE
from ..programs.program import Programs
from ..programs.roles import (
    R_BASE_OFFSET,
    R_ENTITY_NAME,
    R_ERROR_CODE,
    R_GROUP_ID,
    R_HIGH_WATERMARK,
    R_MEMBER_ID,
    R_OFFSET_OTHER,
    R_PARTITION,
    R_RECORDS,
    R_RESOURCE_NAME,
    R_THROTTLE_TIME_MS,
    R_TOPIC_ID,
    R_TOPIC_NAME,
    R_TRANSACTIONAL_ID,
)

Array = np.ndarray[Any, Any]
#: A row of the tape as a tuple, in the order of `machine.TAPE`.
TapeRow = tuple[int, ...]

#: The id of a topic that is named instead.
_NO_ID = bytes(16)
_TEXTS = ("string", "uuid")
_NAMES = (R_RESOURCE_NAME, R_ENTITY_NAME, R_GROUP_ID, R_TRANSACTIONAL_ID)
_OFFSETS = (R_BASE_OFFSET, R_OFFSET_OTHER, R_HIGH_WATERMARK)


@dataclass(slots=True)
class NamedPlace:
    """A topic or another resource that a message names in an array. `topic_id` if the message has no name for it."""

    name: bytes | None = None
    topic_id: bytes | None = None
    partitions: list[int] = field(default_factory=list)
    is_topic: bool = False


@dataclass(slots=True)
class Facts:
    """`values`: (Kafka's field name, value) of the fields at the top. `errors`: counts by non-zero code. `records`: the
    place in the buffer and the length of each records field; None if the message has no such field. `offsets`: base
    offsets, high watermarks and the like."""

    values: list[tuple[str, int | bytes]] = field(default_factory=list)
    places: list[NamedPlace] = field(default_factory=list)
    errors: Counter[int] = field(default_factory=Counter)
    throttle_time_ms: int | None = None
    records: list[tuple[int, int]] | None = None
    offsets: list[int] = field(default_factory=list)


class FactReader:
    """Reads rows of the LINE profile."""

    def __init__(self, programs: Programs) -> None:
        table = programs.fields
        self._uuids = frozenset(number for number, f in enumerate(table) if f.type == "uuid")
        self._kinds = [(f.role, f.kind, f.element < 0, f.type in _TEXTS, f.inner[-1]) for f in table]

    def read(self, rows: Sequence[TapeRow], first: int, buffer: Array) -> Facts:
        """The facts of one message: its rows, whose first is number `first` of the tape, over the bytes of `buffer`."""
        facts = Facts()
        places: dict[int, NamedPlace] = {}
        parents: dict[int, int] = {}
        for number, (value, _, parent, length, field_id, _) in enumerate(rows, first):
            role, kind, top, is_text, name = self._kinds[field_id]
            if kind == K_ELEMENT:
                parents[number] = parent
                continue
            if kind != K_VALUE or length < 0:
                continue
            if role == R_PARTITION:
                self._owner(facts, places, parents, parent).partitions.append(value)
            elif role == R_ERROR_CODE:
                facts.errors[value] += 1
            elif role == R_THROTTLE_TIME_MS:
                facts.throttle_time_ms = value
            elif role == R_RECORDS:
                if facts.records is None:
                    facts.records = []
                facts.records.append((value, length))
            elif role in (R_TOPIC_NAME, R_TOPIC_ID) and not (top and role == R_TOPIC_ID):
                raw = buffer[value : value + length].tobytes()
                place = self._place(facts, places, parent)
                if place.is_topic and (place.name if role == R_TOPIC_NAME else place.topic_id) is not None:
                    place = places[parent] = NamedPlace()  # one more in an array of plain names
                    facts.places.append(place)
                place.is_topic = True
                if role == R_TOPIC_NAME:
                    place.name = raw
                elif raw != _NO_ID:
                    place.topic_id = raw
            elif not top and role in _NAMES:
                place = NamedPlace(buffer[value : value + length].tobytes())
                facts.places.append(place)
            elif role in _OFFSETS and not top:
                facts.offsets.append(value)
            elif top and role != R_MEMBER_ID:
                facts.values.append((name, self._text(buffer[value : value + length], field_id) if is_text else value))
        return facts

    def _text(self, raw: Array, field_id: int) -> bytes:
        """A string's bytes; a uuid's as Kafka prints it."""
        found = raw.tobytes()
        return urlsafe_b64encode(found).rstrip(b"=") if field_id in self._uuids else found

    @staticmethod
    def _place(facts: Facts, places: dict[int, NamedPlace], parent: int) -> NamedPlace:
        place = places.get(parent)
        if place is None:
            place = places[parent] = NamedPlace()
            facts.places.append(place)
        return place

    def _owner(self, facts: Facts, places: dict[int, NamedPlace], parents: dict[int, int], parent: int) -> NamedPlace:
        """The topic that a partition belongs to: of the nearest element around it that names one."""
        at = parent
        while at not in places and at >= 0:
            at = parents.get(at, -1)
        return self._place(facts, places, at)
