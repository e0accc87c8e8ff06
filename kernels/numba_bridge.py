"""All that touches numba: types for signatures, dispatchers for helpers, object code for the store.

Helpers are `Helper` objects in ordinary processes. A kernel refers to them by its module's globals, so what is
compiled is a copy of the function whose globals hold numba dispatchers in their place.
Pinned to numba's minor version; the store's key holds that version too.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from types import FunctionType
from typing import Any

import numba
import numpy as np
from numba import types
from numba.core.ccallback import CFunc

from .decorator import ArgType, Helper, Kernel

_dispatchers: dict[Callable[..., Any], Any] = {}
#: Without reference counts (`_nrt`): kernels allocate nothing, and counting costs tens of ns for each call of a helper.
_OPTIONS = {
    "error_model": "numpy",
    "boundscheck": bool(os.environ.get("KAFKATAP_BOUNDSCHECK")),
    "_nrt": False,
}


def _compiled_globals(function: FunctionType) -> FunctionType:
    """The same function, seeing numba dispatchers where its module has helpers."""
    replaced = dict(function.__globals__)
    for name in function.__code__.co_names:
        value = replaced.get(name)
        if isinstance(value, Helper):
            replaced[name] = dispatcher_of(value)
        elif isinstance(value, Kernel):
            replaced[name] = _dispatcher(value.function)
    return FunctionType(function.__code__, replaced, function.__name__, function.__defaults__, function.__closure__)


def _dispatcher(function: Callable[..., Any]) -> Any:
    known = _dispatchers.get(function)
    if known is None:
        assert isinstance(function, FunctionType)
        known = _dispatchers[function] = numba.njit(nogil=True, **_OPTIONS)(_compiled_globals(function))
    return known


def dispatcher_of(helper: Helper) -> Any:
    """The numba dispatcher of a helper, made once."""
    return _dispatcher(helper.function)


def _array_type(arg: np.dtype[Any]) -> Any:
    return types.Array(numba.from_dtype(arg), 1, "C")


def numba_type(arg: ArgType) -> Any:
    """The numba type of one declared argument."""
    return types.int64 if arg is int else _array_type(arg)


def compile_here(kernel: Kernel) -> Callable[..., int]:
    """Compile a kernel in this process and give what calls it."""
    function = kernel.function
    assert isinstance(function, FunctionType)
    signature = types.int64(*(numba_type(a) for a in kernel.args))
    compiled = numba.njit(signature, nogil=True, **_OPTIONS)(_compiled_globals(function))

    def run(*args: Any) -> int:
        return int(compiled(*args))

    return run


def object_code(kernel: Kernel) -> tuple[str, bytes]:
    """Compile a kernel as a C function; return its symbol and its object file.

    The C function takes (pointer, length) for each array and an int64 for each scalar, and returns an int64.
    """
    parameters, call, ctypes_args = [], [], []
    for i, arg in enumerate(kernel.args):
        if arg is int:
            parameters.append(f"a{i}")
            call.append(f"a{i}")
            ctypes_args.append(types.int64)
        else:
            parameters += [f"p{i}", f"n{i}"]
            call.append(f"carray(p{i}, (n{i},))")
            ctypes_args += [types.CPointer(numba.from_dtype(arg)), types.int64]
    namespace: dict[str, Any] = {"carray": numba.carray, "kernel": _dispatcher(kernel.function)}
    name = kernel.__name__
    exec(f"def {name}({', '.join(parameters)}):\n    return kernel({', '.join(call)})\n", namespace)
    options = _OPTIONS | {"nopython": True, "_nrt": True}  # carray needs it
    compiled: Any = CFunc(namespace[name], (tuple(ctypes_args), types.int64), locals={}, options=options)
    compiled.compile()
    return compiled.native_name, compiled._library._get_compiled_object()
