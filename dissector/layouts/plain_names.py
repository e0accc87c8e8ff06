"""Names as people write them: in any case, with any _ and -, and with what documents put behind them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def plain_name(name: str) -> str:
    """A name without case, _ and -."""
    return name.replace("_", "").replace("-", "").lower()


def number_of(name: str, known: Mapping[str, int], suffixes: Sequence[str]) -> int | None:
    """The number of a name by the plain names of `known`, also with a suffix behind it; None if there is none."""
    plain = plain_name(name)
    shorter = (plain.removesuffix(suffix) for suffix in suffixes if plain.endswith(suffix))
    return next((known[each] for each in (plain, *shorter) if each in known), None)
