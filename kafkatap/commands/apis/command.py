"""`kafkatap apis`: the APIs and versions of Kafka's protocol, and the releases that support them.

`known_apis` returns plain rows, from the layouts and the table of releases. The `versions` of a row have the changes of
each version. This module uses no arrays, so the command responds at once.
"""

from __future__ import annotations

import argparse
import json
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from kafkatap.dissector.kafka.releases import RELEASES, known_since, release_of, removed_in, speaks
from kafkatap.dissector.layouts.catalog import api_name, built_in_names, load_api, load_messages, old_api_names
from kafkatap.dissector.layouts.history import Changes, changes_in
from kafkatap.dissector.layouts.schema import REQUEST, RESPONSE, MessageLayout, Struct, Versions
from kafkatap.dissector.layouts.vendors import vendor_of, vendor_ranges
from kafkatap.reports.model import Column, ReportTable, in_columns
from kafkatap.reports.rendering.text import PLAIN_WIDTH, Line, render_table, write_lines

from ...engine.selection import api_keys
from ...installation import own_version
from ..values import chosen_definitions

if TYPE_CHECKING:
    from kafkatap.dissector.layouts.overlay import Definitions

SCHEMA_VERSION = 1
#: The release that removed old versions (KIP-896).
CLEAN_UP = "4.0"
NEWEST = RELEASES[-1]


@dataclass(frozen=True, slots=True)
class ApiVersion:
    """One version of an API. `since`, `removed_in`: releases, or None. `defined_by`: the path of --definitions that has
    it, or None. `is_built_in`: kafkatap has it without that. `request`, `response`: the changes from the version
    before, or None if that direction is unknown."""

    version: int
    since: str | None
    removed_in: str | None
    defined_by: str | None
    is_built_in: bool
    flexible: bool
    request: Changes | None
    response: Changes | None


@dataclass(frozen=True, slots=True)
class FieldFacts:
    """A field of a request or response, in the versions that lay it out alike, and what its definition says of it
    (`schema.Rules`). Versions are ranges (`0-3, 5`), None: in none."""

    direction: str
    path: str
    type: str
    versions: str | None
    nullable_versions: str | None
    flexible_versions: str | None
    tag: int | None
    tagged_versions: str | None
    default: str | None
    ignorable: bool
    map_key: bool
    entity_type: str | None
    about: str | None


@dataclass(frozen=True, slots=True)
class Api:
    """One API with its known versions, ascending, and its fields in the order of the wire."""

    key: int
    name: str
    versions: tuple[ApiVersion, ...]
    fields: tuple[FieldFacts, ...]

    @property
    def flexible_from(self) -> int | None:
        return next((v.version for v in self.versions if v.flexible), None)

    @property
    def since(self) -> str | None:
        """The first release that supports it."""
        return min((v.since for v in self.versions if v.since), key=RELEASES.index, default=None)

    @property
    def newest(self) -> ApiVersion | None:
        """The newest version in any release."""
        return next((v for v in reversed(self.versions) if v.since), None)


def known_apis(
    keys: Sequence[int] = (), *, release: str | None = None, definitions: Definitions | None = None
) -> list[Api]:
    """The APIs with these keys (or all), ascending. `release`: only its APIs and versions; KeyError for an unknown
    release. `definitions`: added to the built-in layouts."""
    if release is not None:
        release = release_of(release)
    messages = load_messages() if definitions is None else definitions.messages
    found = []
    for key in sorted({key for key, _ in messages}):
        if not keys or key in keys:
            sides = messages.get((key, REQUEST)), messages.get((key, RESPONSE))
            api = _api(key, *sides, release, definitions)
            if api.versions:
                found.append(api)
    return found


