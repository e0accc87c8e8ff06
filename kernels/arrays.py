"""Arrays that grow, and arrays that use memory only where they are written.

Kernels never allocate. A kernel stops and returns which array is full, and Python grows it with these functions.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

#: From this size on, numpy requests huge pages, and so do `untouched` and `shared_zeros`.
_HUGE = 4 << 20
#: From this size on, `zeros` are `untouched`.
_LARGE = 64 << 10
#: So many values are compared one after another.
_FEW = 16
#: So many bytes of a table stay when its memory is returned.
_KEPT = 256 << 10
#: How many bytes `moved` copies at once.
_STEP = 2 << 20


class _Pages(mmap.mmap):
    """Anonymous memory, which the system provides page by page when it is written."""


def untouched(count: int, dtype: Any) -> np.ndarray[Any, Any]:
    """Return `count` zeroed items that use memory and time only where they are written.

    `np.zeros` does so only at first: once large arrays were freed, malloc reuses their memory and clears it whole.
    """
    size = count * np.dtype(dtype).itemsize
    pages = _Pages(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0))
    _want_huge_pages(pages)
    return np.frombuffer(pages, dtype)


def shared_zeros(count: int, dtype: Any) -> np.ndarray[Any, Any]:
    """Return `count` zeroed items in memory that this process shares with those that are forked from it."""
    pages = mmap.mmap(-1, count * np.dtype(dtype).itemsize)
    _want_huge_pages(pages)
    return np.frombuffer(pages, dtype)


def _want_huge_pages(pages: mmap.mmap) -> None:
    """Ask for huge pages, where the system has some for such memory."""
    if len(pages) >= _HUGE and hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # a kernel without them
            pages.madvise(mmap.MADV_HUGEPAGE)


def zeros(count: int, dtype: Any) -> np.ndarray[Any, Any]:
    """Return `count` zeroed items; large arrays are `untouched`."""
    large = count * np.dtype(dtype).itemsize >= _LARGE
    return untouched(count, dtype) if large else np.zeros(count, dtype)


def drop_pages(array: np.ndarray[Any, Any], first: int, end: int) -> None:
    """Return the whole pages within bytes first:end of an `untouched` array to the system. They read as zeros then.

    Does nothing for other arrays, or if the system cannot do it.
    """
    pages = array
    while isinstance(pages, np.ndarray):
        pages = pages.base  # type: ignore[assignment]
    if isinstance(pages, memoryview):
        pages = pages.obj
    first = -(-first // mmap.PAGESIZE) * mmap.PAGESIZE
    end = end // mmap.PAGESIZE * mmap.PAGESIZE
    whole = isinstance(pages, _Pages) and len(pages) == array.nbytes
    if whole and hasattr(mmap, "MADV_DONTNEED") and first < end:
        pages.madvise(mmap.MADV_DONTNEED, first, end - first)


def return_memory(array: np.ndarray[Any, Any], used: int = 0) -> None:
    """Return an `untouched` array's memory to the system, but for its first `used` items and a usual size. The items
    read as zeros then."""
    drop_pages(array, max(used * array.dtype.itemsize, _KEPT), array.nbytes)


def as_bytes(array: np.ndarray[Any, Any]) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Return a view of an array as bytes: records are copied twenty times faster so, as numpy copies each field."""
    return array.view(np.uint8)


