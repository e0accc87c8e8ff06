"""Kafka's error codes: their names, and whether a client may retry.

The table is error_codes.tsv: code, name, retriable.
"""

from __future__ import annotations

import os
from functools import cache

_TABLE = os.path.join(os.path.dirname(__file__), "error_codes.tsv")


@cache
def error_codes() -> dict[int, tuple[str, bool]]:
    """(name, retriable) by code."""
    with open(_TABLE, encoding="utf-8") as file:
        rows = [line.split("\t") for line in file.read().splitlines()[1:]]
    return {int(code): (name, retriable == "yes") for code, name, retriable in rows}


def error_name(code: int) -> str:
    """Kafka's name of an error code ("NOT_LEADER_OR_FOLLOWER"); for one outside the table its number as text."""
    known = error_codes().get(code)
    return known[0] if known else str(code)


def is_retriable(code: int) -> bool:
    """Whether a client may send the same again; False for a code outside the table."""
    known = error_codes().get(code)
    return known is not None and known[1]
