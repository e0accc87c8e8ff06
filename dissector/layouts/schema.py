"""The model of Kafka's message layouts. The notation and Kafka's own definitions are parsed into it.

A `MessageLayout` is one direction of one API over all its versions. Its `Struct`s hold `Field`s in wire order, each
with the versions in which it exists. This module reads no files, bytes or text.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

REQUEST, RESPONSE = 0, 1
#: Kafka's entity types by the role of the fields that they mark.
ENTITY_TYPES = {
    "topic_name": "topicName", "group_id": "groupId", "transactional_id": "transactionalId", "broker_id": "brokerId",
}  # fmt: skip

#: Fixed-size types and their widths in bytes.
FIXED_WIDTHS = {
    "bool": 1,
    "int8": 1,
    "int16": 2,
    "uint16": 2,
    "int32": 4,
    "uint32": 4,
    "int64": 8,
    "float64": 8,
    "uuid": 16,
}
#: Types with a length before their bytes. `records` is laid out as `bytes` is.
VARIABLE_TYPES = ("string", "bytes", "records")

#: Roles of fields: what they name or mean, the same in every API.
ROLES = (
    "topic_name",
    "topic_id",
    "partition",
    "group_id",
    "transactional_id",
    "broker_id",
    "resource_name",
    "error_code",
    "throttle_time_ms",
)


@dataclass(frozen=True, slots=True)
class Versions:
    """An inclusive range of versions; empty when `low > high`. `missing`: versions within it that a message does not
    have."""

    low: int
    high: int
    missing: frozenset[int] = frozenset()

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.low <= version <= self.high and version not in self.missing

    def __iter__(self) -> Iterator[int]:
        return (version for version in range(self.low, self.high + 1) if version not in self.missing)

    def __bool__(self) -> bool:
        return self.low <= self.high


NO_VERSIONS = Versions(0, -1)
#: The high end of an open range ("3+") before it is clipped to a message's versions.
OPEN = 32767


@dataclass(frozen=True, slots=True)
class Rules:
    """What a definition says of a field besides its bytes. `default`: its value where a version lacks it, as written
    (`null`, `-1`, `""`); None: 0, empty or false. `is_ignorable`: a sender may leave a value out where the version has
    no place for it. `is_map_key`: elements of the array are found by it. `entity_type`: what it names (`topicName`).
    `about`: only of the user's own definitions."""

    default: str | None = None
    is_ignorable: bool = False
    is_map_key: bool = False
    entity_type: str | None = None
    about: str | None = None


NO_RULES = Rules()


@dataclass(frozen=True, slots=True)
class Field:
    """One field: `type` is a name of FIXED_WIDTHS or VARIABLE_TYPES, or "struct" (then `struct` is set).

    If `is_array` is set, the elements are of `type`. `tagged` are the versions in which the field lies in the tag
    section under number `tag`. `nullable` are the versions in which the field, or the whole array, may be null.
    `flexible` False: the length of a string is an int16 even in flexible versions (client_id of the header).
    """

    name: str
    type: str
    versions: Versions
    is_array: bool = False
    struct: Struct | None = None
    nullable: Versions = NO_VERSIONS
    tag: int = -1
    tagged: Versions = NO_VERSIONS
    role: str | None = None
    flexible: bool = True
    rules: Rules = field(default=NO_RULES, compare=False)  # none of the bytes


@dataclass(frozen=True, slots=True)
class Struct:
    """Fields in wire order. `name` is Kafka's type name ("FetchableTopicResponse")."""

    name: str
    fields: tuple[Field, ...]


@dataclass(frozen=True, slots=True)
class MessageLayout:
    """One direction of one API: key, name ("Fetch"), all versions, the flexible ones, and the layout of the body."""

    api_key: int
    name: str
    direction: int
    versions: Versions
    flexible: Versions
    body: Struct
    #: False for layouts in byte fields: they have no header, and `api_key` is only a place in a list.
    has_header: bool = True

    def header_version(self, version: int) -> int:
        """The version of the header before a message of this version.

        Kafka's rule: requests 1 (flexible 2, ControlledShutdown v0 0), responses 0 (flexible 1, ApiVersions 0).
        """
        if not self.has_header:
            return 0
        flexible = version in self.flexible
        if self.direction == REQUEST:
            return 0 if self.api_key == 7 and version == 0 else 1 + flexible
        return 0 if self.api_key == 18 else int(flexible)

    def has_header_tags(self, version: int) -> bool:
        """Whether the header before this message ends with a tag section."""
        return self.header_version(version) == (2 if self.direction == REQUEST else 1)
