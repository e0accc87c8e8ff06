"""The kernel store: kernels compiled once, kept as object code, and loaded in later runs without importing numba.

`use(modules)` names the modules whose kernels belong together. The store is a folder whose name is a hash of the
sources that those kernels can reach, of the versions of numba, llvmlite and Python, and of the CPU. If the folder is
missing, a child process builds it, and says so on standard error. If it cannot be built, written or trusted, `load`
returns None, and kernels are compiled by numba in this process.

A damaged folder is built again. A copy of the package may bring compiled kernels along (`ship`). If those are of the
same sources and this CPU can run them, the store uses them and no folder of the user.

Trust: the folder holds native code. Its parent must belong to the effective user and be closed to others (0700), or the
store does not use it. Files are written to a new folder, which is then renamed into place, under a lock.
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
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from . import kept_objects
from .declarations import ArgType, KernelSource, is_array_tuple, kernel_mode, single_args, tuple_args
from .kept_objects import object_digest

#: Functions of numba's run-time that object code refers to but never calls: kernels raise and allocate nothing.
_NEVER_CALLED = (
    "NRT_Free",
    "NRT_MemInfo_call_dtor",
    "NRT_MemInfo_alloc_safe_aligned",
    "numba_unpickle",
    "numba_runtime_build_excinfo_struct",
    "numba_gil_ensure",
    "numba_gil_release",
    "numba_do_raise",
)

#: Functions for reference counts. The arrays of kernels own nothing, so any harmless function can replace these.
_NOTHING_TO_DO = ("NRT_incref", "NRT_decref")

_modules: tuple[str, ...] = ()
_lock = threading.Lock()
_objects: _Objects | None = None
_usable = True
_rebuilt = False
#: Whether to print why the store is not used.
verbose = False


def use(modules: Sequence[str]) -> None:
    """Set the modules whose kernels are built and kept together. Call it before the first kernel."""
    global _modules
    _modules = tuple(modules)


def prepare() -> None:
    """Build the store now if it is missing, rather than at the first call of a kernel."""
    if kernel_mode() == "store":
        open_folder()


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


def _sources(modules: Sequence[str]) -> list[Path]:
    """Return all Python files in the folders of the kernels' modules and of this package: what a kernel can reach."""
    folders = {Path(__file__).parent}
    for name in modules:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.origin is not None:
            folders.add(Path(spec.origin).parent)
    return sorted(path for folder in folders for path in folder.glob("*.py"))


def _compiler() -> Iterator[Path]:
    """Yield the files with the versions of numba and llvmlite (importlib.metadata needs 20 ms to read them)."""
    for name in ("numba", "llvmlite"):
        spec = importlib.util.find_spec(name)
        for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
            yield Path(folder) / "_version.py"


def key() -> str:
    """Return the name of this store. It changes with the sources, the compiler, the interpreter and the CPU."""
    return _key(_modules, os.environ.get("KAFKATAP_BOUNDSCHECK", ""))


@cache
def _key(modules: tuple[str, ...], boundscheck: str) -> str:
    return _digest((*_sources(modules), *_compiler()), (*modules, boundscheck, sys.version, _cpu()))


def _digest(files: Sequence[Path], words: Sequence[str]) -> str:
    digest = hashlib.blake2b(digest_size=12)
    for path in files:
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    digest.update("\0".join(words).encode())
    return digest.hexdigest()


#: The folder of the kernels that came with a copy of the package.
SHIPPED = Path(__file__).parent / "compiled"


def made_for(modules: Sequence[str], features: Sequence[str]) -> dict[str, Any]:
    """Return what shipped kernels need: these sources, this kind of machine, a CPU with these features."""
    return {"sources": _digest(_sources(modules), modules), "machine": os.uname().machine, "features": list(features)}


def shipped() -> Path | None:
    """Return the folder of the kernels that came with this copy of the package, or None if they do not fit."""
    return SHIPPED if (SHIPPED / "made-for.json").exists() and _shipped_fit(_modules) else None


@cache
def _shipped_fit(modules: tuple[str, ...]) -> bool:
    import llvmlite.binding as llvm

    try:
        noted = json.loads((SHIPPED / "made-for.json").read_text())
        features = noted["features"]
        here = llvm.get_host_cpu_features()
        fit = noted == made_for(modules, features) and all(here.get(name) for name in features)
    except (OSError, ValueError, LookupError, TypeError):
        fit = False
    if not fit:
        _note("the compiled kernels that came with this copy are of other sources, or for another CPU")
    return fit


def _cpu() -> str:
    import llvmlite.binding as llvm

    return f"{llvm.get_host_cpu_name()} {llvm.get_host_cpu_features().flatten()}"


