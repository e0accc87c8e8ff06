"""The built-in layouts: the files of messages/, one for each API (`001_Fetch.kmsg`).

Names of APIs come from the names of the files, so that a report that only names APIs parses no file.

Definitions of a newer Kafka (`overlay`) add names. The whole process learns them, since a key means the same API in
every Kafka. Layouts are passed as objects instead, since two folders may differ in them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .schema import MessageLayout

MESSAGES_FOLDER = os.path.join(os.path.dirname(os.path.dirname(__file__)), "messages")
_SUFFIX = ".kmsg"


#: Learned names.
_learned: dict[int, str] = {}


@cache
def built_in_names() -> dict[int, str]:
    """Kafka's name of each built-in API ("Fetch") by its key, ascending."""
    stems = sorted(name.removesuffix(_SUFFIX) for name in os.listdir(MESSAGES_FOLDER) if name.endswith(_SUFFIX))
    return {int(stem[:3]): stem[4:] for stem in stems}


@cache
def api_names() -> dict[int, str]:
    """The built-in and learned names of APIs by key, ascending."""
    return dict(sorted({**_learned, **built_in_names()}.items()))


def learn_names(names: Mapping[int, str]) -> None:
    """Add names of further APIs, by key. Built-in names stay."""
    _learned.update(names)
    api_names.cache_clear()


def forget_names() -> None:
    """Forget all learned names."""
    _learned.clear()
    api_names.cache_clear()


def api_name(api_key: int) -> str:
    """The name of an API, or its key as text if it has none."""
    return api_names().get(api_key, str(api_key))


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
