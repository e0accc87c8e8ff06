"""`@kernel`, `@helper` and `@inlined`: functions over arrays that run compiled, or as plain Python.

A kernel has an explicit signature. Each parameter is one of:

* a numpy dtype: a contiguous one-dimensional array of it
* a NamedTuple class whose fields are declared `name: Annotated[Array, DTYPE]`: several arrays as one argument
* `int`: a 64-bit scalar

A kernel returns an int. It allocates nothing and raises nothing: it returns a status, a position or a count, and Python
turns a status into an error with its context. Rows of a `record_dtype` array have attributes: `row = table[i];
row.field = value` means the same in every mode.

The first call of a kernel decides how it runs (`kernel_mode`):

* ``store``   compiled with the package or by an earlier run, loaded without numba (`kafkatap.kernels.store`)
* ``numba``   compiled in this process: slower to start, used where the store cannot be
* ``python``  the source as it is (``NUMBA_DISABLE_JIT=1``), for debugging, coverage and fuzzing
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from .declarations import ArgType, Helper, KernelSource, helper, inlined, is_array_tuple, kernel_mode, record_dtype

__all__ = ["Helper", "Kernel", "helper", "inlined", "kernel", "kernel_mode", "record_dtype"]


class Kernel(KernelSource):
    """One kernel: its source, its signature, and, after the first call, the function that runs it."""

    def __init__(self, function: Callable[..., int], args: tuple[ArgType, ...]) -> None:
        super().__init__(function, args)
        self._run: Callable[..., int] | None = None

    def __call__(self, *args: Any) -> int:
        run = self._run
        if run is None:
            run = self._run = self._bind()
        return run(*args)

    def bound(self, *leading: Any) -> Callable[..., int]:
        """Return a function that runs this kernel with these leading arguments and those that it is called with.

        The leading arguments are checked once, which saves most of a call's time. They must not be resized meanwhile.
        """
        run = self._run
        if run is None:
            run = self._run = self._bind()
        binds: Callable[..., Callable[..., int]] | None = getattr(run, "bound", None)
        return partial(run, *leading) if binds is None else binds(*leading)

    def _bind(self) -> Callable[..., int]:
        mode = kernel_mode()
        if mode == "python":
            return self._plain
        if mode == "store":
            from . import store

            loaded = store.load(self)
            if loaded is not None:
                return loaded
        try:
            from . import numba_bridge
        except ImportError as error:
            from .library import KernelsMissingError, reason

            raise KernelsMissingError(reason() or str(error)) from error
        return numba_bridge.compile_here(self)

    def _plain(self, *args: Any) -> int:
        return int(self.function(*args))


def kernel(*args: ArgType) -> Callable[[Callable[..., int]], Kernel]:
    """Declare a kernel: `@kernel(np.uint8, int, PACKET)` takes bytes, a scalar and an array of PACKET records."""

    def wrap(function: Callable[..., int]) -> Kernel:
        return Kernel(function, tuple(a if a is int or is_array_tuple(a) else np.dtype(a) for a in args))

    return wrap
