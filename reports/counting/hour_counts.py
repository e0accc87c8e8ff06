"""`HourCounts`: the counts of a report for each capture and UTC hour, which add up to those of any hours and captures.

counts = HourCounts()
counts.add(exchanges, results, captures, hours, context)
counts.add_connections(rows, captures, hours, context)
counts["groups"]                # a FormCounts, with the keys `capture` and `hour` before its own
counts.add_to(report)           # of all captures and hours
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from kafkatap.dissector.strings import OTHER
from kafkatap.kernels.arrays import groups_of

from ..batch import Array, Batch, Context
from ..name_table import NameTable
from .connection_counts import CONNECTIONS, ConnectionCounts, count_connections
from .count_forms import ADDRESS, NUMBER, CountForm, CountStore, FormCounts, Numbers, numbers_by_kind
from .counts import ERRORS, GROUPS, SECOND, ReportCounts

HOUR = 3600 * SECOND
#: The keys of a row before those of its form: the identity of its capture, and hours since the epoch.
PLACE = {"capture": NUMBER, "hour": NUMBER}
#: What is counted by hour.
BASES = (GROUPS, ERRORS, CONNECTIONS)
#: Rows of a form in one split.
MOST_ROWS = 50_000
#: By form, further keys after PLACE, by which a lake can be searched.
FURTHER: Mapping[str, Mapping[str, str]] = {ERRORS.name: {"client_ip": ADDRESS}}


def by_hour(form: CountForm) -> CountForm:
    """A form whose rows also have a capture, an hour, and what is in FURTHER."""
    further = FURTHER.get(form.name, {})
    return form._replace(keys={**PLACE, **further, **form.keys}, other={**dict.fromkeys(further, -1), **form.other})


class HourCounts(CountStore):
    """Counts of GROUPS, ERRORS and CONNECTIONS for each capture and hour. `names`: the meaning of numbers in keys.
    `most_rows`: of a form; beyond, small ones are added up as `(other)`."""

    def __init__(self, most_rows: int | None = MOST_ROWS, names: NameTable | None = None) -> None:
        self._most_rows = most_rows
        super().__init__(FormCounts(by_hour(form)) for form in BASES)
        self.names = NameTable() if names is None else names

    def add(self, exchanges: Array, results: Array, captures: Array, hours: Array, context: Context) -> None:
        """Add EXCHANGE (n,) and RESULT rows. `captures`, `hours`: int64 (n,)."""
        numbers = self._numbers(context)
        for place, chosen in groups_of(captures, hours):
            self._merge(_counted(exchanges, results, chosen).counts_of(GROUPS), place, numbers)
        results = results[results["error_code"] != 0]
        failed = np.isin(exchanges["exchange"], results["exchange"])
        exchanges, clients = exchanges[failed], numbers[ADDRESS][exchanges["client_ip"][failed]]
        for place, chosen in groups_of(captures[failed], hours[failed], clients):
            self._merge(_counted(exchanges, results, chosen).counts_of(ERRORS), place, numbers)

    def add_connections(self, rows: Array, captures: Array, hours: Array, context: Context) -> None:
        """Add CONNECTION_ROW rows (n,). `captures`, `hours`: int64 (n,)."""
        numbers = self._numbers(context)
        for place, chosen in groups_of(captures, hours):
            self._merge(count_connections(rows[chosen])[CONNECTIONS.name], place, numbers)

    def add_form(self, form: CountForm, keys: Array, values: Array, histograms: Array, counts: Array) -> None:
        """Add rows of one of BASES, as of `FormCounts.add_rows`. `keys`: as of `by_hour`, with numbers of `names`."""
        mine = self[form.name]
        mine.add_rows(keys, values, histograms, counts)
        if self._most_rows is not None and len(mine) > self._most_rows:
            self.forms[form.name] = mine.without_small_rows(self._most_rows, self.names.string(OTHER))

    def add_to(self, report: ReportCounts) -> None:
        """Add the counts of exchanges, added up over captures. The timeline's intervals are hours or longer."""
        groups = self[GROUPS.name]
        report.add_intervals(groups, groups.keys()["hour"], self[ERRORS.name], HOUR)

    def connection_counts(self) -> ConnectionCounts:
        """The counts of connections, added up over captures and hours: CONNECTIONS only."""
        made, counts = ConnectionCounts(), self[CONNECTIONS.name]
        made[CONNECTIONS.name].merge(counts.table.key_rows()[:, len(PLACE) :], counts)
        return made

    def captures(self) -> set[int]:
        """The captures of exchanges."""
        return set(self[GROUPS.name].keys()["capture"].tolist())

    def _merge(self, counts: FormCounts, place: Sequence[int], numbers: Numbers) -> None:
        places = np.tile(np.array(place, np.int64), (len(counts), 1))
        self.add_form(counts.form, np.hstack((places, counts.keys_with(numbers))), *counts.without_keys())

    def _numbers(self, context: Context) -> Numbers:
        """The numbers here of the strings and addresses of a context."""
        strings = np.array([self.names.string(value) for value in context.strings], np.int64)
        addresses = np.array([self.names.address(value) for value in context.addresses], np.int64)
        for topic_id, name in context.topic_names.items():
            self.names.topic_names[int(strings[topic_id])] = int(strings[name])
        return numbers_by_kind(strings, addresses)


def _counted(exchanges: Array, results: Array, chosen: Array) -> ReportCounts:
    """The counts of some EXCHANGE rows, by their places."""
    if len(chosen) < len(exchanges):
        exchanges = exchanges[chosen]
        results = results[np.isin(results["exchange"], exchanges["exchange"])]
    counts = ReportCounts(interval=HOUR)
    counts.add(Batch(exchanges, results))
    counts.finish()
    return counts
