"""Hints from kernels to the processor. No result depends on them, and as plain Python they do nothing."""

from __future__ import annotations

from .declarations import helper


@helper
def prefetch(array, at):  # type: ignore[no-untyped-def]
    """Start to load the memory of array[at] into the cache. `at` may lie outside of the array."""