def taken(array: np.ndarray[Any, Any], rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return a copy of array[rows], of records or of the rows of a two-dimensional array. Each row is copied whole."""
    whole = np.dtype((np.void, array.dtype.itemsize * (array.shape[1] if array.ndim == 2 else 1)))
    picked: np.ndarray[Any, Any] = array.view(whole)[rows].view(array.dtype)
    return picked


def distinct_values(values: np.ndarray[Any, Any], axis: int | None = None) -> np.ndarray[Any, Any]:
    """Return the distinct values, ascending; with `axis` 0 the distinct rows. Without an index wanted, `np.unique`
    imports numpy.ma, which takes 15 ms, and so do the functions that are made of it."""
    if axis is None:
        return value_counts(values)[0]
    found: np.ndarray[Any, Any] = np.unique(values, axis=axis, return_index=True)[0]
    return found


def value_counts(values: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, np.dtype[np.int64]]]:
    """Return the distinct values, ascending, and how often each occurs: int64."""
    ordered = np.sort(values, axis=None)
    starts = starts_of(ordered)
    return ordered[starts], np.diff(starts, append=len(ordered))


def is_new(values: np.ndarray[Any, Any]) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Return whether each value, or row of a two-dimensional array, differs from the one before it."""
    differs = values[1:] != values[:-1]
    return np.append(True, differs.any(axis=1) if values.ndim == 2 else differs)[: len(values)]


def starts_of(ordered: np.ndarray[Any, Any]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return the index of the first of each value, or row, in an array in which equal ones are adjacent."""
    return np.flatnonzero(is_new(ordered))


def is_among(values: np.ndarray[Any, Any], wanted: Any) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Return for each value whether it is one of `wanted` (an array or a sequence), as `np.isin`."""
    wanted = np.asarray(wanted)
    found: np.ndarray[Any, np.dtype[np.bool_]] = np.zeros(len(values), bool)
    if len(wanted) <= _FEW:
        for one in wanted:
            found |= values == one
    else:
        ordered = np.sort(wanted)
        found = ordered[np.minimum(np.searchsorted(ordered, values), len(ordered) - 1)] == values
    return found


def new_numbers(kept: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return new numbers for the items that are kept (bool (n,)), in the same order: int64 (n,), -1 for the others."""
    numbers = np.full(len(kept), -1, np.int64)
    numbers[kept] = np.arange(np.count_nonzero(kept))
    return numbers


def copied(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return a copy of a contiguous array of records."""
    return as_bytes(array).copy().view(array.dtype)


def grown(array: np.ndarray[Any, Any], needed: int = 0, used: int | None = None) -> np.ndarray[Any, Any]:
    """Return a copy at least twice as long (and at least `needed`), the rest zeroed.

    `used`: copy only that many leading items (None: all).
    """
    size = max(2 * len(array), needed, 16)
    whole = size * array.dtype.itemsize
    bigger = untouched(size, array.dtype) if whole >= _HUGE else np.zeros(size, dtype=array.dtype)
    count = array.nbytes if used is None else used * array.dtype.itemsize
    as_bytes(bigger)[:count] = as_bytes(array)[:count]
    return bigger


def moved(array: np.ndarray[Any, Any], size: int, used: int) -> np.ndarray[Any, Any]:
    """Return an array of `size` items with the first `used` items of an `untouched` one.

    The memory of the old array is freed on the way, so both together never use more than it did. Zeros use none.
    """
    bigger = untouched(size, array.dtype)
    source, target, whole = as_bytes(array), as_bytes(bigger), used * array.dtype.itemsize
    for first in range(0, whole, _STEP):
        end = min(first + _STEP, whole)
        part = source[first:end]
        if part.any():
            target[first:end] = part
            drop_pages(source, first, end)
    return bigger


def groups_of(*columns: np.ndarray[Any, Any]) -> Iterator[tuple[list[int], np.ndarray[Any, Any]]]:
    """Each combination of values, ascending, and its places, int64, in order. `columns`: int64 (n,) each."""
    rows = np.stack(columns, axis=1)
    if not len(rows):
        return
    if (rows == rows[0]).all():
        yield rows[0].tolist(), np.arange(len(rows))
        return
    order = np.lexsort(columns[::-1])
    rows = rows[order]
    begins = starts_of(rows)
    for values, begin, end in zip(rows[begins].tolist(), begins, [*begins[1:], len(rows)], strict=True):
        yield values, order[begin:end]


def dict_rows(columns: Any, names: Iterable[str] | None = None) -> Iterator[dict[str, Any]]:
    """The rows of columns, or of records, by name, as numbers of Python: much faster than single reads from numpy.

    `columns`: a mapping of arrays of the same length, or records. `names`: of these columns only.
    """
    wanted = list((columns.dtype.names if isinstance(columns, np.ndarray) else columns) if names is None else names)
    for row in zip(*(columns[name].tolist() for name in wanted), strict=True):
        yield dict(zip(wanted, row, strict=True))


def joined(parts: Sequence[np.ndarray[Any, Any]], dtype: Any) -> np.ndarray[Any, Any]:
    """All records in one array, copied as bytes: numpy copies records field by field."""
    if not parts:
        return np.zeros(0, dtype)
    return np.concatenate([as_bytes(np.ascontiguousarray(p)) for p in parts]).view(dtype)
