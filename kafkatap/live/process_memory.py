"""Memory of a process that runs for months."""

from __future__ import annotations

import ctypes
import os
import sys

#: glibc's numbers of what mallopt sets.
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
_LARGE = 1 << 20


def keep_flat() -> None:
    """Have large arrays give their memory back when they go. glibc raises the size from which it does so with the
    largest array that it has seen; then what lies behind a small one stays, and a process of 120 MiB holds 600."""
    if sys.platform != "linux":
        return
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # another C library
        return
    for name, value in ((_MMAP_THRESHOLD, _LARGE), (_TRIM_THRESHOLD, 2 * _LARGE), (_ARENA_MAX, 2)):
        mallopt(name, value)


def resident() -> int:
    """Bytes of memory that this process holds; 0 where the system does not say."""
    try:
        with open("/proc/self/statm", encoding="ascii") as told:
            return int(told.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0
