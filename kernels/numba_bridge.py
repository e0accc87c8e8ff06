"""The only module that uses numba: types for signatures, dispatchers for helpers, object code for the store.

Helpers are `Helper` objects in ordinary processes. A kernel refers to them by its module's globals. So the compiler
gets a copy of the function whose globals hold numba dispatchers in their place. The code fits one minor version of
numba, and the store's key includes that version.

numba turns every function that another one calls into a finished object with wrappers for Python and C. Helpers are
only called from kernels, so nobody would use those. `_inner_functions_only` leaves helpers as LLVM modules, which are
optimised and translated once, within their kernel. It cuts the build to a third.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FunctionType
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils, codegen, cpu
from numba.core.ccallback import CFunc
from numba.extending import intrinsic

from .declarations import ArgType, Helper, KernelSource, is_array_tuple, tuple_args
from .hints import prefetch

#: Only one thread may compile while `_inner_functions_only` changes numba.
_one_at_a_time = threading.RLock()
#: Without reference counts (`_nrt`): kernels allocate nothing, and counting costs tens of ns for each call of a helper.
_OPTIONS = {
    "error_model": "numpy",
    "boundscheck": bool(os.environ.get("KAFKATAP_BOUNDSCHECK")),
    "_nrt": False,
}
_HELPER_OPTIONS = {**_OPTIONS, "nogil": True, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}


@intrinsic  # type: ignore[untyped-decorator]
def _prefetch(typing: Any, array: Any, at: Any) -> Any:
    """LLVM's prefetch, for reading, into all levels of the cache."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        place = builder.bitcast(builder.gep(data, [arguments[1]]), byte)
        function = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
        to_read, keep, is_data = number(0), number(3), number(1)
        builder.call(
            cgutils.get_or_insert_function(builder.module, function, "llvm.prefetch.p0"),
            [place, to_read, keep, is_data],
        )
        return context.get_dummy_value()

    return types.none(array, types.intp), generate


#: The dispatcher that is compiled in place of a function.
_dispatchers: dict[Callable[..., Any], Any] = {prefetch.function: _prefetch}


def _compiled_globals(function: FunctionType) -> FunctionType:
    """Return the same function with numba dispatchers in place of its module's helpers."""
    replaced = dict(function.__globals__)
    for name in function.__code__.co_names:
        value = replaced.get(name)
        if isinstance(value, Helper):
            replaced[name] = _dispatcher(value.function, value.inline)
        elif isinstance(value, KernelSource):
            replaced[name] = _dispatcher(value.function)
    return FunctionType(function.__code__, replaced, function.__name__, function.__defaults__, function.__closure__)


def _dispatcher(function: Callable[..., Any], inline: bool = False) -> Any:
    known = _dispatchers.get(function)
    if known is None:
        assert isinstance(function, FunctionType)
        known = _dispatchers[function] = numba.njit(forceinline=inline, **_HELPER_OPTIONS)(_compiled_globals(function))
    return known


def _array_type(arg: np.dtype[Any]) -> Any:
    return types.Array(numba.from_dtype(arg), 1, "C")


def numba_type(arg: ArgType) -> Any:
    """Return the numba type of one declared argument."""
    if arg is int:
        return types.int64
    if is_array_tuple(arg):
        return types.BaseTuple.from_types([numba_type(field) for field in tuple_args(arg)], arg)
    return _array_type(arg)


@contextmanager
def _inner_functions_only(outer: str) -> Iterator[None]:
    """Translate only the function named `outer` to machine code; leave those that it calls as modules to be linked."""
    with _one_at_a_time:
        yield from _inner_only(outer)


def _hide_linked_functions(library: Any) -> None:
    """Have the optimiser see that nobody else calls the functions that are linked into a kernel.

    It then drops arguments that they do not read. A tuple of arrays is some 150 words, which each call would copy.
    """
    optimize = library._optimize_final_module
    own = {function.name for function in library._final_module.functions}

    def optimize_hidden() -> None:
        for function in library._final_module.functions:
            if not function.is_declaration and function.name not in own:
                function.linkage = "internal"
        optimize()

    library._optimize_final_module = optimize_hidden


def _inner_only(outer: str) -> Iterator[None]:
    library = codegen.CPUCodeLibrary
    context = cpu.CPUContext
    finalize, get_executable = library.finalize, context.get_executable

    def finalize_some(self: Any) -> None:
        if self.name == outer:
            _hide_linked_functions(self)
            finalize(self)
            return
        linked: set[Any] = set()
        for other in self._linking_libraries:
            if other not in linked:
                linked.add(other)
                self._final_module.link_in(other._get_module_for_linking(), preserve=True)
        self._finalize_dynamic_globals()
        self._finalized = True

    def get_executable_some(self: Any, library: Any, fndesc: Any, env: Any) -> Any:
        if library.name == outer:
            return get_executable(self, library, fndesc, env)
        library._ensure_finalized()
        never_called: list[Any] = []
        return (
            never_called.append
        )  # numba identifies an inner function by its entry, a builtin: any object of its own will do

    library.finalize, context.get_executable = finalize_some, get_executable_some
    try:
        yield
    finally:
        library.finalize, context.get_executable = finalize, get_executable


def _outer_name(kernel: KernelSource) -> str:
    return f"outermost_{kernel.__name__}"


def compile_here(kernel: KernelSource) -> Callable[..., int]:
    """Compile a kernel in this process and return a function that calls it."""
    name = _outer_name(kernel)
    names = ", ".join(f"a{i}" for i in range(len(kernel.args)))
    namespace: dict[str, Any] = {"kernel": _dispatcher(kernel.function)}
    exec(f"def {name}({names}):\n    return kernel({names})\n", namespace)
    signature = types.int64(*(numba_type(a) for a in kernel.args))
    with _inner_functions_only(name):
        compiled: Any = numba.njit(signature, nogil=True, **_OPTIONS)(namespace[name])

    def run(*args: Any) -> int:
        return int(compiled(*args))

    return run


def object_code(kernel: KernelSource) -> tuple[str, bytes]:
    """Compile a kernel as a C function; return its symbol and its object file.

    The C function has (pointer, length) for each array and an int64 for each scalar as parameters. It returns an int64.
    """
    parameters: list[str] = []
    ctypes_args: list[Any] = []
    namespace: dict[str, Any] = {"carray": numba.carray, "kernel": _dispatcher(kernel.function)}

    def expression(arg: ArgType) -> str:
        """Return the source of one argument of the call, and add its parameters."""
        i = len(parameters)
        if is_array_tuple(arg):
            namespace[f"Tuple{i}_{arg.__name__}"] = arg
            return f"Tuple{i}_{arg.__name__}({', '.join(expression(field) for field in tuple_args(arg))})"
        if arg is int:
            parameters.append(f"a{i}")
            ctypes_args.append(types.int64)
            return f"a{i}"
        parameters.extend((f"p{i}", f"n{i}"))
        ctypes_args.extend((types.CPointer(numba.from_dtype(arg)), types.int64))
        return f"carray(p{i}, (n{i},))"

    call = [expression(arg) for arg in kernel.args]
    name = _outer_name(kernel)
    exec(f"def {name}({', '.join(parameters)}):\n    return kernel({', '.join(call)})\n", namespace)
    options = _OPTIONS | {"nopython": True, "_nrt": True}  # carray needs it
    with _inner_functions_only(name):
        compiled: Any = CFunc(namespace[name], (tuple(ctypes_args), types.int64), locals={}, options=options)
        compiled.compile()
    return compiled.native_name, compiled._library._get_compiled_object()
