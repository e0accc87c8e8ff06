"""Compile the kernels, and the programs of messages, when the package is built: a hook of hatchling.

    KAFKATAP_PLATFORM=linux-aarch64 python -m build --wheel     # for another machine than this one (`platforms`)

It is for wheels and for editable installations. A wheel gets `kafkatap/kernels/compiled/`, the tag of its platform, and
below `share` manual pages and completion scripts. A checkout that is installed as editable gets `kernels/compiled/`.
Where no library can be made, the folder has the reason, the wheel is for any platform, and the package needs its extra
`jit`. `pip -v` shows what happens. Objects are kept between builds (`kept_objects`), so that the second takes seconds.
A checkout whose sources did not change since the last build keeps what that made; the compilers are not installed then.

This module imports nothing of the package: what does, runs in a child process, over a folder of links that looks as the
package does where it is installed.
"""

from __future__ import annotations

import importlib.util
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
#: What the first start of a build that nobody tried decodes (`kafkatap/commands/first_start.py`).
_TEST_CAPTURE = "samples/live-4.4.pcap.zst"
#: numba is installed to build for these versions of Python. For others it has no wheels, and pip would compile LLVM.
PYTHONS = ((3, 11), (3, 14))

_MAKE = """\
import sys
from kafkatap.kernels.modules import KERNEL_MODULES
from kafkatap.kernels import make_library
from kafkatap.dissector.programs import make_programs
made = make_programs.main()
sys.argv[1:] += KERNEL_MODULES
sys.exit(made or make_library.main())
"""
#: Exits with 0 if what was made ahead is that of its sources. argv[1]: the folder `kafkatap/kernels`, of which it loads
#: the modules that need no numpy.
_IS_MADE = """\
import os, sys, types
package = sys.modules["kernels"] = types.ModuleType("kernels")
package.__path__ = [sys.argv[1]]
from kernels import library, source_list
programs = os.path.join(library.FOLDER, "programs.txt")
sys.exit(library.open_library() is None or not source_list.sources_fit(programs))
"""
#: Writes manual pages and completion scripts below the folder argv[1], for the version argv[2].
_WRITE_SHELL_FILES = """\
import sys
from pathlib import Path
from kafkatap.commands.completion.shell_files import write_shell_files
write_shell_files(Path(sys.argv[1]), sys.argv[2])
"""


def _platforms() -> Any:
    """The module `platforms`, which imports nothing of the package."""
    spec = importlib.util.spec_from_file_location("platforms", Path(__file__).with_name("platforms.py"))
    assert spec is not None and spec.loader is not None  # noqa: PT018
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _platform() -> Any:
    """The platform for which there can be a library, as this Python can compile it, or None."""
    known = _platforms()
    can_compile = known.compiler() is not None and PYTHONS[0] <= sys.version_info[:2] <= PYTHONS[1]
    return known.wanted() if can_compile else None


def _is_for_checkout() -> bool:
    """Whether a checkout is installed as editable. hatchling asks for dependencies without saying for what; pip and
    build name the question to the process that asks hatchling. Where nobody does, it is a wheel."""
    return "get_requires_for_build_editable" in sys.argv


class KernelHook(BuildHookInterface):  # type: ignore[type-arg]
    """What hatchling calls before and after it builds a wheel."""

    def dependencies(self) -> list[str]:
        """Return what compiles, and for a wheel what writes manual pages and completion scripts."""
        core = self.metadata.core
        needed = []
        if not _is_for_checkout():
            needed = ["argparse-manpage>=4.6", *(line for line in core.dependencies if line.startswith("shtab"))]
        elif self._is_made():
            return []
        platform = _platform()
        if platform is not None:
            needed += core.optional_dependencies["jit"]
            needed += [line for line in core.dependencies if line.startswith("numpy")]
            needed += ["ziglang>=0.14"] if platform.system == "darwin" else []
        return needed

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile the kernels: into the checkout (`version` "editable"), or for the wheel. Write the wheel's files for
        shells."""
        self._folder = Path(tempfile.mkdtemp(prefix="kafkatap-build-"))
        is_editable = version == "editable"
        if is_editable and self._is_made():
            return
        self._link_package()
        compiled = Path(self.root, COMPILED) if is_editable else self._folder / "compiled"
        self._make(compiled, is_editable)
        if is_editable:
            return
        for path in compiled.iterdir():
            build_data["force_include"][str(path)] = f"kafkatap/{COMPILED}/{path.name}"
        if any(path.suffix == ".so" for path in compiled.iterdir()):
            platform = _platform()
            build_data["tag"], build_data["pure_python"] = platform.tag, False
            if not platform.is_tried:
                build_data["force_include"][str(Path(self.root, _TEST_CAPTURE))] = (
                    "kafkatap/commands/first_start.pcap.zst"
                )
        prefix = self._folder / "prefix"
        self._run(_WRITE_SHELL_FILES, str(prefix), self.metadata.version)
        build_data["shared_data"][str(prefix / "share")] = "share"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what was made for the wheel."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _is_made(self) -> bool:
        """Whether the checkout has compiled kernels and programs of just these sources."""
        command = [sys.executable, "-P", "-c", _IS_MADE, os.path.join(self.root, "kafkatap", "kernels")]
        clean = {k: v for k, v in os.environ.items() if not k.startswith("KAFKATAP_")}
        return subprocess.run(command, env=clean, capture_output=True, check=False).returncode == 0

    def _make(self, out: Path, is_editable: bool) -> None:
        """Fill the folder `out` with what is made ahead; print what happens."""
        said = self._run(_MAKE, *(["--installed"] if is_editable else []), str(out))
        for line in said.splitlines():
            print(f"kafkatap: {line}", file=sys.stderr, flush=True)

    def _link_package(self) -> None:
        """Make a folder of links that looks as the package does where it is installed."""
        self._links = self._folder / "links"
        package = self._links / "kafkatap"
        package.mkdir(parents=True)
        for part in PARTS:
            (package / part).symlink_to(Path(self.root, part))
        for path in Path(self.root, "kafkatap").iterdir():
            if path.name not in PARTS:
                (package / path.name).symlink_to(path)

    def _run(self, code: str, *arguments: str) -> str:
        """Run code over that folder, in another process. Return what it prints; RuntimeError if it fails."""
        paths = os.pathsep.join(filter(None, (str(self._links), os.environ.get("PYTHONPATH"))))
        done = subprocess.run(
            [sys.executable, "-P", "-c", code, *arguments],
            env={k: v for k, v in os.environ.items() if not k.startswith("NUMBA_")} | {"PYTHONPATH": paths},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            print(done.stdout, file=sys.stderr, flush=True)
            raise RuntimeError("the kernels could not be compiled" if code is _MAKE else "no manual pages were made")
        return done.stdout
