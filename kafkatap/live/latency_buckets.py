"""The buckets of all histograms in metrics."""

from __future__ import annotations

#: Inclusive upper bounds, seconds. One more bucket has the values above the last bound.
BUCKET_BOUNDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
