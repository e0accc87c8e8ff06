"""The fields that a version of a message added, removed or changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from .schema import Field, MessageLayout, Struct


@dataclass(frozen=True, slots=True)
class Entry:
    """A field in one version. `type` is in the notation ("[]FetchTopic?", "int32"). `tag` is its number in the tag
    section, or None."""

    type: str
    tag: int | None = None


@dataclass(frozen=True, slots=True)
class Changes:
    """The fields of one version compared with the version before, by path ("Topics.Partitions.Partition"). `whole`:
    there is no version before, so `added` are all fields."""

    added: Mapping[str, Entry]
    removed: tuple[str, ...]
    changed: Mapping[str, Entry]  # its type, nullability or tag; as it is now
    whole: bool = False

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.changed)


def changes_in(message: MessageLayout, version: int) -> Changes:
    """The changes in a version; of the first version all fields."""
    now = dict(_entries(message.body, version, ""))
    whole = version - 1 not in message.versions
    before = {} if whole else dict(_entries(message.body, version - 1, ""))
    return Changes(
        {path: entry for path, entry in now.items() if path not in before},
        tuple(path for path in before if path not in now),
        {path: entry for path, entry in now.items() if path in before and before[path] != entry},
        whole,
    )


def _entries(struct: Struct, version: int, prefix: str) -> Iterator[tuple[str, Entry]]:
    """The fields of a version, in the order of the layout."""
    for item in struct.fields:
        if version in item.versions:
            path = prefix + item.name
            yield path, Entry(_type_of(item, version), item.tag if version in item.tagged else None)
            if item.struct is not None:
                yield from _entries(item.struct, version, path + ".")


def _type_of(item: Field, version: int) -> str:
    name = item.struct.name if item.struct is not None else item.type
    return ("[]" if item.is_array else "") + name + ("?" if version in item.nullable else "")
