"""Fill a kernel store: `python -m kafkatap.kernels.build FOLDER MODULE ...` (run by `store`, as a child)."""

from __future__ import annotations

import importlib
import json
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from .decorator import Kernel


def kernels_of(module: str) -> list[Kernel]:
    """The kernels that a module defines, in the order of their definition."""
    values = vars(importlib.import_module(module)).values()
    return [v for v in values if isinstance(v, Kernel) and v.__module__ == module]


def build_module(folder: str, module: str) -> dict[str, dict[str, object]]:
    """Compile all kernels of one module into `folder`; return their index entries."""
    from .numba_bridge import object_code

    entries: dict[str, dict[str, object]] = {}
    for kernel in kernels_of(module):
        symbol, code = object_code(kernel)
        name = f"{kernel.qualified_name}.o"
        (Path(folder) / name).write_bytes(code)
        arguments = sum(1 if a is int else 2 for a in kernel.args)
        entries[kernel.qualified_name] = {"file": name, "symbol": symbol, "arguments": arguments}
    return entries


def build(folder: Path, modules: list[str]) -> None:
    """Compile all kernels of the modules, on as many cores as there are, and write the index last."""
    index: dict[str, dict[str, object]] = {}
    with ProcessPoolExecutor(max_workers=min(len(modules), os.cpu_count() or 1)) as pool:
        for entries in pool.map(build_module, [str(folder)] * len(modules), modules):
            index.update(entries)
    (folder / "index.json").write_text(json.dumps(index, indent=1, sort_keys=True))


if __name__ == "__main__":
    build(Path(sys.argv[1]), sys.argv[2:])
