"""Fill a kernel store: `python -m kafkatap.kernels.build FOLDER OBJECTS MODULE ...` (`store` runs it as a child).

Kernels whose objects are in the folder OBJECTS ("": none) are copied. Each of the others is a task, the longest first,
for a pool of processes. They are forked from one that has imported numba and the modules. What happens is printed on
standard output.
"""

from __future__ import annotations

import gc
import importlib
import json
import multiprocessing
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from .declarations import KernelSource, machine_words
from .kept_objects import CompiledObject, forget_old_objects, object_digest, read_object, write_object
from .kernel_digest import kernel_digest, reached_functions, toolchain

#: The most processes that compile at once.
MOST = 4


def kernels_of(module: str) -> list[KernelSource]:
    """Return the kernels that a module defines, in the order of their definition."""
    values = vars(importlib.import_module(module)).values()
    return [v for v in values if isinstance(v, KernelSource) and v.__module__ == module]


def work(kernel: KernelSource) -> int:
    """Return how much there is to compile: the bytes of bytecode of a kernel and of all helpers that it reaches."""
    return sum(len(function.__code__.co_code) for function in reached_functions(kernel))


def compile_kernel(task: tuple[str, str]) -> tuple[str, CompiledObject]:
    """Compile one kernel, (module, name); return its qualified name and its object."""
    from .numba_bridge import object_code

    module, name = task
    kernel: KernelSource = getattr(importlib.import_module(module), name)
    symbol, code = object_code(kernel)
    return kernel.qualified_name, CompiledObject(symbol, machine_words(kernel.args), code)


def _cores() -> int:
    """Return the cores that this process may use, up to MOST: each process uses some 200 MiB."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(usable, MOST)


def compiled(kernels: Sequence[KernelSource], processes: int | None = None) -> Iterator[tuple[str, CompiledObject]]:
    """Compile kernels; yield (qualified name, object) as they are finished."""
    from . import numba_bridge  # noqa: F401  # before the fork

    tasks = [(k.__module__, k.__name__) for k in sorted(kernels, key=work, reverse=True)]
    gc.disable()  # the collector would walk numba's trees again and again: a fifth of the time
    gc.freeze()
    processes = min(processes or _cores(), len(tasks))
    if processes > 1:
        with multiprocessing.get_context("fork").Pool(processes) as pool:
            yield from pool.imap_unordered(compile_kernel, tasks, chunksize=1)
    else:
        yield from map(compile_kernel, tasks)


def build(folder: Path, objects: Path | None, modules: Sequence[str], processes: int | None = None) -> None:
    """Write the objects of all kernels of the modules and the index last. Compile those that are not in `objects`."""
    if objects is not None:
        objects.mkdir(mode=0o700, exist_ok=True)
    compiled_by = toolchain()
    kernels = {k.qualified_name: k for m in modules for k in kernels_of(m)}
    digests = {name: kernel_digest(k, compiled_by) for name, k in kernels.items()}
    entries: dict[str, dict[str, object]] = {}

    def add(name: str, made: CompiledObject) -> None:
        file = f"{name}.o"
        (folder / file).write_bytes(made.code)
        digest = object_digest(made.code)
        entries[name] = {"file": file, "digest": digest, "symbol": made.symbol, "arguments": made.arguments}

    for name, digest in digests.items():
        kept = None if objects is None else read_object(objects, digest)
        if kept is not None:
            add(name, kept)
    missing = [kernel for name, kernel in kernels.items() if name not in entries]
    if len(missing) == len(kernels):
        print("compiling once for this machine (about ten seconds); later runs start at once", flush=True)
    elif missing:
        print(f"compiling {len(missing)} of {len(kernels)} kernels, which changed", flush=True)
    if missing:
        for name, made in compiled(missing, processes):
            add(name, made)
            if objects is not None:
                write_object(objects, digests[name], made)
    if objects is not None:
        forget_old_objects(objects)
    (folder / "index.json").write_text(json.dumps(entries, indent=1, sort_keys=True))


if __name__ == "__main__":
    build(Path(sys.argv[1]), Path(sys.argv[2]) if sys.argv[2] else None, sys.argv[3:])
