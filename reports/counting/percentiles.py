"""Exact percentiles of a few values, by nearest rank. Those of many values are of histograms (`counting.histogram`)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..batch import Array


def percentile(values: Array | Sequence[int], part: float) -> int | None:
    """`part` of 100; None of nothing."""
    return int(np.percentile(values, part, method="inverted_cdf")) if len(values) else None
