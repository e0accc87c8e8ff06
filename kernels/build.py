"""Compile kernels to object files: `python -m kafkatap.kernels.build [OPTIONS] FOLDER MODULE ...` (a child process).

Kernels whose objects were kept are copied. Each of the others is a task, the longest first, for a pool of processes.
They are forked from one that has imported numba and the modules. What happens is printed on standard output.

FOLDER gets the objects, and the index last: the object's file of each kernel (none if the kernel is as in the library
of the package), the kernels' digests, and the sources that were imported.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import multiprocessing
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from . import library
from .cache import NO_COMPILER
from .declarations import KernelSource
from .kept_objects import forget_old_objects, object_digest, read_object, write_object
from .kernel_digest import compiler_sources, kernel_digest, reached_functions, toolchain
from .source_list import PACKAGE

#: The most processes that compile at once.
MOST = 4


def kernels_of(module: str) -> list[KernelSource]:
    """Return the kernels that a module defines, in the order of their definition."""
    values = vars(importlib.import_module(module)).values()
    return [v for v in values if isinstance(v, KernelSource) and v.__module__ == module]


def work(kernel: KernelSource) -> int:
    """Return how much there is to compile: the bytes of bytecode of a kernel and of all helpers that it reaches."""
    return sum(len(function.__code__.co_code) for function in reached_functions(kernel))


def compile_kernel(task: tuple[str, str]) -> tuple[str, bytes]:
    """Compile one kernel, (module, name); return its qualified name and its object code."""
    from .numba_bridge import object_code

    module, name = task
    kernel: KernelSource = getattr(importlib.import_module(module), name)
    return kernel.qualified_name, object_code(kernel)


def _cores() -> int:
    """Return the cores that this process may use, up to MOST: each process uses some 200 MiB."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(usable, MOST)


def compiled(kernels: Sequence[KernelSource], processes: int | None = None) -> Iterator[tuple[str, bytes]]:
    """Compile kernels; yield (qualified name, object code) as they are finished."""
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


def as_in_library(digests: dict[str, str]) -> set[str]:
    """Return the kernels that the library of the package has as they are now. `digests`: without a toolchain."""
    if library.open_library(even_if_sources_changed=True) is None:
        return set()
    try:
        kept = json.loads(Path(library.FOLDER, library.DIGESTS).read_text())
    except (OSError, ValueError):
        return set()
    return {name for name, digest in digests.items() if kept.get(name) == digest}


def build(
    folder: Path,
    objects: Path | None,
    modules: Sequence[str],
    processes: int | None = None,
    use_library: bool = False,
) -> None:
    """Write the objects of all kernels of the modules, and the index. Compile those that are not in `objects`.

    `use_library`: neither compile nor write kernels that are in the library of the package.
    """
    if objects is not None:
        objects.mkdir(mode=0o700, exist_ok=True)
    kernels = {k.qualified_name: k for m in modules for k in kernels_of(m)}
    compiled_by = compiler_sources()
    plain = {name: kernel_digest(k, compiled_by) for name, k in kernels.items()}
    done = as_in_library(plain) if use_library else set()
    entries: dict[str, dict[str, str | None]] = {name: {"file": None} for name in done}

    def add(name: str, code: bytes) -> None:
        file = f"{name}.o"
        (folder / file).write_bytes(code)
        entries[name] = {"file": file, "digest": object_digest(code)}

    if len(done) < len(kernels):
        compiled_by = toolchain()
        digests = {name: kernel_digest(k, compiled_by) for name, k in kernels.items() if name not in done}
        for name, digest in digests.items():
            code = None if objects is None else read_object(objects, digest)
            if code is not None:
                add(name, code)
        missing = [kernel for name, kernel in kernels.items() if name not in entries]
        if missing and use_library and len(missing) == len(kernels):
            print("compiling once for this machine (about 20 seconds); later runs start at once", flush=True)
        elif missing:
            print(f"compiling {len(missing)} of {len(kernels)} kernels, which changed", flush=True)
        for name, code in compiled(missing, processes) if missing else ():
            add(name, code)
            if objects is not None:
                write_object(objects, digests[name], code)
    if objects is not None:
        forget_old_objects(objects)
    index = {"kernels": entries, "digests": plain, "sources": _imported_sources()}
    (folder / "index.json").write_text(json.dumps(index, indent=1, sort_keys=True))


def _imported_sources() -> list[str]:
    """Return the files of the package's modules that were imported, by their paths in the package."""
    files = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
    inside = (os.path.relpath(file, PACKAGE) for file in files if file and file.startswith(PACKAGE + os.sep))
    return sorted(inside)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m kafkatap.kernels.build")
    parser.add_argument("--objects", type=Path, help="the folder of kept objects")
    parser.add_argument("--library", help="the folder of a library: kernels that it has are not compiled")
    parser.add_argument("folder", type=Path)
    parser.add_argument("modules", nargs="+")
    options = parser.parse_args()
    if options.library:
        library.FOLDER = options.library
    try:
        build(options.folder, options.objects, options.modules, use_library=bool(options.library))
    except ModuleNotFoundError as error:
        if error.name not in ("numba", "llvmlite"):
            raise
        return NO_COMPILER
    return 0


if __name__ == "__main__":
    sys.exit(main())
