"""Kernels compiled to go along with a copy of the package, for machines that have no compiler and are not this one.

`ship(package, modules)` fills the folder in which that copy's store looks first (`store.SHIPPED`). What is compiled
keeps to the CPU features of `FEATURES`, which every server of the last ten years has, and says so; a CPU without them
makes the store compile as usual.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

from . import store

#: By kind of machine, the features of CPUs beyond its first ones that are made use of (LLVM's names). Of x86_64 those
#: that came with AVX2, in 2013.
FEATURES = {
    "x86_64": (
        "avx", "avx2", "bmi", "bmi2", "cx16", "f16c", "fma", "lzcnt", "movbe", "popcnt",
        "sse3", "sse4.1", "sse4.2", "ssse3",
    ),
}  # fmt: skip


def ship(package: Path, modules: Sequence[str]) -> Path:
    """Compile the kernels of `modules` for a copy of `kafkatap` in the folder `package`; the folder they are in."""
    folder = package / "kernels" / store.SHIPPED.name
    folder.mkdir()
    features = FEATURES.get(os.uname().machine, ())
    wanted = ",".join(f"+{name}" for name in features)
    store.compile_into(folder, modules, NUMBA_CPU_NAME="generic", NUMBA_CPU_FEATURES=wanted)
    (folder / "made-for.json").write_text(json.dumps(store.made_for(modules, features)))
    return folder
