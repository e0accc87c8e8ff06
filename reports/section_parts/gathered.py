"""`Gathered`: the exchanges of several batches, and their facts by kind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from kafkatap.dissector.dtypes import EXCHANGE, RESULT
from kafkatap.dissector.facts.fact_rows import FACT
from kafkatap.dissector.programs.fact_kinds import NUMBER_OF, columns_of
from kafkatap.kernels.arrays import is_among, joined, taken

from ..batch import ESTIMATE, Array, Batch, rows_of
from ..counting.count_forms import PLACE

#: Columns of the facts of any kind.
_OF_EVERY_FACT = frozenset(("topic", "topic_id", "partition", "error_code"))


class FactRows:
    """The facts of one kind, in order of their exchanges.

    `rows["column"]`: a column of the kind (`dissector.programs.fact_kinds`), or topic, topic_id, partition (NO_INT32:
    none), error_code. Numbers are int64 (NO_NUMBER: absent), texts numbers of strings (-1). `exchange`: int64, the
    index of each fact's exchange in `Gathered.exchanges`. `position`: int64, ascending over the facts of all kinds: a
    fact comes after that of the element around it.
    """

    def __init__(self, facts: Array, exchanges: Array, turns: Array, position: Array, kind: int) -> None:
        """`facts`: those of all kinds, with the indexes of their `exchanges`, and the numbers of these (`turn`)."""
        self.exchange: Array = exchanges[position]
        self.position = position
        self._all, self._turns = facts, turns
        self._names = columns_of(kind)
        self._columns: dict[str, Array] = {}
        self._whole: tuple[FactRows, Array] | None = None

    def __len__(self) -> int:
        return len(self.position)

    def __getitem__(self, column: str) -> Array:
        name = self._names.get(column, column)
        found = self._columns.get(name)
        if found is None:
            if self._whole is not None and name in self._whole[0]._columns:
                found = self._whole[0]._columns[name][self._whole[1]]
            else:
                found = self._all[name][self.position]
            self._columns[name] = found
        return found

    def has(self, column: str) -> bool:
        """Whether a column is of these facts, not of their exchanges."""
        return column in self._names or column in _OF_EVERY_FACT

    def where(self, chosen: Array) -> FactRows:
        """Some of the facts: bool, or their indexes."""
        made = object.__new__(FactRows)
        rows = np.flatnonzero(chosen) if chosen.dtype == bool else chosen
        made._all, made._turns, made._names = self._all, self._turns, self._names
        made.exchange, made.position = self.exchange[rows], self.position[rows]
        made._columns, made._whole = {}, (self, rows)
        return made

    def is_first(self) -> Array:
        """Whether each fact is the first one of its exchange: bool."""
        found: Array = np.diff(self.exchange, prepend=-1) != 0
        return found

    def turn(self) -> Array:
        """A number for the exchange of each fact, which ascends over the facts of all kinds: int64."""
        found: Array = self._turns[self.position]
        return found

    def around(self, inner: FactRows) -> Array:
        """The index of the fact around each of other facts, whose kind is an array in this one's: int64."""
        found: Array = np.searchsorted(self.position, inner.position) - 1
        return found


class ResultRows:
    """Results, as `FactRows`: those whose exchanges were gathered."""

    def __init__(self, results: Array, exchanges: Array) -> None:
        """`exchanges`: their index for each result, -1: none."""
        has_exchange = np.flatnonzero(exchanges >= 0)
        self.exchange: Array = exchanges[has_exchange]
        self._rows = taken(results, has_exchange)

    def __len__(self) -> int:
        return len(self.exchange)

    def __getitem__(self, column: str) -> Array:
        found: Array = self._rows[column]
        return found

    def has(self, column: str) -> bool:
        """Whether a column is of results, not of their exchanges."""
        return column in (RESULT.names or ())


class PlacedRows:
    """Records that have a column PLACE besides."""

    def __init__(self, rows: Array, places: Array) -> None:
        self._rows, self._places = rows, places

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, which: Any) -> Any:
        """A column by its name, or some of the rows."""
        if isinstance(which, str):
            return self._places if which == PLACE else self._rows[which]
        return PlacedRows(self._rows[which], self._places[which])


