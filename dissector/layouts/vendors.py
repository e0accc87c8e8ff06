"""The API keys that vendors added to Kafka's: the names that are public, and the ranges that vendors use.

The table is vendor_apis.tsv: first and last key, name, vendor. A range has no name. AutoMQ and LinkedIn publish their
sources; Redpanda reserves the keys from 15000; Confluent uses keys from 10000, whose names are not public.
"""

from __future__ import annotations

import os
from functools import cache

_TABLE = os.path.join(os.path.dirname(__file__), "vendor_apis.tsv")


@cache
def _ranges() -> list[tuple[int, int, str, str]]:
    """(first key, last key, name or "", vendor), ascending."""
    with open(_TABLE, encoding="ascii") as file:
        rows = [line.split("\t") for line in file.read().splitlines()[1:]]
    return [(int(first), int(last), name, vendor) for first, last, name, vendor in rows]


@cache
def vendor_names() -> dict[int, str]:
    """The public names of vendors' APIs by key, ascending."""
    return {first: name for first, _, name, _ in _ranges() if name}


@cache
def vendor_ranges() -> dict[str, list[tuple[int, int]]]:
    """The keys that each vendor uses, as ranges (first, last), ascending."""
    found: dict[str, list[tuple[int, int]]] = {}
    for first, last, _, vendor in _ranges():
        ranges = found.setdefault(vendor, [])
        if ranges and ranges[-1][1] == first - 1:
            first = ranges.pop()[0]
        ranges.append((first, last))
    return found


def vendor_of(api_key: int) -> str:
    """The vendor who uses an API key ("Redpanda"), or ""."""
    return next((vendor for first, last, _, vendor in _ranges() if first <= api_key <= last), "")
