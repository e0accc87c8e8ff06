"""The project's notation for message layouts: its parser and its renderer.

One file holds one API, both directions (messages/001_Fetch.kmsg):

    api 1 Fetch

    request 0-18 flexible 12+
      ClusterId string? 12+ tag 0
      ReplicaId int32 0-14 @broker_id
      Topics []FetchTopic 0+
        Topic string 0-12 @topic_name
        TopicId uuid 13+ @topic_id

    response 0-18 flexible 12+
      ThrottleTimeMs int32 1+ @throttle_time_ms

- `api KEY NAME` comes first. `request` and `response` have the message's versions, and the flexible ones if any.
- A field is `Name type versions` and then marks; two spaces of indentation a level; fields are in wire order.
- Types: the names of `schema.FIXED_WIDTHS` and `schema.VARIABLE_TYPES`; a capitalised name is a struct, whose fields
  are indented below it; `[]` before a type makes it an array.
- `?` after a type: the field may be null in all versions; `?7+`: only in versions 7 and later.
- Versions: `3+` (to the message's last), `3-5` or `3`. A range with an end must lie within the message's versions.
- Marks: `tag N` (the field lies in the tag section), `tag N 3+` (only in these versions), `@role` (`schema.ROLES`),
  `flexible=none` (its length stays an int16 or int32 in flexible versions), and those of `schema.Rules`: `=VALUE` (its
  default), `ignorable`, `key`, `entity` (the entity type of its role) or `entity=TYPE`.
- `struct Name`, indented as a field is, holds the fields of a struct used in several places of one direction; a field
  of that type has no fields below it.
- `data Name versions flexible versions` instead of `api` and direction: a layout that lies in a byte field of messages.
  A file (data/*.kmsg) holds one or more of them (`parse_data`).
- `#` begins a comment. Comments are not part of the model: rendering leaves them out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from .schema import (
    ENTITY_TYPES,
    FIXED_WIDTHS,
    NO_RULES,
    NO_VERSIONS,
    OPEN,
    REQUEST,
    RESPONSE,
    ROLES,
    VARIABLE_TYPES,
    Field,
    MessageLayout,
    Rules,
    Struct,
    Versions,
)

_INDENT = 2
_DIRECTIONS = {"request": REQUEST, "response": RESPONSE, "data": RESPONSE}
#: Marks of one word, and their names in `Rules`.
_FLAGS = {"ignorable": "is_ignorable", "key": "is_map_key"}
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9]*\Z")
_RANGE = re.compile(r"(\d+)(?:(\+)|-(\d+))?\Z")
_TYPE = re.compile(r"(\[\])?([A-Za-z][A-Za-z0-9]*)(?:(\?)(\S+)?)?\Z")


class NotationError(ValueError):
    """A text that is not in the notation; says the source, the line and what is wrong there."""


@dataclass(frozen=True, slots=True)
class _Line:
    number: int
    depth: int
    words: tuple[str, ...]


def parse_range(text: str) -> Versions:
    """`3+`, `3-5` or `3` as Versions; an open end is OPEN. ValueError when it is none of these."""
    match = _RANGE.match(text)
    if match is None:
        raise ValueError(f"{text!r} is no range of versions (3+, 3-5 or 3)")
    low, is_open, high = match.groups()
    versions = Versions(int(low), OPEN if is_open else int(high or low))
    if not versions:
        raise ValueError(f"the range {text} is empty")
    return versions


def clip(versions: Versions, bounds: Versions) -> Versions:
    """The versions that lie in both ranges; NO_VERSIONS when there are none."""
    both = Versions(max(versions.low, bounds.low), min(versions.high, bounds.high))
    return both if both else NO_VERSIONS


def parse_api(text: str, source: str = "<text>") -> tuple[MessageLayout, ...]:
    """The messages of one file, requests first as written. NotationError names `source` and the line."""
    number = 0
    try:
        lines = list(_lines(text))
        number = lines[0].number if lines else 1
        if not lines or lines[0].depth or lines[0].words[0] != "api" or len(lines[0].words) != 3:
            raise ValueError("the first line must be: api KEY NAME")
        api_key, name = int(lines[0].words[1]), lines[0].words[2]
        messages: list[MessageLayout] = []
        position = 1
        while position < len(lines):
            number = lines[position].number
            if lines[position].words[0] == "data":
                raise ValueError("data blocks have files of their own")
            message, position = _Direction(lines, position, api_key, name).parse()
            if any(message.direction == other.direction for other in messages):
                raise ValueError("a second message of one direction")
            messages.append(message)
        return tuple(messages)
    except _LineError as error:
        raise NotationError(f"{source}, line {error.number}: {error}") from None
    except ValueError as error:
        raise NotationError(f"{source}, line {number}: {error}") from None


def parse_data(text: str, source: str = "<text>") -> tuple[MessageLayout, ...]:
    """The layouts of one file of `data` blocks; the place in it is each one's api_key. NotationError as `parse_api`."""
    number = 0
    try:
        lines = list(_lines(text))
        layouts: list[MessageLayout] = []
        position = 0
        while position < len(lines):
            number = lines[position].number
            words = lines[position].words
            if lines[position].depth or words[0] != "data" or len(words) < 3:
                raise ValueError("expected: data NAME VERSIONS")
            layout, position = _Direction(lines, position, len(layouts), words[1]).parse()
            layouts.append(layout)
        return tuple(layouts)
    except _LineError as error:
        raise NotationError(f"{source}, line {error.number}: {error}") from None
    except ValueError as error:
        raise NotationError(f"{source}, line {number}: {error}") from None


