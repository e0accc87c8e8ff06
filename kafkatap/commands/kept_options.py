"""`kept_options`: the options of a command line that commands beside its findings keep."""

from __future__ import annotations

import argparse
from typing import Any

from kafkatap.reports.commands import KEPT

_UNITS = (("h", 3_600_000_000_000), ("m", 60_000_000_000), ("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000))


def kept_options(options: argparse.Namespace) -> tuple[tuple[str, str], ...]:
    """The options of `commands.KEPT` that are set, with their values as a command line has them; "" for a flag."""
    found: list[tuple[str, str]] = []
    for name in KEPT:
        value = getattr(options, name.replace("-", "_"), None)
        for one in value if isinstance(value, list) and name != "zones" else [value]:
            if one is not None and one is not False:
                found.append((name, _as_written(name, one)))
    return tuple(found)


def _as_written(name: str, value: Any) -> str:
    if value is True:
        return ""
    if name == "late":
        return duration_word(value)
    if name == "window":
        return f"{value[0]}x{value[1]}s"
    return str(value.path if name == "zones" else value)


def duration_word(ns: int) -> str:
    """A duration as options have it: `5s`, `1500ms`."""
    unit, size = next(((unit, size) for unit, size in _UNITS if ns % size == 0), ("ns", 1))
    return f"{ns // size}{unit}"
