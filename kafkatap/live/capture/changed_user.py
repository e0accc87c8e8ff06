"""Another user for the rest of a capture that root began (Linux): only opening the sockets needs root.

As with tcpdump's -Z, the process cannot become root again. It keeps the capabilities that it has, so drop them later.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from .capabilities import SETGID, SETUID, Identity, grants, held, use_all

#: Whom root becomes without `sudo`: a user who owns nothing.
NOBODY = "nobody"
_ROOT = "root"
#: <linux/prctl.h>
_SET_KEEPCAPS = 8


def user_named(name: str) -> Identity:
    """The user of a name or number. ValueError if there is none."""
    import pwd  # imported late: only root needs it

    try:
        found = pwd.getpwuid(int(name)) if name.isdecimal() else pwd.getpwnam(name)
    except KeyError:
        raise ValueError(f"--user {name}: there is no such user") from None
    return Identity(found.pw_name, found.pw_uid, found.pw_gid, tuple(os.getgrouplist(found.pw_name, found.pw_gid)))


def next_user(asked: str | None, written: Iterable[Path], read: Iterable[Path]) -> Identity | None:
    """Whom to become; None: nobody else.

    `asked`: a name. Without one, root becomes the user who called sudo, or else nobody, if that user may create files
    in the folders `written` and read the files `read`, which have to be there. ValueError if the user of that name may
    not, or if this process cannot change its user.
    """
    can_change = sys.platform == "linux" and os.geteuid() == 0 and {SETUID, SETGID} <= held()
    if asked is None:
        if not can_change:
            return None
        with suppress(ValueError):  # as in a container without users
            caller = os.environ.get("SUDO_UID", "0")
            user = user_named(NOBODY if caller == "0" else caller)
            files = list(read)
            return user if all(file.exists() for file in files) and not _refused(user, written, files) else None
        return None
    if asked == _ROOT and os.geteuid() == 0:
        return None
    user = user_named(asked)
    if user.uid == os.geteuid():
        return None
    if not can_change:
        raise ValueError(f"--user {asked}: only root can become another user")
    refused = _refused(user, written, read)
    if refused:
        raise ValueError(f"--user {asked}: {refused}")
    return user


def _refused(user: Identity, written: Iterable[Path], read: Iterable[Path]) -> str:
    """Which of the files a user may not use, and what permits it; "" if there is none."""
    for folder in written:
        places = [folder, *(below for below in folder.glob("*") if below.is_dir())]
        closed = next((place for place in places if not grants(place, 0o3, user)), None)
        if closed is not None:
            return f"{user.name} cannot create files in {closed}: chown -R {user.name} {folder}"
    for file in read:
        if not grants(file, 0o4, user):
            return f"{user.name} cannot read {file}: chown {user.name} {file}"
    return ""


def become(user: Identity) -> None:
    """Change to a user, in all threads, forever. OSError if that is not possible."""
    ctypes.CDLL(None).prctl(_SET_KEEPCAPS, 1, 0, 0, 0)
    os.setgroups(user.groups)
    os.setresgid(user.gid, user.gid, user.gid)
    os.setresuid(user.uid, user.uid, user.uid)
    use_all()  # the change has only left them permitted
