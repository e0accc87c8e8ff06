"""Programs: the layouts of messages, compiled to what the machine runs.

Each (direction, api_key, version) has one program; all lie in one array of int32, four to an instruction (`machine`
says what they mean). A program starts after a request's client_id or a response's correlation_id, so that of a flexible
message begins with the header's tag section.

The programs of the named profiles are kept beside the compiled kernels, so that an ordinary start neither reads nor
compiles a layout. Those of a folder of definitions are kept too, by a digest of its content.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kafkatap.kernels import store

from ..layouts.catalog import learn_names
from .roles import (
    R_ACKS,
    R_API_KEY,
    R_BASE_OFFSET,
    R_BROKER_ID,
    R_ENTITY_NAME,
    R_ERROR_CODE,
    R_ERROR_MESSAGE,
    R_GROUP_ID,
    R_HIGH_WATERMARK,
    R_MAX_VERSION,
    R_MAX_WAIT_MS,
    R_MEMBER_ID,
    R_MIN_BYTES,
    R_NONE,
    R_OFFSET_OTHER,
    R_PARTITION,
    R_RECORDS,
    R_RESOURCE_NAME,
    R_SASL_MECHANISM,
    R_SOFTWARE_NAME,
    R_SOFTWARE_VERSION,
    R_THROTTLE_TIME_MS,
    R_TOPIC_ID,
    R_TOPIC_NAME,
    R_TRANSACTIONAL_ID,
)

if TYPE_CHECKING:
    from ..layouts.overlay import Definitions
    from ..layouts.schema import MessageLayout
    from .fields import FieldTable
    from .profiles import Profile

__all__ = [
    "KEYS", "R_ACKS", "R_API_KEY", "R_BASE_OFFSET", "R_BROKER_ID", "R_ENTITY_NAME", "R_ERROR_CODE", "R_ERROR_MESSAGE",
    "R_GROUP_ID", "R_HIGH_WATERMARK", "R_MAX_VERSION", "R_MAX_WAIT_MS", "R_MEMBER_ID", "R_MIN_BYTES", "R_NONE",
    "R_OFFSET_OTHER", "R_PARTITION", "R_RECORDS", "R_RESOURCE_NAME", "R_SASL_MECHANISM", "R_SOFTWARE_NAME",
    "R_SOFTWARE_VERSION", "R_THROTTLE_TIME_MS", "R_TOPIC_ID", "R_TOPIC_NAME", "R_TRANSACTIONAL_ID", "VERSIONS",
    "Programs", "compile_programs", "load_programs",
]  # fmt: skip

Array = np.ndarray[Any, Any]

#: Bounds of `Programs.index`.
KEYS, VERSIONS = 128, 32
#: Folders of definitions whose programs are kept; of the built-in layouts one set is.
FOLDERS_KEPT = 4


@dataclass(frozen=True)
class Programs:
    """`code` int32; `index[(direction * KEYS + key) * VERSIONS + version]` int32: the first instruction, -1 for an
    unknown message; `roles` uint8 by field id (`roles.ROLE_NAMES`). `names`: of APIs that only `definitions` know."""

    code: Array
    index: Array
    roles: Array
    profile: str
    table: FieldTable | None = field(default=None, repr=False)
    definitions: Definitions | None = field(default=None, repr=False)
    names: Mapping[int, str] = field(default_factory=dict)

    def find(self, api_key: int, version: int, direction: int) -> int:
        """The first instruction of a message's program, or -1."""
        if not (0 <= api_key < KEYS and 0 <= version < VERSIONS and direction in (0, 1)):
            return -1
        return int(self.index[(direction * KEYS + api_key) * VERSIONS + version])

    @cached_property
    def known_versions(self) -> dict[int, tuple[int, int]]:
        """The lowest and the highest version of each API's request that has a program, by api_key."""
        known = self.index.reshape(2, KEYS, VERSIONS)[0] >= 0
        keys = np.flatnonzero(known.any(1))
        low, high = known[keys].argmax(1), VERSIONS - 1 - known[keys, ::-1].argmax(1)
        return {k: (a, b) for k, a, b in zip(keys.tolist(), low.tolist(), high.tolist(), strict=True)}

    @cached_property
    def fields(self) -> FieldTable:
        """What the field ids mean. Programs that come from the cache read the layouts only for this."""
        if self.table is not None:
            return self.table
        from .fields import number_fields

        return number_fields(_messages(self.definitions))

    def only_for(self, api_keys: frozenset[int], others: Programs) -> Programs:
        """These programs for some APIs, and those of another profile, for the same messages, for all others."""
        of_others = np.ones((2, KEYS, VERSIONS), bool)
        of_others[:, [key for key in api_keys if 0 <= key < KEYS]] = False
        known = of_others.reshape(-1) & (others.index >= 0)
        index = np.where(known, others.index + len(self.code), self.index).astype(np.int32)
        return replace(self, code=np.concatenate((self.code, others.code)), index=index)

    def short_heads(self) -> Array:
        """bool by place in `index`: whether a program reads no more than a header and some small fields behind it."""
        return np.array([pc >= 0 and self._is_short(pc) for pc in self.index.tolist()], bool)

    def _is_short(self, pc: int) -> bool:
        from . import machine as m

        large = (m.OP_BYTES_32, m.OP_BYTES_C, m.OP_ARRAY_32, m.OP_ARRAY_C, m.OP_FIXED_32, m.OP_FIXED_C)
        while (op := int(self.code[pc]) & 255) != m.OP_END:
            if op in large:
                return False
            pc += 4
        return bool(self.code[pc + 2] & m.OPEN)

    @cached_property
    def _slots(self) -> Array:
        """int32 by instruction: the place in `index` of the program that starts there, -1 elsewhere."""
        slots = np.full(len(self.code) + 1, -1, np.int32)  # one more: so that program -1 finds -1
        used = np.flatnonzero(self.index >= 0)
        slots[self.index[used]] = used
        return slots

    def versions(self, programs: Array) -> Array:
        """The version (int32) whose layout each of these programs (int32) reads; -1 for program -1."""
        slots = self._slots[programs]
        return np.where(slots >= 0, slots % VERSIONS, np.int32(-1))

    def same_as(self, other: Programs, programs: Array) -> Array:
        """This profile's programs (int32) for the messages of `other`'s `programs`; -1 stays -1."""
        slots = other._slots[programs]
        return np.where(slots >= 0, self.index[slots], np.int32(-1))

    def by_program_of(self, other: Programs) -> Array:
        """`same_as` for all of them: int32 by instruction of `other`, the last (so -1's) -1."""
        return self.same_as(other, np.append(np.arange(len(other.code)), -1))


