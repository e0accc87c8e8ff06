"""The built-in layouts: the files of messages/, one for each API (`001_Fetch.kmsg`), and the names of APIs.

Names of APIs come from the names of the files, so that a report that only names APIs parses no file. Other names are
those of definitions (`overlay`) and of vendors (`vendors`). An API without a name is called `API 10001`. Names of
earlier releases and documents are in old_names.tsv: they are read, and never written.

The whole process learns the names of definitions, since a key means the same API in every Kafka. Layouts are passed as
objects instead, since two folders may differ in them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING

from .plain_names import number_of, plain_name

if TYPE_CHECKING:
    from .schema import MessageLayout

MESSAGES_FOLDER = os.path.join(os.path.dirname(os.path.dirname(__file__)), "messages")
_SUFFIX = ".kmsg"
_OLD_NAMES = os.path.join(os.path.dirname(__file__), "old_names.tsv")
#: What documents write behind names of APIs: OffsetRequest.
_DIRECTIONS = ("request", "response")
#: An api_key is an int16 on the wire.
LARGEST_KEY = 32_767


#: Learned names.
_learned: dict[int, str] = {}


@cache
def built_in_names() -> dict[int, str]:
    """Kafka's name of each built-in API ("Fetch") by its key, ascending."""
    stems = sorted(name.removesuffix(_SUFFIX) for name in os.listdir(MESSAGES_FOLDER) if name.endswith(_SUFFIX))
    return {int(stem[:3]): stem[4:] for stem in stems}


@cache
def api_names() -> dict[int, str]:
    """The names of APIs by key, ascending. No two are the same: the second API of a name is `API 10001`."""
    from .vendors import vendor_names  # most reports have only Kafka's own keys

    found: dict[int, str] = {}
    taken: set[str] = set()
    for names in (built_in_names(), _learned, vendor_names()):
        for key, name in names.items():
            if key not in found:
                found[key] = _numbered(key) if plain_name(name) in taken else name
                taken.add(plain_name(name))
    return dict(sorted(found.items()))


@cache
def old_api_names() -> dict[int, dict[str, str]]:
    """The earlier names of APIs by key, each with the release that replaced it, the oldest first."""
    found: dict[int, dict[str, str]] = {}
    with open(_OLD_NAMES, encoding="ascii") as file:
        for line in file.read().splitlines()[1:]:
            key, name, replaced_in = line.split("\t")
            found.setdefault(int(key), {})[name] = replaced_in
    return found


@cache
def _keys_by_name() -> dict[str, int]:
    old = {plain_name(name): key for key, names in old_api_names().items() for name in names}
    return old | {plain_name(name): key for key, name in api_names().items()}


def learn_names(names: Mapping[int, str]) -> None:
    """Add names of further APIs, by key. Built-in names stay."""
    _learned.update(names)
    _forget_cached()


def forget_names() -> None:
    """Forget all learned names."""
    _learned.clear()
    _forget_cached()


def _forget_cached() -> None:
    api_names.cache_clear()
    _keys_by_name.cache_clear()


def api_name(api_key: int) -> str:
    """The name of an API: `Fetch`, `DescribeRedpandaRoles`, `API 10001`."""
    return built_in_names().get(api_key) or api_names().get(api_key) or _numbered(api_key)


def key_of(name: str) -> int | None:
    """The key of an API by its name of today or of an earlier release, in any case and with any _ and -, also with
    `Request` or `Response` behind it; or by `API 10001` or `10001`."""
    digits = name.lower().removeprefix("api").strip()
    if digits.isascii() and digits.isdigit():
        return int(digits) if len(digits) <= 5 and int(digits) <= LARGEST_KEY else None
    return number_of(name, _keys_by_name(), _DIRECTIONS)


def _numbered(api_key: int) -> str:
    return f"API {api_key}"


@cache
def load_api(api_key: int) -> tuple[MessageLayout, ...]:
    """Request and response of one built-in API. KeyError for another key."""
    from .notation import parse_api  # names alone do not need it

    name = f"{api_key:03}_{built_in_names()[api_key]}{_SUFFIX}"
    with open(os.path.join(MESSAGES_FOLDER, name), encoding="utf-8") as file:
        return parse_api(file.read(), name)


def load_messages() -> dict[tuple[int, int], MessageLayout]:
    """All built-in messages by (api_key, direction), direction as in `schema` (0 request, 1 response)."""
    return {
        (message.api_key, message.direction): message for api_key in built_in_names() for message in load_api(api_key)
    }
