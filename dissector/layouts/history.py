"""What came and what went with a version of a message, by its layout."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from .schema import Field, MessageLayout, Struct


@dataclass(frozen=True, slots=True)
class Entry:
    """A field as one version has it. `type`: as the notation writes it ("[]FetchTopic?", "int32"); `tag`: its number
    in the tag section, None where it has a place of its own."""

    type: str
    tag: int | None = None


@dataclass(frozen=True, slots=True)
class Changes:
    """The fields of one version against those of the version before, by path ("Topics.Partitions.Partition").
    `whole`: there is none before, so that `added` are all of its fields."""

    added: Mapping[str, Entry]
    removed: tuple[str, ...]
    changed: Mapping[str, Entry]  # another type, nullable or not any more, tagged: as it is now
    whole: bool = False

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.changed)


def changes_in(message: MessageLayout, version: int) -> Changes:
    """What is new in a version; of a message's first version all of its fields are."""
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
    """Every field that a version has, in the order of the layout."""
    for item in struct.fields:
        if version in item.versions:
            path = prefix + item.name
            yield path, Entry(_type_of(item, version), item.tag if version in item.tagged else None)
            if item.struct is not None:
                yield from _entries(item.struct, version, path + ".")


def _type_of(item: Field, version: int) -> str:
    name = item.struct.name if item.struct is not None else item.type
    return ("[]" if item.is_array else "") + name + ("?" if version in item.nullable else "")
