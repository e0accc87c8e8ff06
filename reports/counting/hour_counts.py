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
from kafkatap.kernels.arrays import taken

from ..batch import Array, Batch, Context
from ..name_table import NameTable
from .connection_counts import CONNECTIONS, ConnectionCounts, add_connections
from .count_forms import ADDRESS, NUMBER, CountForm, CountStore, FormCounts, Numbers, numbers_by_kind
from .count_table import distinct_rows
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
        self._count(GROUPS, "client_port", (captures, hours, np.zeros_like(hours)), exchanges, results, numbers)
        results = results[results["error_code"] != 0]
        at = np.flatnonzero(np.isin(exchanges["exchange"], results["exchange"]))
        if len(at):
            exchanges = taken(exchanges, at)
            clients, ports = numbers[ADDRESS][exchanges["client_ip"]], exchanges["broker_port"].astype(np.int64)
            self._count(ERRORS, "broker_port", (captures[at], hours[at], clients, ports), exchanges, results, numbers)

    def _count(
        self, form: CountForm, column: str, columns: Sequence[Array], exchanges: Array, results: Array, numbers: Numbers
    ) -> None:
        """Add rows of a form by all of `columns`, the last of which is what its key `column` is. All are counted at
        once, for which this key numbers their combinations."""
        combinations, number_of = distinct_rows(np.stack(columns, axis=1))
        exchanges = exchanges.copy()
        exchanges[column] = number_of
        report = ReportCounts(interval=HOUR, by_connection=True)
        report.add(Batch(exchanges, results))
        report.finish()
        counts, at = report.counts_of(form), list(form.keys).index(column)
        keys = counts.keys_with(numbers)
        own = combinations[keys[:, at]]
        keys[:, at] = own[:, -1]
        self.add_form(form, np.hstack((own[:, :-1], keys)), *counts.without_keys())

    def add_connections(self, rows: Array, captures: Array, hours: Array, context: Context) -> None:
        """Add CONNECTION_ROW rows (n,). `captures`, `hours`: int64 (n,)."""
        chosen, counts = rows["twin_of"] == 0, FormCounts(by_hour(CONNECTIONS))
        places = {"capture": captures[chosen], "hour": hours[chosen]}
        add_connections(counts, rows[chosen], places)
        self.add_form(CONNECTIONS, counts.keys_with(self._numbers(context)), *counts.without_keys())

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

    def _numbers(self, context: Context) -> Numbers:
        """The numbers here of the strings and addresses of a context."""
        strings = np.array([self.names.string(value) for value in context.strings], np.int64)
        addresses = np.array([self.names.address(value) for value in context.addresses], np.int64)
        for topic_id, name in context.topic_names.items():
            self.names.topic_names[int(strings[topic_id])] = int(strings[name])
        return numbers_by_kind(strings, addresses)
