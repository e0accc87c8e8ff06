"""Compile the kernels, and the programs of messages, when the package is built: a hook of hatchling.

It is for wheels and for editable installations. A wheel gets `kafkatap/kernels/compiled/` and the tag of its platform;
a checkout that is installed as editable gets `kernels/compiled/`. Where no library can be made, the folder has the
reason, the wheel is for any platform, and the package needs its extra `jit`. `pip -v` shows what happens. Objects are
kept between builds (`kept_objects`), so that the second takes seconds.

This module imports nothing of the package: what does, runs in a child process, over a folder of links that looks as the
package does where it is installed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

#: The folders at the top that are packages within `kafkatap`.
PARTS = ("kernels", "reassembly", "dissector", "reports")
COMPILED = "kernels/compiled"
#: The library needs neither a C library of its own nor a version of a symbol: see `make_library`.
TAG = "py3-none-manylinux_2_17_x86_64.musllinux_1_1_x86_64"
#: numba is installed to build for these versions of Python. For others it has no wheels, and pip would compile LLVM.
PYTHONS = ((3, 11), (3, 14))

_MAKE = """\
import sys
from kafkatap.kernel_modules import KERNEL_MODULES
from kafkatap.kernels import make_library
from kafkatap.dissector.programs import make_programs
made = make_programs.main()
sys.argv[1:] += KERNEL_MODULES
sys.exit(made or make_library.main())
"""


def _has_library() -> bool:
    """Whether there can be a library for this machine and this Python."""
    machine = sys.platform == "linux" and os.uname().machine == "x86_64" and sys.maxsize > 2**32
    return machine and PYTHONS[0] <= sys.version_info[:2] <= PYTHONS[1]


class KernelHook(BuildHookInterface):  # type: ignore[type-arg]
    """What hatchling calls before and after it builds a wheel."""

    def dependencies(self) -> list[str]:
        """Return what compiles and links, where there is no linker yet."""
        if not _has_library():
            return []
        core = self.metadata.core
        numpy = [line for line in core.dependencies if line.startswith("numpy")]
        ziglang = [] if shutil.which("cc") else ["ziglang>=0.13"]
        return [*core.optional_dependencies["jit"], *numpy, *ziglang]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile the kernels: into the checkout (`version` "editable"), or for the wheel."""
        self._folder = Path(tempfile.mkdtemp(prefix="kafkatap-build-"))
        is_editable = version == "editable"
        compiled = Path(self.root, COMPILED) if is_editable else self._folder / "compiled"
        self._make(compiled, is_editable)
        if is_editable:
            return
        for path in compiled.iterdir():
            build_data["force_include"][str(path)] = f"kafkatap/{COMPILED}/{path.name}"
        if any(path.suffix == ".so" for path in compiled.iterdir()):
            build_data["tag"] = TAG
            build_data["pure_python"] = False

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what was made for the wheel."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _make(self, out: Path, is_editable: bool) -> None:
        """Fill the folder `out` with what is made ahead; print what happens."""
        package = self._folder / "links" / "kafkatap"
        package.mkdir(parents=True)
        for part in PARTS:
            (package / part).symlink_to(Path(self.root, part))
        for path in Path(self.root, "kafkatap").iterdir():
            if path.name not in PARTS:
                (package / path.name).symlink_to(path)
        paths = os.pathsep.join(filter(None, (str(package.parent), os.environ.get("PYTHONPATH"))))
        done = subprocess.run(
            [sys.executable, "-P", "-c", _MAKE, *(["--installed"] if is_editable else []), str(out)],
            env={k: v for k, v in os.environ.items() if not k.startswith("NUMBA_")} | {"PYTHONPATH": paths},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
        for line in done.stdout.splitlines():
            print(f"kafkatap: {line}", file=sys.stderr, flush=True)
        if done.returncode:
            raise RuntimeError("the kernels could not be compiled")
