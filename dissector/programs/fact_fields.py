"""The fields of facts: those that the kinds of `fact_kinds` name, each with a number that says where its value goes.

In programs of the profile `facts`, the number takes the place of a field's role.
"""

from __future__ import annotations

from functools import cache

from ..layouts.schema import REQUEST, RESPONSE
from .fact_kinds import (
    BATCH,
    KINDS,
    TO_COUNT,
    TO_ERROR,
    TO_NOWHERE,
    TO_NUMBER,
    TO_PARTITION,
    TO_RECORDS,
    TO_ROW,
    TO_TEXT,
    TO_TOPIC,
    TO_TOPIC_ID,
    FieldPath,
    paths,
)
from .fields import K_COUNT, K_ELEMENT, K_VALUE, FieldInfo
from .roles import R_PARTITION, R_RECORDS, R_TOPIC_ID, R_TOPIC_NAME

_PLACES = {R_TOPIC_NAME: TO_TOPIC, R_TOPIC_ID: TO_TOPIC_ID, R_PARTITION: TO_PARTITION}
#: Messages whose records make rows.
_WITH_RECORDS = ((0, REQUEST), (1, RESPONSE), (78, RESPONSE))


@cache
def _declared() -> tuple[dict[tuple[int, int, str], int], frozenset[tuple[int, int, str]]]:
    """The number of each declared field, and the elements whose topic or partition a row needs."""
    numbers: dict[tuple[int, int, str], int] = {}
    around: set[tuple[int, int, str]] = set()
    for kind_number, kind in enumerate(KINDS[:BATCH]):
        message = kind.api_key, kind.direction
        places: list[tuple[FieldPath, int]] = [(path, TO_NUMBER + n) for n, path in enumerate(kind.numbers.values())]
        places += [(path, TO_TEXT + n) for n, path in enumerate(kind.texts.values())]
        places += [(kind.error, TO_ERROR)] if kind.error else []
        places += [(kind.length + "#", TO_COUNT)] if kind.length else []
        numbers |= {(*message, field): place for path, place in places for field in kind.fields(path)}
        for element in filter(None, paths(kind.element)):
            numbers[*message, element] = TO_ROW + kind_number
            parts = element.split(".")
            around.update((*message, ".".join(parts[: n + 1])) for n in range(len(parts)))
    return numbers, frozenset(around)


def place_of(field: FieldInfo) -> int:
    """The number of a field."""
    numbers, around = _declared()
    declared = numbers.get((field.api_key, field.direction, field.path))
    if declared is not None and field.kind in (K_VALUE, K_ELEMENT, K_COUNT):
        return declared
    if field.kind != K_VALUE:
        return TO_NOWHERE
    if field.role == R_RECORDS and (field.api_key, field.direction) in _WITH_RECORDS:
        return TO_RECORDS
    element = field.path.rpartition(".")[0]
    if field.role in _PLACES and (field.api_key, field.direction, element) in around and field.type != "records":
        return _PLACES[field.role]
    return TO_NOWHERE