def _api(
    key: int,
    request: MessageLayout | None,
    response: MessageLayout | None,
    release: str | None,
    definitions: Definitions | None,
) -> Api:
    sides = [message for message in (request, response) if message is not None]
    versions = sorted({v for message in sides for v in message.versions})
    built_in = load_api(key) if key in built_in_names() else ()
    chosen = [v for v in versions if release is None or speaks(release, key, v)]
    fields = (facts for message in sides for facts in _fields(message, message.body, set(chosen), ""))
    return Api(key, api_name(key), tuple(
        ApiVersion(
            v, known_since(key, v), removed_in(key, v), None if definitions is None else definitions.defining(key, v),
            any(v in message.versions for message in built_in), any(v in message.flexible for message in sides),
            _changes(request, v), _changes(response, v),
        )
        for v in chosen
    ), tuple(fields))  # fmt: skip


def _fields(message: MessageLayout, struct: Struct, around: set[int], prefix: str) -> Iterator[FieldFacts]:
    """The fields of a struct that exists in some versions, and those inside of them."""
    for item in struct.fields:
        path, versions = prefix + item.name, around & set(item.versions)
        if not versions:
            continue

        def in_(some: Versions, versions: set[int] = versions) -> str | None:
            return ranges(sorted(versions & set(some))) or None

        name, rules = item.struct.name if item.struct else item.type, item.rules
        yield FieldFacts(
            "response" if message.direction else "request", path, f"{'[]' if item.is_array else ''}{name}",
            in_(item.versions), in_(item.nullable), in_(message.flexible) if item.flexible else None,
            item.tag if item.tag >= 0 else None, in_(item.tagged), rules.default, rules.is_ignorable,
            rules.is_map_key, rules.entity_type, rules.about,
        )  # fmt: skip
        if item.struct:
            yield from _fields(message, item.struct, versions, f"{path}.")


def _changes(message: MessageLayout | None, version: int) -> Changes | None:
    return changes_in(message, version) if message is not None and version in message.versions else None


def ranges(versions: Sequence[int]) -> str:
    """Ascending numbers as ranges: `0-3, 5`."""
    runs: list[list[int]] = []
    for v in versions:
        if runs and runs[-1][1] == v - 1:
            runs[-1][1] = v
        else:
            runs.append([v, v])
    return ", ".join(str(low) if low == high else f"{low}-{high}" for low, high in runs)


# ---------------------------------------------------------------- the command


def run(options: argparse.Namespace) -> int:
    """Run the command; return its exit code."""
    from ...complaints import complain, reason_of
    from ..exit_codes import DONE, WRONG

    try:
        definitions = chosen_definitions(options)
        keys = sorted(api_keys(options.apis))
        found = known_apis(keys, release=options.release, definitions=definitions)
        missing = set(keys) - {api.key for api in found}
        if missing:
            raise ValueError(_not_listed(sorted(missing), options.release))
    except (ValueError, OSError) as error:
        complain(reason_of(error))
        return WRONG
    if options.json:
        write_json(found, options.release)
    else:
        color = None if options.color == "auto" else options.color == "always"
        lines = render_versions if options.apis else render_list
        write_lines(lambda width: lines(found, options.release, width), sys.stdout, color=color)
    sys.stdout.flush()
    return DONE


def _not_listed(keys: Sequence[int], release: str | None) -> str:
    """Why there is no row for these keys."""
    if release:
        return f"no API with key {', '.join(map(str, keys))} is in Kafka {release}"
    named = [f"{api_name(key)} (key {key}, {vendor_of(key)})" for key in keys if vendor_of(key)]
    if named:
        return f"the layout of {', '.join(named)} is not known; --definitions PATH adds it"
    return f"no API with key {', '.join(map(str, keys))} is known"


COLUMNS = (
    Column("key", "key", "packet", "API key"),
    Column("name", "API", "text", "name of the API"),
    Column("versions", "versions", "text", "versions", of=lambda api: ranges([v.version for v in api.versions])),
    Column("flexible", "flexible", "text", "first flexible version (compact lengths, tag sections; KIP-482)", 2,
           of=lambda api: None if api.flexible_from is None else f"{api.flexible_from}+"),
    Column("since", "first\nknown in", "text", "first release that supports it"),
    Column("removed", f"removed\nin {CLEAN_UP}", "text", "versions that this release removed",
           of=lambda api: _removed(api)),
    Column("latest", "latest\nversion", "text", "newest version of a release",
           of=lambda api: api.newest and f"v{api.newest.version}"),
    Column("added", "added\nin", "text", "release that added it", of=lambda api: api.newest and api.newest.since),
)  # fmt: skip


