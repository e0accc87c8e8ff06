"""Rows of forms as dictionaries, and the names of their topics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..batch import Context
from ..questions.section import SectionInput


class TopicNames:
    """The names of topics by the key columns `topic` and `topic_id` of a form."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._found: dict[tuple[int, int], str | None] = {}

    def __getitem__(self, key: Mapping[str, int]) -> str | None:
        pair = key["topic"], key["topic_id"]
        if pair not in self._found:
            self._found[pair] = self._context.topic(*pair)
        return self._found[pair]


def rows_of(given: SectionInput, form: str) -> Iterator[tuple[dict[str, int], dict[str, int]]]:
    """(key columns, value columns) of each row of a form."""
    keys, values = given.keys(form), given.values(form)
    key_rows = zip(*(column.tolist() for column in keys.values()), strict=True)
    value_rows = zip(*(column.tolist() for column in values.values()), strict=True)
    for key, value in zip(key_rows, value_rows, strict=True):
        yield dict(zip(keys, key, strict=True)), dict(zip(values, value, strict=True))
