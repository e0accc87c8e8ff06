"""The cores that this process may use."""

from __future__ import annotations

import os
from contextlib import suppress

#: The quota of a container (cgroup v2): microseconds of processor time, and the period in which it may use them.
_QUOTA = "/sys/fs/cgroup/cpu.max"
#: The same in two files (cgroup v1).
_QUOTA_1, _PERIOD_1 = "/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "/sys/fs/cgroup/cpu/cpu.cfs_period_us"


def usable_cores() -> int:
    """The cores that this process may run on, or fewer if its container has a quota of processor time. At least 1."""
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity is not None else os.cpu_count() or 1
    quota = _quota()
    return cores if quota is None else max(1, min(cores, round(quota)))


def _quota() -> float | None:
    """The cores' worth of time that the container may use; None without a limit."""
    with suppress(OSError, ValueError):
        quota, period = _text(_QUOTA).split()
        return None if quota == "max" else int(quota) / int(period)
    with suppress(OSError, ValueError):
        quota_us = int(_text(_QUOTA_1))
        return quota_us / int(_text(_PERIOD_1)) if quota_us > 0 else None
    return None


def _text(path: str) -> str:
    with open(path) as file:
        return file.read()
