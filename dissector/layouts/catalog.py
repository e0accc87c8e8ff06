"""The messages that the package knows: the files of messages/, one for each API (`001_Fetch.kmsg`).

Names of APIs come from the files' names, so that a report that only names them parses nothing.

Definitions of a newer Kafka (`overlay`) add names: these are learned by the whole process, since a key means the same
API in every Kafka. Layouts are not: they are handed on as an object, since two folders may differ in them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .schema import MessageLayout

MESSAGES_FOLDER = Path(__file__).parent.parent / "messages"
_SUFFIX = ".kmsg"


#: Names of APIs that are not built in.
_learned: dict[int, str] = {}


@cache
def built_in_names() -> dict[int, str]:
    """Kafka's name of each API with a file here ("Fetch") by its key, ascending; 93 of them."""
    stems = sorted(name.removesuffix(_SUFFIX) for name in os.listdir(MESSAGES_FOLDER) if name.endswith(_SUFFIX))
    return {int(stem[:3]): stem[4:] for stem in stems}


@cache
def api_names() -> dict[int, str]:
    """The name of each API that is known, by its key, ascending: built in, or learned."""
    return dict(sorted({**_learned, **built_in_names()}.items()))


def learn_names(names: Mapping[int, str]) -> None:
    """Names of further APIs, by key, from here on; those that are built in stay."""
    _learned.update(names)
    api_names.cache_clear()


def forget_names() -> None:
    """Only the built-in names from here on."""
    _learned.clear()
    api_names.cache_clear()


def api_name(api_key: int) -> str:
    """The name of an API; for a key that is not known its number as text."""
    return api_names().get(api_key, str(api_key))


@cache
def load_api(api_key: int) -> tuple[MessageLayout, ...]:
    """Request and response of one API with a file here; KeyError for another key."""
    from .notation import parse_api  # here, so that names alone cost no more than a folder's listing

    name = f"{api_key:03}_{built_in_names()[api_key]}{_SUFFIX}"
    return parse_api((MESSAGES_FOLDER / name).read_text(encoding="utf-8"), name)


def load_messages() -> dict[tuple[int, int], MessageLayout]:
    """All built-in messages by (api_key, direction), direction as in `schema` (0 request, 1 response)."""
    return {
        (message.api_key, message.direction): message for api_key in built_in_names() for message in load_api(api_key)
    }
