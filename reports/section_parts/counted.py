"""Counts that are declared with the rows that they are made of.

    WAITS = counted(
        "advice.nagle", CLIENT, lambda x: (x.nagle_ns > 0) & (x.outcome == ANSWERED),
        nagle_ns=total("nagle_ns"), exchanges=total(1), longest_ns=largest("nagle_ns"), **SPAN,
    )

A form says once which rows it counts, by what, and how they are added up. What a run reads for it follows, and the row
of what is added up as "(other)". A value is a column of these rows, a number, or made of columns: `lambda x: x.last -
x.first`. Columns that no condition or value names are not read. A function that several forms name, or one more than
once, is worth an `@once`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, wraps
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from kafkatap.dissector.dtypes import ANSWERED, NO_TIME

from ..batch import Array
from ..counting.count_forms import ADDRESS, NUMBER, OTHER, TEXT, CountForm
from ..counting.count_table import EMPTY, LATEST, MAX, MIN, SUM
from .gathered import FactRows, Gathered, ResultRows
from .matching import matched
from .notable import SLOW_NS
from .section_counts import Tally

#: What a column of keys or values is: a column of the rows, a number, or made of columns.
Made = str | int | Callable[[Any], Any]
#: How values are added up, and of what; None: only of the rows of `Counted.also`.
Value = tuple[int, Made | None]

#: Keys that name somebody.
CLIENT = {"client_id": TEXT, "client_ip": ADDRESS}
BROKER = {"broker_ip": ADDRESS, "broker_port": NUMBER}
PAIR = CLIENT | BROKER
CONNECTION = {"connection": NUMBER}
PLACE = {"topic": TEXT, "topic_id": TEXT, "partition": NUMBER}


def total(of: Made | None = None) -> Value:
    return SUM, of


def least(of: Made | None = None) -> Value:
    return MIN, of


def largest(of: Made | None = None) -> Value:
    return MAX, of


def latest(of: Made | None = None) -> Value:
    """Of the row with the largest of the value before it."""
    return LATEST, of


def least_where(condition: Array, values: Array) -> Array:
    """Values for `least` of the rows of which a condition holds."""
    return np.where(condition, values, EMPTY[MIN])


def largest_where(condition: Array, values: Array) -> Array:
    """Values for `largest` of the rows of which a condition holds."""
    return np.where(condition, values, EMPTY[MAX])


#: The time of exchanges and the first packet: what findings are from, to and shown by.
SPAN: Any = {"first": least("request_first"), "last": largest("response_last"), "packet": least("request_packet_first")}


#: That a condition holds for all rows.
_ALL = object()


class Rows:
    """Rows that a run reads. Their columns are attributes: `x.nagle_ns`. Facts and results have those of their
    exchanges too. `fact`: the kind of the facts."""

    def __init__(
        self,
        column: Callable[[str], Array],
        gathered: Gathered | None = None,
        source: FactRows | ResultRows | None = None,
        at: Array | None = None,
        fact: str = "",
    ) -> None:
        """`column`: of exchanges, connections or estimates. `source`: the facts, or the results. `at`: which of them
        are these rows; None: all."""
        self._column, self._source, self._at = column, source, at
        self._gathered, self.fact = gathered, fact
        self._made: dict[Any, Any] = {}

    def __getattr__(self, name: str) -> Array:
        if self._source is not None and self._source.has(name):
            found = self._kept(self._source[name])
        else:
            found = self._of_exchanges(self._column(name))
        self.__dict__[name] = found
        return found

    def __getitem__(self, name: str) -> Array:
        found: Array = getattr(self, name)
        return found

    def once(self, make: Callable[..., Any], *args: Any) -> Any:
        """What a function makes of these rows: made when it is first asked for, and shared. Nobody changes it."""
        key = make, *args
        if key not in self._made:
            self._made[key] = make(self, *args)
        return self._made[key]

    def _kept(self, values: Array) -> Array:
        """Of values of all rows, those of these."""
        return values if self._at is None else values[self._at]

    def _of_exchanges(self, values: Array) -> Array:
        """Of values of all exchanges, those of the exchanges of these rows."""
        return self._kept(values) if self._source is None else values[self._exchange]

    @cached_property
    def _exchange(self) -> Array:
        """The index of the exchange of each."""
        assert self._source is not None
        return self._kept(self._source.exchange)

    def each(self, make: Callable[[Gathered], Array]) -> Array:
        """What a function makes of all exchanges, a value for each: that of the exchange of each row."""
        assert self._gathered is not None
        return self._of_exchanges(self._gathered.once(make))

    def top(self, fact: str, column: str, missing: int = -1) -> Array:
        """A column of a fact of which an exchange has at most one."""
        assert self._gathered is not None
        return self._of_exchanges(self._gathered.top(fact, column, missing))

    def together(self) -> Array:
        """How many facts of the kind of these the exchange of each has."""
        assert self._source is not None
        return self._kept(np.bincount(self._source.exchange)[self._source.exchange])

    @cached_property
    def facts(self) -> FactRows:
        """The facts that these rows are."""
        assert isinstance(self._source, FactRows)
        return self._source if self._at is None else self._source.where(self._at)

    def beside(self, kind: str, column: str, missing: int = -1) -> Array:
        """A column of the first fact of a kind with the exchange, topic and partition of each."""
        found: Array = self.once(Rows._beside, kind, column, missing)
        return found

    def _beside(self, kind: str, column: str, missing: int) -> Array:
        assert self._gathered is not None
        found: Array = np.append(self._gathered.facts(kind)[column], missing)[self.once(Rows._place, kind)]
        return found

    def _place(self, kind: str) -> Array:
        assert self._gathered is not None
        return self._kept(self._gathered.once(_matched, kind, self.fact))

    def summed(self, kind: str, column: str) -> Array:
        """The sum of a column of all facts of a kind with the exchange, topic and partition of each. Negative ones do
        not count."""
        assert self._gathered is not None
        others, mine = self._gathered.facts(kind), self.facts
        found, at = np.zeros(len(mine), np.int64), matched(mine, others)
        np.add.at(found, at[at >= 0], np.maximum(others[column][at >= 0], 0))
        return found

    def around(self, kind: str, column: str, missing: int = -1) -> Array:
        """A column of the fact of a kind around each."""
        assert self._gathered is not None
        outer = self._gathered.facts(kind)
        return np.append(outer[column], missing)[outer.around(self.facts)]

    def where(self, condition: Callable[[Rows], Array]) -> Rows | None:
        """Those of which a condition holds; None: of none."""
        found = self.once(Rows._chosen, condition) if hasattr(condition, "is_once") else self._chosen(condition)
        return self if found is _ALL else found

    def _chosen(self, condition: Callable[[Rows], Array]) -> Any:
        """`where`, or _ALL."""
        holds = condition(self)
        at = np.flatnonzero(holds)
        if len(at) == len(holds):
            return _ALL if len(at) else None
        if not len(at):
            return None
        return Rows(self._column, self._gathered, self._source, at if self._at is None else self._at[at], self.fact)

    def made(self, of: Made) -> Any:
        """A column of these rows, or what is made of some."""
        if isinstance(of, str):
            return getattr(self, of)
        return of(self) if callable(of) else of


def _matched(gathered: Gathered, kind: str, mine: str) -> Array:
    """The index of the first fact of a kind with the exchange, topic and partition of each of another kind."""
    return matched(gathered.facts(kind), gathered.facts(mine))


def once(make: Callable[[Rows], Any]) -> Callable[[Rows], Any]:
    """Evaluate a function once for the same rows, for all who name it. As a condition, it chooses the same rows for
    all. Nobody changes what it returns."""

    @wraps(make)
    def made(x: Rows) -> Any:
        return x.once(make)

    made.is_once = True  # type: ignore[attr-defined]
    return made


def began(x: Rows) -> Any:
    """The time of the request's first byte, or of the response's last."""
    return np.where(x.request_first != NO_TIME, x.request_first, x.response_last)


def ended(x: Rows) -> Any:
    """The time of the response's last byte, or of the request's first."""
    return np.where(x.response_last != NO_TIME, x.response_last, x.request_first)


@once
def without_waits(x: Rows) -> Any:
    """The total time of exchanges without waits for data and members, ns."""
    return x.total_ns - x.waiting_ns - x.hol_poll_wait_ns


@once
def is_slow(x: Rows) -> Any:
    """Whether exchanges are slow, as of `notable`."""
    return (x.outcome == ANSWERED) & (without_waits(x) >= SLOW_NS)


#: In place of kinds of facts: the rows of connections that ended; the results of exchanges; estimates of TLS.
CONNECTIONS, RESULTS, ESTIMATES = ("connections",), ("results",), ("estimates",)
#: A condition, or several, each on the rows that those before it leave.
Condition = Callable[[Rows], Array] | tuple[Callable[[Rows], Array], ...] | None


def _rows(gathered: Gathered, kind: str) -> Rows | None:
    """Those of an item of `Counted.of`, or the exchanges; None: none."""
    if kind in CONNECTIONS:
        return None
    if kind in ESTIMATES:
        return Rows(gathered.estimates.__getitem__) if len(gathered.estimates) else None
    source = gathered.result_rows if kind in RESULTS else gathered.facts(kind) if kind else None
    if not len(gathered if source is None else source):
        return None
    return Rows(gathered.column, gathered, source, fact=kind)


class Counted(NamedTuple):
    """A form with what it counts. `of`: kinds of facts, with the columns of their exchanges too; (): exchanges;
    CONNECTIONS, RESULTS or ESTIMATES. `where`: as of `Condition`; None: all rows. `keys`, `values`, `metrics`: what
    each column of the form is; values that are left out are not changed. `beside`: further kinds of facts that these
    look at."""

    form: CountForm
    of: Sequence[str]
    where: Condition
    keys: Mapping[str, Made]
    values: Mapping[str, Made]
    metrics: Mapping[str, Made] = MappingProxyType({})
    beside: Sequence[str] = ()

    @property
    def name(self) -> str:
        """The name of its form."""
        return self.form.name

    @property
    def facts(self) -> tuple[str, ...]:
        """The kinds of facts that it reads."""
        return (*self._kinds, *self.beside)

    @property
    def reads_batches(self) -> bool:
        """Whether it counts anything but connections that ended."""
        return self.of != CONNECTIONS

    @property
    def _kinds(self) -> Sequence[str]:
        return () if self.of in (CONNECTIONS, RESULTS, ESTIMATES) else self.of

    def also(
        self, of: Sequence[str], where: Condition = None, more: Mapping[str, Made] | None = None,
        beside: Sequence[str] = (), **values: Made,
    ) -> Counted:  # fmt: skip
        """Other rows that are counted in the same form. `more`: the keys that are made otherwise of these. `values`:
        all."""
        return Counted(self.form, of, where, {**self.keys, **(more or {})}, values, beside=beside)

    def read(self, gathered: Gathered, tally: Tally) -> None:
        """Count exchanges, facts, results or estimates, as of `Section.read`."""
        for kind in self.of or ("",):
            rows = gathered.once(_rows, kind)
            if rows is not None:
                self._add(rows, tally)

    def read_connections(self, rows: Array, tally: Tally) -> None:
        """Count connections that ended, each once: rows of CONNECTION_ROW."""
        if self.of == CONNECTIONS:
            self._add(Rows(rows.__getitem__), tally)

    def _add(self, rows: Rows, tally: Tally) -> None:
        for condition in self.where if isinstance(self.where, tuple) else (self.where,):
            if condition is not None:
                found = rows.where(condition)
                if found is None:
                    return
                rows = found
        keys = {name: rows.made(of) for name, of in self.keys.items()}
        tally.add(self.form.name, keys, {name: rows.made(of) for name, of in self.values.items()})
        for metric, of in self.metrics.items():
            numbers = rows.made(of)
            at = np.flatnonzero(numbers >= 0)
            mine = {name: key[at] if np.ndim(key) else key for name, key in keys.items()}
            tally.observe(self.form.name, mine, metric, numbers[at])


#: What small rows keep of a key.
KEPT = None


def form(
    name: str, by: Mapping[str, str], newest: str = "", rows: int | None = None,
    other: Mapping[str, int | None] | None = None, metrics: Iterable[str] = (), **values: int,
) -> CountForm:  # fmt: skip
    """A form by some keys, whose small rows are those of the first key that is a text, "(other)". `other`: keys of
    which small rows have not that or -1, but another number, OTHER or KEPT. All else: as of `CountForm`."""
    text = next((key for key, kind in by.items() if kind == TEXT), None)
    small = {**{key: OTHER if key == text else -1 for key in by}, **(other or {})}
    of_small = {key: number for key, number in small.items() if number is not None}
    return CountForm(name, by, values, of_small, tuple(metrics), newest, rows)


def counted(
    name: str,
    by: Mapping[str, str],
    where: Condition = None,
    of: Sequence[str] = (),
    more: Mapping[str, Made] | None = None,
    newest: str = "",
    rows: int | None = None,
    other: Mapping[str, int | None] | None = None,
    metrics: Mapping[str, Made] = MappingProxyType({}),
    beside: Sequence[str] = (),
    **values: Value,
) -> Counted:
    """Declare a form by some keys. `where`, `of`, `beside`: as of `Counted`. `more`: what keys are that are no columns;
    those that are not in `by` are numbers.
    `newest`, `rows`, `other`: as of `form`. `metrics`: values with a histogram, of which negative ones are left out.
    `values`: `total`, `least`, `largest` or `latest`."""
    keys = {**by, **{key: NUMBER for key in more or () if key not in by}}
    own = form(name, keys, newest, rows, other, metrics, **{value: how for value, (how, _) in values.items()})
    made = {value: made for value, (_, made) in values.items() if made is not None}
    return Counted(own, of, where, {**dict(zip(keys, keys, strict=True)), **(more or {})}, made, metrics, beside)
