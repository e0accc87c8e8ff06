"""Compile all kernels and link them to the library that `library` opens: `python -m kafkatap.kernels.make_library`.

The hook of the package's build runs this, and `spark.pack` for a checkout that has none. It needs numba. No C source is
compiled. All that the library needs of the system is memcpy and the like, of any version, so it loads with every C
library of the machine.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from . import kept_objects, library
from .cache import NO_COMPILER, compile_into, trusted_root
from .linker import LinkError, link
from .platforms import SETTING, Platform, compiler, wanted
from .source_list import PACKAGE, write_source_list

#: Sources of a library besides those of its kernels. `numba_bridge` and what it needs are imported only where one is
#: compiled anew.
_LINKED_BY = tuple(
    f"kernels/{name}.py" for name in ("linker", "make_library", "numba_bridge", "platforms", "shared_memory")
)

#: The function `library.CHECK`, for every processor of x86-64: whether CPUID has all bits of the level x86-64-v2.
_CHECK = """
define internal i1 @has_all(i32 %leaf, i32 %wanted) {
  %all = call { i32, i32, i32, i32 } asm sideeffect "cpuid", "={ax},={bx},={cx},={dx},{ax},{cx}"(i32 %leaf, i32 0)
  %c = extractvalue { i32, i32, i32, i32 } %all, 2
  %both = and i32 %c, %wanted
  %are_all = icmp eq i32 %both, %wanted
  ret i1 %are_all
}

define i32 @NAME() {
  %basic = call i1 @has_all(i32 1, i32 BASIC)
  %extended = call i1 @has_all(i32 u0x80000001, i32 EXTENDED)
  %both = and i1 %basic, %extended
  %number = zext i1 %both to i32
  ret i32 %number
}
"""
_BASIC_BITS = (0, 9, 13, 19, 20, 23)  # SSE3, SSSE3, CMPXCHG16B, SSE4.1, SSE4.2, POPCNT
_EXTENDED_BITS = (0,)  # LAHF
#: The same where the library is for every processor of the platform.
_NO_CHECK = """
define i32 @NAME() {
  ret i32 1
}
"""


class NoLibraryError(Exception):
    """No library can be made here; says why."""


def _check_object(platform: Platform) -> bytes:
    import llvmlite.binding as llvm

    text = _CHECK if platform.processor == "x86-64-v2" else _NO_CHECK
    text = text.replace("NAME", library.CHECK)
    text = text.replace("BASIC", str(sum(1 << bit for bit in _BASIC_BITS)))
    text = text.replace("EXTENDED", str(sum(1 << bit for bit in _EXTENDED_BITS)))
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    llvm.initialize_native_asmparser()
    oldest = platform.processor.removesuffix("-v2")
    target = llvm.Target.from_triple(platform.triple)
    machine = target.create_target_machine(cpu=oldest, opt=2, reloc="pic", codemodel="small")
    code: bytes = machine.emit_object(llvm.parse_assembly(text))
    return code


def make_library(out: Path, modules: Sequence[str], installed: bool) -> Iterator[str]:
    """Fill the folder `out` with a library of the kernels of some modules; yield lines of progress.

    `installed`: the sources are used where they are now. NoLibraryError if there cannot be a library here.
    """
    platform, host = wanted(), compiler()
    if platform is None:
        raise NoLibraryError(f"they are not compiled ahead for {sysconfig.get_platform()}")
    if host is None:
        raise NoLibraryError(f"nothing compiles them on {sysconfig.get_platform()}: make a wheel on Linux, with "
                             f"{SETTING}={platform.name}")  # fmt: skip
    root = trusted_root()
    objects = None if root is None else root / kept_objects.FOLDER
    with tempfile.TemporaryDirectory(prefix="kafkatap-kernels-") as folder:
        made = Path(folder)
        settings = {"NUMBA_CPU_NAME": host.processor, "NUMBA_CPU_FEATURES": "", SETTING: platform.name}
        try:
            yield from compile_into(made, modules, objects, settings=settings, verbose=True)
        except subprocess.CalledProcessError as error:
            if error.returncode == NO_COMPILER:
                raise NoLibraryError("numba, which compiles them, was not installed when they were to be") from error
            raise
        count = len(list(made.glob("*.o")))
        (made / "check.o").write_bytes(_check_object(platform))
        try:
            linked = _linked(platform, sorted(made.glob("*.o")))
        except LinkError as error:
            raise NoLibraryError(f"they could not be linked: {error}") from error
        yield f"linked {count} kernels for {platform.name}"
        index = json.loads((made / "index.json").read_text())
        out.mkdir(exist_ok=True)
        _replace(out, library.REASON, None)
        _replace(out, library.LIBRARY, linked)
        _replace(out, library.DIGESTS, json.dumps(index["digests"], indent=1, sort_keys=True).encode())
        sources = [os.path.join(PACKAGE, path) for path in (*index["sources"], *_LINKED_BY)]
        write_source_list(str(made / library.SOURCES), sources, installed=installed)
        _replace(out, library.SOURCES, (made / library.SOURCES).read_bytes())


def _linked(platform: Platform, objects: Sequence[Path]) -> bytes:
    """The library of some objects. For macOS by zig, which also signs it ad hoc, as that system wants."""
    if platform.system == "linux":
        return link([path.read_bytes() for path in objects])
    if importlib.util.find_spec("ziglang") is None:
        raise LinkError(f"the libraries of {platform.name} are linked by ziglang, which is not installed")
    made = objects[0].with_name("kernels.dylib")
    target = f"{platform.triple.partition('-')[0].replace('arm64', 'aarch64')}-macos.11.0"
    names = [f"-Wl,-install_name,@rpath/{library.LIBRARY}", "-o", str(made)]
    command = [sys.executable, "-m", "ziglang", "cc", "-target", target, "-shared", *names, *map(str, objects)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise LinkError(done.stderr.strip())
    return made.read_bytes()


def _replace(folder: Path, name: str, content: bytes | None) -> None:
    """Replace or remove a file whole: processes may have mapped the old one."""
    (folder / name).unlink(missing_ok=True)
    if content is not None:
        new = folder / f".{name}.new"
        new.write_bytes(content)
        new.replace(folder / name)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m kafkatap.kernels.make_library")
    parser.add_argument("--installed", action="store_true", help="the sources are used where they are now")
    parser.add_argument("out", type=Path)
    parser.add_argument("modules", nargs="+")
    options = parser.parse_args()
    try:
        for line in make_library(options.out, options.modules, options.installed):
            print(line, flush=True)
    except NoLibraryError as error:
        options.out.mkdir(exist_ok=True)
        for name in (library.LIBRARY, library.DIGESTS, library.SOURCES):
            _replace(options.out, name, None)
        _replace(options.out, library.REASON, f"{error}\n".encode())
        print(f"no kernels are compiled with the package: {error}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