def render_list(found: Sequence[Api], release: str | None, width: int | None) -> Iterator[Line]:
    """One row for each API."""
    title = f"APIs of Kafka {release}" if release else f"Kafka's APIs, 0.8.2 to {NEWEST}"
    if not all(v.is_built_in for api in found for v in api.versions):
        title += ", and those of --definitions"
    notes: tuple[str, ...] = (
        f"{len(found)} APIs, {sum(len(api.versions) for api in found)} versions. kafkatap apis NAME lists the "
        "changes of each version.",
    )
    if release is None:
        advice = (
            f"Kafka {CLEAN_UP} and later refuse clients that send a version which {CLEAN_UP} removed (KIP-896); "
            "kafkatap report --by version CAPTURE shows which versions are in use."
        )
        notes = (*notes, advice, _vendors_note())
    yield from render_table(
        ReportTable("apis", title, COLUMNS, in_columns(COLUMNS, found), notes, whole=True), width, 0, True
    )


def _removed(api: Api) -> str | None:
    """The versions that CLEAN_UP removed."""
    gone = [v.version for v in api.versions if v.removed_in == CLEAN_UP]
    return None if not gone else f"all ({ranges(gone)})" if len(gone) == len(api.versions) else ranges(gone)


def _vendors_note() -> str:
    """The keys of vendors, in one sentence."""
    keys = "; ".join(
        f"{vendor} {', '.join(f'{low}-{high}' if low < high else str(low) for low, high in ranges)}"
        for vendor, ranges in vendor_ranges().items()
    )
    return f"Keys that vendors use: {keys}. --definitions PATH adds their messages."


def render_versions(found: Sequence[Api], release: str | None, width: int | None) -> Iterator[Line]:
    """The versions of each API, with their changes."""
    for number, api in enumerate(found):
        if number:
            yield []
        first = api.flexible_from
        flexible = "" if first is None else f", flexible from v{first}"
        spoken = f" in Kafka {release}" if release else ""
        versions = ranges([v.version for v in api.versions])
        plural = "s" if len(api.versions) > 1 else ""
        old = ", ".join(old_api_names().get(api.key, ()))
        earlier = f"; earlier names: {old}" if old else ""
        yield [(api.name, "bold"), (f": API key {api.key}, version{plural} {versions}{spoken}{flexible}{earlier}", "")]
        for v in api.versions:
            yield _version_line(v, v.version == first)
            for side, changes in (("request ", v.request), ("response", v.response)):
                yield from _change_lines(side, changes, width)
        yield from render_table(_field_table(api), width, 0, True)


FIELDS = (
    Column("direction", "message", "text", "request or response"),
    Column("path", "field", "text", "names from the message's body down"),
    Column("type", "type", "text", "its type; [] before an array"),
    Column("versions", "versions", "text", "versions that have it"),
    Column("nullable_versions", "null in", "text", "versions in which it can be null", 1),
    Column("tag", "tag", "packet", "its number in the tag section", 3),
    Column("tagged_versions", "tagged in", "text", "versions in which it lies in the tag section", 4),
    Column("default", "default", "text", "its value where it is absent; empty: 0, empty or false", 1),
    Column("ignorable", "ignorable", "flag", "a sender may leave it out where a version has no place for it", 2,
           of=lambda f: f.ignorable or None),
    Column("map_key", "key", "flag", "elements of the array are found by it", 2, of=lambda f: f.map_key or None),
    Column("entity_type", "entity", "text", "what it names", 2),
    Column("flexible_versions", "flexible in", "text", "versions in which its length is compact (KIP-482)", 4),
    Column("about", "about", "text", "what the file of --definitions says of it", 3),
)  # fmt: skip


