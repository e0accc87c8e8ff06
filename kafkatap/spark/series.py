"""`Series`: runs that go on from each other. What is open at the end of a run is kept in OUT/state for the next one.

Rows have the number of their run. Those of connections that are open at its end have the number after it: a run that
goes on replaces them. A run over captures between those of a series, or over some of these again, goes on from the
state before them. It replaces the runs after that state and reads their captures again. So the rows are those of one
run over all. Of two runs at once that go on from the same state, the second one starts again
(`Outrun`).

Captures of other capture points, at the same time, are a series of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from ..captures.capture_points import SLACK_NS, CapturePoints, ReadPoint
from ..captures.storage import exists
from ..splits.checkpoint import Checkpoint, Sums
from ..splits.flow_rows import flow_bytes
from ..splits.run_options import RunOptions
from .lake_options import row_options
from .output.delta import is_delta, open_table, read_table
from .output.delta_schema import LAKE_TABLES
from .output.folders import Folder
from .output.publication import Publication, Published, open_publication
from .output.run_tables import file_infos, replaced_captures
from .state_bytes import DamagedState
from .stream_state import Commit, StateFolder, StreamState

if TYPE_CHECKING:
    from kafkatap.reports.batch import FileInfo

    from ..splits.surveys import Surveys
    from .stream_batch import ReadBatch

#: The folder of the states below OUT.
FOLDER = "state"
#: The table that gets the transaction of a run first.
_FIRST_TABLE = LAKE_TABLES[0]
#: States that stay of a series, series with states, and bytes of a state.
_KEPT, _MOST_SERIES, _MOST_BYTES = 26, 64, 1 << 30

#: What is in place of a state with forgotten captures: nobody knows its connections any more.
_FORGOTTEN = b"forgotten\n"

_TOO_LARGE = (
    f"The packets of open connections take more than {_MOST_BYTES >> 30} GiB, and are not kept: the next run has these "
    "connections as new ones."
)


class _Read(NamedTuple):
    """A capture that a lake has, and the number of the run that read it. Times in ns; `first` None: unknown."""

    capture: int
    path: str
    run: int
    first: int | None
    last: int | None


@dataclass(frozen=True, slots=True)
class Start:
    """How a run goes on: from `checkpoint`, as `number` of a series. `after`: its last run; -1: it has none.
    `replaced`: runs that it replaces. `again`: paths and identities of their captures, which it reads again. `dropped`:
    states that do not hold after it, by series."""

    series: str
    number: int
    after: int
    checkpoint: Checkpoint = field(default_factory=Checkpoint)
    replaced: tuple[int, ...] = ()
    again: Mapping[str, int] = field(default_factory=dict)
    dropped: Mapping[str, Sequence[int]] = field(default_factory=dict)

    def commit(self, surveys: Surveys, **what: Any) -> Commit:
        """What the run publishes. `surveys`: of its captures; `what`: other fields of `Commit`."""
        cut = {key for key, is_opened in _flows(surveys).items() if not is_opened} - self.checkpoint.flows.keys()
        return Commit(replaced=self.replaced, cut=frozenset(cut), **what)


@dataclass(frozen=True, slots=True)
class _Choice:
    """A series that a run can go on from, at `state` (None: at its beginning). `later`: its runs after that;
    `again`: their captures that the run does not have. `has_own`: it has captures of the run. `shared`: connections of
    the run that are open in the state."""

    series: str
    state: StreamState | None
    later: Sequence[int]
    again: Sequence[_Read]
    has_own: bool
    shared: int

    @property
    def rank(self) -> tuple[bool, bool, int, int]:
        return self.state is not None, self.has_own, self.shared, -1 if self.state is None else self.state.number


class Series:
    """The series of a lake. `options`: of the run; states of runs with other options are of no use."""

    def __init__(self, out: str, options: RunOptions | None = None) -> None:
        options = options or RunOptions()
        self._out, self._is_private, self._options = out, options.is_decrypting, row_options(options)
        names: list[list[str]] = []
        with suppress(PermissionError):  # another user's runs: this one begins a series
            names = [name.split("/") for name in Folder(out).sizes(FOLDER)]
        series = {parts[1] for parts in names if len(parts) == 3 and parts[1].isdecimal()}
        self._folders = {name: self._states(name) for name in sorted(series)}
        self._sizes = {name: states.sizes() for name, states in self._folders.items()}
        self._latest: dict[str, int] = {}
        self.notes: list[str] = []
        if self._sizes and is_delta(out, _FIRST_TABLE):
            table = open_table(out, _FIRST_TABLE)
            self._latest = {name: table.transaction_version(_application(name)) or -1 for name in self._sizes}

    def _states(self, series: str) -> StateFolder:
        return StateFolder(self._out, True, f"{FOLDER}/{series}", _KEPT)  # they have bytes of packets

    def complete(self) -> None:
        """Publish the rest of a run that was killed after its first commit."""
        runs = {row.run for row in self._read_captures()}
        for name, latest in self._latest.items():
            state = None if latest in runs else self._state(name, latest)
            if state is not None and (tables := state.open_tables(self._out)) and state.can_publish(self._out):
                with open_publication(self._out, is_private=self._is_private) as publication:
                    publish(publication, state, tables)

    def start(self, surveys: Surveys, begun: int) -> Start:
        """How a run goes on. `surveys`: of its captures; `begun`: as of `Publication`."""
        files = _with_times(surveys)
        flows = set(_flows(surveys))
        read = self._read_captures()
        found = [self._choice(name, files, flows, read) for name in self._sizes]
        choices = [choice for choice in found if choice is not None]
        number = begun // 1_000 & ~1
        if not choices:
            return Start(str(number), number, -1)
        best = max(choices, key=lambda choice: choice.rank)
        changed = [choice for choice in choices if choice.has_own or choice is best]
        replaced = {run for choice in changed for each in choice.later for run in (each, each + 1)}
        again = {read.path: read.capture for choice in changed for read in choice.again}
        dropped = {choice.series: choice.later for choice in changed if choice.later}
        name, latest, before = str(number), -1, Checkpoint()
        if best.state is not None:  # its open connections go on
            self.notes.clear()  # the run does not need a state that is damaged
            name, latest, before = best.series, self._latest[best.series], best.state.checkpoint
            replaced.add(best.state.number + 1)
        return Start(name, max(number, latest + 2), latest, before, tuple(sorted(replaced)), again, dropped)

    def _read_captures(self) -> list[_Read]:
        """The captures of the lake that runs with a number read."""
        if not is_delta(self._out, "files"):
            return []
        rows = read_table(self._out, "files")
        runs = dict(zip(rows["capture"].to_pylist(), rows["run_number"].to_pylist(), strict=True))
        return [
            _Read(info.capture, info.path, runs[info.capture], info.first or None, info.last)
            for info in file_infos(rows)
            if runs[info.capture] is not None
        ]

    def _choice(self, name: str, files: Sequence[FileInfo], flows: set[bytes], read: Sequence[_Read]) -> _Choice | None:
        """How a run over `files`, with these flows, goes on from a series; None: it does not."""
        sizes = self._sizes[name]
        of_series = [row for row in read if row.run in sizes]
        own, published = replaced_captures(files), {row.run for row in of_series}
        first_own = min((row.run for row in of_series if row.capture in own), default=None)
        before = [n for n in sizes if n in published and (first_own is None or n < first_own)]
        earlier = [n for n in before if self._has_state(name, n)]
        states = (found for number in reversed(earlier) if (found := self._state(name, number)) is not None)
        latest = next(states, None)  # most runs read no other one
        if latest is not None and _follow(files, latest.checkpoint.points):
            state: StreamState | None = latest
        else:
            state = next((found for found in states if _follow(files, found.checkpoint.points)), None)
        later = [number for number in sizes if state is None or number > state.number]
        again = [row for row in of_series if row.run in later and row.capture not in own]
        if state is None and ((earlier and latest is None) or int(name) not in sizes):
            return None  # of other options, or it begins before the states that are kept
        if first_own is None and (state is None or again):
            if any(_overlap(info, row) for info in files for row in again):
                return None
            there = [found.commit.cut for n in later if (found := self._state(name, n)) is not None]
            there += [frozenset(state.checkpoint.flows)] if state is not None else []
            is_forgotten = any(sizes[n] == len(_FORGOTTEN) for n in later)
            if not is_forgotten and all(flows.isdisjoint(some) for some in there):
                return None
        if not all(exists(row.path) for row in again):
            return None
        shared = 0 if state is None else len(flows & state.checkpoint.flows.keys())
        return _Choice(name, state, later, again, first_own is not None, shared)

    def _state(self, name: str, number: int) -> StreamState | None:
        """A state; None if it is damaged, or another version of the program wrote it, or a run with other options."""
        try:
            state = self._folders[name].read(number) if self._has_state(name, number) else None
        except DamagedState as error:
            if (note := f"{error}. No run goes on from it.") not in self.notes:
                self.notes.append(note)
            return None
        except ValueError:
            return None
        return None if state is None or state.commit.options != self._options else state

    def _has_state(self, name: str, number: int) -> bool:
        return self._sizes[name].get(number, 0) > len(_FORGOTTEN)

    def save(self, start: Start, batch: ReadBatch, commit: Commit) -> StreamState:
        """Save the state after a run that is written, but not published. Its sums have open connections only."""
        sums = batch.checkpoint.sums
        checkpoint = replace(batch.checkpoint, sums=Sums(first=sums.first, last=sums.last, counts=batch.open))
        application = _application(start.series)
        state = StreamState(start.number, application, checkpoint, replace(commit, options=self._options))
        states = self._states(start.series)
        with suppress(PermissionError):
            states.save(state)
            if states.sizes()[start.number] > _MOST_BYTES:
                states.empty([start.number])
                self.notes.append(_TOO_LARGE)
        return state

    def discard(self, start: Start) -> None:
        """Delete the state after a run that is not published."""
        self._states(start.series).drop([start.number])

    def drop(self, start: Start) -> None:
        """Delete the states that do not hold any more after a run."""
        for name, numbers in start.dropped.items():
            self._folders[name].drop(numbers)
        latest = sorted(self._sizes, key=lambda name: max(self._sizes[name]))
        for name in [name for name in latest if name != start.series][: -_MOST_SERIES + 1]:
            self._folders[name].drop(self._sizes[name])

    def forget(self, captures: Iterable[int]) -> None:
        """Make the states useless that have captures (identities) in them: no run goes on from these."""
        forgotten = set(captures)
        runs = [row.run for row in self._read_captures() if row.capture in forgotten]
        for name, sizes in self._sizes.items():
            first = min((run for run in runs if run in sizes), default=None)
            self._folders[name].empty((n for n in sizes if first is not None and n >= first), _FORGOTTEN)


def publish(publication: Publication, state: StreamState, tables: Sequence[str], **how: Any) -> Published:
    """Publish a run that goes on. `tables`: those that do not have it. `how`: as of `Publication.publish`."""
    commit, after = state.commit, state.checkpoint
    return publication.publish(
        [file for file in commit.written if file.table in tables], tables, commit.captures,
        transaction=(state.stream, state.number), replaced=commit.replaced,
        topic_names={key: after.topic_names[key] for key in after.unnamed if key in after.topic_names}, **how,
    )  # fmt: skip


def _application(series: str) -> str:
    """That of the transactions of a series."""
    return f"kafkatap series {series}"


def _with_times(surveys: Surveys) -> list[FileInfo]:
    """The captures. Those with zeros in place of packets, which have no time, begin with their first packet."""
    heads: dict[int, int | None] = {}
    for place, survey in zip(surveys.places, surveys.surveys, strict=True):
        for number, read in zip(place.file_numbers, survey.files, strict=False):
            heads.setdefault(number, read.head_time)
    return [info if info.first else info._replace(first=heads[n]) for n, info in surveys.by_file().items()]


def _flows(surveys: Surveys) -> dict[bytes, bool]:
    """The flows of captures, and whether they begin there with a SYN."""
    found: dict[bytes, tuple[int, bool]] = {}
    for survey in surveys.surveys:
        rows = survey.rows
        columns = (rows[name].tolist() for name in ("first", "opened"))
        for key, first, opened in zip(flow_bytes(rows["flow"]), *columns, strict=True):
            found[key] = min(found.get(key, (first, opened)), (first, opened))
    return {key: opened for key, (_, opened) in found.items()}


def _follow(files: Sequence[FileInfo], points: Sequence[ReadPoint]) -> bool:
    """Whether captures come after others of the same capture points."""
    known = CapturePoints(points)
    spans = sorted((info.first, info.last, info.path) for info in files if info.first is not None)
    for first, last, path in spans:
        known.end(known.begin(path, first), last)
    return len(known) == len(points)


def _overlap(info: FileInfo, read: _Read) -> bool:
    """Whether captures are of the same time."""
    if info.first is None or info.last is None or read.first is None or read.last is None:
        return False
    return info.first + SLACK_NS < read.last and read.first + SLACK_NS < info.last
