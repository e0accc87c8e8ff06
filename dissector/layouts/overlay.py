"""Message definitions laid over the built-in layouts.

If both have a version of a message, the layout of the definitions wins: the user pointed at it, and a version that was
not yet stable may have changed. Versions that only the built-in layout has stay. The result is one `MessageLayout` for
each (api_key, direction), over all versions of the message. Of several sources, each is laid over those before it in
the same way.

Layouts are merged field by field. A field of the same name and kind in both becomes one. A field that changed its kind
or its place becomes two that exist in different versions; the built-in one gets a name of its own (`TopicV0`).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from .catalog import built_in_names, load_messages
from .definition_files import DefinitionError, Source, read_source
from .schema import NO_VERSIONS, Field, MessageLayout, Struct, Versions


@dataclass(frozen=True)
class Definitions:
    """The definitions of one or several sources, read once. `digest` changes with their content only."""

    sources: tuple[Source, ...]
    #: Results that others derive from the definitions, by name: they live as long as these do.
    derived: dict[str, object] = field(default_factory=dict, repr=False, compare=False)

    @property
    def paths(self) -> str:
        """The paths of the sources, for messages."""
        return ", ".join(source.path for source in self.sources)

    @cached_property
    def digest(self) -> str:
        """Hexadecimal, 16 digits."""
        found = hashlib.blake2b(digest_size=8)
        for source in self.sources:
            found.update(f"{len(source.texts)}\0".encode())
            for name, text in sorted(source.texts.items()):
                found.update(f"{name!a}\0{len(text)}\0".encode())
                found.update(text)
        return found.hexdigest()

    @cached_property
    def own(self) -> tuple[dict[tuple[int, int], MessageLayout], ...]:
        """The layouts of each source alone, by (api_key, direction). DefinitionError names a malformed file."""
        return tuple(_layouts_of(source) for source in self.sources)

    @cached_property
    def messages(self) -> dict[tuple[int, int], MessageLayout]:
        """The built-in layouts with those of each source laid over them, by (api_key, direction)."""
        together = load_messages()
        for own in self.own:
            together = lay_over(together, own)
        return together

    @cached_property
    def names(self) -> dict[int, str]:
        """Names of the APIs that are not built in, by key: those of requests, of the last source that has one."""
        found: dict[int, str] = {}
        for own in self.own:
            for key in sorted(own, reverse=True):
                if key[0] not in built_in_names():
                    found[key[0]] = own[key].name
        return found

    def defining(self, api_key: int, version: int) -> str | None:
        """The path of the last source that has a version of an API; None for a version that is only built in."""
        for source, own in zip(self.sources[::-1], self.own[::-1], strict=True):
            if any(key == api_key and version in message.versions for (key, _), message in own.items()):
                return source.path
        return None


def _layouts_of(source: Source) -> dict[tuple[int, int], MessageLayout]:
    from .definitions import load_definitions  # kept programs need none of it

    try:
        found = load_definitions(source.texts)
        if not found:
            raise DefinitionError(f"{', '.join(sorted(source.texts)[:3])}: no request or response of Kafka")
    except DefinitionError as error:
        folder, name = os.path.split(source.path)
        where = (
            os.path.join(folder, "") if name in source.texts else f"{source.path}: "
        )  # a file's name is in the error
        raise DefinitionError(f"{where}{error}") from error
    return found


def read_definitions(*paths: str | os.PathLike[str]) -> Definitions:
    """The definitions at these paths, not parsed yet. OSError, DefinitionError as of `read_source`."""
    return Definitions(tuple(read_source(path) for path in paths))


def lay_over(
    built_in: Mapping[tuple[int, int], MessageLayout], own: Mapping[tuple[int, int], MessageLayout]
) -> dict[tuple[int, int], MessageLayout]:
    """Both together, by (api_key, direction). If both have a version, the layout of `own` wins."""
    together = {**built_in, **own}
    for key in built_in.keys() & own.keys():
        together[key] = lay_message_over(built_in[key], own[key])
    return together


def lay_message_over(old: MessageLayout, new: MessageLayout) -> MessageLayout:
    """`new` with the other versions of `old`. The name is that of `old`."""
    kept = frozenset(old.versions) - frozenset(new.versions)
    have = kept | frozenset(new.versions)
    low, high = min(have), max(have)
    missing = frozenset(range(low, high + 1)) - have
    flexible = _range((frozenset(old.flexible) & kept) | frozenset(new.flexible), missing)
    if flexible is None:
        return replace(new, name=old.name)
    return MessageLayout(
        new.api_key, old.name, new.direction, Versions(low, high, missing), flexible,
        _lay_struct(old.body, new.body, kept, missing),
    )  # fmt: skip


def _range(versions: Iterable[int], missing: frozenset[int]) -> Versions | None:
    """A set of versions as a range; None if it has a gap where versions are not missing anyway."""
    found = frozenset(versions)
    if not found:
        return NO_VERSIONS
    low, high = min(found), max(found)
    return Versions(low, high) if frozenset(range(low, high + 1)) - found <= missing else None


def _lay_struct(old: Struct, new: Struct, kept: frozenset[int], missing: frozenset[int]) -> Struct:
    """The fields of both, each in the order of its own layout. `kept` are the versions that come from `old`."""
    places = {item.name: place for place, item in enumerate(new.fields)}
    fields: list[Field] = []
    done = 0  # new fields that are in `fields`
    for item in old.fields:
        if not kept & frozenset(item.versions):
            continue
        place = places.get(item.name, -1)
        both = _lay_field(item, new.fields[place], kept, missing) if place >= done else None
        if both is not None:
            fields += [*new.fields[done:place], both]
            done = place + 1
        else:
            fields += _alone(item, kept, missing, renamed=place >= 0)
    return Struct(new.name, (*fields, *new.fields[done:]))


def _lay_field(old: Field, new: Field, kept: frozenset[int], missing: frozenset[int]) -> Field | None:
    """One field over the versions of both; None if they are of different kinds."""
    if (old.type, old.is_array, old.flexible) != (new.type, new.is_array, new.flexible):
        return None
    tagged_alike = old.tag == new.tag or old.tag < 0 or new.tag < 0
    versions, nullable, tagged = (
        _range((frozenset(getattr(old, name)) & kept) | frozenset(getattr(new, name)), missing)
        for name in ("versions", "nullable", "tagged")
    )
    if not tagged_alike or versions is None or nullable is None or tagged is None:
        return None
    struct = new.struct
    if old.struct is not None and new.struct is not None:
        struct = _lay_struct(old.struct, new.struct, kept, missing)
    return replace(
        new, versions=versions, nullable=nullable, tagged=tagged, struct=struct,
        tag=(max(old.tag, new.tag) if tagged else -1), role=new.role or old.role,
    )  # fmt: skip


def _alone(item: Field, kept: frozenset[int], missing: frozenset[int], renamed: bool) -> list[Field]:
    """A field of the built-in layout in the kept versions: one field for each range of versions."""
    fields: list[Field] = []
    for run in _runs(kept & frozenset(item.versions)):
        name = f"{item.name}V{run.low}" if renamed or fields else item.name
        nullable, tagged = (_within(part, run) for part in (item.nullable, item.tagged))
        struct = None if item.struct is None else _lay_struct(item.struct, Struct(item.struct.name, ()), kept, missing)
        tag = item.tag if tagged else -1
        fields.append(replace(item, name=name, versions=run, nullable=nullable, tagged=tagged, tag=tag, struct=struct))
    return fields


def _within(versions: Versions, bounds: Versions) -> Versions:
    return _range(frozenset(versions) & frozenset(bounds), frozenset()) or NO_VERSIONS


def _runs(versions: frozenset[int]) -> list[Versions]:
    """Ranges without gaps, ascending."""
    found: list[Versions] = []
    for version in sorted(versions):
        if found and found[-1].high == version - 1:
            found[-1] = Versions(found[-1].low, version)
        else:
            found.append(Versions(version, version))
    return found
