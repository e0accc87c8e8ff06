"""Compile all kernels and link them to the library that `library` opens: `python -m kafkatap.kernels.make_library`.

The hook of the package's build runs this, and `spark.pack` for a checkout that has none. It needs numba and a linker:
`cc`, or else the package ziglang. No C source is compiled. All that the library needs of the system is memcpy and the
like, of any version, so it loads with every C library of the machine.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from . import kept_objects, library
from .cache import NO_COMPILER, compile_into, trusted_root
from .source_list import PACKAGE, write_source_list

#: The machines for which there are a library.
MACHINES = ("x86_64",)
_LINK = (
    "-shared", "-nostdlib", "-s", "-Wl,--gc-sections", "-Wl,-z,relro", "-Wl,-z,now", "-Wl,-z,noexecstack",
    "-Wl,--build-id=none",
)  # fmt: skip

#: The function `library.CHECK`, for any processor of x86-64: whether CPUID has all bits of the level x86-64-v2.
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


class NoLibraryError(Exception):
    """No library can be made here; says why."""


def linker() -> list[str] | None:
    """Return the command that links, or None if there is none."""
    for name in (os.environ.get("CC", ""), "cc"):
        found = shutil.which(name) if name else None
        if found:
            return [found]
    if importlib.util.find_spec("ziglang") is not None:
        return [sys.executable, "-m", "ziglang", "cc", "-target", "x86_64-linux-gnu"]
    return None


def _check_object() -> bytes:
    import llvmlite.binding as llvm

    text = _CHECK.replace("NAME", library.CHECK)
    text = text.replace("BASIC", str(sum(1 << bit for bit in _BASIC_BITS)))
    text = text.replace("EXTENDED", str(sum(1 << bit for bit in _EXTENDED_BITS)))
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    llvm.initialize_native_asmparser()
    target = llvm.Target.from_triple("x86_64-unknown-linux-gnu")
    machine = target.create_target_machine(cpu="x86-64", opt=2, reloc="pic", codemodel="small")
    code: bytes = machine.emit_object(llvm.parse_assembly(text))
    return code


def _link(objects: Sequence[Path], out: Path, command: Sequence[str]) -> None:
    """Link objects to a library. NoLibraryError if the linker cannot."""
    done = subprocess.run(
        [*command, *_LINK, "-o", str(out), *map(str, objects)],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines() or [f"exit code {done.returncode}"]
        raise NoLibraryError(f"{command[0]} could not link them: {said[-1]}")


def make_library(out: Path, modules: Sequence[str], installed: bool) -> Iterator[str]:
    """Fill the folder `out` with a library of the kernels of some modules; yield lines of progress.

    `installed`: the sources are used where they are now. NoLibraryError if there cannot be a library here.
    """
    machine = os.uname().machine
    if sys.platform != "linux" or machine not in MACHINES:
        raise NoLibraryError(f"they are not compiled ahead for {sys.platform} on {machine}")
    command = linker()
    if command is None:
        raise NoLibraryError("there was no linker (cc, or the package ziglang) when they were to be compiled")
    root = trusted_root()
    objects = None if root is None else root / kept_objects.FOLDER
    with tempfile.TemporaryDirectory(prefix="kafkatap-kernels-") as folder:
        made = Path(folder)
        settings = {"NUMBA_CPU_NAME": library.PROCESSOR, "NUMBA_CPU_FEATURES": ""}
        try:
            yield from compile_into(made, modules, objects, settings=settings)
        except subprocess.CalledProcessError as error:
            if error.returncode == NO_COMPILER:
                raise NoLibraryError("numba, which compiles them, was not installed when they were to be") from error
            raise
        (made / "check.o").write_bytes(_check_object())
        _link(sorted(made.glob("*.o")), made / library.LIBRARY, command)
        yield f"linked the kernels with {' '.join(command)}"
        index = json.loads((made / "index.json").read_text())
        out.mkdir(exist_ok=True)
        _replace(out, library.REASON, None)
        _replace(out, library.LIBRARY, (made / library.LIBRARY).read_bytes())
        _replace(out, library.DIGESTS, json.dumps(index["digests"], indent=1, sort_keys=True).encode())
        sources = [os.path.join(PACKAGE, path) for path in index["sources"]]
        write_source_list(str(made / library.SOURCES), sources, installed=installed)
        _replace(out, library.SOURCES, (made / library.SOURCES).read_bytes())


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
