"""Kafka's own message definitions (JSON with // comments) read into the model of `schema`.

With them a user can decode a newer Kafka than the built-in layouts. Defaults, documentation and options for code
generation are ignored. A message without valid versions, of an API that Kafka removed, has no layout.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from .notation import clip, parse_range
from .schema import FIXED_WIDTHS, NO_VERSIONS, REQUEST, RESPONSE, VARIABLE_TYPES, Field, MessageLayout, Struct, Versions

#: Strings are matched so that a // inside one stays.
_STRING_OR_COMMENT = re.compile(r'("(?:\\.|[^"\\])*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
_DIRECTIONS = {"request": (REQUEST, "Request"), "response": (RESPONSE, "Response")}
_ENTITY_ROLES = {
    "topicName": "topic_name",
    "groupId": "group_id",
    "transactionalId": "transactional_id",
    "brokerId": "broker_id",
}
#: Roles of fields without an entity type, by name and type.
_NAMED_ROLES = {
    ("Index", "int32"): "partition",
    ("Partition", "int32"): "partition",
    ("PartitionId", "int32"): "partition",
    ("PartitionIds", "int32"): "partition",
    ("PartitionIndex", "int32"): "partition",
    ("PartitionIndexes", "int32"): "partition",
    ("TopicId", "uuid"): "topic_id",
    ("TopicIds", "uuid"): "topic_id",
    ("GroupId", "string"): "group_id",
    ("ControllerId", "int32"): "broker_id",
    ("LeaderId", "int32"): "broker_id",
    ("VoterId", "int32"): "broker_id",
    ("SubscribedTopicNames", "string"): "topic_name",
    ("ResourceName", "string"): "resource_name",
}


class DefinitionError(ValueError):
    """A text that is not one of Kafka's message definitions."""


def load_definitions(texts: Mapping[str, str | bytes]) -> dict[tuple[int, int], MessageLayout]:
    """The requests and responses among `texts` (name of the source → text, bytes are UTF-8), by (api_key, direction).

    DefinitionError names a malformed source and the error in it.
    """
    messages: dict[tuple[int, int], MessageLayout] = {}
    for source, text in texts.items():
        try:
            message = load_definition(text if isinstance(text, str) else text.decode("utf-8"))
        except KeyError as error:
            raise DefinitionError(f"{source}: there is no {error}") from error
        except (ValueError, TypeError, AttributeError) as error:
            raise DefinitionError(f"{source}: {error}") from error
        except RecursionError:
            raise DefinitionError(f"{source}: nested too deeply") from None
        if message is not None:
            messages[message.api_key, message.direction] = message
    return messages


def load_definition(text: str) -> MessageLayout | None:
    """One definition; None if it is no request or response, or has no valid versions."""
    definition = json.loads(_STRING_OR_COMMENT.sub(lambda match: match[1] or "", text))
    if definition["type"] not in _DIRECTIONS:
        return None
    direction, suffix = _DIRECTIONS[definition["type"]]
    versions = _versions(definition["validVersions"])
    if not versions:
        return None
    api_key = definition["apiKey"]
    if type(api_key) is not int or api_key < 0:
        raise ValueError(f"{api_key!r} is no apiKey")
    message = _load(definition, direction, versions, api_key)
    return replace(message, name=message.name.removesuffix(suffix))


def load_data_definition(text: str) -> MessageLayout | None:
    """A definition of a layout in byte fields ("type": "data"), with the key 0; None for another type."""
    definition = json.loads(_STRING_OR_COMMENT.sub(lambda match: match[1] or "", text))
    if definition["type"] != "data":
        return None
    message = _load(definition, RESPONSE, _versions(definition["validVersions"]), 0)
    return replace(message, has_header=False)


def _load(definition: dict[str, Any], direction: int, versions: Versions, api_key: int) -> MessageLayout:
    name = definition["name"]
    flexible = clip(_versions(definition.get("flexibleVersions", "none")), versions)
    shared = {struct["name"]: struct for struct in definition.get("commonStructs", ())}
    loader = _Loader(direction, versions, shared)
    body = Struct(name, loader.fields(definition.get("fields", ())))
    return MessageLayout(api_key, name, direction, versions, flexible, body)


def _versions(text: str) -> Versions:
    return NO_VERSIONS if text == "none" else parse_range(text)


class _Loader:
    def __init__(self, direction: int, versions: Versions, shared: dict[str, Any]) -> None:
        self.direction, self.versions, self.shared = direction, versions, shared
        self.open: list[str] = []

    def fields(self, definitions: Any) -> tuple[Field, ...]:
        """The fields that exist in some valid version, in wire order."""
        loaded = (self.field(definition) for definition in definitions)
        found = tuple(field for field in loaded if field is not None)
        if len({field.name for field in found}) < len(found):
            raise ValueError(f"two fields of one name among {', '.join(field.name for field in found)}")
        return found

    def field(self, definition: dict[str, Any]) -> Field | None:
        versions = clip(_versions(definition.get("versions", "none")), self.versions)
        tagged = clip(_versions(definition.get("taggedVersions", "none")), self.versions)
        if not versions:
            return None
        name, type_name = definition["name"], definition["type"]
        is_array = type_name.startswith("[]")
        type_name = type_name.removeprefix("[]")
        struct = None
        if type_name not in FIXED_WIDTHS and type_name not in VARIABLE_TYPES:
            struct = self.struct(type_name, definition)
            type_name = "struct"
        nullable = clip(_versions(definition.get("nullableVersions", "none")), versions)
        role = role_of(name, type_name, is_array, definition.get("entityType"), self.direction)
        tag = int(definition["tag"]) if tagged else -1
        flexible = definition.get("flexibleVersions") != "none"
        return Field(name, type_name, versions, is_array, struct, nullable, tag, clip(tagged, versions), role, flexible)

    def struct(self, name: str, definition: dict[str, Any]) -> Struct:
        if name in self.open:
            raise ValueError(f"{name} contains itself")
        own = definition.get("fields") or self.shared[name]["fields"]
        self.open.append(name)
        fields = self.fields(own)
        self.open.pop()
        return Struct(name, fields)


def role_of(name: str, type_name: str, is_array: bool, entity_type: str | None, direction: int) -> str | None:
    """The role of a field by its entity type, or by its name and type; None for most fields."""
    if entity_type in _ENTITY_ROLES:
        return _ENTITY_ROLES[entity_type]
    if direction == RESPONSE and type_name == "int16" and name.endswith("ErrorCode"):
        return "error_code"
    if direction == RESPONSE and type_name == "int32" and name == "ThrottleTimeMs":
        return "throttle_time_ms"
    if type_name == "int32" and name == "Partitions":
        return "partition" if is_array else None  # alone it is their number
    return _NAMED_ROLES.get((name, type_name))
