"""The kernel store: compiled kernels, loaded without importing numba.

The kernels of `modules.KERNEL_MODULES` belong together, and are looked for in two places:

1. the library that was compiled with the package (`library`), if this processor can run it;
2. the user's cache folder (`cache`), for kernels that changed since and for other processors. What is missing there is
   compiled by a child process, which says so on standard error. That needs numba.

If neither has a kernel, `load` returns None, and numba compiles it in this process. Without numba,
`KernelsMissingError` says why.

This module is imported at every start: it imports nothing that costs time.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from . import library
from .calling import caller
from .declarations import KernelSource, kernel_mode, machine_words
from .modules import KERNEL_MODULES

if TYPE_CHECKING:
    from pathlib import Path

    from .cache import KernelCache

_modules: tuple[str, ...] = KERNEL_MODULES
_cache: KernelCache | None = None
_lock = threading.Lock()
_said = False
#: Whether to print where kernels come from, and why not from elsewhere.
verbose = False


def use(modules: Sequence[str]) -> None:
    """Keep the kernels of these modules together, instead of those of the package. Call it before the first kernel."""
    global _modules
    _modules = tuple(modules)


def prepare() -> None:
    """Compile what is missing now, rather than at the first call of a kernel."""
    if kernel_mode() == "store" and library.open_library() is None:
        open_folder()


def open_folder(build: bool = True) -> Path | None:
    """Return the folder in the user's cache, built if it is missing; None if it cannot be built."""
    return _kept().open_folder(build)


def _kept() -> KernelCache:
    global _cache
    if _cache is None or _cache.modules != _modules:
        from .cache import KernelCache

        _cache = KernelCache(_modules, note, verbose)
    return _cache


def made_ahead() -> str | None:
    """Return the folder of what was made with the package; None if its library does not fit processor and sources."""
    return None if library.open_library() is None else library.FOLDER


def note(text: str, always: bool = False) -> None:
    """Print a line on standard error: if `verbose` is set, or always."""
    if always or verbose:
        print(f"kafkatap: {text}", file=sys.stderr, flush=True)


def load(kernel: KernelSource) -> Callable[..., int] | None:
    """Return the function that runs this kernel from the store, or None if the store does not have it."""
    if kernel.__module__ not in _modules:
        return None
    with _lock:
        function = _linked(kernel)
    return None if function is None else caller(kernel, function)


def _linked(kernel: KernelSource) -> Callable[..., int] | None:
    global _said
    found = library.open_library()
    if found is not None:
        function = library.function_of(found, kernel.qualified_name, machine_words(kernel.args))
        if function is not None:
            if not _said:
                note(f"kernels: compiled with the package, for {library.processor()}")
                _said = True
            return function
    elif not _said:
        note(f"the kernels of the package cannot be used: {library.reason()}")
        _said = True
    return _kept().link(kernel)
