"""`JoinedNames`: one numbering of the strings and addresses of several engines, each of which has its own.

names = JoinedNames()
mine = OwnNames(names)              # of one engine: its numbers become those of all
batch = mine.batch(batch, engine)
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from threading import Lock
from typing import Any

import numpy as np

from kafkatap.dissector.dtypes import EXCHANGE_STRINGS, RESULT_STRINGS
from kafkatap.dissector.facts.fact_rows import FACT_STRINGS
from kafkatap.dissector.strings import StringTable
from kafkatap.kernels.arrays import new_numbers
from kafkatap.reports.batch import Batch

from ..engine.engine import Engine
from .memory_limits import CONNECTION_NAMES

Array = np.ndarray[Any, Any]

_ENDS, _TOPICS = ("client_ip", "broker_ip"), ("topic", "topic_id")
#: The new number of -1.
_NONE = np.full(1, -1, np.int64)


class JoinedNames:
    """The names of all. Threads may add some at the same time. The limits of the engines bound them."""

    def __init__(self) -> None:
        self.strings = StringTable()
        self.addresses: list[str] = []
        self.topic_names: dict[int, int] = {}
        self._numbers: dict[str, int] = {}  # of addresses
        self._lock = Lock()

    def string(self, number: int) -> bytes:
        """The bytes of a string."""
        return self.strings[number]

    def add_strings(self, values: Sequence[bytes]) -> Array:
        """The numbers of strings: int64 (n,)."""
        with self._lock:
            return np.array([self.strings.number_of(value) for value in values], np.int64)

    def add_addresses(self, values: Sequence[str]) -> Array:
        """The numbers of addresses: int64 (n,)."""
        with self._lock:
            for value in values:
                if value not in self._numbers:
                    self._numbers[value] = len(self.addresses)
                    self.addresses.append(value)
            return np.array([self._numbers[value] for value in values], np.int64)

    def keep_strings(self, needed: Array) -> Array:
        """Forget all strings but those of `needed` (bool): `StringTable.keep`."""
        numbers = self.strings.keep(needed)
        found = ((int(numbers[topic_id]), int(numbers[name])) for topic_id, name in self.topic_names.items())
        self.topic_names = {topic_id: name for topic_id, name in found if topic_id >= 0 and name >= 0}
        return numbers

    def keep_addresses(self, needed: Array) -> Array:
        """Forget all addresses but those of `needed` (bool); the new numbers by the old ones, -1 at the end."""
        numbers = new_numbers(np.append(needed, False))
        self.addresses[:] = [self.addresses[n] for n in np.flatnonzero(needed).tolist()]
        self._numbers = {name: number for number, name in enumerate(self.addresses)}
        return numbers


class OwnNames:
    """The numbers of one engine. `strings`, `addresses`: by its number that of all; -1 at the end."""

    def __init__(self, names: JoinedNames) -> None:
        self._names = names
        self.strings = self.addresses = _NONE
        self._topics = 0  # names of topics that all know

    def learn(self, engine: Engine) -> None:
        """Learn the names that are new in the engine. Only the thread that runs the engine may call it."""
        known, count = len(self.strings) - 1, len(engine.dissector.strings)
        if count > known:
            new = self._names.add_strings(engine.dissector.strings[known:count])
            self.strings = np.concatenate((self.strings[:-1], new, _NONE))
        known, count = len(self.addresses) - 1, len(engine.addresses)
        if count > known:
            new = self._names.add_addresses(engine.addresses[known:count])
            self.addresses = np.concatenate((self.addresses[:-1], new, _NONE))

    def name_topics(self, engine: Engine) -> None:
        """Tell all the names of topics that are new in the engine, while it rests."""
        found = engine.dissector.topic_names
        if len(found) == self._topics:
            return
        self.learn(engine)
        for topic_id, name in islice(found.items(), self._topics, None):
            self._names.topic_names[int(self.strings[topic_id])] = int(self.strings[name])
        self._topics = len(found)

    def forget_strings(self, engine: Engine, kept: Array) -> None:
        """Forget the strings of the engine that are not among `kept` (bool, by number of all), if it needs them not."""
        self.learn(engine)
        mine = np.flatnonzero(kept[self.strings[:-1]])
        self.strings = _moved(self.strings, engine.forget_strings(mine))
        self._topics = len(engine.dissector.topic_names)

    def forget_addresses(self, engine: Engine, kept: Array) -> None:
        """The same of addresses."""
        self.learn(engine)
        mine = np.flatnonzero(kept[self.addresses[:-1]])
        self.addresses = _moved(self.addresses, engine.forget_addresses(mine))

    def connections(self, rows: Array, engine: Engine) -> Array:
        """CONNECTION_ROWs of the engine, changed to the numbers of all."""
        self.learn(engine)
        _renumber(rows, CONNECTION_NAMES[0], self.strings)
        _renumber(rows, CONNECTION_NAMES[1], self.addresses)
        return rows

    def batch(self, batch: Batch, engine: Engine) -> Batch:
        """A batch of the engine, changed to the numbers of all."""
        self.learn(engine)
        _renumber(batch.exchanges, EXCHANGE_STRINGS, self.strings)
        _renumber(batch.exchanges, _ENDS, self.addresses)
        _renumber(batch.results, RESULT_STRINGS, self.strings)
        for rows, columns in ((batch.topics, _TOPICS), (batch.facts, FACT_STRINGS)):
            if rows is not None:
                _renumber(rows, columns, self.strings)
        if batch.estimates is not None:
            _renumber(batch.estimates, _ENDS, self.addresses)
        if batch.tokens is not None:
            self.batch(batch.tokens, engine)
        return batch


def _moved(known: Array, numbers: Array) -> Array:
    """The numbers of all by those of an engine, after those have changed. `numbers`: new ones by old ones, -1 if one is
    forgotten."""
    is_kept = numbers >= 0
    made = np.full(int(is_kept.sum()) + 1, -1, np.int64)
    made[numbers[is_kept]] = known[is_kept]
    return made


def _renumber(rows: Array, columns: Sequence[str], numbers: Array) -> None:
    if len(rows):
        for name in columns:
            rows[name] = numbers[rows[name]]
