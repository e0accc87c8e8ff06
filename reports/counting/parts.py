"""`Part`: some rows of counts or events, to be kept apart from the counts that they are of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from ..batch import Array
from .count_forms import FormCounts
from .count_table import EMPTY


class Part(NamedTuple):
    """Some rows of counts. `kinds`: the kind of each key column by name. `keys`: int64 (n, keys); `values`: int64
    (n, values), of `value_names`. `histograms`: int64 (2, m), keys and counts of `Histograms`, of `metrics`."""

    form: str
    kinds: Mapping[str, str]
    keys: Array
    value_names: tuple[str, ...] = ()
    values: Array = np.zeros((0, 0), np.int64)
    metrics: tuple[str, ...] = ()
    histograms: Array = np.zeros((2, 0), np.int64)

    @classmethod
    def of(cls, counts: FormCounts, form: str | None = None) -> Part:
        """All rows of some counts. `form`: another name for them."""
        counts.histograms.merge_noted()
        histograms = np.stack((counts.histograms.keys, counts.histograms.counts))
        own = counts.form
        return cls(
            form or own.name, own.keys, counts.table.key_rows(), tuple(own.values), counts.table.value_rows(),
            own.metrics, histograms,
        )  # fmt: skip

    def add_to(self, counts: FormCounts) -> bool:
        """Add the rows to counts. False if they have other keys or histograms than these have now."""
        own = counts.form
        if set(self.kinds) != set(own.keys) or self.metrics != own.metrics:
            return False
        at = {name: number for number, name in enumerate(self.value_names)}
        values = np.empty((len(self.keys), len(own.values)), np.int64)
        for number, (name, operation) in enumerate(own.values.items()):
            values[:, number] = self.values[:, at[name]] if name in at else EMPTY[operation]
        counts.add_rows(self.keys[:, [list(self.kinds).index(name) for name in own.keys]], values, *self.histograms)
        return True

    def apart(self, key: str) -> tuple[Part, Array]:
        """The rows without their first key, and its column."""
        assert next(iter(self.kinds)) == key, "the first key"
        kinds = {name: kind for name, kind in self.kinds.items() if name != key}
        return self._replace(kinds=kinds, keys=self.keys[:, 1:]), self.keys[:, 0]

    @property
    def layout(self) -> str:
        """The names of the columns: keys with their kinds, values, metrics."""
        keys = (f"{name}:{kind}" for name, kind in self.kinds.items())
        return ";".join(",".join(each) for each in (keys, self.value_names, self.metrics))
