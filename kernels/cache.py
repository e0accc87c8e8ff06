"""Kernels compiled on this machine and kept in the user's cache folder as object code.

The folder is named by the sources (their sizes and times), by the versions of numba, llvmlite and Python, and by the
processor. If it is missing, a child process builds it (`build`). It compiles only kernels that it finds neither in the
library of the package nor among the kept objects (`kept_objects`). A damaged folder is built again.

Trust: the folder holds native code. Its parent must belong to the effective user and be closed to others (0700), or it
is not used. Files are written to a new folder, which is then renamed into place, under a lock.
"""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from . import kept_objects, library
from .declarations import KernelSource, machine_words
from .kept_objects import object_digest
from .source_list import PACKAGE

#: The exit code of a child that would have to compile, and has no compiler.
NO_COMPILER = 3

#: Prints a line on standard error: always, or only if the user wants to know more.
Note = Callable[[str, bool], None]


def cache_root() -> Path:
    """Return the folder in which the store is kept: KAFKATAP_CACHE, or one in the user's cache folder."""
    named = os.environ.get("KAFKATAP_CACHE")
    if named:
        return Path(named)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "kafkatap"


def open_root() -> Path:
    """Return `cache_root`, created if it is missing.

    If it cannot be written, and KAFKATAP_CACHE is not set, return a folder of this user among the temporary files:
    users of clusters often have no home.
    """
    try:
        root = cache_root()
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        if os.access(root, os.W_OK) or os.environ.get("KAFKATAP_CACHE"):
            return root
    except (OSError, RuntimeError):  # RuntimeError: a user without a home
        if os.environ.get("KAFKATAP_CACHE"):
            raise
    root = Path(tempfile.gettempdir()) / f"kafkatap-{os.geteuid()}"
    root.mkdir(mode=0o700, exist_ok=True)
    return root


def trusted(folder: Path) -> bool:
    """Return whether a folder belongs to the effective user and is closed to everybody else."""
    status = folder.lstat()
    return status.st_uid == os.geteuid() and status.st_mode & 0o077 == 0 and not folder.is_symlink()


def trusted_root() -> Path | None:
    """Return `open_root` if it can be used and is trusted, else None."""
    try:
        root = open_root()
        return root if trusted(root) else None
    except (OSError, RuntimeError):
        return None


def _sources(modules: Sequence[str]) -> Iterator[str]:
    """Yield all files of the package, and of the folders of other modules: what a kernel can reach, and more."""
    folders = [PACKAGE]
    for name in modules:
        if name.partition(".")[0] != __package__.partition(".")[0]:
            spec = importlib.util.find_spec(name)
            if spec is not None and spec.origin is not None:
                folders.append(os.path.dirname(spec.origin))
    for folder in folders:
        for where, inner, names in os.walk(folder, followlinks=True):
            inner.sort()
            yield from (os.path.join(where, name) for name in sorted(names) if name.endswith(".py"))


def _compiler() -> Iterator[Path]:
    """Yield the files with the versions of numba and llvmlite (importlib.metadata needs 20 ms to read them)."""
    for name in ("numba", "llvmlite"):
        spec = importlib.util.find_spec(name)
        for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
            yield Path(folder) / "_version.py"


@cache
def _key(modules: tuple[str, ...], boundscheck: str) -> str:
    digest = hashlib.blake2b(digest_size=12)
    for path in _sources(modules):
        status = os.stat(path)
        digest.update(f"{path} {status.st_size} {status.st_mtime_ns}\0".encode())
    for version in _compiler():
        digest.update(version.read_bytes() + b"\0")
    digest.update("\0".join((*modules, boundscheck, sys.version, _cpu(), _library_time())).encode())
    return digest.hexdigest()


def _library_time() -> str:
    """Return a text that changes with the library of the package, from which a store takes kernels."""
    try:
        return str(os.stat(os.path.join(library.FOLDER, library.LIBRARY)).st_mtime_ns)
    except OSError:
        return ""


def _cpu() -> str:
    try:
        import llvmlite.binding as llvm
    except ImportError:
        return os.uname().machine
    return f"{llvm.get_host_cpu_name()} {llvm.get_host_cpu_features().flatten()}"


def compile_into(
    folder: Path,
    modules: Sequence[str],
    objects: Path | None,
    options: Sequence[str] = (),
    settings: Mapping[str, str] | None = None,
    verbose: bool = False,
) -> Iterator[str]:
    """Compile the kernels of some modules into a folder, in a child process; yield its lines of progress.

    `objects`: a trusted folder (`kept_objects`). `options`: of `build`. `settings`: numba's, NUMBA_CPU_NAME …
    `verbose`: show what it prints on standard error.
    """
    environment = {k: v for k, v in os.environ.items() if not k.startswith("NUMBA_")}
    environment["OPENBLAS_NUM_THREADS"] = "1"  # the child forks
    root = os.path.dirname(PACKAGE)
    if os.path.basename(root) not in ("site-packages", "dist-packages"):  # a checkout: the child compiles this one
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, (root, environment.get("PYTHONPATH"))))
    command = [sys.executable, "-P", "-m", "kafkatap.kernels.build", *options]  # -P: not from this directory
    command += ["--objects", str(objects)] if objects is not None else []
    with subprocess.Popen(
        [*command, str(folder), *modules],
        env=environment | dict(settings or {}),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=None if verbose else subprocess.DEVNULL,
        text=True,
    ) as child:
        assert child.stdout is not None
        yield from map(str.rstrip, child.stdout)
    if child.returncode:
        raise subprocess.CalledProcessError(child.returncode, command)


