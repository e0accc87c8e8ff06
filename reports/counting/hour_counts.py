"""`HourCounts`: the counts of a report for each capture and UTC hour, which add up to those of any hours and captures.

counts = HourCounts()
counts.add(exchanges, results, captures, hours, context)
counts.add_connections(rows, captures, hours, context)
counts["groups"]                # a FormCounts, with the keys `capture` and `hour` before its own
counts.report_counts()          # of all captures and hours
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from kafkatap.dissector.strings import OTHER

from ..batch import Array, Batch, Context
from ..name_table import NameTable
from .connection_counts import CONNECTIONS, ConnectionCounts, count_connections
from .count_forms import NUMBER, CountForm, CountStore, FormCounts, Numbers, numbers_by_kind
from .counts import ERRORS, GROUPS, SECOND, ReportCounts

HOUR = 3600 * SECOND
#: The keys of a row before those of its form: the identity of its capture, and hours since the epoch.
PLACE = {"capture": NUMBER, "hour": NUMBER}
#: What is counted by hour.
BASES = (GROUPS, ERRORS, CONNECTIONS)
#: Rows of a form in one split.
MOST_ROWS = 50_000


def by_hour(form: CountForm) -> CountForm:
    """A form whose rows also have a capture and an hour."""
    return form._replace(keys={**PLACE, **form.keys})


class HourCounts(CountStore):
    """Counts of GROUPS, ERRORS and CONNECTIONS for each capture and hour. `names`: the meaning of numbers in keys.
    `most_rows`: of a form; beyond, small ones are added up as `(other)`."""

    def __init__(self, most_rows: int | None = MOST_ROWS) -> None:
        self._most_rows = most_rows
        super().__init__(FormCounts(by_hour(form)) for form in BASES)
        self.names = NameTable()

    def add(self, exchanges: Array, results: Array, captures: Array, hours: Array, context: Context) -> None:
        """Add EXCHANGE (n,) and RESULT rows. `captures`, `hours`: int64 (n,)."""
        numbers = self._numbers(context)
        for capture, hour, chosen in _places(captures, hours):
            mine, of_mine = exchanges, results
            if len(chosen) < len(exchanges):
                mine = exchanges[chosen]
                of_mine = results[np.isin(results["exchange"], mine["exchange"])]
            counts = ReportCounts(interval=HOUR)
            counts.add(Batch(mine, of_mine))
            counts.finish()
            for form in (GROUPS, ERRORS):
                self._merge(counts.counts_of(form), capture, hour, numbers)

    def add_connections(self, rows: Array, captures: Array, hours: Array, context: Context) -> None:
        """Add CONNECTION_ROW rows (n,). `captures`, `hours`: int64 (n,)."""
        numbers = self._numbers(context)
        for capture, hour, chosen in _places(captures, hours):
            self._merge(count_connections(rows[chosen])[CONNECTIONS.name], capture, hour, numbers)

    def add_form(self, counts: FormCounts, places: Array, keys: Array) -> None:
        """Add the values of rows of one of BASES. `places`: int64 (rows, 2): PLACE; `keys`: int64 (rows, keys), with
        numbers of `names`."""
        mine = self[counts.form.name]
        mine.merge(np.hstack((places, keys)), counts)
        if self._most_rows is not None and len(mine) > self._most_rows:
            self.forms[counts.form.name] = mine.without_small_rows(self._most_rows, self.names.string(OTHER))

    def report_counts(self) -> ReportCounts:
        """The counts of exchanges, added up over captures. The timeline's intervals are hours or longer."""
        groups = self[GROUPS.name]
        return ReportCounts.of_intervals(groups, groups.keys()["hour"], self[ERRORS.name], HOUR)

    def connection_counts(self) -> ConnectionCounts:
        """The counts of connections, added up over captures and hours: CONNECTIONS only."""
        made, counts = ConnectionCounts(), self[CONNECTIONS.name]
        made[CONNECTIONS.name].merge(counts.table.key_rows()[:, len(PLACE) :], counts)
        return made

    def _merge(self, counts: FormCounts, capture: int, hour: int, numbers: Numbers) -> None:
        places = np.tile(np.array([capture, hour], np.int64), (len(counts), 1))
        self.add_form(counts, places, counts.keys_with(numbers))

    def _numbers(self, context: Context) -> Numbers:
        """The numbers here of the strings and addresses of a context."""
        strings = np.array([self.names.string(value) for value in context.strings], np.int64)
        addresses = np.array([self.names.address(value) for value in context.addresses], np.int64)
        for topic_id, name in context.topic_names.items():
            self.names.topic_names[int(strings[topic_id])] = int(strings[name])
        return numbers_by_kind(strings, addresses)


def _places(captures: Array, hours: Array) -> Iterator[tuple[int, int, Array]]:
    """Each capture and hour, and the rows of it: int64."""
    if not len(captures):
        return
    if (captures == captures[0]).all() and (hours == hours[0]).all():
        yield int(captures[0]), int(hours[0]), np.arange(len(captures))
        return
    places, codes = np.unique(np.stack((captures, hours), axis=1), axis=0, return_inverse=True)
    codes = codes.reshape(-1)
    order = np.argsort(codes, kind="stable")
    ends: Sequence[int] = np.cumsum(np.bincount(codes)).tolist()
    for (capture, hour), begin, end in zip(places.tolist(), [0, *ends], ends, strict=False):
        yield capture, hour, order[begin:end]
