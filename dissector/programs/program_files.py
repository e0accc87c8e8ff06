"""Programs in files: one array of int32, read at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .program import DENSE, Programs

if TYPE_CHECKING:
    from ..layouts.overlay import Definitions

#: A file has these two, the lengths of the five parts, and the parts. The last are names, as JSON.
_FORM = (0x6B746170, 4)
_PARTS = 5
_HEAD = len(_FORM) + _PARTS


def programs_as_bytes(programs: Programs) -> bytes:
    """The content of a file."""
    import json

    names = np.frombuffer(json.dumps(programs.names).encode() if programs.names else b"", np.uint8)
    parts = (programs.code, programs.index, programs.others, programs.roles.astype(np.int32), names.astype(np.int32))
    return np.concatenate([np.array([*_FORM, *map(len, parts)], np.int32), *parts]).tobytes()


def read_programs(path: str, profile: str, definitions: Definitions | None = None) -> Programs | None:
    """The programs of a file, or None if there is no such file or it is damaged."""
    try:
        whole = np.fromfile(path, np.int32)
        form, sizes = tuple(whole[: len(_FORM)].tolist()), whole[len(_FORM) : _HEAD].tolist()
        if form != _FORM or len(sizes) < _PARTS or min(sizes) < 0 or len(whole) != _HEAD + sum(sizes):
            return None
        code, index, others, roles, names, _ = np.split(whole[_HEAD:], np.cumsum(sizes))
        if len(index) != DENSE + len(others):
            return None
        known: dict[int, str] = {}
        if len(names):
            import json  # few files have names

            known = {int(key): str(value) for key, value in json.loads(names.astype(np.uint8).tobytes()).items()}
    except (OSError, ValueError, AttributeError):
        return None
    return Programs(
        code, index, roles.astype(np.uint8), profile=profile, definitions=definitions, names=known, others=others
    )
