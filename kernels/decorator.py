"""`@kernel`, `@helper` and `@inlined`: functions over arrays that run compiled, or as the plain Python that they are.

A kernel has an explicit signature: each parameter is a numpy dtype (a contiguous one-dimensional array of it) or `int`
(a 64-bit scalar); it returns an int. It allocates nothing and raises nothing: a status, a position or a count goes
back to Python, which turns a status into an error with its context. Records are passed as arrays of `record_dtype`s;
`row = table[i]; row.field = value` means the same in both modes.

Where a kernel runs is decided at its first call (`kernel_mode`):

* ``store``   object code kept by an earlier run, loaded without numba (`kafkatap.kernels.store`)
* ``numba``   compiled in this process: slower to start, used where the store cannot be
* ``python``  the source as it is (``NUMBA_DISABLE_JIT=1``), for debugging, coverage and fuzzing
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np

ArgType = Any  #: a numpy dtype (an array of it) or `int` (a scalar)


def record_dtype(*fields: tuple[Any, ...]) -> np.dtype[Any]:
    """A record dtype whose rows have attributes in Python as they have in a compiled kernel.

    ValueError for a field named like an attribute that numpy's rows have themselves (`size`, `base`, `flags` ...).
    """
    taken = [field[0] for field in fields if hasattr(np.void, field[0])]
    if taken:
        raise ValueError(f"numpy's records have attributes of these names already: {', '.join(taken)}")
    return np.dtype((np.record, list(fields)), align=True)


def kernel_mode() -> str:
    """The mode asked for: ``store``, ``numba`` or ``python`` (from KAFKATAP_KERNELS and NUMBA_DISABLE_JIT)."""
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
    """A helper that is always made part of its caller: for long ones with a single call and many arguments."""
    return Helper(function, inline=True)


class Kernel:
    """One kernel: its source, its signature, and, after the first call, what runs it."""

    def __init__(self, function: Callable[..., int], args: tuple[ArgType, ...]) -> None:
        self.function = function
        self.args = args
        self.__name__ = function.__name__
        self.__module__ = function.__module__
        self.__doc__ = function.__doc__
        self._run: Callable[..., int] | None = None

    @property
    def qualified_name(self) -> str:
        return f"{self.__module__}.{self.__name__}"

    def __call__(self, *args: Any) -> int:
        run = self._run
        if run is None:
            run = self._run = self._bind()
        return run(*args)

    def _bind(self) -> Callable[..., int]:
        mode = kernel_mode()
        if mode == "python":
            return self._plain
        if mode == "store":
            from . import store

            loaded = store.load(self)
            if loaded is not None:
                return loaded
        from . import numba_bridge

        return numba_bridge.compile_here(self)

    def _plain(self, *args: Any) -> int:
        return int(self.function(*args))


def kernel(*args: ArgType) -> Callable[[Callable[..., int]], Kernel]:
    """Declare a kernel: `@kernel(np.uint8, int, PACKET)` takes bytes, a scalar and an array of PACKET records."""

    def wrap(function: Callable[..., int]) -> Kernel:
        return Kernel(function, tuple(a if a is int else np.dtype(a) for a in args))

    return wrap
