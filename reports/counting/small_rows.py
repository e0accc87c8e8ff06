"""Tables of counts within a number of rows: if there are more, the small rows are added up as `(other)`."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from kafkatap.dissector.dtypes import OUTCOMES

from ..batch import Array
from . import tally
from .counts import ReportCounts

_OTHER = -2  # a placeholder for the number of "(other)"
_UNLIMITED = 2**63
_Folds = Mapping[tuple[str, ...], Mapping[str, int]]
#: The key columns of small rows once they are added up, by the key of their table.
_FOLDED: _Folds = {
    tally.GROUP_KEY: {"client_id": _OTHER, "software": -1, "software_version": -1, "client_ip": -1, "client_port": 0},
    tally.TOPIC_KEY: {"topic": _OTHER, "topic_id": -1},
    tally.ERROR_KEY: {
        "client_id": _OTHER, "topic": -1, "topic_id": -1, "name": -1, "broker_ip": -1, "broker_port": 0,
    },
}  # fmt: skip
#: ... and if there are still too many rows, because of many brokers and versions.
_FURTHER: _Folds = {tally.GROUP_KEY: {**_FOLDED[tally.GROUP_KEY], "broker_ip": -1, "broker_port": 0, "api_version": -1}}
#: The first values of groups and topics: exchanges by outcome.
_OUTCOMES = len(OUTCOMES)


def add_up_small_rows(
    counts: ReportCounts, rows: int, other: Callable[[], int], buckets: int = _UNLIMITED
) -> ReportCounts:  # fmt: skip
    """Counts whose tables have no more than `rows` rows. If one has more, half of that is left.

    `other` returns the number of the string "(other)". `buckets`: of histograms; with more of them there are fewer
    rows.
    """
    most = {}
    for key, table, histograms in (
        (tally.GROUP_KEY, counts.groups, counts.histograms),
        (tally.TOPIC_KEY, counts.topics, counts.topic_histograms),
        (tally.ERROR_KEY, counts.errors, ()),
    ):
        limit = rows if len(histograms) <= buckets else min(rows, len(table) // 2)
        if len(table) > limit:
            most[key] = limit
    if not most:
        return counts
    number = other()

    def folding(folds: _Folds) -> Callable[[tuple[str, ...], Array, Array], None]:
        def change(names: tuple[str, ...], keys: Array, values: Array) -> None:
            if names not in most or names not in folds:
                return
            weights = values[:, : 1 if names == tally.ERROR_KEY else _OUTCOMES].sum(axis=1)
            small = np.argsort(-weights, kind="stable")[most[names] // 2 :]
            for name, value in folds[names].items():
                keys[small, names.index(name)] = number if value == _OTHER else value

        return change

    folded = counts.rekeyed(folding(_FOLDED))
    return folded.rekeyed(folding(_FURTHER)) if len(folded.groups) > most.get(tally.GROUP_KEY, _UNLIMITED) else folded
