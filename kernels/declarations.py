"""What a module declares for its kernels: records, tuples of arrays, helpers, and the signature of a kernel.

Nothing here runs or compiles a kernel: `decorator`, `store` and `numba_bridge` do, and read these declarations.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any, get_type_hints

import numpy as np

#: The declared type of one argument: a numpy dtype (an array of it), a NamedTuple of arrays, or `int` (a scalar).
ArgType = Any


def record_dtype(*fields: tuple[Any, ...]) -> np.dtype[Any]:
    """Return a record dtype whose rows have attributes, in Python as in a compiled kernel.

    ValueError for a field named like an attribute that numpy's rows have themselves (`size`, `base`, `flags` ...).
    """
    reserved = [field[0] for field in fields if hasattr(np.void, field[0])]
    if reserved:
        raise ValueError(f"numpy's records have attributes of these names already: {', '.join(reserved)}")
    return np.dtype((np.record, list(fields)), align=True)


def is_array_tuple(arg: ArgType) -> bool:
    """Whether a declared argument is a NamedTuple of arrays."""
    return isinstance(arg, type) and issubclass(arg, tuple)


@cache
def tuple_args(arg: Any) -> tuple[ArgType, ...]:
    """Return the declared fields of a NamedTuple of arrays, in order: dtypes, and NamedTuples within it.

    A field is `name: Annotated[Array, DTYPE]` or `name: OtherTuple`. TypeError for any other field.
    """
    hints = get_type_hints(arg, include_extras=True)
    fields: list[ArgType] = []
    for name in arg._fields:
        declared: tuple[Any, ...] = getattr(hints[name], "__metadata__", ())
        if is_array_tuple(hints[name]):
            fields.append(hints[name])
        elif len(declared) == 1:
            fields.append(np.dtype(declared[0]))
        else:
            raise TypeError(f"{arg.__name__}.{name} needs one dtype: Annotated[Array, DTYPE]")
    return tuple(fields)


def single_args(args: Iterable[ArgType]) -> Iterator[ArgType]:
    """Yield the dtypes and `int`s of a signature, with each NamedTuple replaced by its arrays."""
    for arg in args:
        if is_array_tuple(arg):
            yield from single_args(tuple_args(arg))
        else:
            yield arg


def machine_words(args: Iterable[ArgType]) -> int:
    """Count the 64-bit arguments of the compiled C function: two for each array (pointer, length), one for an `int`."""
    return sum(1 if arg is int else 2 for arg in single_args(args))


def kernel_mode() -> str:
    """Return how kernels run: ``store``, ``numba`` or ``python`` (from KAFKATAP_KERNELS and NUMBA_DISABLE_JIT)."""
    if os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0"):
        return "python"
    mode = os.environ.get("KAFKATAP_KERNELS", "store")
    return mode if mode in ("store", "numba", "python") else "store"


class Helper:
    """A function that kernels call. Outside of a compilation it is plain Python."""

    def __init__(self, function: Callable[..., Any], inline: bool) -> None:
        self.function = function
        self.inline = inline
        self.__name__ = function.__name__
        self.__doc__ = function.__doc__
        self.__module__ = function.__module__

    def __call__(self, *args: Any) -> Any:
        return self.function(*args)


def helper(function: Callable[..., Any]) -> Helper:
    """Mark a function as callable from kernels: compiled with them, plain Python otherwise."""
    return Helper(function, inline=False)


def inlined(function: Callable[..., Any]) -> Helper:
    """Mark a helper that is always compiled into its caller: a long one with a single call and many arguments."""
    return Helper(function, inline=True)


class KernelSource:
    """The source and the signature of one kernel."""

    def __init__(self, function: Callable[..., int], args: tuple[ArgType, ...]) -> None:
        self.function = function
        self.args = args
        self.__name__ = function.__name__
        self.__module__ = function.__module__
        self.__doc__ = function.__doc__

    @property
    def qualified_name(self) -> str:
        return f"{self.__module__}.{self.__name__}"
