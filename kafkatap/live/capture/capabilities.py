"""The capabilities of this process (Linux): which it has, and dropping those that it does not need.

Capabilities belong to threads. Drop them while there is one thread: threads that it starts have no more than it. A
process cannot regain dropped capabilities, not even by starting another program. On other systems nothing happens.
"""

from __future__ import annotations

import ctypes
import os
import stat
import sys
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import NamedTuple

#: <linux/capability.h>
DAC_OVERRIDE, DAC_READ_SEARCH, SETGID, SETUID, SETPCAP, NET_BIND_SERVICE, NET_RAW = 1, 2, 6, 7, 8, 10, 13
#: What opening sockets, folders and kernels may need before the first packet, and dropping users and capabilities.
TO_OPEN = frozenset((NET_RAW, DAC_OVERRIDE, DAC_READ_SEARCH, SETPCAP, SETUID, SETGID))
_VERSION_3 = 0x20080522
#: <linux/prctl.h>
_CAPBSET_READ, _CAPBSET_DROP, _SET_NO_NEW_PRIVS, _CAP_AMBIENT, _AMBIENT_CLEAR_ALL = 23, 24, 38, 47, 4
_Sets = list[int]  # effective, permitted and inheritable capabilities, as bits


class Identity(NamedTuple):
    """A user with the groups that count for the modes of files."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]


def own_identity() -> Identity:
    """The user of this process."""
    return Identity("", os.geteuid(), os.getegid(), tuple(os.getgroups()))


def held() -> frozenset[int]:
    """The capabilities that this thread may use."""
    sets = _get()
    return _numbers(sets[1]) if sets else frozenset()


def keep_only(kept: Collection[int]) -> None:
    """Drop all capabilities of this thread but these, permanently."""
    sets = _get()
    if sets is None:
        return
    prctl = ctypes.CDLL(None).prctl
    number = 0
    while prctl(_CAPBSET_READ, number, 0, 0, 0) >= 0:  # up to the last one that this kernel has
        if number not in kept:
            prctl(_CAPBSET_DROP, number, 0, 0, 0)  # without CAP_SETPCAP it stays, but the steps below make it unusable
        number += 1
    prctl(_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    prctl(_CAP_AMBIENT, _AMBIENT_CLEAR_ALL, 0, 0, 0)
    allowed = sets[1] & sum(1 << number for number in kept)
    _set([allowed, allowed, 0])


def use_all() -> None:
    """Let this thread use all capabilities that are permitted to it."""
    sets = _get()
    if sets is not None:
        _set([sets[1], sets[1], sets[2]])


def to_write(folders: Iterable[Path]) -> set[int]:
    """The capability that this user needs to create files in folders, if any: root often needs one."""
    return {DAC_OVERRIDE} if any(not grants(folder, 0o3) for folder in folders) else set()


def to_read(places: Iterable[Path]) -> set[int]:
    """The capability that this user needs to read the files in folders, if any."""
    return {DAC_READ_SEARCH} if any(not grants(place, 0o5) for place in places) else set()


def to_read_again(files: Iterable[Path]) -> set[int]:
    """The capability that this user needs to read files, which may be replaced meanwhile, if any. Nobody knows the
    modes of those that come later."""
    return {DAC_READ_SEARCH} if any(not file.exists() or not grants(file, 0o4) for file in files) else set()


def installation() -> list[Path]:
    """The folders of this Python and its packages, from which modules are imported later."""
    return [Path(place) for place in {sys.prefix, sys.base_prefix, os.path.dirname(os.__file__), *sys.path} if place]


def grants(place: Path, rights: int, user: Identity | None = None) -> bool:
    """Whether the modes of a folder and of those above it grant a user (None: this one) some rights (bits as for
    others). A missing folder counts as the one in which it would be created."""
    user = user or own_identity()
    place = next((each for each in (place.absolute(), *place.absolute().parents) if each.exists()), place)
    wanted = [(place, rights), *((parent, 0o1) for parent in place.resolve().parents)]
    try:
        return all(_mode(folder, user) & bits == bits for folder, bits in wanted)
    except OSError:
        return False


def _mode(folder: Path, user: Identity) -> int:
    """The rights that a folder's mode grants to a user: three bits."""
    found = os.stat(folder)
    mode = stat.S_IMODE(found.st_mode)
    if found.st_uid == user.uid:
        return mode >> 6 & 7
    return mode >> 3 & 7 if found.st_gid in (user.gid, *user.groups) else mode & 7


def _numbers(bits: int) -> frozenset[int]:
    return frozenset(number for number in range(bits.bit_length()) if bits >> number & 1)


def _get() -> _Sets | None:
    if sys.platform != "linux":
        return None
    header, data = (ctypes.c_uint32 * 2)(_VERSION_3, 0), (ctypes.c_uint32 * 6)()
    if ctypes.CDLL(None, use_errno=True).capget(header, data):
        return None
    return [data[place] | data[place + 3] << 32 for place in range(3)]


def _set(sets: _Sets) -> None:
    header, data = (ctypes.c_uint32 * 2)(_VERSION_3, 0), (ctypes.c_uint32 * 6)()
    for place, bits in enumerate(sets):
        data[place], data[place + 3] = bits & 0xFFFFFFFF, bits >> 32
    if ctypes.CDLL(None, use_errno=True).capset(header, data):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), "capabilities")
