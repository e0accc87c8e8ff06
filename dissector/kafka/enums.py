"""Names of numbers in messages: Kafka's enums, and the fields that carry them.

The names are in enums.tsv: enum, number, name (for booleans 0 and 1). The name of a field determines its enum in every
API, except for the fields of `_AT`. A number outside of its enum has no name.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

from ..layouts.catalog import api_names
from ..layouts.schema import REQUEST, RESPONSE
from .error_codes import error_codes

_TABLE = Path(__file__).with_name("enums.tsv")

#: Enum by a field's last name. ErrorCode is for every name that ends so; ApiKey uses the names of `catalog`.
_NAMED = {
    "AcceptedCompressionTypes": "CompressionType",
    "AcknowledgeTypes": "AcknowledgeType",
    "Acks": "Acks",
    "ApiKey": "ApiKey",
    "CompressionType": "CompressionType",
    "ConfigOperation": "OpType",
    "ConfigSource": "ConfigSource",
    "ConfigType": "ConfigType",
    "DeliveryState": "DeliveryState",
    "ElectionType": "ElectionType",
    "EndpointType": "EndpointType",
    "IsolationLevel": "IsolationLevel",
    "KeyType": "CoordinatorType",
    "LeaderRecoveryState": "LeaderRecoveryState",
    "MatchType": "QuotaMatchType",
    "Mechanism": "ScramMechanism",
    "MemberType": "MemberType",
    "NodeType": "TopologyNodeType",
    "Operation": "AclOperation",
    "PatternType": "PatternType",
    "PatternTypeFilter": "PatternType",
    "PermissionType": "AclPermissionType",
    "ResourcePatternType": "PatternType",
    "ResourceType": "ConfigResourceType",
    "ResourceTypes": "ConfigResourceType",
    "SecurityProtocol": "SecurityProtocol",
    "ShareAcquireMode": "ShareAcquireMode",
    "Source": "ConfigSource",
    "StatusCode": "StreamsGroupStatus",
    "TopologyDescriptionStatus": "TopologyDescriptionStatus",
    "TransactionResult": "TransactionResult",
    "UpgradeType": "UpgradeType",
}
#: Enum by (api_key, direction, path).
_AT = {
    (2, REQUEST, "Topics.Partitions.Timestamp"): "ListOffsetsTimestamp",
    (26, REQUEST, "Committed"): "TransactionResult",
    (29, REQUEST, "ResourceTypeFilter"): "ResourceType",
    (29, RESPONSE, "Resources.ResourceType"): "ResourceType",
    (30, REQUEST, "Creations.ResourceType"): "ResourceType",
    (31, REQUEST, "Filters.ResourceTypeFilter"): "ResourceType",
    (31, RESPONSE, "FilterResults.MatchingAcls.ResourceType"): "ResourceType",
}
#: Enum by the name of a layout in byte fields, and path.
_IN_LAYOUTS = {("ControlRecordTypeSchema", "Type"): "ControlRecordType"}
_WHOLE = ("bool", "int8", "int16", "int32", "int64")
#: The bits of a set of operations are numbers of AclOperation. This value: the request did not want them.
_NOT_ASKED = -(2**31)
_LAST_TIME = 253_402_300_799_999  # ms: the end of the year 9999


@cache
def enums() -> dict[str, dict[int, str]]:
    """Every enum: name by number."""
    found: dict[str, dict[int, str]] = {}
    for line in _TABLE.read_text(encoding="ascii").splitlines()[1:]:
        enum, number, name = line.split("\t")
        found.setdefault(enum, {})[int(number)] = name
    return found


def enum_of(api_key: int, direction: int, path: str, type_name: str) -> str | None:
    """The name of the enum that a field carries ("AclOperation", "ErrorCode", "ApiKey"), or None. `path` is dotted."""
    if type_name not in _WHOLE:
        return None
    special = _AT.get((api_key, direction, path))
    if special is not None:
        return special
    name = path.rpartition(".")[2]
    if name.endswith("ErrorCode"):
        return "ErrorCode" if type_name == "int16" else None
    return _NAMED.get(name)


def enum_in_layout(layout: str, path: str) -> str | None:
    """The same for a field of a layout in byte fields."""
    return _IN_LAYOUTS.get((layout, path))


def names_of(enum: str) -> Mapping[int, str]:
    """The names of an enum by number."""
    if enum == "ErrorCode":
        return {code: each.name for code, each in error_codes().items()}
    return api_names() if enum == "ApiKey" else enums()[enum]


def enum_name(enum: str, number: int) -> str:
    """The name of one number, or ""."""
    return names_of(enum).get(number, "")


def is_operations(path: str, type_name: str) -> bool:
    """Whether a field is a set of ACL operations, a bit each (KIP-430)."""
    return type_name == "int32" and path.endswith("AuthorizedOperations")


def operations_text(bits: int) -> str:
    """The names of a set of operations: "READ, DESCRIBE"; "not requested", "none"."""
    if bits == _NOT_ASKED:
        return "not requested"
    known = enums()["AclOperation"]
    return ", ".join(known.get(bit, f"bit {bit}") for bit in range(32) if bits >> bit & 1) or "none"


def is_time(path: str, type_name: str) -> bool:
    """Whether a field is a time in ms since the epoch. Durations end in `TimeMs`, too: only two of those are times."""
    name = path.rpartition(".")[2]
    if type_name != "int64":
        return False
    return name.endswith(("Timestamp", "TimestampMs")) or name in ("LogAppendTimeMs", "TransactionStartTimeMs")


def time_text(ms: int) -> str:
    """`2026-11-21T15:10:39.392Z`; "" for a number that is no time after the epoch."""
    if not 0 < ms <= _LAST_TIME:
        return ""
    return f"{datetime.fromtimestamp(ms // 1000, UTC).isoformat()[:19]}.{ms % 1000:03}Z"
