"""All fields of all messages by number, with their roles. A row of the tape has the number of its field.

A field's id depends only on the messages: all profiles compiled from the same messages have the same ids. An array has
two ids: one for its elements, and the next one for the array as a whole (path `Topics#`). In a message with flexible
versions each struct has an id for its unknown tags.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ..layouts.schema import REQUEST, RESPONSE, Field, MessageLayout, Struct
from ..layouts.secrets import CAREFUL_APIS
from .roles import (
    R_ACKS,
    R_API_KEY,
    R_BASE_OFFSET,
    R_COORDINATOR_KEY,
    R_ENTITY_NAME,
    R_ERROR_CODE,
    R_ERROR_MESSAGE,
    R_HIGH_WATERMARK,
    R_MAX_VERSION,
    R_MAX_WAIT_MS,
    R_MEMBER_ID,
    R_MIN_BYTES,
    R_NONE,
    R_OFFSET_OTHER,
    R_RECORD_MESSAGE,
    R_RECORDS,
    R_SASL_MECHANISM,
    R_SOFTWARE_NAME,
    R_SOFTWARE_VERSION,
    R_THROTTLE_TIME_MS,
    R_WAIT_MS,
    ROLE_NAMES,
)

#: Contents of a field's rows. VALUE: the field itself, or one element of an array of plain values. ELEMENT: a struct in
#: an array (value: its index). COUNT: an array (length: its count, -1 null). STRUCT: a struct outside of arrays (length
#: -1: null). TAG: an unknown tag (value: offset of its number, length: of number, size and content).
KINDS = ("value", "element", "count", "struct", "tag")
K_VALUE, K_ELEMENT, K_COUNT, K_STRUCT, K_TAG = range(5)

PRODUCE, FETCH, FIND_COORDINATOR, JOIN_GROUP, SASL_HANDSHAKE, API_VERSIONS, SHARE_FETCH = 0, 1, 10, 11, 17, 18, 78
#: Last name of the id of unknown tags. The header's tag section has an id of its own.
TAGS = "unknown tags"
HEADER_TAGS = "header tags"

#: How long a broker may hold a request before it answers, beside MaxWaitMs, by api_key: Produce (acks=all) and
#: JoinGroup wait for others, the admin APIs for the controller's work.
WAITS_OF_BODIES = {
    PRODUCE: "TimeoutMs", 2: "TimeoutMs", JOIN_GROUP: "RebalanceTimeoutMs", 19: "timeoutMs", 20: "TimeoutMs",
    21: "TimeoutMs", 37: "TimeoutMs", 43: "TimeoutMs", 45: "TimeoutMs", 46: "TimeoutMs", 57: "timeoutMs",
    80: "TimeoutMs",
}  # fmt: skip

#: Roles of single fields: (api_key, direction, path).
_AT = {
    (PRODUCE, REQUEST, "Acks"): R_ACKS,
    (PRODUCE, RESPONSE, "Responses.PartitionResponses.BaseOffset"): R_BASE_OFFSET,
    **{(key, REQUEST, path): R_WAIT_MS for key, path in WAITS_OF_BODIES.items()},
    (PRODUCE, RESPONSE, "Responses.PartitionResponses.RecordErrors.BatchIndexErrorMessage"): R_RECORD_MESSAGE,
    (2, RESPONSE, "Topics.Partitions.OldStyleOffsets"): R_OFFSET_OTHER,
    (JOIN_GROUP, REQUEST, "SessionTimeoutMs"): R_WAIT_MS,  # of version 0; in others RebalanceTimeoutMs comes after it
    (FIND_COORDINATOR, REQUEST, "Key"): R_COORDINATOR_KEY,
    (FIND_COORDINATOR, REQUEST, "CoordinatorKeys"): R_COORDINATOR_KEY,
    (FETCH, REQUEST, "MaxWaitMs"): R_MAX_WAIT_MS,
    (FETCH, REQUEST, "MinBytes"): R_MIN_BYTES,
    (SHARE_FETCH, REQUEST, "MaxWaitMs"): R_MAX_WAIT_MS,
    (SHARE_FETCH, REQUEST, "MinBytes"): R_MIN_BYTES,
    (SASL_HANDSHAKE, REQUEST, "Mechanism"): R_SASL_MECHANISM,
    (API_VERSIONS, REQUEST, "ClientSoftwareName"): R_SOFTWARE_NAME,
    (API_VERSIONS, REQUEST, "ClientSoftwareVersion"): R_SOFTWARE_VERSION,
    (API_VERSIONS, RESPONSE, "ApiKeys.ApiKey"): R_API_KEY,
    (API_VERSIONS, RESPONSE, "ApiKeys.MaxVersion"): R_MAX_VERSION,
}
#: Roles by a field's name and type, in responses.
_OFFSETS = ("Offset", "CommittedOffset", "LowWatermark", "EndOffset", "StartOffset")
#: APIs whose error messages may repeat a secret of the request. Those of CreateTopics and SaslAuthenticate do not.
_UNQUOTED = CAREFUL_APIS - {19, 36}
#: Strings that name the subject of an error code beside them, without another role.
_ENTITIES = ("Key", "User", "Feature", "LogDir", "Name", "EntityName")


@dataclass(frozen=True, slots=True)
class FieldInfo:
    """One id. `path`: names from the message's body, dotted ("Topics.Partitions.ErrorCode"; the same for an array's
    elements). `element`: id of the enclosing array's element, -1 at the top; `inner`: the names from there.
    """

    id: int
    api_key: int
    direction: int
    message: str
    path: str
    type: str
    kind: int
    role: int
    element: int
    inner: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FieldTable:
    """All ids, and how to find them: `find[(api_key, direction, path)]`."""

    fields: tuple[FieldInfo, ...]
    find: Mapping[tuple[int, int, str], int]

    def __getitem__(self, number: int) -> FieldInfo:
        return self.fields[number]

    def __len__(self) -> int:
        return len(self.fields)

    def __iter__(self) -> Iterator[FieldInfo]:
        return iter(self.fields)


def number_fields(messages: Mapping[tuple[int, int], MessageLayout]) -> FieldTable:
    """Number the fields of all messages, in the order of (api_key, direction) and of the layouts."""
    fields: list[FieldInfo] = []
    find: dict[tuple[int, int, str], int] = {}

    def add(
        message: MessageLayout, path: str, type_name: str, kind: int, role: int, element: int, inner: tuple[str, ...]
    ) -> int:
        number = len(fields)
        key = (message.api_key, message.direction, path)
        if key in find:
            raise ValueError(f"{message.name}: two fields are called {path}")
        find[key] = number
        fields.append(FieldInfo(number, *key[:2], message.name, path, type_name, kind, role, element, inner))
        return number

    def walk(message: MessageLayout, struct: Struct, prefix: str, element: int, inner: tuple[str, ...]) -> None:
        for item in struct.fields:
            path, names = prefix + item.name, (*inner, item.name)
            kind = K_VALUE if item.struct is None else (K_ELEMENT if item.is_array else K_STRUCT)
            number = add(message, path, item.type, kind, role_of(message, path, item, struct), element, names)
            if item.is_array:
                add(message, path + "#", item.type, K_COUNT, R_NONE, element, names)
            if item.struct is not None:
                below = (number, ()) if item.is_array else (element, names)
                walk(message, item.struct, path + ".", *below)
        if message.flexible:
            add(message, prefix + TAGS, "tag", K_TAG, R_NONE, element, (*inner, TAGS))

    for key in sorted(messages):
        message = messages[key]
        if message.flexible:
            add(message, HEADER_TAGS, "tag", K_TAG, R_NONE, -1, (HEADER_TAGS,))
        walk(message, message.body, "", -1, ())
    return FieldTable(tuple(fields), find)


def role_of(message: MessageLayout, path: str, item: Field, struct: Struct) -> int:
    """The role number of one field (R_NONE for most)."""
    if item.struct is not None:
        return R_NONE
    response = message.direction == RESPONSE
    if item.name.endswith("ErrorCode"):
        return R_ERROR_CODE if response and item.type == "int16" and not item.is_array else R_NONE
    if item.name == "ThrottleTimeMs":
        return R_THROTTLE_TIME_MS if response else R_NONE
    at = _AT.get((message.api_key, message.direction, path))
    if at is not None:
        return at
    if item.type == "records":
        return R_RECORDS
    if item.role in ROLE_NAMES:
        return ROLE_NAMES.index(item.role)
    if item.name == "MemberId":
        return R_MEMBER_ID
    if response and any(other.name.endswith("ErrorCode") for other in struct.fields):
        if item.name == "ErrorMessage":
            return R_NONE if message.api_key in _UNQUOTED else R_ERROR_MESSAGE
        if item.name == "HighWatermark" and message.api_key == FETCH:
            return R_HIGH_WATERMARK
        if item.name in _OFFSETS and item.type == "int64" and not item.is_array:
            return R_OFFSET_OTHER
        if item.name in _ENTITIES and item.type == "string" and not item.is_array:
            return R_ENTITY_NAME
    return R_NONE