def trusted(folder: Path) -> bool:
    """Return whether a folder belongs to the effective user and is closed to everybody else."""
    status = folder.lstat()
    return status.st_uid == os.geteuid() and status.st_mode & 0o077 == 0 and not folder.is_symlink()


def _note(text: str, always: bool = False) -> None:
    if always or verbose:
        print(f"kafkatap: {text}", file=sys.stderr, flush=True)


def open_folder(build: bool = True) -> Path | None:
    """Return the store's folder, built if it is missing; None if it cannot be built."""
    try:
        came_with_it = shipped()
        if came_with_it is not None:
            return came_with_it
        return _kept(key(), _modules, {}, build)
    except subprocess.SubprocessError as error:
        _note(f"the kernels cannot be compiled ahead ({error}); compiling in this process", always=True)
    except OSError as error:
        _note(f"the kernel store cannot be used ({error}); compiling in this process")
    return None


def built(modules: Sequence[str], **settings: str) -> Path | None:
    """Return a folder of kernels compiled with numba's `settings`, kept beside the store; None if none can be kept."""
    words = (*modules, sys.version, os.uname().machine, *(f"{name}={value}" for name, value in settings.items()))
    return _kept(_digest((*_sources(modules), *_compiler()), words), modules, settings)


def _kept(name: str, modules: Sequence[str], settings: dict[str, str], build: bool = True) -> Path | None:
    root = open_root()
    if not trusted(root):
        _note(f"{root} is not this user's alone (mode 0700 wanted); compiled kernels are not kept", always=True)
        return None
    folder = root / name
    if folder.is_dir():
        return folder
    if not build:
        return None
    with open(root / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            _build(folder, modules, settings)
    return folder


def _build(folder: Path, modules: Sequence[str], settings: dict[str, str]) -> None:
    new = Path(tempfile.mkdtemp(prefix="new-", dir=folder.parent))
    try:
        for line in compile_into(new, modules, folder.parent / kept_objects.FOLDER, **settings):
            if not settings:
                _note(line, always=True)
        new.rename(folder)
    except BaseException:
        shutil.rmtree(new, ignore_errors=True)
        raise
    _forget_old(folder)


def compile_into(folder: Path, modules: Sequence[str], objects: Path | None = None, **settings: str) -> Iterator[str]:
    """Compile the kernels of some modules into a folder, in a child process; yield its lines of progress.

    `objects`: a trusted folder of objects (`kept_objects`). `settings`: numba's, NUMBA_CPU_NAME …
    """
    environment = {k: v for k, v in os.environ.items() if not k.startswith("NUMBA_")}
    environment["OPENBLAS_NUM_THREADS"] = "1"  # the child forks
    root = str(Path(__file__).absolute().parents[2])
    if Path(root).name not in ("site-packages", "dist-packages"):  # a checkout: the child compiles this one
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, (root, environment.get("PYTHONPATH"))))
    # -P: not from this directory
    command = [sys.executable, "-P", "-m", "kafkatap.kernels.build", str(folder), str(objects or ""), *modules]
    with subprocess.Popen(
        command,
        env=environment | settings,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=None if verbose else subprocess.DEVNULL,
        text=True,
    ) as child:
        assert child.stdout is not None
        yield from map(str.rstrip, child.stdout)
    if child.returncode:
        raise subprocess.CalledProcessError(child.returncode, command[:5])


def _forget_old(folder: Path) -> None:
    """Keep this store and the three newest others, so that upgrades do not fill a home directory."""
    kept = (folder.name, kept_objects.FOLDER)
    others = [p for p in folder.parent.iterdir() if p.is_dir() and p.name not in kept]
    for old in sorted(others, key=lambda p: p.stat().st_mtime, reverse=True)[3:]:
        shutil.rmtree(old, ignore_errors=True)


class _Objects:
    """The objects of a store's folder. Each is checked against its digest and linked when its kernel is loaded."""

    def __init__(self, folder: Path) -> None:
        import llvmlite.binding as llvm

        self.folder = folder
        self._index: dict[str, dict[str, Any]] = json.loads((folder / "index.json").read_text())
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        llvm.load_library_permanently("")
        self._jit = llvm.create_lljit_compiler()
        libc = ctypes.CDLL(None)
        self._imports = dict.fromkeys(_NEVER_CALLED, ctypes.cast(libc.abort, ctypes.c_void_p).value)
        self._imports |= dict.fromkeys(_NOTHING_TO_DO, ctypes.cast(libc.labs, ctypes.c_void_p).value)

    def link(self, name: str) -> Callable[..., int]:
        """Return the C function of a kernel. Raises ValueError if its object has changed since it was written."""
        import llvmlite.binding as llvm

        entry = self._index[name]
        code = (self.folder / entry["file"]).read_bytes()
        if object_digest(code) != entry["digest"]:
            raise ValueError(f"{entry['file']} is not what was written")
        builder = llvm.JITLibraryBuilder().add_object_img(code)
        for symbol, address in self._imports.items():
            builder.import_symbol(symbol, address)
        tracker = builder.add_current_process().export_symbol(entry["symbol"]).link(self._jit, name)
        prototype = ctypes.CFUNCTYPE(ctypes.c_int64, *([ctypes.c_int64] * entry["arguments"]))
        function = prototype(tracker[entry["symbol"]])
        function.tracker = tracker  # type: ignore[attr-defined]  # keeps the code mapped
        return function


