"""Calls of compiled kernels: Python's arguments become (pointer, length) pairs and integers.

A compiled kernel is a C function with (pointer, length) for each array and an int64 for each scalar. It returns an
int64. Pointers are read from array objects, as numpy needs 1 to 17 µs to make one, and each call has dozens of arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from ctypes import c_void_p
from typing import Any

import numpy as np

from .declarations import ArgType, KernelSource, is_array_tuple, single_args, tuple_args

#: Where an array object has the address of its items: first behind what each object begins with (numpy's C API,
#: PyArrayObject).
_DATA = object.__basicsize__
_PROBE = np.zeros(1, np.uint8)
_HAS_DATA = c_void_p.from_address(id(_PROBE) + _DATA).value == _PROBE.ctypes.data


def _pointer(array: Any, kind: Any, name: str) -> tuple[int, int]:
    """Return the pointer and length of an array of dtype `kind`."""
    if array.dtype != kind or not array.flags.c_contiguous or array.ndim != 1:
        raise TypeError(f"{name}: needs a contiguous 1-D array of {kind}, not {array.dtype}")
    address = c_void_p.from_address(id(array) + _DATA).value if _HAS_DATA else array.ctypes.data
    return address or 0, len(array)


def caller(kernel: KernelSource, function: Callable[..., int]) -> Callable[..., int]:
    """Return a Python function that checks the dtypes of arrays and turns them into (pointer, length) pairs."""
    declared = kernel.args
    name = kernel.__name__
    has_tuples = any(is_array_tuple(arg) for arg in declared)
    kinds = list(single_args(declared))

    def unpacked(args: tuple[Any, ...], declared: tuple[ArgType, ...]) -> Iterator[Any]:
        for value, arg in zip(args, declared, strict=True):
            if not is_array_tuple(arg):
                yield value
            elif isinstance(value, arg):
                yield from unpacked(value, tuple_args(arg))
            else:
                raise TypeError(f"{name}: needs a {arg.__name__}, not a {type(value).__name__}")

    def words(values: Iterable[Any], kinds: Sequence[Any]) -> list[int]:
        flat: list[int] = []
        for value, kind in zip(values, kinds, strict=True):
            if kind is int:
                flat.append(value)
            else:
                flat += _pointer(value, kind, name)
        return flat

    def run(*args: Any) -> int:
        return function(*words(unpacked(args, declared) if has_tuples else args, kinds))

    def bound(*leading: Any) -> Callable[..., int]:
        first = declared[: len(leading)]
        others, following = declared[len(leading) :], kinds[len(list(single_args(first))) :]
        known_words = words(unpacked(leading, first), kinds[: len(kinds) - len(following)])
        unpacks = any(is_array_tuple(arg) for arg in others)

        def run_bound(*args: Any) -> int:
            return function(*known_words, *words(unpacked(args, others) if unpacks else args, following))

        run_bound.arrays = leading  # type: ignore[attr-defined]  # keeps their memory
        return run_bound

    run.bound = bound  # type: ignore[attr-defined]
    return run