def _field_table(api: Api) -> ReportTable:
    """All fields, with what their definition says."""
    notes = ("default: empty for 0, an empty value, or false.",)
    return ReportTable("fields", f"Fields of {api.name}", FIELDS, in_columns(FIELDS, api.fields), notes, whole=True)


def _version_line(v: ApiVersion, first_flexible: bool) -> Line:
    line: Line = [(f"{f'v{v.version}':>4}", "bold cyan"), (f"  since Kafka {v.since}" if v.since else "", "")]
    if not v.since and v.is_built_in:
        line += [("  in no release as a stable version", "yellow")]
    elif not v.since:
        line += [(f"  defined by {v.defined_by}; in no release of Apache Kafka up to {NEWEST}", "yellow")]
    if v.removed_in:
        line += [(f", removed in {v.removed_in}", "red")]
    if first_flexible:
        line += [(", flexible from here on", "green")]
    if not (v.request or v.response):
        line += [(", same fields", "dim")]
    return line


def _change_lines(side: str, changes: Changes | None, width: int | None) -> Iterator[Line]:
    """The changes of one direction, wrapped. The fields of a new struct are in braces."""
    if changes is None:
        yield [(f"      {side}  ", "cyan"), ("not known", "dim")]
        return
    words = [f"{'' if changes.whole else '+'}{text}" for text in _nested(changes)]
    words += [f"-{path}" for path in changes.removed if not _inside(path, changes.removed)]
    words += [f"~{path} {entry.type}{_tag(entry.tag)}" for path, entry in changes.changed.items()]
    if not words:
        if changes.whole:
            yield [(f"      {side}  ", "cyan"), ("no fields", "dim")]
        return
    room = max((width or PLAIN_WIDTH) - 16, 30)
    firm = (
        w.replace(" ", "\0") if len(w) <= room else w for w in words
    )  # break only texts that are too long for a line
    lines = textwrap.wrap("  ".join(firm), room, break_on_hyphens=False)
    for n, text in enumerate(lines):
        yield [(f"      {side if n == 0 else '        '}  ", "cyan"), (text.replace("\0", " "), "")]


def _nested(changes: Changes) -> Iterator[str]:
    """The added fields. The fields of an added struct follow it in braces."""
    paths = list(changes.added)
    for path in paths:
        if not _inside(path, paths):
            yield _with_inner(path, path, changes)


def _with_inner(path: str, name: str, changes: Changes) -> str:
    entry = changes.added[path]
    direct = [p for p in changes.added if p.startswith(path + ".") and "." not in p[len(path) + 1 :]]
    inner = ", ".join(_with_inner(p, p[len(path) + 1 :], changes) for p in direct)
    kind = f"{'[]' if entry.type.startswith('[]') else ''}{{{inner}}}" if direct else entry.type
    return f"{name} {kind}{_tag(entry.tag)}"


def _inside(path: str, paths: Sequence[str] | Mapping[str, Any]) -> bool:
    """Whether the struct of this field is among the paths."""
    return path.rpartition(".")[0] in paths


def _tag(tag: int | None) -> str:
    return "" if tag is None else f" (tag {tag})"


# ---------------------------------------------------------------- JSON


def write_json(found: Sequence[Api], release: str | None) -> None:
    """Write everything as one JSON object, one API on a line. docs/json.md describes the form."""
    head = json.dumps({"schema_version": SCHEMA_VERSION, "kafkatap": own_version(), "release": release}, indent=1)
    lines = ",\n  ".join(json.dumps(api_object(api)) for api in found)
    sys.stdout.write(f'{head[:-2]},\n "apis": [\n  {lines}\n ]\n}}\n')


def api_object(api: Api) -> dict[str, Any]:
    """An API as plain dicts and lists."""
    newest = api.newest
    return {
        "key": api.key,
        "name": api.name,
        "old_names": list(old_api_names().get(api.key, ())),
        "flexible_from": api.flexible_from,
        "since": api.since,
        "newest_version": None if newest is None else newest.version,
        "newest_since": None if newest is None else newest.since,
        "versions": [
            {
                "version": v.version, "since": v.since, "removed_in": v.removed_in, "defined_by": v.defined_by,
                "flexible": v.flexible,
                "request": _changes_object(v.request), "response": _changes_object(v.response),
            }
            for v in api.versions
        ],
        "fields": [asdict(facts) for facts in api.fields],
    }  # fmt: skip


