"""`StreamState`: what a stream has done, saved in its checkpoint before a batch is published.

A state has the files that its batch wrote. So a batch that was interrupted after its state was saved is only published
again; its captures are not read again. States are numbered: batch n has 2n + 1, and `finish_stream` after n batches 2n.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ..splits.checkpoint import Checkpoint
from .output.delta import transaction_version
from .output.folders import Folder
from .output.writing import Written
from .state_bytes import DamagedState, state_bytes, state_of

_VERSIONS = "kafkatap/versions.json"
#: Raised with each change of what a state has.
_FORMAT = b"kafkatap stream 12\n"
#: States that are kept: Spark may run the last batch again.
_KEPT = 2
_STATE_NAME = re.compile(r"state-([0-9]+)")


@dataclass(frozen=True, slots=True)
class Commit:
    """What a batch publishes. `written`: its files; `tables`: the tables that it writes, with rows or without;
    `captures`: the identities of its captures; `gone`: of those that were not there any more. Of a run that goes on:
    `replaced`: the
    numbers of those that it replaces; `cut`: the connections that it has without their beginning;
    `options`: those that change rows."""

    written: list[Written] = field(default_factory=list)
    tables: tuple[str, ...] = ()
    captures: tuple[int, ...] = ()
    gone: tuple[int, ...] = ()
    damage: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    bytes_read: int = 0
    has_kafka: bool = False
    replaced: tuple[int, ...] = ()
    cut: frozenset[bytes] = frozenset()
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StreamState:
    """`number`: as above. `stream`: a name of the stream, for the transactions of tables. `checkpoint`: what the next
    batch starts from."""

    number: int = -1
    stream: str = field(default_factory=lambda: uuid.uuid4().hex)
    checkpoint: Checkpoint = field(default_factory=Checkpoint)
    commit: Commit = field(default_factory=Commit)

    def open_tables(self, out: str) -> list[str]:
        """The tables that do not have the rows of this batch."""
        versions = {table: transaction_version(out, table, self.stream) for table in self.commit.tables}
        return [table for table, version in versions.items() if version is None or version < self.number]

    def can_publish(self, out: str) -> bool:
        """Whether all files are there that tables still need."""
        tables = set(self.open_tables(out))
        wanted = {w.name: w.size for w in self.commit.written if w.table in tables}
        return Folder(out).sizes_of(list(wanted)) == wanted


def batch_number(batch: int) -> int:
    """The number of the state of a batch, counted from 0."""
    return 2 * batch + 1


def finished_number(last: int) -> int:
    """The number of the state of `finish_stream` after a state."""
    return last + last % 2


class StateFolder:
    """The states in a folder, by default that of a checkpoint. `is_private`: as of `Folder`. `below`: where they are in
    it. `kept`: how many stay."""

    def __init__(
        self, folder: str, is_private: bool = False, below: str = "kafkatap/states", kept: int = _KEPT
    ) -> None:
        self._folder, self._below, self._kept = Folder(folder, is_private), below, kept

    def save(self, state: StreamState) -> None:
        self._folder.make()
        self._folder.write(self._name(state.number), _FORMAT + state_bytes(state))
        self.drop(number for number in self._numbers()[: -self._kept] if number < state.number)

    def drop(self, numbers: Iterable[int]) -> None:
        """Delete states."""
        for number in numbers:
            self._folder.delete(self._name(number))

    def read(self, number: int) -> StreamState | None:
        """The state of this number, if there is one. DamagedState if it is not as it was written, ValueError if
        another version of the program wrote it."""
        data = self._folder.read(self._name(number))
        if data is None:
            return None
        if not data.startswith(_FORMAT):
            raise ValueError(f"{self._folder.path}: another version of kafkatap wrote this checkpoint; use a new one")
        try:
            state: StreamState = state_of(data[len(_FORMAT) :])
        except DamagedState as error:
            raise DamagedState(f"{self._folder.path}/{self._name(number)} is damaged: {error}") from None
        return state

    def last(self, before: int | None = None) -> StreamState | None:
        """The last state, or the last one `before` a number."""
        numbers = [n for n in self._numbers() if before is None or n < before]
        return self.read(numbers[-1]) if numbers else None

    @property
    def latest(self) -> int:
        """The number of the last state; -1: there is none."""
        return max(self._numbers(), default=-1)

    @property
    def batches(self) -> int:
        """How many batches have a state."""
        return (self.latest + 1) // 2

    def empty(self, numbers: Iterable[int], why: bytes = b"") -> None:
        """Make states empty, but for a reason: their numbers stay."""
        for number in numbers:
            self._folder.write(self._name(number), why)

    def save_versions(self, versions: Mapping[str, int], tables: Iterable[str]) -> None:
        """Save the versions of tables after a batch was published. Those of `tables` that have none have rows of
        others."""
        kept = {table: version for table, version in self.versions().items() if table not in set(tables)}
        self._folder.write(_VERSIONS, json.dumps({**kept, **versions}).encode())

    def versions(self) -> dict[str, int]:
        """The versions of tables after the last batch, if all of their rows are the stream's. A table of this version
        has rows of no capture to come."""
        found: dict[str, int] = json.loads(self._folder.read(_VERSIONS) or b"{}")
        return found

    def sizes(self) -> Mapping[int, int]:
        """The bytes of each state, by its number."""
        sizes = sorted(self._folder.sizes(self._below).items())
        found = ((_STATE_NAME.fullmatch(name.rpartition("/")[2]), size) for name, size in sizes)
        return {int(match[1]): size for match, size in found if match is not None}

    def _numbers(self) -> list[int]:
        return list(self.sizes())

    def _name(self, number: int) -> str:
        return f"{self._below}/state-{number:09d}"
