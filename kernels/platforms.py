"""The platforms for which kernels are compiled ahead, into a library of the system's loader.

A build makes the library of its own machine, or of the platform that KAFKATAP_PLATFORM names: numba compiles for its
own, and LLVM translates what it optimised for the other (`numba_bridge`).

This module is imported at every start: it imports nothing that costs time.
"""

from __future__ import annotations

import os
import sys
from typing import NamedTuple

#: The setting that names a platform to build for.
SETTING = "KAFKATAP_PLATFORM"


class Platform(NamedTuple):
    """`triple`, `processor`: LLVM's names of the machine, and of the oldest processor that the library is for.
    `machines`: what `os.uname` calls it. `tag`: of a wheel. `is_tried`: False if nobody ever ran such a library.
    `has_compiler`: whether numba can be installed there."""

    name: str
    system: str
    machines: tuple[str, ...]
    triple: str
    processor: str
    tag: str
    is_tried: bool = True
    has_compiler: bool = True

    @property
    def is_here(self) -> bool:
        """Whether this process runs on it."""
        return sys.platform == self.system and os.uname().machine in self.machines and sys.maxsize > 2**32


#: The libraries for Linux need neither a C library of their own nor a version of a symbol (`make_library`), so one is
#: for glibc and musl. x86-64-v2: Intel's processors since 2009, AMD's since 2011; the features of newer ones
#: (x86-64-v3, AVX-512) made no report faster by more than 1 %. `generic` of aarch64: Armv8-A.
PLATFORMS = {
    each.name: each
    for each in (
        Platform(
            "linux-x86_64", "linux", ("x86_64",), "x86_64-unknown-linux-gnu", "x86-64-v2",
            "py3-none-manylinux_2_17_x86_64.musllinux_1_1_x86_64",
        ),
        Platform(
            "linux-aarch64", "linux", ("aarch64",), "aarch64-unknown-linux-gnu", "generic",
            "py3-none-manylinux_2_17_aarch64.musllinux_1_1_aarch64",
        ),
        Platform(
            "macos-arm64", "darwin", ("arm64",), "arm64-apple-macosx11.0.0", "apple-m1", "py3-none-macosx_11_0_arm64",
            is_tried=False,
        ),
        Platform(
            "macos-x86_64", "darwin", ("x86_64",), "x86_64-apple-macosx11.0.0", "x86-64-v2",
            "py3-none-macosx_11_0_x86_64", is_tried=False, has_compiler=False,
        ),
    )
}  # fmt: skip


def here() -> Platform | None:
    """The platform that this process runs on, if it is one of them."""
    return next((each for each in PLATFORMS.values() if each.is_here), None)


def compiler() -> Platform | None:
    """The platform that this process runs on, if numba can compile kernels there."""
    platform = here()
    return platform if platform is not None and platform.has_compiler else None


def wanted() -> Platform | None:
    """The platform that the setting names, else `here`. ValueError for one that is unknown."""
    name = os.environ.get(SETTING)
    if not name:
        return here()
    if name not in PLATFORMS:
        raise ValueError(f"{SETTING}={name}: not one of {', '.join(PLATFORMS)}")
    return PLATFORMS[name]
