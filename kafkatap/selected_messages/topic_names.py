"""Names of topics by id, as far as an engine has seen them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..engine.engine import Engine


def topic_names(engine: Engine) -> dict[bytes, str]:
    """The names of topics by id (16 bytes) that an engine has seen so far."""
    string = engine.dissector.string
    return {string(number): string(name).decode("utf-8", "replace") for number, name in engine.topic_names.items()}


class TopicNames(Mapping[bytes, str]):
    """The same as a mapping that grows while the engine reads."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._names: dict[bytes, str] = {}
        self._seen = 0

    def _current(self) -> dict[bytes, str]:
        seen = len(self._engine.topic_names)
        if seen != self._seen:
            self._names = topic_names(self._engine)
            self._seen = seen
        return self._names

    def __getitem__(self, topic_id: bytes) -> str:
        return self._current()[topic_id]

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._current())

    def __len__(self) -> int:
        return len(self._current())