class _LineError(ValueError):
    """A ValueError with its line."""

    def __init__(self, number: int, message: str) -> None:
        super().__init__(message)
        self.number = number


def _lines(text: str) -> Iterator[_Line]:
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.partition("#")[0].rstrip()
        if not line:
            continue
        body = line.lstrip(" ")
        indent = len(line) - len(body)
        if indent % _INDENT or body[0] == "\t":
            raise _LineError(number, f"indentation goes by {_INDENT} spaces")
        yield _Line(number, indent // _INDENT, tuple(body.split()))


class _Direction:
    """Parses `request ...` or `response ...` and all that is indented below it."""

    def __init__(self, lines: list[_Line], start: int, api_key: int, name: str) -> None:
        self.lines, self.start, self.api_key, self.name = lines, start, api_key, name
        self.end = next((i for i in range(start + 1, len(lines)) if lines[i].depth == 0), len(lines))
        self.shared_at: dict[str, int] = {}
        self.shared: dict[str, Struct | None] = {}  # None while it is being read: a struct within itself

    def parse(self) -> tuple[MessageLayout, int]:
        head = self.lines[self.start].words
        is_data = head[0] == "data"
        if is_data:
            head = (head[0], *head[2:])
        if head[0] not in _DIRECTIONS or not (len(head) == 2 or (len(head) == 4 and head[2] == "flexible")):
            raise ValueError("expected: request VERSIONS, or request VERSIONS flexible VERSIONS (or response ...)")
        self.versions = parse_range(head[1])
        if self.versions.high == OPEN:
            raise ValueError("a message's versions need an end")
        flexible = self._within(head[3]) if len(head) == 4 else NO_VERSIONS
        own = [i for i in range(self.start + 1, self.end) if self.lines[i].depth == 1]
        for i in own:
            words = self.lines[i].words
            if words[0] == "struct":
                if len(words) != 2 or words[1] in self.shared_at:
                    raise _LineError(self.lines[i].number, "expected: struct NAME, each name once")
                self.shared_at[words[1]] = i
        body = self._fields(self.start)
        direction = _DIRECTIONS[head[0]]
        suffix = "" if is_data else "Request" if direction == REQUEST else "Response"
        struct = Struct(self.name + suffix, body)
        message = MessageLayout(self.api_key, self.name, direction, self.versions, flexible, struct, not is_data)
        return message, self.end

    def _fields(self, parent: int) -> tuple[Field, ...]:
        """The fields one level below the line `parent`."""
        depth = self.lines[parent].depth + 1
        fields: list[Field] = []
        position = parent + 1
        while position < self.end and self.lines[position].depth >= depth:
            line = self.lines[position]
            if line.depth == depth and not (depth == 1 and line.words[0] == "struct"):
                try:
                    fields.append(self._field(position))
                except _LineError:
                    raise
                except ValueError as error:
                    raise _LineError(line.number, str(error)) from None
            elif line.depth > depth and self.lines[position - 1].depth < line.depth - 1:
                raise _LineError(line.number, "indented by more than one level")
            position += 1
        return tuple(fields)

    def _field(self, position: int) -> Field:
        line = self.lines[position]
        if len(line.words) < 3:
            raise ValueError("a field needs a name, a type and versions")
        name, type_text, range_text, *marks = line.words
        type_match = _TYPE.match(type_text)
        if not _NAME.match(name) or type_match is None:
            raise ValueError(f"{name} {type_text}: not a field's name and type")
        array, type_name, question, null_range = type_match.groups()
        versions = self._within(range_text)
        nullable = NO_VERSIONS
        if question:
            nullable = clip(self._within(null_range), versions) if null_range else versions
        tag, tagged, role, flexible, rules = self._marks(marks, versions)
        has_fields = position + 1 < self.end and self.lines[position + 1].depth > line.depth
        struct = None
        if type_name[0].isupper():
            struct = Struct(type_name, self._fields(position)) if has_fields else self._shared(type_name)
        elif type_name not in FIXED_WIDTHS and type_name not in VARIABLE_TYPES:
            raise ValueError(f"{type_name} is no type")
        elif has_fields:
            raise ValueError(f"{name} is no struct: nothing can be indented below it")
        kind = "struct" if struct else type_name
        return Field(name, kind, versions, bool(array), struct, nullable, tag, tagged, role, flexible, rules)

    def _marks(self, marks: list[str], versions: Versions) -> tuple[int, Versions, str | None, bool, Rules]:
        tag, tagged, role, flexible = -1, NO_VERSIONS, None, True
        rules: dict[str, Any] = {}
        words = iter(marks)
        word = next(words, None)
        while word is not None:
            following = next(words, None)
            if word == "tag" and following is not None and following.isdigit():
                tag, tagged = int(following), versions
                following = next(words, None)
                if following is not None and _RANGE.match(following):
                    tagged = clip(self._within(following), versions)
                    following = next(words, None)
            elif word[0] == "@" and word[1:] in ROLES:
                role = word[1:]
            elif word == "flexible=none":
                flexible = False
            elif word[0] == "=":
                rules["default"] = word[1:]
            elif word in _FLAGS:
                rules[_FLAGS[word]] = True
            elif word == "entity" and role in ENTITY_TYPES:
                rules["entity_type"] = ENTITY_TYPES[role]
            elif word.startswith("entity="):
                rules["entity_type"] = word.removeprefix("entity=")
            else:
                raise ValueError(f"{word} is no mark (tag N, @role, flexible=none, =DEFAULT, ignorable, key, entity)")
            word = following
        return tag, tagged, role, flexible, Rules(**rules) if rules else NO_RULES

    def _within(self, text: str) -> Versions:
        versions = parse_range(text)
        if versions.low not in self.versions or (versions.high != OPEN and versions.high not in self.versions):
            raise ValueError(f"{text} is not within the message's versions")
        return clip(versions, self.versions)

    def _shared(self, name: str) -> Struct:
        if name not in self.shared_at:
            raise ValueError(f"{name} has no fields below it, and there is no struct {name}")
        if name not in self.shared:
            self.shared[name] = None
            self.shared[name] = Struct(name, self._fields(self.shared_at[name]))
        struct = self.shared[name]
        if struct is None:
            raise ValueError(f"{name} contains itself")
        return struct
