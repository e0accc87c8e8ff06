"""What kernels tell the processor beforehand. No result depends on it, and as plain Python it does nothing."""

from __future__ import annotations

from .decorator import helper


@helper
def prefetch(array, at):  # type: ignore[no-untyped-def]
    """Begin to fetch the memory of array[at], which is wanted soon. `at` may lie outside."""
