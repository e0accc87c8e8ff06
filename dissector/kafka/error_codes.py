"""Kafka's error codes: their names of all releases, what they mean, and whether a client may retry.

The table is error_codes.tsv. `since` and `retriable_changed` are of Kafka's client classes; codes that the brokers of
0.8.2 sent count from there. A meaning is a part of a sentence, in which `{broker}` is who sent the code. A remedy is
a sentence.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

from ..layouts.plain_names import number_of, plain_name

_TABLE = os.path.join(os.path.dirname(__file__), "error_codes.tsv")
#: What documents and clients write behind names: NotCoordinatorForGroupCode, NotLeaderForPartitionException.
_SUFFIXES = ("code", "exception")


class ErrorCode(NamedTuple):
    """`name`: of today. `old_names`: of earlier releases. `since`: the first release with it. `retriable_changed`: the
    release in which `is_retriable` became what it is; "" if it always was. `setting`: what to change, "": none.
    `remedy`: what to do; "" of NONE."""

    code: int
    name: str
    old_names: tuple[str, ...]
    since: str
    is_retriable: bool
    retriable_changed: str
    text: str
    setting: str
    remedy: str

    @property
    def meaning(self) -> str:
        """What it means, in a part of a sentence."""
        return self.text.format(broker="the broker")

    @property
    def is_harmless(self) -> bool:
        """Whether nobody has to do anything about it."""
        return self.remedy.startswith(("Nothing.", "Nothing:"))


@cache
def error_codes() -> Mapping[int, ErrorCode]:
    """All error codes, ascending."""
    with open(_TABLE, encoding="utf-8") as file:
        rows = [line.split("\t") for line in file.read().splitlines()[1:]]
    return {
        int(code): ErrorCode(int(code), name, tuple(old.split()), since, retriable == "yes", changed, *texts)
        for code, name, old, since, retriable, changed, *texts in rows
    }


def error_name(code: int) -> str:
    """Kafka's name of an error code ("NOT_LEADER_OR_FOLLOWER"); for one outside the table its number as text."""
    known = error_codes().get(code)
    return known.name if known else str(code)


def is_retriable(code: int) -> bool:
    """Whether a client may send the same again; False for a code outside the table."""
    known = error_codes().get(code)
    return known is not None and known.is_retriable


def code_of(name: str) -> int | None:
    """The error code of a name of today or of an earlier release, in any case and with any _ and -; None for none.
    Names of exceptions (NotLeaderForPartitionException) are those of their codes."""
    return number_of(name, _codes_by_name(), _SUFFIXES)


@cache
def _codes_by_name() -> Mapping[str, int]:
    old = {plain_name(name): code for code, each in error_codes().items() for name in each.old_names}
    return old | {plain_name(each.name): code for code, each in error_codes().items()}
