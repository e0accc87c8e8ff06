"""Batches of a run, less what does not match.

An exchange on a topic of which only the id is known is held back, where topics are compared by name, until the name is
known: at the end at the latest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from ..batch import Array, Batch, Names
from .columns import unnamed_topics
from .condition import Condition


def sift(batches: Iterable[Batch], condition: Condition, names: Names) -> Iterator[Batch]:
    """The matching exchanges of all batches, with all of their results."""
    held: list[Batch] = []
    for batch in batches:
        if condition.names_topics:
            open_ = _open(batch, names)
            if open_.any():
                held.append(batch.picked(open_))
                batch = batch.picked(~open_)
        yield from _matching(batch, condition, names)
    for batch in held:
        yield from _matching(batch, condition, names)


def _matching(batch: Batch, condition: Condition, names: Names) -> Iterator[Batch]:
    if not len(batch.exchanges):
        return
    mask = condition.select(batch, names)
    if mask.any():
        yield batch if mask.all() else batch.picked(mask)


def _open(batch: Batch, names: Names) -> Array:
    """Exchanges with a topic whose name is not known yet: bool (n,)."""
    numbers = [
        rows["exchange"][unnamed_topics(rows, names)] for rows in (batch.results, batch.topics) if rows is not None
    ]
    found = np.concatenate(numbers)
    if not len(found):
        return np.zeros(len(batch.exchanges), bool)
    return np.isin(batch.exchanges["exchange"], found)
