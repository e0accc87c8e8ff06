"""Growable arrays of records. Kernels never allocate: they stop and say what is full, and Python grows it here."""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np

#: From this size on, numpy asks for huge pages, and so does `untouched`.
_HUGE = 4 << 20


def untouched(count: int, dtype: Any) -> np.ndarray[Any, Any]:
    """`count` zeroed items that take memory and time only where they are used, for tables that few inputs fill.

    numpy's zeros are so only at first: once large arrays were freed, malloc serves the next ones from what it keeps,
    and clears them whole.
    """
    size = count * np.dtype(dtype).itemsize
    pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if size >= _HUGE and hasattr(mmap, "MADV_HUGEPAGE"):
        pages.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(pages, dtype)


def as_bytes(array: np.ndarray[Any, Any]) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """The same memory as bytes: numpy copies records field by field, twenty times slower."""
    return array.view(np.uint8)


def taken(array: np.ndarray[Any, Any], rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A copy of array[rows], each row copied as a whole. Records, or the rows of a two-dimensional array."""
    whole = np.dtype((np.void, array.dtype.itemsize * (array.shape[1] if array.ndim == 2 else 1)))
    picked: np.ndarray[Any, Any] = array.view(whole)[rows].view(array.dtype)
    return picked


def new_numbers(kept: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Numbers for what is kept (bool (n,)), in the same order: int64 (n,), -1 for what is not."""
    numbers = np.full(len(kept), -1, np.int64)
    numbers[kept] = np.arange(np.count_nonzero(kept))
    return numbers


def copied(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A copy of a contiguous array of records."""
    return as_bytes(array).copy().view(array.dtype)


def grown(array: np.ndarray[Any, Any], needed: int = 0) -> np.ndarray[Any, Any]:
    """A copy at least twice as long (and at least `needed`), the rest zeroed."""
    size = max(2 * len(array), needed, 16)
    bigger = np.zeros(size, dtype=array.dtype)
    as_bytes(bigger)[: array.nbytes] = as_bytes(array)
    return bigger


def linked_free_list(array: np.ndarray[Any, Any], first: int, head: int) -> int:
    """Chain rows first… of an array with a `next` field into a free list in front of `head`; return the new head."""
    array["next"][first:-1] = np.arange(first + 1, len(array), dtype=array.dtype["next"])
    array["next"][-1] = head
    return first
