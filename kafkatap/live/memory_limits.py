"""Limits that keep memory flat while a monitor runs for months.

Silent connections end. Names that nothing refers to are forgotten. If a table of counts has too many rows, the small
rows are added up as `(other)`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kafkatap.reports.batch import ADDRESS_COLUMNS, CONNECTION_ROW, STRING_COLUMNS
from kafkatap.reports.counting import tally
from kafkatap.reports.counting.counts import ReportCounts

from ..engine import Engine

Array = np.ndarray[Any, Any]

OTHER = b"(other)"
SECOND = 1_000_000_000
_OTHER = -2  # a placeholder for the number of OTHER
_UNLIMITED = 2**63
_Folds = Mapping[tuple[str, ...], Mapping[str, int]]
#: The key columns of small rows once they are added up, by the key of their table.
_FOLDED: _Folds = {
    tally.GROUP_KEY: {"client_id": _OTHER, "software": -1, "software_version": -1, "client_ip": -1},
    tally.TOPIC_KEY: {"topic": _OTHER, "topic_id": -1},
    tally.ERROR_KEY: {
        "client_id": _OTHER, "topic": -1, "topic_id": -1, "name": -1, "broker_ip": -1, "broker_port": 0,
    },
}  # fmt: skip
#: ... and if there are still too many rows, because of many brokers and versions.
_FURTHER: _Folds = {tally.GROUP_KEY: {**_FOLDED[tally.GROUP_KEY], "broker_ip": -1, "broker_port": 0, "api_version": -1}}
#: Columns of CONNECTION_ROW with numbers of strings, and of addresses.
_CONNECTION_NAMES = tuple(
    tuple(name for name in CONNECTION_ROW.names or () if name in columns)
    for columns in (STRING_COLUMNS, ADDRESS_COLUMNS)
)
#: The first values of groups and topics: exchanges by outcome.
_OUTCOMES = 5


@dataclass(frozen=True, slots=True)
class MemoryLimits:
    """`idle`: ns after which a silent connection ends (brokers close theirs after 10 minutes), sooner if more than
    `connections` are open. `patience`: ns that a request may wait for its response, sooner if more than `waiting` do.
    `strings`, `text` (bytes), `addresses`, `topic_names`: how many names may be known before unused ones are forgotten.
    `rows`: of a table of counts; `buckets`: of its histograms. `ended`: ended connections with a row in the report."""

    idle: int = 1_800 * SECOND
    patience: int = 600 * SECOND
    waiting: int = 100_000
    connections: int = 100_000
    strings: int = 200_000
    text: int = 32 << 20
    addresses: int = 100_000
    topic_names: int = 100_000
    rows: int = 10_000
    buckets: int = 1_000_000
    ended: int = 100_000

    def idle_now(self, engine: Engine) -> int:
        """ns after which a silent connection ends, for the number of connections now."""
        opened = int((engine.assembler.connections["used"] == 1).sum())
        return self.idle if opened <= self.connections else max(self.idle * self.connections // (opened * 60), SECOND)

    def patience_now(self, engine: Engine) -> int:
        """ns that a request may wait for its response. Many wait if only one direction is captured."""
        waiting = engine.requests_waiting
        if waiting <= self.waiting:
            return self.patience
        return self.patience // 20 if waiting <= 4 * self.waiting else self.patience // 300

    def names_full(self, engine: Engine) -> bool:
        strings, text = len(engine.dissector.strings), engine.dissector.strings.text_used
        return strings > self.strings or text > self.text or len(engine.addresses) > self.addresses


def fold_small_rows(counts: ReportCounts, limits: MemoryLimits, engine: Engine) -> ReportCounts:
    """Counts within the limits of rows and histograms. If there are more, the small rows are added up as `(other)`."""
    most = {}
    for key, table, histograms in (
        (tally.GROUP_KEY, counts.groups, counts.histograms),
        (tally.TOPIC_KEY, counts.topics, counts.topic_histograms),
        (tally.ERROR_KEY, counts.errors, ()),
    ):
        rows = limits.rows if len(histograms) <= limits.buckets else min(limits.rows, len(table) // 2)
        if len(table) > rows:
            most[key] = rows
    if not most:
        return counts
    other = engine.dissector.strings.number_of(OTHER)

    def folding(folds: _Folds) -> Callable[[tuple[str, ...], Array, Array], None]:
        def change(names: tuple[str, ...], keys: Array, values: Array) -> None:
            if names not in most or names not in folds:
                return
            weights = values[:, : 1 if names == tally.ERROR_KEY else _OUTCOMES].sum(axis=1)
            small = np.argsort(-weights, kind="stable")[most[names] // 2 :]
            for name, number in folds[names].items():
                keys[small, names.index(name)] = other if number == _OTHER else number

        return change

    folded = counts.rekeyed(folding(_FOLDED))
    return folded.rekeyed(folding(_FURTHER)) if len(folded.groups) > most.get(tally.GROUP_KEY, _UNLIMITED) else folded


def forget_names(
    engine: Engine, every: Sequence[ReportCounts], connections: Sequence[Array], topic_names: int
) -> tuple[Array, Array]:
    """Forget the strings and addresses that no counts, no row of `connections` and no open connection refers to.

    `connections` (CONNECTION_ROW) get the new numbers. Return two int64 arrays, of strings and of addresses: the new
    number by the old one, -1 if it is forgotten, and at the end -1 for the number -1.
    """
    known = engine.dissector.topic_names
    if len(known) > topic_names:  # the latest are the likeliest to be in use
        engine.dissector.topic_names = dict(list(known.items())[-topic_names // 2 :])
    used = [counts.names_used() for counts in every]
    kept = []
    for which, names_of in enumerate(_CONNECTION_NAMES):
        found = [each[which] for each in used] + [np.unique(rows[name]) for rows in connections for name in names_of]
        numbers = np.concatenate(found)
        kept.append(numbers[numbers >= 0].astype(np.int64))
    made = engine.forget_strings(kept[0]), engine.forget_addresses(kept[1])
    for numbers, names_of in zip(made, _CONNECTION_NAMES, strict=True):
        for rows in connections:
            for name in names_of:
                rows[name] = numbers[rows[name]]
    return made
