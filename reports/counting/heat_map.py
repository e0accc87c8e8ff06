"""`heat_map`: the counts of the latency heat map, from the timeline's histograms.

Columns are intervals of the timeline, or multiples of them, so that there are at most COLUMNS. Rows are even steps on a
logarithmic axis. A bucket counts in the row of its middle, which is within 0.8 % of its values.
"""

from __future__ import annotations

import numpy as np

from kafkatap.dissector.dtypes import WAITS
from kafkatap.kernels.arrays import is_among

from ..batch import Array
from ..model import HeatMap
from . import tally
from .counts import FINE, ReportCounts
from .histogram import middle
from .rollup import group_columns

#: The maximum number of columns, and the numbers of rows of a decade: the second one if there are few decades.
COLUMNS = 150
_ROWS_OF_DECADE = (5, 10)
_FEW_DECADES = 4.0
#: Times below this are in the first row, ns.
_LEAST = 1000
#: Round lengths of a column, ns.
_LENGTHS = tuple(
    tenths * FINE
    for tenths in (1, 2, 5, 10, 20, 50, 100, 150, 300, 600, 1200, 3000, 6000, 9000, 18000, 36000, 72000, 144000, 432000)
)


def heat_map(counts: ReportCounts) -> HeatMap | None:
    """Broker time over time, without long polls, and without the APIs that wait for data or members if there are
    others. None without an answered exchange."""
    owner, bucket, count = counts.timeline_histograms.of(tally.M_BROKER)
    if not len(owner):
        return None
    keys = group_columns(counts.timeline, tally.TIMELINE_KEY)
    waits = is_among(keys["api_key"], WAITS)[owner]
    is_mixed = bool(waits.any() and not waits.all())
    if is_mixed:
        owner, bucket, count = owner[~waits], bucket[~waits], count[~waits]
    starts = keys["interval"][owner]
    # The whole time span of the timeline, even if few intervals have values.
    first, last = int(keys["interval"].min()), int(keys["interval"].max())
    lengths = (length // counts.interval for length in _LENGTHS if length % counts.interval == 0)
    multiple = next((m for m in lengths if last // m - first // m < COLUMNS), -(-(last - first + 1) // COLUMNS))
    first -= first % multiple
    times = np.maximum(middle(bucket), _LEAST)
    edges = _edges(int(times.min()), int(times.max()))
    rows = np.searchsorted(edges, times, side="right") - 1
    columns = (starts - first) // multiple
    cells, inverse = np.unique(columns * len(edges) + rows, return_inverse=True)
    totals = np.bincount(inverse, weights=count).astype(np.int64)
    return HeatMap(
        first * counts.interval,
        multiple * counts.interval,
        tuple(edges.tolist()),
        tuple(zip((cells // len(edges)).tolist(), (cells % len(edges)).tolist(), totals.tolist(), strict=True)),
        "without Fetch, JoinGroup and SyncGroup" if is_mixed else "without long polls",
    )


def _edges(least: int, most: int) -> Array:
    """The edges of the rows from `least` to `most`, ns, ascending: int64 (rows + 1,)."""
    decades = np.log10(most / least) if most > least else 0.0
    per_decade = _ROWS_OF_DECADE[int(decades < _FEW_DECADES)]
    low = int(np.floor(np.log10(least) * per_decade))
    high = int(np.floor(np.log10(most) * per_decade)) + 1
    edges: Array = np.round(10.0 ** (np.arange(low, high + 1) / per_decade)).astype(np.int64)
    edges[0], edges[-1] = min(edges[0], least), max(edges[-1], most + 1)
    return edges
