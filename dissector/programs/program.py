"""Programs: the layouts of messages, compiled for the machine.

Each (direction, api_key, version) has one program. All lie in one array of int32, four to an instruction; `machine`
explains them. A program starts behind a request's client_id or a response's correlation_id. So the program of a
flexible message begins with the header's tag section.

An index says where a program starts. Kafka's own keys and versions have a place in it by arithmetic. All others, up to
32767, follow in a sorted list.
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

#: Messages with smaller keys and versions have a place in the index by arithmetic. DENSE: how many places those are.
KEYS, VERSIONS = 128, 32
DENSE = 2 * KEYS * VERSIONS
#: The largest api_key and version: both are int16 on the wire.
LARGEST = 32_767


def pack_message(direction: int, api_key: int, version: int) -> int:
    """A message as one number (31 bits), for `Programs.others`."""
    return direction << 30 | api_key << 15 | version


class Programs:
    """The programs of a profile: `code` int32; `index` int32, the first instruction by place, or -1 for an unknown
    message; `roles` uint8 by field id (`roles.ROLE_NAMES`). `names`: names of APIs that only `definitions` have.

    The place of a message is (direction * KEYS + key) * VERSIONS + version. Messages beyond KEYS and VERSIONS have the
    places from DENSE on, in the order of `others` (int32, ascending, `pack_message`).
    """

    def __init__(
        self,
        code: Array,
        index: Array,
        roles: Array,
        profile: str,
        table: FieldTable | None = None,
        definitions: Definitions | None = None,
        names: Mapping[int, str] | None = None,
        others: Array | None = None,
    ) -> None:
        self.code = code
        self.index = index
        self.roles = roles
        self.profile = profile
        self.table = table
        self.definitions = definitions
        self.names = names or {}
        self.others: Array = np.zeros(0, np.int32) if others is None else others

    def place(self, api_key: int, version: int, direction: int) -> int:
        """The place of a message in `index`, or -1."""
        if not (0 <= api_key <= LARGEST and 0 <= version <= LARGEST and direction in (0, 1)):
            return -1
        if api_key < KEYS and version < VERSIONS:
            return (direction * KEYS + api_key) * VERSIONS + version
        packed = pack_message(direction, api_key, version)
        at = int(np.searchsorted(self.others, packed))
        return DENSE + at if at < len(self.others) and self.others[at] == packed else -1

    def find(self, api_key: int, version: int, direction: int) -> int:
        """The first instruction of a message's program, or -1."""
        place = self.place(api_key, version, direction)
        return -1 if place < 0 else int(self.index[place])

    @cached_property
    def messages(self) -> Array:
        """The message of each place: int32, as of `pack_message`."""
        dense = np.arange(DENSE, dtype=np.int32)
        kinds, keys, versions = dense // (KEYS * VERSIONS), dense // VERSIONS % KEYS, dense % VERSIONS
        return np.concatenate((kinds << 30 | keys << 15 | versions, self.others))

    @cached_property
    def known_versions(self) -> dict[int, tuple[tuple[int, int], ...]]:
        """The versions of each API's request that have a program, by api_key: ranges (lowest, highest), ascending."""
        known = np.sort(self.messages[self.index >= 0])
        requests = known[known >> 30 == 0]
        steps = np.diff((requests >> 15) * np.int64(1 << 16) + (requests & LARGEST))
        breaks = np.flatnonzero(steps != 1) + 1  # where another range or another API begins
        found: dict[int, tuple[tuple[int, int], ...]] = {}
        for part in np.split(requests, breaks) if len(requests) else ():
            key, low, high = int(part[0]) >> 15, int(part[0]) & LARGEST, int(part[-1]) & LARGEST
            found[key] = (*found.get(key, ()), (low, high))
        return found

    @cached_property
    def fields(self) -> FieldTable:
        """What the field ids mean. Programs from the cache parse the layouts only for this."""
        if self.table is not None:
            return self.table
        from .fields import number_fields

        return number_fields(layouts_of(self.definitions))

    def only_for(self, api_keys: frozenset[int], others: Programs) -> Programs:
        """These programs for some APIs, and those of another profile for all other APIs."""
        known = ~np.isin(self.messages >> 15 & LARGEST, sorted(api_keys)) & (others.index >= 0)
        index = np.where(known, others.index + len(self.code), self.index).astype(np.int32)
        code = np.concatenate((self.code, others.code))
        return Programs(code, index, self.roles, self.profile, self.table, self.definitions, self.names, self.others)

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
        return np.where(slots >= 0, self.messages[slots] & LARGEST, np.int32(-1))

    def same_as(self, other: Programs, programs: Array) -> Array:
        """The programs (int32) of this profile for the messages of `other`'s `programs`; -1 stays -1."""
        slots = other._slots[programs]
        return np.where(slots >= 0, self._index_for(other)[slots], np.int32(-1))

    def by_program_of(self, other: Programs) -> Array:
        """`same_as` for all programs of `other`: int32 by instruction, and -1 at the end for program -1."""
        found = np.full(len(other.code) + 1, -1, np.int32)
        used = np.flatnonzero(other.index >= 0)
        found[other.index[used]] = self._index_for(other)[used]
        return found

    def _index_for(self, other: Programs) -> Array:
        """`index` by the places of another profile, which may be of other layouts."""
        if np.array_equal(self.others, other.others):
            return self.index
        at = np.searchsorted(self.others, other.others)
        ours, index = np.append(self.others, np.int32(-1)), np.append(self.index, np.int32(-1))
        return np.append(index[:DENSE], np.where(ours[at] == other.others, index[DENSE + at], np.int32(-1)))


def layouts_of(definitions: Definitions | None) -> Mapping[tuple[int, int], MessageLayout]:
    """All layouts by (api_key, direction): the built-in ones, with `definitions` laid over them."""
    if definitions is not None:
        return definitions.messages
    from ..layouts.catalog import load_messages

    return load_messages()
