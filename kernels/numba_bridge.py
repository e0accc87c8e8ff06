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

import llvmlite.binding as llvm
import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils, codegen, cpu
from numba.core.ccallback import CFunc
from numba.extending import intrinsic

from . import platforms
from .declarations import ArgType, Helper, KernelSource, is_array_tuple, tuple_args
from .hints import prefetch
from .shared_memory import load_acquire, store_release

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


def _word(context: Any, builder: Any, array_type: Any, array: Any, at: Any) -> Any:
    """The place of 32 bits in an array of bytes."""
    data = context.make_array(array_type)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [at]), ir.IntType(32).as_pointer())


@intrinsic  # type: ignore[untyped-decorator]
def _load_acquire(typing: Any, array: Any, at: Any) -> Any:
    """LLVM's atomic load."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = _word(context, builder, signature.args[0], *arguments)
        return builder.zext(builder.load_atomic(place, "acquire", 4), ir.IntType(64))

    return types.int64(array, types.intp), generate


@intrinsic  # type: ignore[untyped-decorator]
def _store_release(typing: Any, array: Any, at: Any, value: Any) -> Any:
    """LLVM's atomic store."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = _word(context, builder, signature.args[0], *arguments[:2])
        builder.store_atomic(builder.trunc(arguments[2], ir.IntType(32)), place, "release", 4)
        return context.get_dummy_value()

    return types.none(array, types.intp, types.int64), generate


#: The dispatcher that is compiled in place of a function.
_dispatchers: dict[Callable[..., Any], Any] = {
    prefetch.function: _prefetch,
    load_acquire.function: _load_acquire,
    store_release.function: _store_release,
}


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
def _inner_functions_only(outer: str, finish: Callable[[Any], None] | None = None) -> Iterator[None]:
    """Translate only the function named `outer` to machine code; leave those that it calls as modules to be linked.

    `finish` gets the library of `outer` with its module optimised, and makes what it wants of it. Then the function
    cannot be called in this process. Without it, it can.
    """
    with _one_at_a_time:
        yield from _inner_only(outer, finish)


def _link_inner_modules(library: Any) -> None:
    linked: set[Any] = set()
    for other in library._linking_libraries:
        if other not in linked:
            linked.add(other)
            library._final_module.link_in(other._get_module_for_linking(), preserve=True)


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


def _inner_only(outer: str, finish: Callable[[Any], None] | None) -> Iterator[None]:
    code = codegen.JITCodeLibrary
    context = cpu.CPUContext
    finalize, get_pointer, get_executable = code.finalize, code.get_pointer_to_function, context.get_executable

    def finalize_some(self: Any) -> None:
        if self.name == outer and finish is None:
            _hide_linked_functions(self)
            finalize(self)
            return
        _link_inner_modules(self)
        self._finalize_dynamic_globals()
        self._finalized = True
        if self.name == outer and finish is not None:
            finish(self)

    def get_executable_some(self: Any, library: Any, fndesc: Any, env: Any) -> Any:
        if library.name == outer and finish is None:
            return get_executable(self, library, fndesc, env)
        library._ensure_finalized()
        never_called: list[Any] = []
        return (
            never_called.append
        )  # numba identifies an inner function by its entry, a builtin: any object of its own will do

    def get_some_pointer(self: Any, name: str) -> int:
        if finish is None:
            return int(get_pointer(self, name))
        self._ensure_finalized()
        return 0

    code.finalize, code.get_pointer_to_function = finalize_some, get_some_pointer
    context.get_executable = get_executable_some
    try:
        yield
    finally:
        if "finalize" in vars(code):
            del code.finalize  # it is inherited
        code.get_pointer_to_function, context.get_executable = get_pointer, get_executable


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


#: Functions that objects may refer to: they are in the C library of every process.
_OF_THE_C_LIBRARY = {"memcpy", "memmove", "memset", "memcmp"}
#: Functions for reference counts. The arrays of kernels own nothing, so there is nothing to count.
_NOTHING_TO_DO = {"NRT_incref", "NRT_decref"}
#: How names begin of functions and globals of Python and of numba's run-time, which kernels, as they raise and allocate
#: nothing, never use.
_NEVER_USED = ("NRT_", "numba_", "Py", "_Py")


def _complete(library: Any, entry: str, symbol: str) -> None:
    """Make a kernel's module complete in itself, with `entry` as its only symbol, and call that `symbol`.

    Numba's run-time and Python are replaced by functions that do nothing or end the process.
    """
    module = library._final_module
    for function in list(module.functions):
        if function.is_declaration and function.name.startswith(_NEVER_USED):
            body = "ret void" if function.name in _NOTHING_TO_DO else "call void @llvm.trap() unreachable"
            header = str(function).strip().replace("declare ", "define ", 1)
            header = header[: header.rindex(")") + 1]
            module.link_in(_module(f"{header} {{ {body} }}\ndeclare void @llvm.trap()", module))
    for variable in list(module.global_variables):
        if variable.is_declaration and variable.name.startswith(_NEVER_USED):
            module.link_in(_module(f"@{variable.name} = global ptr null", module))
    for value in (*module.functions, *module.global_variables):
        if not value.is_declaration and value.name != entry:
            value.linkage = "internal"
    module.get_function(entry).name = symbol


def _module(text: str, like: Any) -> Any:
    """Parse LLVM assembly for the same target as another module."""
    parsed = llvm.parse_assembly(text)
    parsed.triple, parsed.data_layout = like.triple, like.data_layout
    return parsed


def _machine(library: Any) -> Any:
    """Return the machine for which objects are made: that of the platform which a setting names, else this one.

    What is optimised for one 64-bit little-endian machine can be translated for another: sizes and places are the same.
    """
    options = {"opt": 3, "reloc": "pic", "codemodel": "small"}
    if not os.environ.get(platforms.SETTING):
        names = {"cpu": library._codegen._get_host_cpu_name(), "features": library._codegen._tm_features}
        return llvm.Target.from_triple(library._final_module.triple).create_target_machine(**names, **options)
    platform = platforms.wanted()
    assert platform is not None
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    return llvm.Target.from_triple(platform.triple).create_target_machine(cpu=platform.processor, **options)


def _object_of(library: Any) -> bytes:
    """Return a module as an object file that a linker can put into a shared library. ValueError if it needs others."""
    module = library._final_module
    others = {v.name for v in (*module.functions, *module.global_variables) if v.is_declaration}
    needed = {name for name in others if not name.startswith("llvm.")} - _OF_THE_C_LIBRARY
    if needed:
        raise ValueError(f"kernels can only use what is compiled with them, not {', '.join(sorted(needed))}")
    machine = _machine(library)
    module.triple, module.data_layout = machine.triple, str(machine.target_data)
    code: bytes = machine.emit_object(module)
    return code


def object_code(kernel: KernelSource) -> bytes:
    """Compile a kernel as a C function named by its qualified name; return the object file, which needs no other.

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
    made: list[Any] = []
    options = _OPTIONS | {"nopython": True, "_nrt": True}  # carray needs it
    with _inner_functions_only(name, made.append):
        compiled: Any = CFunc(namespace[name], (tuple(ctypes_args), types.int64), locals={}, options=options)
        compiled.compile()
        (library,) = made
        _complete(library, compiled.native_name, kernel.qualified_name)
        library._optimize_final_module()
        library._final_module.verify()
        return _object_of(library)
