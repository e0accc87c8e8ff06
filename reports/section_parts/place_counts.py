"""`PlaceCounts`: the counts and events of sections for many places, which are numbers for a capture and an hour.

Thousands of small captures are read together, and each form has rows of all places: PLACE is their first key. So the
cost of a place is that of its rows, not that of a hundred forms.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache

import numpy as np

from ..batch import Array, Batch
from ..counting.count_forms import PLACE, FormCounts, by_place
from ..counting.parts import Part
from .gathered import Gathered, PlacedRows
from .registry import load_sections
from .section import BatchCounter, Section
from .section_counts import EVENTS, SectionCounts

#: Places whose counts of batches are apart at once: an order of exchanges that changes them often costs time.
_MOST_OPEN = 16
#: Rows of more places than that, in all forms.
_MOST_ROWS = 1 << 18
#: Rows for which a table has room that is used again for another place.
_USED_AGAIN = 1 << 12


@cache
def _sections(wanted: tuple[str, ...]) -> tuple[Section, ...]:
    return tuple(_by_place(section) for section in load_sections(wanted))


def _by_place(section: Section) -> Section:
    """A section whose rows have a place. Its `batch_counts` are counted apart. One that adds rows by itself stays as it
    is: a lake has no counts of it."""
    declared = {each.name for each in section.counts} | {
        form.name for each in section.batch_counts for form in each.forms
    }
    if not declared.issuperset(form.name for form in section.forms):
        return section
    return section._replace(
        forms=[*map(by_place, section.every_form)],
        counts=[each._replace(form=by_place(each.form), keys={PLACE: PLACE, **each.keys}) for each in section.counts],
        batch_counts=(),
    )


class _BatchCounts:
    """What `Section.batch_counts` are for one place."""

    def __init__(self, sections: Sequence[Section]) -> None:
        counts = [each for section in sections for each in section.batch_counts]
        self.forms = {form.name: FormCounts(form) for each in counts for form in each.forms}
        self._counters = [BatchCounter(each) for each in counts]

    def add(self, exchanges: Array) -> None:
        for counter in self._counters:
            counter.add(exchanges, [self.forms[name].table for name in counter.names])

    def move_to(self, counts: PlaceCounts, place: int) -> None:
        """Move all rows to others."""
        for name, mine in self.forms.items():
            mine.move_to(counts.forms[name], place)
            if mine.table.capacity > _USED_AGAIN:
                self.forms[name] = FormCounts(mine.form)


class PlaceCounts(SectionCounts):
    """`wanted`, `names`, `other`: as of `SectionCounts`."""

    def __init__(self, wanted: Sequence[str], names: int, other: Callable[[], int]) -> None:
        super().__init__(wanted, names, other)
        self._reads_batches, self._notable = True, None
        self._unplaced = load_sections(wanted)
        #: The places of the exchanges of each batch that waits, and that of what belongs to no exchange.
        self._places: list[tuple[Array, int]] = []
        self._keys = self._places_of_keys = np.zeros(0, np.int64)  # of exchanges, by their numbers in events
        self._event_places: dict[str, list[Array]] = {section.name: [] for section in self.sections}
        self._open: dict[int, _BatchCounts] = {}
        self._free: list[_BatchCounts] = []
        self._last = -1

    def _load(self) -> tuple[Section, ...]:
        return _sections(self.wanted)

    def add_placed(self, batch: Batch, places: Array, rest: int) -> None:
        """Add a batch, whose arrays stay as they are. `places`: int64, one for each exchange, from 0 on. `rest`: that
        of what belongs to no exchange."""
        self._last = max(self._last, rest, int(places.max(initial=-1)))
        self._places.append((places, rest))
        self.add(batch)

    def add_of_place(self, place: int, exchanges: Array) -> None:
        """Count exchanges of one place as `Section.batch_counts` say, besides `add_placed`."""
        found = self._open.pop(place, None)
        if found is None:
            if len(self._open) == _MOST_OPEN:
                self._close(next(iter(self._open)))
            found = self._free.pop() if self._free else _BatchCounts(self._unplaced)
        self._open[place] = found  # the latest that was added to is the last one
        found.add(exchanges)
        if any(len(counts) > self._most_rows(counts) for counts in found.forms.values()):
            self._close(place)

    def _close(self, place: int) -> None:
        """Add up the counts of batches of a place."""
        found = self._open.pop(place)
        found.move_to(self, place)
        self._free.append(found)
        self._limit(found.forms)

    def _most_rows(self, counts: FormCounts) -> int:
        return min(self._names, counts.form.rows or self._names)

    def _limited(self, counts: FormCounts, rows: int) -> FormCounts:
        """Each place has as few rows as a report."""
        if PLACE not in counts.form.keys:
            return super()._limited(counts, rows)
        places = counts.table.key_rows()[:, 0]
        is_large = np.bincount(places) > rows
        if not is_large.any():
            return counts
        made = counts.with_rows(np.flatnonzero(~is_large[places]))
        for place in np.flatnonzero(is_large).tolist():
            one = super()._limited(counts.with_rows(np.flatnonzero(places == place)), rows)
            made.merge(one.table.key_rows(), one)
        return made

    @property
    def is_full(self) -> bool:
        """Whether there are so many rows of many places, or events, that they must be kept before more are added."""
        if self._batches:
            return False  # nothing was counted since then
        has_events = any(self.noted(section) > EVENTS for section in self._event_places)
        return has_events or (self._last >= _MOST_OPEN and sum(map(len, self.forms.values())) > _MOST_ROWS)

    def _take_batches(self) -> Gathered:
        batches, (places, rests) = self._batches, zip(*self._places, strict=True)
        gathered, self._places = super()._take_batches(), []
        estimates = [0 if batch.estimates is None else len(batch.estimates) for batch in batches]
        gathered.put(np.concatenate(places), np.repeat(np.array(rests, np.int64), estimates))
        tokens = [0 if batch.tokens is None else len(batch.tokens.exchanges) for batch in batches]
        self._keys = np.concatenate((gathered.column("key"), gathered.tokens.column("key")))
        self._places_of_keys = np.concatenate((gathered.column(PLACE), np.repeat(np.array(rests, np.int64), tokens)))
        return gathered

    def note(self, section: str, events: Array) -> None:
        """Add events of exchanges of the batches that are counted."""
        if len(events):
            events, numbers = events.copy(), events["exchange"]
            events["exchange"] = self._keys[numbers]
            super().note(section, events)
            self._event_places[section].append(self._places_of_keys[numbers])

    def add_connections(self, rows: Array, places: Array | None = None) -> None:
        """Add connections that ended, as of `SectionCounts`. `places`: int64, one for each."""
        assert places is not None, "connections have places"
        self._last = max(self._last, int(places.max(initial=-1)))
        super().add_connections(PlacedRows(rows, places))  # type: ignore[arg-type]

    def parts_with_places(self) -> Iterator[tuple[Part, Array]]:
        """All counts and events, and the place of each row."""
        self._finish_batches()
        for part in self.parts():
            section = self.part_names[part.form]
            if section is not None:
                yield part, np.concatenate(self._event_places[section])
            elif PLACE in part.kinds:
                yield part.apart(PLACE)

    def _finish_batches(self) -> None:
        self.finish()
        for place in list(self._open):
            self._close(place)

    def add_to(self, total: SectionCounts) -> None:
        """Add all to counts that have no places."""
        self._finish_batches()
        keys = {
            name: counts.table.key_rows()[:, 1:] for name, counts in self.forms.items() if PLACE in counts.form.keys
        }
        total.add_counts(self, keys=keys)
