"""The messages that the package knows: the files of messages/, one for each API (`001_Fetch.kmsg`).

Names of APIs come from the files' names, so that a report that only names them parses nothing.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .schema import Message

MESSAGES_FOLDER = Path(__file__).with_name("messages")
_SUFFIX = ".kmsg"


@cache
def api_names() -> dict[int, str]:
    """Kafka's name of each API ("Fetch") by its key, ascending; 93 of them."""
    stems = sorted(name.removesuffix(_SUFFIX) for name in os.listdir(MESSAGES_FOLDER) if name.endswith(_SUFFIX))
    return {int(stem[:3]): stem[4:] for stem in stems}


def api_name(api_key: int) -> str:
    """The name of an API; for a key that is not known its number as text."""
    return api_names().get(api_key, str(api_key))


@cache
def load_api(api_key: int) -> tuple[Message, ...]:
    """Request and response of one API; KeyError for a key that is not known."""
    from .notation import parse_api  # here, so that names alone cost no more than a folder's listing

    name = f"{api_key:03}_{api_names()[api_key]}{_SUFFIX}"
    return parse_api((MESSAGES_FOLDER / name).read_text(encoding="utf-8"), name)


def load_messages() -> dict[tuple[int, int], Message]:
    """All messages by (api_key, direction), direction as in `schema` (0 request, 1 response)."""
    return {(message.api_key, message.direction): message for api_key in api_names() for message in load_api(api_key)}
