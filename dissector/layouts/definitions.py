"""Kafka's own message definitions (JSON with // comments) read into the model of `schema`.

With them a user can decode a newer Kafka than the built-in layouts, and the APIs of vendors. Options for code
generation are ignored. A message without valid versions, of an API that Kafka removed, has no layout. Definitions may
come from anywhere: their numbers, names and sizes have bounds.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from .catalog import LARGEST_KEY
from .definition_files import DefinitionError
from .notation import clip, parse_range
from .schema import (
    ENTITY_TYPES,
    FIXED_WIDTHS,
    NO_VERSIONS,
    OPEN,
    REQUEST,
    RESPONSE,
    VARIABLE_TYPES,
    Field,
    MessageLayout,
    Rules,
    Struct,
    Versions,
)

#: Bounds: versions of a message, its fields, the fields of all versions of all messages of a source, and how deep
#: structs nest. Those of all of Kafka's releases are 19, 73, some 8,000, and 4.
MOST_VERSIONS, MOST_FIELDS, MOST_PLACES, MOST_NESTED = 256, 5_000, 50_000, 32
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,127}\Z")
_LARGEST_TAG = 2**31 - 1
#: Strings are matched so that a // inside one stays. Each alternative matches to the end of the text if its own end is
#: missing: a second attempt from the next character would take quadratic time.
_STRING_OR_COMMENT = re.compile(r'("(?:\\.|[^"\\])*(?:"|\\?\Z))|//[^\n]*|/\*.*?(?:\*/|\Z)', re.DOTALL)
_DIRECTIONS = {"request": (REQUEST, "Request"), "response": (RESPONSE, "Response")}
_ENTITY_ROLES = {entity: role for role, entity in ENTITY_TYPES.items()}
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


def load_definitions(texts: Mapping[str, str | bytes]) -> dict[tuple[int, int], MessageLayout]:
    """The requests and responses among `texts` (name of the source → text, bytes are UTF-8), by (api_key, direction).

    DefinitionError names a malformed source and the error in it, or two sources that define a message differently.
    """
    messages: dict[tuple[int, int], MessageLayout] = {}
    sources: dict[tuple[int, int], str] = {}
    places = 0
    for source, text in texts.items():
        try:
            message = load_definition(text if isinstance(text, str) else text.decode("utf-8"))
        except UnicodeDecodeError:
            raise DefinitionError(f"{source}: not a message definition: not text in UTF-8") from None
        except KeyError as error:
            raise DefinitionError(f"{source}: there is no {error!s:.200}") from error
        except (ValueError, TypeError, AttributeError, ArithmeticError) as error:
            raise DefinitionError(f"{source}: {error!s:.300}") from error
        except RecursionError:
            raise DefinitionError(f"{source}: nested too deeply") from None
        if message is None:
            continue
        key = message.api_key, message.direction
        if messages.setdefault(key, message) != message:
            raise DefinitionError(
                f"{sources[key]} and {source} define key {key[0]} differently; give them in two --definitions"
            )
        sources[key] = source
        places += _count(message.body) * len(list(message.versions))
        if places > MOST_PLACES:
            raise DefinitionError(f"{source}: more fields and versions than any Kafka has")
    return messages


def _count(struct: Struct) -> int:
    return 1 + sum(1 if item.struct is None else _count(item.struct) for item in struct.fields)


def load_definition(text: str) -> MessageLayout | None:
    """One definition; None if it is no request or response, or has no valid versions."""
    definition = _parsed(text)
    if definition["type"] not in _DIRECTIONS:
        return None
    direction, suffix = _DIRECTIONS[definition["type"]]
    versions = _valid_versions(definition)
    if not versions:
        return None
    api_key = definition["apiKey"]
    if type(api_key) is not int or not 0 <= api_key <= LARGEST_KEY:
        raise ValueError(f"{api_key!r} is no apiKey (0 to {LARGEST_KEY})")
    message = _load(definition, direction, versions, api_key)
    return replace(message, name=message.name.removesuffix(suffix))


def _parsed(text: str) -> dict[str, Any]:
    definition = json.loads(_STRING_OR_COMMENT.sub(lambda match: match[1] or "", text))
    if not isinstance(definition, dict):
        raise ValueError("no message definition")
    return definition


def _valid_versions(definition: Mapping[str, Any]) -> Versions:
    versions = _versions(definition["validVersions"])
    if versions.high >= OPEN:
        raise ValueError(f"validVersions {definition['validVersions']!r} needs an end below {OPEN}")
    if versions.high - versions.low >= MOST_VERSIONS:
        raise ValueError(f"validVersions {definition['validVersions']!r} are more than {MOST_VERSIONS}")
    return versions


def _load(definition: dict[str, Any], direction: int, versions: Versions, api_key: int) -> MessageLayout:
    name = _name(definition["name"])
    flexible = clip(_versions(definition.get("flexibleVersions", "none")), versions)
    shared = {struct["name"]: struct for struct in definition.get("commonStructs", ())}
    loader = _Loader(direction, versions, shared)
    body = Struct(name, loader.fields(definition.get("fields", ())))
    return MessageLayout(api_key, name, direction, versions, flexible, body)


def _versions(text: str) -> Versions:
    return NO_VERSIONS if text == "none" else parse_range(text)


def _name(name: str) -> str:
    if not _NAME.match(name):
        raise ValueError(f"{name!r:.80} is no name")
    return name


class _Loader:
    def __init__(self, direction: int, versions: Versions, shared: dict[str, Any]) -> None:
        self.direction, self.versions, self.shared = direction, versions, shared
        self.open: list[str] = []
        self.count = 0

    def fields(self, definitions: Any) -> tuple[Field, ...]:
        """The fields that exist in some valid version, in wire order."""
        loaded = (self.field(definition) for definition in definitions)
        found = tuple(field for field in loaded if field is not None)
        if len({field.name for field in found}) < len(found):
            raise ValueError(f"two fields of one name among {', '.join(field.name for field in found)}")
        tags = [field.tag for field in found if field.tag >= 0]
        if len(set(tags)) < len(tags):
            raise ValueError(f"two fields with one tag among {', '.join(field.name for field in found)}")
        return found

    def field(self, definition: dict[str, Any]) -> Field | None:
        versions = clip(_versions(definition.get("versions", "none")), self.versions)
        tagged = clip(_versions(definition.get("taggedVersions", "none")), self.versions)
        if not versions:
            return None
        self.count += 1
        if self.count > MOST_FIELDS:
            raise ValueError(f"more than {MOST_FIELDS:,} fields")
        name, type_name = _name(definition["name"]), definition["type"]
        is_array = type_name.startswith("[]")
        type_name = type_name.removeprefix("[]")
        struct = None
        if type_name not in FIXED_WIDTHS and type_name not in VARIABLE_TYPES:
            struct = self.struct(type_name, definition)
            type_name = "struct"
        nullable = clip(_versions(definition.get("nullableVersions", "none")), versions)
        role = role_of(name, type_name, is_array, definition.get("entityType"), self.direction)
        tag = int(definition["tag"]) if tagged else -1
        if tagged and not 0 <= tag <= _LARGEST_TAG:
            raise ValueError(f"{name}: {tag} is no tag")
        flexible = definition.get("flexibleVersions") != "none"
        return Field(name, type_name, versions, is_array, struct, nullable, tag, clip(tagged, versions), role, flexible,
                     _rules(definition))  # fmt: skip

    def struct(self, name: str, definition: dict[str, Any]) -> Struct:
        if name in self.open:
            raise ValueError(f"{name} contains itself")
        if len(self.open) == MOST_NESTED:
            raise ValueError(f"{name}: nested too deeply")
        own = definition["fields"] if "fields" in definition else self.shared[_name(name)]["fields"]
        self.open.append(name)
        fields = self.fields(own)
        self.open.pop()
        return Struct(name, fields)


def _rules(definition: Mapping[str, Any]) -> Rules:
    default, entity, about = (definition.get(name) for name in ("default", "entityType", "about"))
    if default is not None:
        default = str(default).lower() if isinstance(default, bool) else str(default) or '""'
    return Rules(
        default, definition.get("ignorable") is True, definition.get("mapKey") is True,
        None if entity is None else _name(entity), None if about is None else str(about),
    )  # fmt: skip


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
