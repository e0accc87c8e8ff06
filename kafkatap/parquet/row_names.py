"""The strings and addresses that some rows refer to: a Context that does not grow with the run."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import numpy as np

from kafkatap.kernels.arrays import new_numbers
from kafkatap.reports.batch import ADDRESS_COLUMNS, STRING_COLUMNS, Array, Context, Names


def named(arrays: Sequence[Array], names: Names) -> Context:
    """The names that rows refer to, and no others. The rows get the new numbers of these names."""
    strings = _used(arrays, STRING_COLUMNS, len(names.strings))
    known = {n: names.topic_names[n] for n in np.flatnonzero(strings).tolist() if n in names.topic_names}
    strings[list(known.values())] = True
    place = _renumber(arrays, STRING_COLUMNS, strings)
    addresses = _used(arrays, ADDRESS_COLUMNS, len(names.addresses))
    _renumber(arrays, ADDRESS_COLUMNS, addresses)
    return Context(
        strings=[names.strings[n] for n in np.flatnonzero(strings).tolist()],
        addresses=[names.addresses[n] for n in np.flatnonzero(addresses).tolist()],
        topic_names={int(place[number]): int(place[name]) for number, name in known.items()},
        hosts=names.hosts,
    )


def _columns(arrays: Sequence[Array], names: Collection[str]) -> Iterator[tuple[Array, str]]:
    for rows in arrays:
        for name in names:
            if name in (rows.dtype.names or ()):
                yield rows, name


def _used(arrays: Sequence[Array], names: Collection[str], count: int) -> Array:
    """Which of `count` numbers occur in these columns: bool (count + 1,). The last element, for -1, is False."""
    used = np.zeros(count + 1, bool)
    for rows, name in _columns(arrays, names):
        used[rows[name]] = True
    used[-1] = False
    return used


def _renumber(arrays: Sequence[Array], names: Collection[str], used: Array) -> Array:
    """Replace the numbers in these columns by dense ones. Return the new number by the old one, -1 for -1."""
    place = new_numbers(used)
    for rows, name in _columns(arrays, names):
        rows[name] = place[rows[name]]
    return place
