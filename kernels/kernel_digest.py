"""Digests of kernels: what a kernel's object code depends on.

A digest changes with the bytecode of the kernel and of every function that it reaches, with the values of the globals
that these functions use (numbers, dtypes, tuples of arrays), with the declared arguments, with the compiler and with
the processor. It does not change with comments, docstrings, line numbers or other code of the same modules.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

from . import platforms
from .declarations import ArgType, Helper, KernelSource, is_array_tuple, tuple_args

#: Modules of this package that decide how a kernel is compiled.
_COMPILED_BY = ("declarations.py", "numba_bridge.py", "platforms.py")


def toolchain() -> str:
    """Return what all kernels depend on: numba, llvmlite, Python, `numba_bridge`, the settings and the processor."""
    import llvmlite.binding as llvm

    words = [sys.version]
    for name in ("numba", "llvmlite"):
        spec = importlib.util.find_spec(name)
        for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
            words.append((Path(folder) / "_version.py").read_text())
    words.append(compiler_sources())
    words.append(os.environ.get("KAFKATAP_BOUNDSCHECK", ""))
    words += (os.uname().machine, os.environ.get(platforms.SETTING, ""))
    words.append(os.environ.get("NUMBA_CPU_NAME") or llvm.get_host_cpu_name())
    features = os.environ.get("NUMBA_CPU_FEATURES")
    words.append(features if features is not None else llvm.get_host_cpu_features().flatten())
    return _digest(words)


def compiler_sources() -> str:
    """Return the sources of this package that decide how a kernel is compiled."""
    return "\0".join((Path(__file__).parent / name).read_text() for name in _COMPILED_BY)


def kernel_digest(kernel: KernelSource, compiled_by: str) -> str:
    """Return the digest of a kernel's object code if `compiled_by` (a `toolchain`, or `compiler_sources`) compiles it.

    TypeError if a function that the kernel reaches uses a global whose value has no description here.
    """
    words = [compiled_by, kernel.__name__, *map(_argument, kernel.args)]
    for function, inline in _reached(kernel.function):
        words.append(f"{function.__module__}.{function.__qualname__} {inline}")
        words += _function(function)
    return _digest(words)


def reached_functions(kernel: KernelSource) -> Iterator[Callable[..., Any]]:
    """Yield the function of a kernel and those of all helpers and kernels that it reaches."""
    return (function for function, _ in _reached(kernel.function))


def _digest(words: list[str]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for word in words:
        whole = word.encode()
        digest.update(len(whole).to_bytes(8, "little") + whole)
    return digest.hexdigest()


def _reached(first: Callable[..., Any]) -> Iterator[tuple[Callable[..., Any], bool]]:
    """Yield functions and whether they are inlined, in the order of their first use."""
    seen = set()
    open_ = [(first, False)]
    while open_:
        function, inline = open_.pop()
        if function in seen:
            continue
        seen.add(function)
        yield function, inline
        used = [value for _, value in _globals(function)]
        called = [v for v in used if isinstance(v, Helper | KernelSource)]
        open_ += [(v.function, isinstance(v, Helper) and v.inline) for v in reversed(called)]


def _codes(code: CodeType) -> Iterator[CodeType]:
    """Yield a function's code and that of the functions within it."""
    yield code
    for value in code.co_consts:
        if isinstance(value, CodeType):
            yield from _codes(value)


def _globals(function: Callable[..., Any]) -> Iterator[tuple[str, Any]]:
    """Yield the globals that a function uses, by name. Of modules of Python source, also the attributes."""
    assert isinstance(function, FunctionType)
    for code in _codes(function.__code__):
        for name in code.co_names:
            if name not in function.__globals__:
                continue  # a builtin or an attribute
            value = function.__globals__[name]
            yield name, value
            if isinstance(value, ModuleType) and value is not np:
                yield from ((f"{name}.{a}", getattr(value, a)) for a in code.co_names if hasattr(value, a))


def _function(function: Callable[..., Any]) -> Iterator[str]:
    assert isinstance(function, FunctionType)
    for code in _codes(function.__code__):
        constants = list(code.co_consts)
        if constants and isinstance(constants[0], str):
            constants[0] = None  # the docstring
        yield code.co_code.hex()
        yield repr((code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars, code.co_flags))
        yield repr((code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount))
        yield from (_value(value) for value in constants)
    yield _value(function.__defaults__)
    for cell in function.__closure__ or ():
        yield _value(cell.cell_contents)
    for name, value in _globals(function):
        yield f"{name} = {_value(value)}"


def _argument(arg: ArgType) -> str:
    if arg is int:
        return "int"
    if not is_array_tuple(arg):
        return _dtype(arg)
    fields = zip(arg._fields, map(_argument, tuple_args(arg)), strict=True)
    return f"{arg.__module__}.{arg.__qualname__}({', '.join(f'{name}: {field}' for name, field in fields)})"


def _dtype(dtype: np.dtype[Any]) -> str:
    """Describe a dtype with the offsets of its fields, which its repr leaves out."""
    whole = f"{dtype.str} {dtype.itemsize} {dtype.alignment} {dtype.isalignedstruct} {dtype.type.__name__}"
    if dtype.subdtype is not None:
        return f"{whole} {dtype.shape} of {_dtype(dtype.subdtype[0])}"
    fields: Any = dtype.fields or {}
    described = (f"{name} at {fields[name][1]}: {_dtype(fields[name][0])}" for name in dtype.names or ())
    return f"{whole} {{{'; '.join(described)}}}"


def _value(value: Any) -> str:
    """Describe a value that code uses. TypeError for one of a kind that has no description."""
    if value is None or value is Ellipsis or isinstance(value, bool | int | float | complex | str | bytes):
        return f"{type(value).__name__} {value!r}"
    if isinstance(value, np.dtype):
        return f"dtype {_dtype(value)}"
    if isinstance(value, np.generic):
        return f"{value.dtype.str} {value!r}"
    if isinstance(value, np.ndarray):
        return f"array {value.shape} {_dtype(value.dtype)} {value.tobytes().hex()}"
    if isinstance(value, tuple | list):
        return f"{type(value).__qualname__} [{', '.join(map(_value, value))}]"
    if isinstance(value, frozenset | set):
        return f"set [{', '.join(sorted(map(_value, value)))}]"
    if isinstance(value, Helper | KernelSource):
        return f"{value.__module__}.{value.__name__}"  # its code is described where it is reached
    if isinstance(value, CodeType):
        return "code"  # likewise
    if isinstance(value, ModuleType):
        return f"module {value.__name__}"
    if is_array_tuple(value) and hasattr(value, "_fields"):
        return f"{value.__module__}.{value.__qualname__} {value._fields}"  # its fields have the types of what is put in
    if isinstance(value, type | BuiltinFunctionType | np.ufunc):
        return f"{getattr(value, '__module__', '')}.{value.__name__}"
    raise TypeError(f"a kernel uses {value!r}, a {type(value).__name__}, which has no description for its digest")
