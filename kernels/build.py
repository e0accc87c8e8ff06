"""Fill a kernel store: `python -m kafkatap.kernels.build FOLDER MODULE ...` (`store` runs it as a child process).

Each kernel is a task, the longest first, for a pool of processes. They are forked from one that has imported numba and
the modules.
"""

from __future__ import annotations

import gc
import importlib
import json
import multiprocessing
import os
import sys
from pathlib import Path

from .declarations import Helper, KernelSource, machine_words
from .store import object_digest

#: The most processes that compile at once.
MOST = 4


def kernels_of(module: str) -> list[KernelSource]:
    """Return the kernels that a module defines, in the order of their definition."""
    values = vars(importlib.import_module(module)).values()
    return [v for v in values if isinstance(v, KernelSource) and v.__module__ == module]


def work(kernel: KernelSource) -> int:
    """Return how much there is to compile: the bytes of bytecode of a kernel and of all helpers that it reaches."""
    seen = set()
    open_ = [kernel.function]
    while open_:
        function = open_.pop()
        if function in seen:
            continue
        seen.add(function)
        values = (function.__globals__.get(name) for name in function.__code__.co_names)
        open_ += [v.function for v in values if isinstance(v, Helper | KernelSource)]
    return sum(len(function.__code__.co_code) for function in seen)


def build_kernel(task: tuple[str, str, str]) -> tuple[str, dict[str, object]]:
    """Compile one kernel, (folder, module, name), into the folder; return its index entry."""
    from .numba_bridge import object_code

    folder, module, name = task
    kernel: KernelSource = getattr(importlib.import_module(module), name)
    symbol, code = object_code(kernel)
    file = f"{kernel.qualified_name}.o"
    (Path(folder) / file).write_bytes(code)
    return kernel.qualified_name, {
        "file": file,
        "digest": object_digest(code),
        "symbol": symbol,
        "arguments": machine_words(kernel.args),
    }


def _cores() -> int:
    """Return the cores that this process may use, up to MOST: each process uses some 200 MiB."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(usable, MOST)


def build(folder: Path, modules: list[str], processes: int | None = None) -> None:
    """Compile all kernels of the modules and write the index last."""
    from . import numba_bridge  # noqa: F401  # before the fork

    kernels = sorted((k for m in modules for k in kernels_of(m)), key=work, reverse=True)
    tasks = [(str(folder), k.__module__, k.__name__) for k in kernels]
    gc.disable()  # the collector would walk numba's trees again and again: a fifth of the time
    gc.freeze()
    processes = min(processes or _cores(), len(tasks))
    if processes > 1:
        with multiprocessing.get_context("fork").Pool(processes) as pool:
            entries = dict(pool.imap_unordered(build_kernel, tasks, chunksize=1))
    else:
        entries = dict(map(build_kernel, tasks))
    (folder / "index.json").write_text(json.dumps(entries, indent=1, sort_keys=True))


if __name__ == "__main__":
    build(Path(sys.argv[1]), sys.argv[2:])