def compile_programs(messages: Mapping[tuple[int, int], MessageLayout], profile: Profile) -> Programs:
    """Compile every version of every message for a profile."""
    from .compiler import compile_messages  # here: programs that come from the cache need no compiler

    return compile_messages(messages, profile)


def load_programs(name: str, definitions: Definitions | None = None) -> Programs:
    """The programs of a named profile ("summary", "results", "everything", "nothing") for the package's own layouts,
    and what `definitions` lay over them; the names of their new APIs are learned. DefinitionError where one of them
    cannot be compiled."""
    if definitions is None:
        return _load(name, None)
    found = definitions.programs.get(name)
    if found is None:
        from ..layouts.definitions import DefinitionError

        try:
            found = definitions.programs[name] = _load(name, definitions)
        except DefinitionError:
            raise
        except ValueError as error:
            raise DefinitionError(f"{definitions.folder}: {error}") from error
    learn_names(found.names)
    return found


def _load(name: str, definitions: Definitions | None) -> Programs:
    folder = store.open_folder(build=False)
    path = None
    if folder is not None:
        stem = f"programs-{name}" if definitions is None else f"definitions-{name}-{definitions.digest}"
        path = folder / f"{stem}-{_sources()}.npy"
    kept = None if path is None else _read(path, name, definitions)
    if kept is not None:
        return kept
    from .profiles import PROFILES

    compiled = compile_programs(_messages(definitions), PROFILES[name])
    programs = replace(compiled, definitions=definitions, names={} if definitions is None else definitions.names)
    if path is not None:
        _write(path, programs)
    return programs


def _messages(definitions: Definitions | None) -> Mapping[tuple[int, int], MessageLayout]:
    if definitions is not None:
        return definitions.messages
    from ..layouts.catalog import load_messages

    return load_messages()


def _sources() -> str:
    """Changes with the layouts and with this package's own sources (sizes and times of the files)."""
    here = Path(__file__).parent
    layouts, messages = here.parent / "layouts", here.parent / "messages"
    digest = hashlib.blake2b(digest_size=8)
    for folder, suffix in ((here, ".py"), (layouts, ".py"), (messages, ".kmsg")):
        with os.scandir(folder) as entries:
            for entry in sorted((e for e in entries if e.name.endswith(suffix)), key=lambda e: e.name):
                status = entry.stat()
                digest.update(f"{entry.name} {status.st_size} {status.st_mtime_ns}\0".encode())
    return digest.hexdigest()


#: The kept form is one int32 array: these two, the lengths of the four parts, the parts. The last are names, as JSON.
_FORM = (0x6B746170, 2)


def _write(path: Path, programs: Programs) -> None:
    """Keep programs: written whole under another name, then renamed. A folder that cannot be written is left alone."""
    names = np.frombuffer(json.dumps(programs.names).encode(), np.uint8)
    parts = (programs.code, programs.index, programs.roles.astype(np.int32), names.astype(np.int32))
    whole = np.concatenate([np.array([*_FORM, *map(len, parts)], np.int32), *parts])
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix="programs-new-")
        try:
            with open(handle, "wb") as file:
                np.save(file, whole)
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise
        ours, kept = ("programs", 1) if programs.definitions is None else ("definitions", FOLDERS_KEPT)
        others = path.parent.glob(f"{ours}-{programs.profile}-*.npy")
        newest = sorted((p for p in others if p != path), key=lambda p: p.stat().st_mtime_ns, reverse=True)
        for old in newest[kept - 1 :]:
            old.unlink(missing_ok=True)
    except OSError:
        return


def _read(path: Path, name: str, definitions: Definitions | None) -> Programs | None:
    """Programs kept before, or None where there are none or they are damaged."""
    try:
        whole = np.load(path, allow_pickle=False)
        if whole.dtype != np.int32 or whole.ndim != 1 or len(whole) < 6 or tuple(whole[:2].tolist()) != _FORM:
            return None
        sizes = whole[2:6]
        if (sizes < 0).any() or sizes[1] != 2 * KEYS * VERSIONS or len(whole) != 6 + int(sizes.sum()):
            return None
        code, index, roles, names = np.split(whole[6:], np.cumsum(sizes[:3]))
        known = {int(key): str(value) for key, value in json.loads(names.astype(np.uint8).tobytes()).items()}
    except (OSError, ValueError, EOFError, AttributeError):
        return None
    return Programs(
        code.copy(), index.copy(), roles.astype(np.uint8), profile=name, definitions=definitions, names=known
    )
