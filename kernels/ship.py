"""Compile kernels for a copy of the package that goes to other machines, which may have no compiler.

`ship(package, modules)` fills the folder in which that copy's store looks first (`store.SHIPPED`). The kernels use the
CPU features of `FEATURES`, which every server of the last ten years has. On a CPU without them the store compiles as
usual. The compiled kernels are kept beside the store of this machine, and copied from there the next time.
"""

from __future__ import annotations

import json
import os
import shutil
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
    features = FEATURES.get(os.uname().machine, ())
    wanted = ",".join(f"+{name}" for name in features)
    kept = store.built(modules, NUMBA_CPU_NAME="generic", NUMBA_CPU_FEATURES=wanted)
    if kept is not None:
        shutil.copytree(kept, folder)
    else:
        folder.mkdir()
        for _ in store.compile_into(folder, modules, NUMBA_CPU_NAME="generic", NUMBA_CPU_FEATURES=wanted):
            pass
    (folder / "made-for.json").write_text(json.dumps(store.made_for(modules, features)))
    return folder