def _changes_object(changes: Changes | None) -> dict[str, Any] | None:
    if changes is None:
        return None
    return {
        "added": [{"path": path, **asdict(entry)} for path, entry in changes.added.items()],
        "removed": list(changes.removed),
        "changed": [{"path": path, **asdict(entry)} for path, entry in changes.changed.items()],
    }


def schema() -> dict[str, Any]:
    """The JSON Schema of the output of `write_json`."""
    fields = _list(_object(
        path=("string", "names from the message's body down, joined by dots"),
        type=("string", "type of the field; [] before an array, ? after a type that can be null"),
        tag=("integer?", "number in the tag section; null: the field is not tagged"),
    ))  # fmt: skip
    removed = _list({"type": "string"})
    changes = {
        **_object(added=(fields, "new fields"), removed=(removed, "paths of removed fields"),
                  changed=(fields, "fields with a new type, null or tag, as they are now")),
        "type": ["object", "null"],
    }  # fmt: skip
    version = _object(
        version=("integer", "the version"),
        since=("string?", "first release that supports it; null: no release has it as a stable version"),
        removed_in=("string?", "release that removed it; null: none"),
        defined_by=("string?", "path of --definitions that has this version; null: it is built in"),
        flexible=("boolean", "compact lengths and tag sections (KIP-482)"),
        request=(changes, "changes from the version before; null: that direction is unknown"),
        response=(changes, "the same for the response"),
    )
    api = _object(
        key=("integer", "API key"),
        name=("string", "name of the API"),
        old_names=(_list({"type": "string"}), "its names in earlier releases and documents"),
        flexible_from=("integer?", "first flexible version"),
        since=("string?", "first release that supports it"),
        newest_version=("integer?", "newest version in any release"),
        newest_since=("string?", "release that added it"),
        versions=(_list(version), "ascending"),
        fields=(_list(_facts_schema()), "all fields of the request and the response, in the order of the wire"),
    )
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "kafkatap apis",
        **_object(
            schema_version=({"const": SCHEMA_VERSION}, "changes when a field goes, or comes to mean something else"),
            kafkatap=("string", "version of kafkatap that wrote this"),
            release=("string?", "the release of --release"),
            apis=(_list(api), "ascending by key"),
        ),
    }


def _facts_schema() -> dict[str, Any]:
    return _object(
        direction=({"enum": ["request", "response"]}, "the message that has the field"),
        path=("string", "names from the message's body down, joined by dots"),
        type=("string", "type of the field; [] before an array"),
        versions=("string", "versions that have it: ranges such as 0-3, 5"),
        nullable_versions=("string?", "versions in which it can be null; null: none"),
        flexible_versions=("string?", "versions in which its length, or that of its strings, is compact; null: none"),
        tag=("integer?", "number in the tag section; null: it is never tagged"),
        tagged_versions=("string?", "versions in which it lies in the tag section; null: none"),
        default=("string?", "value where it is absent, as its definition writes it; null: 0, empty or false"),
        ignorable=("boolean", "a sender may leave it out where a version has no place for it"),
        map_key=("boolean", "elements of the array are found by it"),
        entity_type=("string?", "what it names, such as topicName"),
        about=("string?", "what the file of --definitions says of it; null: it is built in, or the file says nothing"),
    )


def _object(**properties: tuple[str | dict[str, Any], str]) -> dict[str, Any]:
    return {
        "type": "object",
        "required": list(properties),
        "properties": {name: {**_kind(kind), "description": note} for name, (kind, note) in properties.items()},
    }


def _kind(kind: str | dict[str, Any]) -> dict[str, Any]:
    if isinstance(kind, dict):
        return kind
    return {"type": [kind[:-1], "null"] if kind.endswith("?") else kind}


def _list(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}
