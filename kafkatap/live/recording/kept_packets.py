"""`live --keep`: the packets of the last minutes on disk, in files of half a minute, over all runs.

They are for `kafkatap collect`, which fetches a span of them from several hosts.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Mapping
from pathlib import Path

from ..governor import HEAD_BYTES
from .kept_names import NAME, PIECE, WITH_SECRETS, WITHOUT_SECRETS
from .recorder import Recorder
from .trimming.packets import PacketTrimmer


def make_folder(path: str) -> None:
    """Make the folder, which only its owner may enter. OSError if that is not possible, ValueError if others may enter
    it."""
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        found = os.lstat(path)
        if not stat.S_ISDIR(found.st_mode):
            raise NotADirectoryError(errno.ENOTDIR, "this is no folder", path) from None
        if found.st_mode & 0o077:
            raise ValueError(
                f"{path}: others may enter this folder; chmod 700 {path}, or name another one with --keep-dir"
            ) from None


def keeper(
    folder: str,
    age: int,
    limit: int,
    *,
    only_headers: bool,
    with_secrets: bool,
    size: int,
    links: Mapping[int, str],
    counters: Callable[[], tuple[int, int]],
    notify: Callable[[str], None],
) -> Recorder:
    """A recorder of the packets of the last `age` ns in at most `limit` bytes. `only_headers`: HEAD_BYTES of payload of
    each packet. `size`, `links`, `counters`, `notify`, and errors: as of `Recorder`."""
    trimmer = None
    if only_headers or not with_secrets:
        trimmer = PacketTrimmer(HEAD_BYTES if only_headers else None, blanks=not with_secrets)
    return Recorder(
        Path(folder) / NAME, size=size, limit=limit, age=age, links=links, counters=counters, notify=notify,
        rotate=min(PIECE, age), comment=WITH_SECRETS if with_secrets else WITHOUT_SECRETS, trimmer=trimmer,
    )  # fmt: skip
