"""Decoded fields by path: `request.MaxWaitMs`, `response.Topics.Partitions.ErrorCode`, `Produce.request.Acks`.

A path without an API means that field in every API that has it. If no field at the top has this name, the path can
start further inside (`response.ErrorCode`). Case does not matter.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from kafkatap.dissector.layouts.catalog import load_messages
from kafkatap.dissector.layouts.schema import MessageLayout
from kafkatap.dissector.layouts.secrets import may_be_secret
from kafkatap.dissector.probes import Place
from kafkatap.dissector.programs.fields import K_COUNT, K_ELEMENT, K_STRUCT, K_TAG, FieldInfo, FieldTable, number_fields
from kafkatap.dissector.programs.roles import ROLE_NAMES

from .expression_error import ExpressionError, suggestion
from .names import FIELD, MILLISECOND, Name
from .tree import Comparison

Messages = Mapping[tuple[int, int], MessageLayout]
DIRECTIONS = {"request": 0, "response": 1}
NUMBERS = frozenset(("bool", "int8", "int16", "uint16", "int32", "uint32", "int64", "float64"))
TEXTS = frozenset(("string", "uuid"))


@dataclass(frozen=True, slots=True)
class Fields:
    """The fields of a path or a role."""

    infos: tuple[FieldInfo, ...]

    def places(self, types: frozenset[str] | None = None) -> frozenset[Place]:
        """The places of the fields, or of those with some types."""
        return frozenset(
            (i.api_key, i.direction, i.path)
            for i in self.infos
            if types is None or (i.type in types and i.kind not in (K_ELEMENT, K_STRUCT))
        )

    def has(self, types: frozenset[str]) -> bool:
        return bool(self.places(types))

    def name(self, shown: str, types: frozenset[str]) -> Name:
        """The name under which fields of some types are compared."""
        infos = [i for i in self.infos if i.type in types]
        last = {i.path.rpartition(".")[2] for i in infos}
        unit: int | None = 1
        if types == TEXTS:
            kind = "text"
        elif all(i.type == "bool" for i in infos):
            kind = "flag"
        elif all(word.endswith("ErrorCode") for word in last):
            kind = "error"
        elif all(word.endswith("Ms") for word in last):
            kind, unit = "duration", MILLISECOND
        else:
            kind = "size" if any("Bytes" in word or "Size" in word for word in last) else "number"
        return Name(shown, kind, "", per=FIELD, unit=unit)


@cache
def _built_in() -> FieldTable:
    return number_fields(load_messages())


def _table(messages: Messages | None) -> FieldTable:
    return _built_in() if messages is None else number_fields(messages)


def is_path(name: str) -> bool:
    """Whether a name is a path of a decoded field."""
    words = name.lower().split(".")
    return words[0] in DIRECTIONS or (len(words) > 1 and words[1] in DIRECTIONS)


def fields_with_role(role: str, messages: Messages | None) -> Fields:
    """All fields of a role."""
    number = ROLE_NAMES.index(role)
    return Fields(tuple(i for i in _table(messages) if i.role == number and i.kind not in (K_COUNT, K_TAG)))


def coordinator_keys(messages: Messages | None) -> tuple[frozenset[Place], frozenset[Place]]:
    """The places of the keys that FindCoordinator looks for, and of their type."""
    keys = fields_with_role("coordinator_key", messages).places()
    apis = {key for key, _, _ in keys}
    types = (i for i in _table(messages) if i.api_key in apis and i.direction == 0 and i.path == "KeyType")
    return keys, Fields(tuple(types)).places()


def group_places(messages: Messages | None) -> tuple[frozenset[Place], frozenset[Place]]:
    """The places of groups' names: their own fields, and those of `coordinator_keys`."""
    return fields_with_role("group_id", messages).places(), coordinator_keys(messages)[0]


def find_fields(comparison: Comparison, text: str, messages: Messages | None) -> Fields:
    """The fields of a comparison's path, without those that may contain a secret.

    ExpressionError if there are none; it suggests similar paths."""
    words = comparison.name.split(".")
    api = words.pop(0) if words[0].lower() not in DIRECTIONS else None
    direction = DIRECTIONS[words.pop(0).lower()]
    wanted = ".".join(words).lower()
    known = [
        i for i in _table(messages) if i.direction == direction and i.kind not in (K_COUNT, K_TAG) and i.path != ""
    ]
    if api is not None:
        plain = api.replace("_", "").lower()
        found = [i for i in known if i.message.lower() in (plain, plain + "request", plain + "response")]
        if not found:
            names = {i.message for i in known}
            raise ExpressionError(
                f"no API is called {api!r}{suggestion(api, names)}", text, comparison.at, comparison.at + len(api)
            )
        known = found
    if not wanted:
        raise ExpressionError(f"a field of the {'response' if direction else 'request'} is missing, such as "
                              f"{comparison.name}.{known[0].path}", text, comparison.at, comparison.end)  # fmt: skip
    infos = [i for i in known if i.path.lower() == wanted]
    infos = infos or [i for i in known if i.path.lower().endswith("." + wanted)]
    if not infos:
        at = comparison.at + len(comparison.name) - len(wanted)
        end = comparison.at + len(comparison.name)
        prefix = comparison.name[: -len(wanted)]
        raise ExpressionError(
            f"no {prefix.rstrip('.')} has a field {comparison.name[-len(wanted):]!r}"
            f"{_near(wanted, [i.path for i in known])}", text, at, end,
        )  # fmt: skip
    public = [i for i in infos if i.type not in TEXTS or not may_be_secret(i.api_key, i.direction, i.path)]
    if not public:  # repeated comparisons could guess a secret
        raise ExpressionError(f"{comparison.name} can contain a secret, so it cannot be compared", text, comparison.at,
                              comparison.end)  # fmt: skip
    return Fields(tuple(public))


def _near(wanted: str, paths: list[str]) -> str:
    """Paths that are similar, or that have a similar last name."""
    whole = suggestion(wanted, paths)
    if whole:
        return whole
    by_last = {path.rpartition(".")[2]: path for path in sorted(paths, key=len, reverse=True)}
    last = suggestion(wanted.rpartition(".")[2], by_last)
    for name, path in by_last.items():
        last = last.replace(f" {name} ", f" {path} ").replace(f" {name}?", f" {path}?")
    return last
