"""The facts of a message for one line: the names in it, its error codes, the plain values at its top.

They come from the rows of one job of the LINE profile. Texts are as on the wire, not escaped. Most messages of a
connection have the same facts, so facts are kept by their packed rows (`packed_facts`).
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections import Counter
from dataclasses import dataclass, field
from struct import Struct
from typing import Any

import numpy as np

from ..programs.fields import K_ELEMENT, K_VALUE, FieldInfo
from ..programs.profiles import OFFSETS_OF_REQUESTS
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
from .packed_facts import (
    PACKED,
    ROW_BITS,
    TO_ELEMENT,
    TO_NOWHERE,
    TO_NUMBER,
    TO_OFFSET,
    TO_RECORDS,
    TO_TEXT,
    TO_THROTTLE,
    packed,
)

Array = np.ndarray[Any, Any]

#: The id of a topic that is named instead.
_NO_ID = bytes(16)
_TEXTS = ("string", "uuid")
_NAMES = (R_RESOURCE_NAME, R_ENTITY_NAME, R_GROUP_ID, R_TRANSACTIONAL_ID)
_OFFSETS = (R_BASE_OFFSET, R_OFFSET_OTHER, R_HIGH_WATERMARK)
#: Values that no line shows, as they are at the top of most messages.
_NEVER = frozenset(
    ("ErrorMessage", "ThrottleTimeMs", "ClusterId", "SessionEpoch", "ReplicaEpoch", "CurrentLeaderEpoch")
)
_LONG = Struct("<q")
_ROW_MASK = (1 << ROW_BITS) - 1
#: Facts that are kept, and the bytes of packed rows of which they are.
_KEPT, _KEPT_BYTES = 8_192, 1_024


@dataclass(slots=True)
class NamedPlace:
    """A topic or another resource that a message names in an array. `topic_id` if the message has no name for it."""

    name: bytes | None = None
    topic_id: bytes | None = None
    partitions: list[int] = field(default_factory=list)
    is_topic: bool = False


@dataclass(slots=True, eq=False)
class Facts:
    """`values`: (Kafka's field name, value) of the fields at the top. `errors`: counts by non-zero code. `is_shared`:
    several messages have these same facts, which do not change; those of large messages are not shared."""

    values: list[tuple[str, int | bytes]] = field(default_factory=list)
    places: list[NamedPlace] = field(default_factory=list)
    errors: Counter[int] = field(default_factory=Counter)
    is_shared: bool = False


class FactReader:
    """Reads the facts of messages by programs of the LINE profile."""

    def __init__(self, programs: Programs) -> None:
        table = programs.fields
        self._uuids = frozenset(number for number, f in enumerate(table) if f.type == "uuid")
        goes = [_place_of(f) for f in table]
        self._places = np.array(goes, np.uint8)
        self._fields = [(place, f.role, f.element < 0, f.inner[-1]) for place, f in zip(goes, table, strict=True)]
        self._kept: dict[bytes, Facts] = {}

    def read(self, jobs: Array, tape: Array, buffers: tuple[Array, Array, Array]) -> tuple[list[Facts], Array]:
        """The facts of decoded jobs (JOB) with this tape, and their numbers (PACKED)."""
        numbers = np.zeros(len(jobs), PACKED)
        return [self._facts(rows) for rows in packed(jobs, tape, self._places, buffers, numbers)], numbers

    def _facts(self, rows: bytes) -> Facts:
        """The facts of packed rows: those that were read before, if they are kept."""
        facts = self._kept.get(rows)
        if facts is None:
            facts = self.unpack(rows)
            if len(rows) <= _KEPT_BYTES:
                if len(self._kept) >= _KEPT:
                    self._kept.clear()
                self._kept[rows] = facts
                facts.is_shared = True
        return facts

    def unpack(self, rows: bytes) -> Facts:
        """The facts of packed rows."""
        facts = Facts()
        places: dict[int, NamedPlace] = {}
        parents: dict[int, int] = {}
        at = 0
        while at < len(rows):
            (word,) = _LONG.unpack_from(rows, at)
            field_id, number, parent = word >> 2 * ROW_BITS, word >> ROW_BITS & _ROW_MASK, (word & _ROW_MASK) - 1
            at += 8
            kind, role, top, name = self._fields[field_id]
            if kind == TO_ELEMENT:
                parents[number] = parent
                continue
            (value,) = _LONG.unpack_from(rows, at)
            at += 8
            if kind == TO_TEXT:
                raw = rows[at : at + value]
                at += value
                if role in (R_TOPIC_NAME, R_TOPIC_ID) and not (top and role == R_TOPIC_ID):
                    self._add_topic(facts, places, parent, raw, role == R_TOPIC_NAME)
                elif not top:
                    facts.places.append(NamedPlace(raw))
                else:
                    facts.values.append((name, self._text(raw, field_id)))
            elif role == R_PARTITION:
                self._owner(facts, places, parents, parent).partitions.append(value)
            elif role == R_ERROR_CODE:
                facts.errors[value] += 1
            else:
                facts.values.append((name, value))
        return facts

    def _text(self, raw: bytes, field_id: int) -> bytes:
        """A string's bytes; a uuid's as Kafka prints it."""
        return urlsafe_b64encode(raw).rstrip(b"=") if field_id in self._uuids else raw

    def _add_topic(self, facts: Facts, places: dict[int, NamedPlace], parent: int, raw: bytes, is_name: bool) -> None:
        place = self._place(facts, places, parent)
        if place.is_topic and (place.name if is_name else place.topic_id) is not None:
            place = places[parent] = NamedPlace()  # one more in an array of plain names
            facts.places.append(place)
        place.is_topic = True
        if is_name:
            place.name = raw
        elif raw != _NO_ID:
            place.topic_id = raw

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


def _place_of(field: FieldInfo) -> int:
    """Where the rows of a field go: TO_..."""
    role, top = field.role, field.element < 0
    if field.kind != K_VALUE:
        return TO_ELEMENT if field.kind == K_ELEMENT else TO_NOWHERE
    if role in (R_PARTITION, R_ERROR_CODE):
        return TO_NUMBER
    if role == R_THROTTLE_TIME_MS:
        return TO_THROTTLE
    if role == R_RECORDS:
        return TO_RECORDS
    if role in (R_TOPIC_NAME, R_TOPIC_ID) and not (top and role == R_TOPIC_ID):
        return TO_TEXT
    if not top:
        is_offset = role in _OFFSETS or (field.api_key, field.direction, field.path) in OFFSETS_OF_REQUESTS
        return TO_TEXT if role in _NAMES else TO_OFFSET if is_offset else TO_NOWHERE
    if role == R_MEMBER_ID or field.inner[-1] in _NEVER:
        return TO_NOWHERE
    return TO_TEXT if field.type in _TEXTS else TO_NUMBER
