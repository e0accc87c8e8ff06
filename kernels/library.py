"""The kernels that were compiled with the package: a shared library beside this module, for the system's loader.

`compiled/` has the library, the list of the sources that it was compiled from, and the digests of the kernels
(`make_library` writes it all). A kernel's symbol is its qualified name.

This module is imported at every start: it imports nothing that costs time.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable

from .platforms import here
from .source_list import sources_fit

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "compiled")
#: In FOLDER: the library, the list of its sources, the kernels' digests, and instead of them the reason why they lack.
LIBRARY, SOURCES, DIGESTS, REASON = "kernels.so", "sources.txt", "kernels.json", "none.txt"
#: A function in the library, which every processor can run: whether this one is one that the library is for, as an int.
CHECK = "has_processor"


class KernelsMissingError(Exception):
    """There is no compiled kernel, and nothing to compile it with; says why."""


class _Opened:
    """The library that was opened, once asked for, or why there is none."""

    asked = False
    library: ctypes.CDLL | None = None
    why = ""


_opened = _Opened()


def open_library(even_if_sources_changed: bool = False) -> ctypes.CDLL | None:
    """Return the library; None if there is none for this processor, or if a source of a kernel has changed."""
    if not _opened.asked:
        _opened.asked = True
        _open()
    return _opened.library if even_if_sources_changed or not _opened.why else None


def reason() -> str:
    """Return why `open_library` found none, to complete "the compiled kernels cannot be used: ..."."""
    return _opened.why


def _open() -> None:
    path = os.path.join(FOLDER, LIBRARY)
    if os.environ.get("KAFKATAP_BOUNDSCHECK"):
        _opened.why = "KAFKATAP_BOUNDSCHECK is set"
    elif not os.path.exists(path):
        _opened.why = _why_none()
    else:
        try:
            if not _is_whole(path):
                raise OSError(f"{path} is damaged")
            library = ctypes.CDLL(path)
            if not library[CHECK]():
                _opened.why = f"they need a processor of the level {processor()}"
                return
        except (OSError, AttributeError) as error:
            _opened.why = str(error)
            return
        _opened.library = library
        if not sources_fit(os.path.join(FOLDER, SOURCES)):
            _opened.why = "some have changed since they were compiled"


def processor() -> str:
    """Return LLVM's name of the processors that a library of this platform is for."""
    found = here()
    return "" if found is None else found.processor


def _is_whole(path: str) -> bool:
    """Return whether a library of Linux reaches to the end of its last part, the table of sections. The loader does not
    look; that of macOS does."""
    with open(path, "rb") as file:
        header = file.read(64)
    if not header.startswith(b"\x7fELF"):
        return len(header) == 64
    offset, size, count = (int.from_bytes(header[at:end], "little") for at, end in ((40, 48), (58, 60), (60, 62)))
    return len(header) == 64 and os.path.getsize(path) >= offset + size * count > 64


def _why_none() -> str:
    try:
        with open(os.path.join(FOLDER, REASON), encoding="utf-8") as file:
            return file.read().strip()
    except OSError:
        return "they were not compiled when the package was built"


def function_of(library: ctypes.CDLL, name: str, words: int) -> Callable[..., int] | None:
    """Return the function of a kernel with that many 64-bit arguments, or None if the library does not have it."""
    try:
        function = library[name]
    except AttributeError:
        return None
    function.restype = ctypes.c_int64
    function.argtypes = [ctypes.c_int64] * words
    return function