class Gathered:
    """`results`: RESULT rows of failed responses, or of all, as in `Batch`. `estimates`: ESTIMATE rows, which belong to
    no exchange. The length is the number of exchanges."""

    def __init__(self, batches: Sequence[Batch]) -> None:
        self._parts = [batch.exchanges for batch in batches] or [np.zeros(0, EXCHANGE)]
        self.results: Array = joined([batch.counted_results for batch in batches], RESULT)
        self.estimates: Any = joined([batch.estimates for batch in batches if batch.estimates is not None], ESTIMATE)
        self._facts = joined([batch.facts for batch in batches if batch.facts is not None], FACT)
        self._kinds = self._facts["kind"].astype(np.uint8)
        self._exchange: Array | None = None  # by fact
        self._turns: Array = np.zeros(0, np.int64)
        self._found: dict[int, FactRows] = {}
        self._columns: dict[str, Array] = {}
        self._made: dict[Any, Any] = {}
        self._first_number: int | None = None  # of the exchanges, in events
        self._tokens = [batch.tokens for batch in batches if batch.tokens is not None]

    def __len__(self) -> int:
        return sum(map(len, self._parts))

    @cached_property
    def exchanges(self) -> Array:
        """EXCHANGE rows. `column` is faster: it copies only what is asked for."""
        return joined(self._parts, EXCHANGE)

    def put(self, places: Array, of_estimates: Array) -> None:
        """Give the exchanges and the estimates a column PLACE: int64 (n,) each. Events then have the number of their
        exchange in place of its key, which two captures may have."""
        self._first_number = 0
        self._columns[PLACE] = places
        self.estimates = PlacedRows(self.estimates, of_estimates)

    @property
    def tokens(self) -> Gathered:
        """Bare SASL tokens of clients with their answers, in place of exchanges, and their facts."""
        made = Gathered(self._tokens)
        if self._first_number is not None:
            made._first_number = self._first_number + len(self)
        return made

    def keys_of_events(self, exchanges: Array) -> Array:
        """What events of exchanges (their indexes) have as `exchange`: keys of tables, or numbers after `put`. Those of
        `tokens` follow."""
        if self._first_number is not None:
            return exchanges + self._first_number
        return self.column("key")[exchanges]

    def facts(self, name: str) -> FactRows:
        """The facts of a kind by its name."""
        kind = NUMBER_OF[name]
        found = self._found.get(kind)
        if found is None:
            position = np.flatnonzero(self._kinds == kind)
            if self._exchange is None:
                numbers = np.ascontiguousarray(self._facts["exchange"])
                begins = np.flatnonzero(np.diff(numbers, prepend=-1))
                rows, times = rows_of(self.column("exchange"), numbers[begins]), np.diff(begins, append=len(numbers))
                self._exchange = np.repeat(rows, times)
                self._turns = np.repeat(np.cumsum(np.diff(rows, prepend=-1) != 0), times)
            found = self._found[kind] = FactRows(self._facts, self._exchange, self._turns, position, kind)
        return found

    @cached_property
    def result_rows(self) -> ResultRows:
        """The results of these exchanges."""
        return ResultRows(self.results, rows_of(self.column("exchange"), self.results["exchange"]))

    def column(self, name: str) -> Array:
        """A column of the exchanges as an array of its own, from which rows are picked faster."""
        found = self._columns.get(name)
        if found is None:
            found = self._columns[name] = np.concatenate([part[name] for part in self._parts])
        return found

    def once(self, make: Callable[..., Any], *args: Any) -> Any:
        """What a function makes of these, such as a value for each exchange: made when it is first asked for, and
        shared. Nobody changes it."""
        key = make, *args
        if key not in self._made:
            self._made[key] = make(self, *args)
        return self._made[key]

    def forget(self) -> None:
        """Drop all that was made of these, which may refer to them: it would live until Python looks for cycles."""
        self._made.clear()

    def rows(self, chosen: Array) -> Array:
        """A copy of some exchanges (their indexes): numpy's own way copies each of their fields for itself."""
        return taken(self.exchanges, chosen)

    def of_api(self, *api_keys: int) -> Array:
        """The indexes of the exchanges of some APIs: int64, ascending."""
        keys = self.column("api_key")
        found: Array = np.flatnonzero(keys == api_keys[0] if len(api_keys) == 1 else is_among(keys, api_keys))
        return found

    def top(self, name: str, column: str, missing: Any = -1) -> Array:
        """A column of a fact of which an exchange has at most one: int64, one for each exchange. Nobody changes it."""
        found: Array = self.once(Gathered._top, name, column, missing)
        return found

    def _top(self, name: str, column: str, missing: Any) -> Array:
        rows = self.facts(name)
        found = np.full(len(self), missing, np.int64)
        found[rows.exchange] = rows[column]
        return found