def load(kernel: KernelSource) -> Callable[..., int] | None:
    """Return the function that runs this kernel from the store, or None if the store does not have it."""
    if kernel.__module__ not in _modules:
        return None
    with _lock:
        function = _linked(kernel.qualified_name)
    return None if function is None else _caller(kernel, function)


def _linked(name: str) -> Callable[..., int] | None:
    """Return a kernel's function. A damaged store is built again, once."""
    global _objects, _usable
    while _usable:
        folder = _objects.folder if _objects is not None else open_folder()
        if folder is None:
            _usable = False
            break
        try:
            if _objects is None:
                _objects = _Objects(folder)
            return _objects.link(name)
        except (OSError, RuntimeError, LookupError, ValueError, TypeError) as error:
            global _rebuilt
            _objects = None
            if _rebuilt:
                _note(
                    f"the kernel store in {folder} cannot be loaded ({error}); compiling in this process", always=True
                )
                _usable = False
            else:
                _note(f"the kernel store in {folder} is damaged ({error})", always=True)
                _rebuilt = True
                shutil.rmtree(folder, ignore_errors=True)
    return None


class _Known(NamedTuple):
    """An array that was passed to a kernel before, and its pointer and length."""

    array: weakref.ref[Any]
    kind: Any
    flat: tuple[int, int]  # pointer, length


#: By id() of the array. numpy needs 1 to 17 µs for a pointer, and each call has dozens of arrays.
_known: dict[int, _Known] = {}


def _pointer(array: Any, kind: Any, name: str) -> tuple[int, int]:
    """Return the pointer and length of an array of dtype `kind`, and keep them for the array's life."""
    if array.dtype != kind or not array.flags.c_contiguous or array.ndim != 1:
        raise TypeError(f"{name}: needs a contiguous 1-D array of {kind}, not {array.dtype}")
    flat = (array.ctypes.data, array.shape[0])
    number = id(array)

    def forget(reference: weakref.ref[Any]) -> None:
        known = _known.get(number)
        if known is not None and known.array is reference:
            del _known[number]

    _known[number] = _Known(weakref.ref(array, forget), kind, flat)
    return flat


def _caller(kernel: KernelSource, function: Callable[..., int]) -> Callable[..., int]:
    """Return a Python function that checks the dtypes of arrays and turns them into (pointer, length) pairs."""
    declared = kernel.args
    name = kernel.__name__
    has_tuples = any(is_array_tuple(arg) for arg in declared)
    kinds = list(single_args(declared))

    def unpacked(args: tuple[Any, ...], declared: tuple[ArgType, ...]) -> Iterator[Any]:
        for value, arg in zip(args, declared, strict=True):
            if not is_array_tuple(arg):
                yield value
            elif isinstance(value, arg):
                yield from unpacked(value, tuple_args(arg))
            else:
                raise TypeError(f"{name}: needs a {arg.__name__}, not a {type(value).__name__}")

    def words(values: Iterable[Any], kinds: Sequence[Any]) -> list[int]:
        flat: list[int] = []
        for value, kind in zip(values, kinds, strict=True):
            if kind is int:
                flat.append(value)
                continue
            known = _known.get(id(value))
            if known is not None and known.array() is value and known.kind is kind:
                flat += known.flat
            else:
                flat += _pointer(value, kind, name)
        return flat

    def run(*args: Any) -> int:
        return function(*words(unpacked(args, declared) if has_tuples else args, kinds))

    def bound(*leading: Any) -> Callable[..., int]:
        first = declared[: len(leading)]
        others, following = declared[len(leading) :], kinds[len(list(single_args(first))) :]
        known_words = words(unpacked(leading, first), kinds[: len(kinds) - len(following)])
        unpacks = any(is_array_tuple(arg) for arg in others)

        def run_bound(*args: Any) -> int:
            return function(*known_words, *words(unpacked(args, others) if unpacks else args, following))

        run_bound.arrays = leading  # type: ignore[attr-defined]  # keeps their memory
        return run_bound

    run.bound = bound  # type: ignore[attr-defined]
    return run
