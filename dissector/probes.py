"""Comparisons on decoded fields: which messages have a value that fulfils them.

`Probes` is an inspector. It decodes the messages that have a compared field once more, with programs for these fields
only. For each comparison that a value fulfils it sets one bit of the exchange's mark. Programs are compiled only for
the APIs of the compared fields.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .inspection import Frames
from .layouts.catalog import load_messages
from .layouts.schema import MessageLayout
from .programs.compiler import compile_programs
from .programs.fields import K_ELEMENT, K_STRUCT, FieldInfo
from .programs.profiles import Profile

Array = np.ndarray[Any, Any]
#: Where a field lies: (api_key, direction, path), as in `FieldTable.find`.
Place = tuple[int, int, str]
#: The bits of a mark.
MOST = 64
#: Results for texts that are kept for each probe.
_REMEMBERED = 1 << 16


@dataclass(frozen=True, slots=True)
class Probe:
    """One comparison on the fields at `places`. A message fulfils it if any value of them does that is not null.

    `numbers` compares values (int64, n; of float64 the bits) of a type -> bool (n,). `texts` compares the bytes of
    strings or uuids -> bool (n,). If both are None, any value fulfils the comparison.
    """

    places: frozenset[Place]
    numbers: Callable[[Array, str], Array] | None = None
    texts: Callable[[Sequence[bytes], str], Array] | None = None

    @property
    def api_keys(self) -> frozenset[int]:
        return frozenset(key for key, _, _ in self.places)


class Probes:
    """The inspector for some probes: bit `first` + i of a mark is that of probes[i]. ValueError for too many probes.

    `messages`: the layouts (by default the built-in ones), or at least those of the messages with the fields.
    """

    def __init__(
        self, probes: Sequence[Probe], messages: Mapping[tuple[int, int], MessageLayout] | None = None, first: int = 0
    ) -> None:
        if first + len(probes) > MOST:
            raise ValueError(f"at most {MOST} comparisons on decoded fields, not {first + len(probes)}")
        self._first = first
        self.probes = tuple(probes)
        places = {place for probe in probes for place in probe.places}
        ends = {(key, direction) for key, direction, _ in places}
        known = load_messages() if messages is None else messages

        def wanted(field: FieldInfo, version: int) -> bool:
            return (field.api_key, field.direction, field.path) in places

        self.programs = compile_programs({end: known[end] for end in ends}, Profile("probes", wanted))
        self._fields = [self._of(probe) for probe in self.probes]
        self._texts: list[dict[tuple[bytes, str], bool]] = [{} for _ in probes]

    def _of(self, probe: Probe) -> dict[int, FieldInfo]:
        table = self.programs.fields
        return {table.find[place]: table[table.find[place]] for place in probe.places}

    def look(self, frames: Frames) -> None:
        """Set the bits of these messages."""
        jobs, rows = frames.decode(self.programs)
        if not len(rows):
            return
        source = np.repeat(jobs["source"], jobs["tape_count"])
        for number, probe in enumerate(self.probes):
            bit = np.uint64(1 << self._first + number)
            for field, info in self._fields[number].items():
                at = np.flatnonzero(rows["field"] == field)
                if not len(at):
                    continue
                at = at[self._judge(number, probe, info, rows, at, source, frames.buffers)]
                slots = rows["frame"][at] >> 1
                frames.marks[slots] |= bit

    def _judge(
        self, number: int, probe: Probe, info: FieldInfo, rows: Array, at: Array, source: Array,
        buffers: Sequence[Array],
    ) -> Array:  # fmt: skip
        """Which of the rows `at` of one field fulfil a probe: bool (len(at),)."""
        length = rows["length"][at]
        if info.kind in (K_ELEMENT, K_STRUCT) or (probe.numbers is None and probe.texts is None):
            present: Array = length >= 0
            return present
        if probe.numbers is not None:
            judged: Array = probe.numbers(rows["value"][at], info.type)
            return judged
        assert probe.texts is not None
        known, kind = self._texts[number], info.type
        views = [memoryview(buffer) for buffer in buffers]  # type: ignore[arg-type]
        places = zip(rows["value"][at].tolist(), length.tolist(), source[at].tolist(), strict=True)
        values = [None if size < 0 else bytes(views[of][start : start + size]) for start, size, of in places]
        if len(known) >= _REMEMBERED:
            known.clear()
        new = [value for value in dict.fromkeys(values) if value is not None and (value, kind) not in known]
        known |= zip(((value, kind) for value in new), probe.texts(new, kind).tolist(), strict=True)
        return np.array([value is not None and known[value, kind] for value in values], bool)
