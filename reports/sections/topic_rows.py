"""The names of topics in rows of forms."""

from __future__ import annotations

from collections.abc import Mapping

from ..batch import Context


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
