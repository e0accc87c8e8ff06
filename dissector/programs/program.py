"""Programs: the layouts of messages, compiled for the machine.

Each (direction, api_key, version) has one program. All lie in one array of int32, four to an instruction; `machine`
explains them. A program starts behind a request's client_id or a response's correlation_id. So the program of a
flexible message begins with the header's tag section.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from ..layouts.overlay import Definitions
    from ..layouts.schema import MessageLayout
    from .fields import FieldTable

Array = np.ndarray[Any, Any]

#: Bounds of `Programs.index`.
KEYS, VERSIONS = 128, 32


class Programs:
    """The programs of a profile: `code` int32; `index[(direction * KEYS + key) * VERSIONS + version]` int32, the first
    instruction, or -1 for an unknown message; `roles` uint8 by field id (`roles.ROLE_NAMES`). `names`: names of APIs
    that only `definitions` have."""

    def __init__(
        self,
        code: Array,
        index: Array,
        roles: Array,
        profile: str,
        table: FieldTable | None = None,
        definitions: Definitions | None = None,
        names: Mapping[int, str] | None = None,
    ) -> None:
        self.code = code
        self.index = index
        self.roles = roles
        self.profile = profile
        self.table = table
        self.definitions = definitions
        self.names = names or {}

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
        """What the field ids mean. Programs from the cache parse the layouts only for this."""
        if self.table is not None:
            return self.table
        from .fields import number_fields

        return number_fields(layouts_of(self.definitions))

    def only_for(self, api_keys: frozenset[int], others: Programs) -> Programs:
        """These programs for some APIs, and those of another profile for all other APIs."""
        of_others = np.ones((2, KEYS, VERSIONS), bool)
        of_others[:, [key for key in api_keys if 0 <= key < KEYS]] = False
        known = of_others.reshape(-1) & (others.index >= 0)
        index = np.where(known, others.index + len(self.code), self.index).astype(np.int32)
        code = np.concatenate((self.code, others.code))
        return Programs(code, index, self.roles, self.profile, self.table, self.definitions, self.names)

    def short_heads(self) -> Array:
        """Whether a program decodes only a header and some small fields behind it: bool by place in `index`."""
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
        """The place in `index` of the program that starts at an instruction, -1 elsewhere: int32 by instruction."""
        slots = np.full(len(self.code) + 1, -1, np.int32)  # one more: so that program -1 finds -1
        used = np.flatnonzero(self.index >= 0)
        slots[self.index[used]] = used
        return slots

    def versions(self, programs: Array) -> Array:
        """The version (int32) that each of these programs (int32) decodes; -1 for program -1."""
        slots = self._slots[programs]
        return np.where(slots >= 0, slots % VERSIONS, np.int32(-1))

    def same_as(self, other: Programs, programs: Array) -> Array:
        """The programs (int32) of this profile for the messages of `other`'s `programs`; -1 stays -1."""
        slots = other._slots[programs]
        return np.where(slots >= 0, self.index[slots], np.int32(-1))

    def by_program_of(self, other: Programs) -> Array:
        """`same_as` for all programs of `other`: int32 by instruction, and -1 at the end for program -1."""
        found = np.full(len(other.code) + 1, -1, np.int32)
        used = np.flatnonzero(other.index >= 0)
        found[other.index[used]] = self.index[used]
        return found


def layouts_of(definitions: Definitions | None) -> Mapping[tuple[int, int], MessageLayout]:
    """All layouts by (api_key, direction): the built-in ones, with `definitions` laid over them."""
    if definitions is not None:
        return definitions.messages
    from ..layouts.catalog import load_messages

    return load_messages()