#: Folders beside the stores that are kept: objects, and the programs of `kafkatap.dissector.programs`.
_KEPT = (kept_objects.FOLDER, "programs")


def forget_old(folder: Path) -> None:
    """Keep this store and the three newest others, so that upgrades do not fill a home directory."""
    others = [p for p in folder.parent.iterdir() if p.is_dir() and p.name not in (folder.name, *_KEPT)]
    for old in sorted(others, key=lambda p: p.stat().st_mtime, reverse=True)[3:]:
        shutil.rmtree(old, ignore_errors=True)


class _Objects:
    """The objects of a store's folder. Each is checked against its digest and linked when its kernel is loaded."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._index: dict[str, dict[str, Any]] = json.loads((folder / "index.json").read_text())["kernels"]
        self._jit: Any = None

    def link(self, kernel: KernelSource) -> Callable[..., int]:
        """Return a kernel's function. ValueError or LookupError if the folder does not have it as it was written."""
        name, words = kernel.qualified_name, machine_words(kernel.args)
        entry = self._index[name]
        if entry["file"] is None:  # as in the library
            unchanged = library.open_library(even_if_sources_changed=True)
            function = None if unchanged is None else library.function_of(unchanged, name, words)
            if function is None:
                raise LookupError(f"{name} is not in the library of the package")
            return function
        code = (self.folder / entry["file"]).read_bytes()
        if object_digest(code) != entry["digest"]:
            raise ValueError(f"{entry['file']} is not what was written")
        return self._link(name, words, code)

    def _link(self, name: str, words: int, code: bytes) -> Callable[..., int]:
        import llvmlite.binding as llvm

        if self._jit is None:
            llvm.initialize_native_target()
            llvm.initialize_native_asmprinter()
            llvm.load_library_permanently("")
            self._jit = llvm.create_lljit_compiler()
        builder = llvm.JITLibraryBuilder().add_object_img(code)
        tracker = builder.add_current_process().export_symbol(name).link(self._jit, name)
        function = ctypes.CFUNCTYPE(ctypes.c_int64, *([ctypes.c_int64] * words))(tracker[name])
        function.tracker = tracker  # type: ignore[attr-defined]  # keeps the code mapped
        return function


class KernelCache:
    """The kernels of some modules in the user's cache folder."""

    def __init__(self, modules: Sequence[str], note: Note, verbose: bool = False) -> None:
        self.modules = tuple(modules)
        self._note = note
        self._verbose = verbose
        self._objects: _Objects | None = None
        self._usable = True
        self._rebuilt = False

    def key(self) -> str:
        """Return the name of the folder. It changes with the sources, the compiler, the interpreter and the CPU."""
        return _key(self.modules, os.environ.get("KAFKATAP_BOUNDSCHECK", ""))

    def open_folder(self, build: bool = True) -> Path | None:
        """Return the folder, built if it is missing; None if it cannot be built."""
        try:
            root = open_root()
            if not trusted(root):
                self._note(f"{root} is not this user's alone (mode 0700 wanted); compiled kernels are not kept", True)
                return None
            folder = root / self.key()
            if folder.is_dir():
                return folder
            if not build:
                return None
            with open(root / "lock", "w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                if not folder.is_dir():
                    self._build(folder)
            return folder
        except subprocess.CalledProcessError as error:
            if error.returncode != NO_COMPILER:
                self._note(f"the kernels cannot be compiled ahead ({error}); compiling in this process", True)
        except (OSError, subprocess.SubprocessError) as error:
            self._note(f"the kernel store cannot be used ({error}); compiling in this process", False)
        return None

    def _build(self, folder: Path) -> None:
        new = Path(tempfile.mkdtemp(prefix="new-", dir=folder.parent))
        try:
            objects = folder.parent / kept_objects.FOLDER
            options = ["--library", library.FOLDER]
            for line in compile_into(new, self.modules, objects, options, verbose=self._verbose):
                self._note(line, True)
            new.rename(folder)
        except BaseException:
            shutil.rmtree(new, ignore_errors=True)
            raise
        forget_old(folder)

    def link(self, kernel: KernelSource) -> Callable[..., int] | None:
        """Return a kernel's function; None if there is none. A damaged folder is built again, once."""
        while self._usable:
            folder = self._objects.folder if self._objects is not None else self.open_folder()
            if folder is None:
                self._usable = False
                break
            try:
                if self._objects is None:
                    self._objects = _Objects(folder)
                return self._objects.link(kernel)
            except ModuleNotFoundError:  # llvmlite
                self._usable = False
            except (OSError, RuntimeError, LookupError, ValueError, TypeError) as error:
                self._objects = None
                if self._rebuilt:
                    self._note(
                        f"the kernel store in {folder} cannot be loaded ({error}); compiling in this process", True
                    )
                    self._usable = False
                else:
                    self._note(f"the kernel store in {folder} is damaged ({error})", True)
                    self._rebuilt = True
                    shutil.rmtree(folder, ignore_errors=True)
        return None
