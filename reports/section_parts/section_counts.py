"""`SectionCounts`: the counts and events of the wanted sections of a run.

`add` takes batches, and counts them when there are enough. `merge` adds those of another run. Memory is bounded: of
counts by `names` rows for each form, of events by EVENTS rows for each section, of which the latest are kept.

Under a selection `add` takes the selected exchanges. Sections that make findings need more: what a broker, a leader or
a group was before a time window. They have counts of their own for that (`learned`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from kafkatap.kernels.arrays import distinct_values, joined

from ..batch import Array, Batch, Names
from ..counting.connection_counts import without_twins
from ..counting.count_forms import ADDRESS, NUMBER, TEXT, CountStore, FormCounts, Numbers, numbers_by_kind, numbers_in
from ..counting.counts import ReportCounts
from ..counting.parts import Part
from .event_rows import EVENT, EVENT_ADDRESSES, EVENT_TEXTS, in_order
from .gathered import Gathered
from .notable import NotableExchanges
from .registry import load_sections
from .section import BatchCounter, Section

#: Exchanges, and facts, that are gathered before they are counted: few enough that they stay in the caches.
_EXCHANGES, _FACTS = 1 << 13, 1 << 18
#: The same of notable exchanges: these are few, and to begin to count them costs more than cache misses do.
_NOTABLE = 1 << 14
#: Events of a section that are kept: the latest.
EVENTS = 1_000_000
#: The columns of EVENT by the kind of what they refer to, and the name of a part with the events of a section.
_EVENT_KINDS = {
    name: TEXT if name in EVENT_TEXTS else ADDRESS if name in EVENT_ADDRESSES else NUMBER for name in EVENT.names or ()
}
_EVENTS_OF = "events of {}"


def _no_other() -> int:
    """Counts from another process are merged, and not limited, so they need no such text."""
    raise AssertionError


def _ranks(numbers: Array, name: Callable[[int], Any]) -> Array:
    """The place of each number (int64, ascending) in order of names, by number, and last -1 for -1."""
    found = np.full(int(numbers.max(initial=-1)) + 2, -1, np.int64)
    found[sorted(numbers.tolist(), key=name)] = np.arange(len(numbers))
    return found


def _renumbered(events: Array, numbers: Numbers) -> Array:
    """The same EVENT rows, with other numbers of strings and addresses."""
    for names, kind in ((EVENT_TEXTS, TEXT), (EVENT_ADDRESSES, ADDRESS)):
        for column_name in names:
            events[column_name] = numbers[kind][events[column_name]]
    return events


class Tally:
    """Where a section's `read` puts what it found."""

    def __init__(self, counts: SectionCounts, section: str) -> None:
        self._counts = counts
        self._section = section

    def add(self, form: str, keys: Mapping[str, Any], values: Mapping[str, Any]) -> None:
        """Add rows to a form: int64 columns (or single numbers) by name. Values that are left out are not changed."""
        self._counts.forms[form].add_columns(keys, values)

    def observe(self, form: str, keys: Mapping[str, Any], metric: str, values: Array) -> None:
        """Add values (int64, not negative) to a histogram of a form's rows."""
        self._counts.forms[form].observe_columns(keys, metric, values)

    def rows(self, form: str) -> tuple[dict[str, Array], dict[str, Array]]:
        """The key columns and the value columns of a form so far, by which a section may leave out what it cannot
        need."""
        found = self._counts.forms[form]
        return found.keys(), found.values()

    def note(self, events: Array) -> None:
        """Add EVENT rows, with the names of any kind, to those of the section."""
        self._counts.note(self._section, events.view(EVENT))


class SectionCounts:
    """`wanted`: names of `registry`. `names`: the most rows of a form. `other`: returns the number of the text
    "(other)". `learning`: names of the sections that learn from all exchanges, and of those that do from the exchanges
    that match, at any time; () without a selection. `only`: the names of its sections; None: all that are wanted."""

    def __init__(
        self, wanted: Sequence[str], names: int, other: Callable[[], int], learning: Sequence[frozenset[str]] = (),
        only: frozenset[str] | None = None,
    ) -> None:  # fmt: skip
        self.wanted, self._only = tuple(wanted), only
        self.sections = self._load()
        #: The counts of the sections that learn, in the order of `learning`.
        self.learned = tuple(LearnedCounts(wanted, names, other, each) for each in learning)
        self._store = CountStore(FormCounts(form) for section in self.sections for form in section.every_form)
        self.dropped: dict[str, int] = {}  # events beyond EVENTS, by section
        self._names, self._other = names, other
        self._events: dict[str, list[Array]] = {section.name: [] for section in self.sections}
        self._noted = dict.fromkeys(self._events, 0)  # how many events each has
        self._batches: list[Batch] = []
        self._gathered = [0, 0]
        self._counters = [BatchCounter(each) for section in self.sections for each in section.batch_counts]
        self._reads_batches = any(section.reads_batches for section in self.sections)
        self._notable = NotableExchanges() if all(section.reads_notable for section in self.sections) else None

    def _load(self) -> tuple[Section, ...]:
        found = load_sections(self.wanted)
        return found if self._only is None else tuple(section for section in found if section.name in self._only)

    def learned_by(self, section: str) -> LearnedCounts | None:
        """The counts from which a section makes its findings; None: these."""
        return next((one for one in self.learned if section in (s.name for s in one.sections)), None)

    @property
    def forms(self) -> Mapping[str, FormCounts]:
        """The counts by the name of their form."""
        return self._store.forms

    def add(self, batch: Batch) -> None:
        """Add a batch, whose arrays stay as they are."""
        for counter in self._counters:
            counter.add(batch.exchanges, [self.forms[name].table for name in counter.names])
            self._limit(counter.names)
        if not self._reads_batches:
            return
        if self._notable is not None:
            batch = self._notable.of(batch)
            if not (len(batch.exchanges) or batch.estimates is not None or batch.tokens is not None):
                return
        self._batches.append(batch)
        self._gathered[0] += len(batch.exchanges) + (0 if batch.estimates is None else len(batch.estimates))
        self._gathered[1] += 0 if batch.facts is None else len(batch.facts)
        most = _EXCHANGES if self._notable is None else _NOTABLE
        if self._gathered[0] >= most or self._gathered[1] >= _FACTS:
            self.finish()

    def finish(self) -> None:
        """Count the batches so far."""
        for one in self.learned:
            one.finish()
        if self._batches:
            gathered = self._take_batches()
            for section in self.sections:
                self._read(section, gathered)
            gathered.forget()
            self._limit(self.forms)

    def _take_batches(self) -> Gathered:
        gathered = Gathered(self._batches)
        self._batches, self._gathered = [], [0, 0]
        return gathered

    def _read(self, section: Section, gathered: Gathered) -> None:
        tally = Tally(self, section.name)
        section.read(gathered, tally)
        for each in section.counts:
            each.read(gathered, tally)

    def add_connections(self, rows: Array) -> None:
        """Add connections that ended (CONNECTION_ROW), each once. Twins are only for sections that ask for them."""
        for one in self.learned:
            one.add_connections(rows)
        with_twins, others = rows, without_twins(rows)
        for section in self.sections:
            rows = with_twins if section.reads_twins else others
            if not len(rows):
                continue
            tally = Tally(self, section.name)
            for each in section.counts:
                each.read_connections(rows, tally)
        self._limit(self.forms)

    def _limit(self, forms: Iterable[str]) -> None:
        for name in forms:
            counts = self.forms[name]
            rows = min(self._names, counts.form.rows or self._names)
            if len(counts) > rows:
                self._store.forms[name] = self._limited(counts, rows)

    def _limited(self, counts: FormCounts, rows: int) -> FormCounts:
        return counts.without_small_rows(rows, self._other()).largest(rows)

    def note(self, section: str, events: Array) -> None:
        """Add events of a section."""
        if not len(events):
            return
        kept = self._events[section]
        kept.append(events)
        count = self._noted[section] = self._noted[section] + len(events)
        if count > 2 * EVENTS:
            self._set_events(section, [in_order(joined(kept, EVENT))[-EVENTS:].copy()])
            self.dropped[section] = self.dropped.get(section, 0) + count - EVENTS

    def _set_events(self, section: str, parts: list[Array]) -> None:
        self._events[section], self._noted[section] = parts, sum(map(len, parts))

    def events(self, section: str) -> Array:
        """The events of a section in order of time: no more than EVENTS, the latest."""
        found = in_order(joined(self._events[section], EVENT))[-EVENTS:]
        self._set_events(section, [found])
        return found

    def noted(self, section: str) -> int:
        """How many events of a section there are."""
        return self._noted[section]

    def put_in_order(self, names: Names) -> None:
        """Put the rows of counts in order of their keys: the same for every way to read, whatever came first."""
        for one in self.learned:
            one.put_in_order(names)
        texts, addresses = self.names_used()
        ranks = {
            TEXT: _ranks(texts, lambda n: names.strings[n] or b""),
            ADDRESS: _ranks(addresses, names.addresses.__getitem__),
        }
        for counts in self.forms.values():
            if len(counts):
                counts.put_in_order(ranks)

    def forget_events(self, section: str, before: int) -> None:
        """Drop the events of a section from before a time, ns since the epoch."""
        self._set_events(section, [part[part["time"] >= before] for part in self._events[section]])

    def merge(self, other: SectionCounts, numbers: Numbers | None = None) -> None:
        """Add other counts and events of the same sections, and perhaps of more, which stay out; they may have learned
        nothing. `numbers`: the number here of each number there; None: the same."""
        other.finish()
        for mine, theirs in zip(self.learned, other.learned, strict=bool(other.learned)):
            mine.merge(theirs, numbers)
        self.add_counts(other, numbers)

    def add_counts(
        self, other: SectionCounts, numbers: Numbers | None = None, keys: Mapping[str, Array] | None = None
    ) -> None:
        """`merge` of all but what they learned. `keys`: what the keys of forms are here."""
        self._store.merge(other._store, numbers, keys or {})
        for section in self._events:
            for part in other._events[section]:
                self.note(section, part if numbers is None else _renumbered(part.copy(), numbers))
            if section in other.dropped:
                self.dropped[section] = self.dropped.get(section, 0) + other.dropped[section]
        self._limit(self.forms)

    def parts(self) -> Iterator[Part]:
        """All counts and events, to be stored."""
        self.finish()
        for counts in self.forms.values():
            if len(counts):
                yield Part.of(counts)
        for section, found in self._events.items():
            if not self._noted[section]:
                continue
            rows = joined(found, EVENT)
            columns = [rows[name].astype(np.int64) for name in _EVENT_KINDS]
            yield Part(_EVENTS_OF.format(section), _EVENT_KINDS, np.stack(columns, axis=1))

    @property
    def part_names(self) -> dict[str, str | None]:
        """The names of `parts`: None, or the section whose events they are."""
        return dict.fromkeys(self.forms) | {_EVENTS_OF.format(section): section for section in self._events}

    def add_part(self, part: Part) -> bool:
        """Add what was stored. False if it does not fit these sections any more."""
        section = self.part_names.get(part.form)
        if section is None:
            counts = self.forms.get(part.form)
            found = counts is not None and part.add_to(counts)
            self._limit([part.form] if found else ())
            return found
        if set(part.kinds) != set(_EVENT_KINDS):
            return False
        rows = np.zeros(len(part.keys), EVENT)
        for number, name in enumerate(part.kinds):
            rows[name] = part.keys[:, number]
        self.note(section, rows)
        return True

    def renumber(self, strings: Array, addresses: Array) -> None:
        """Change the numbers of strings and addresses: int64, the new number of each old one."""
        self.finish()
        for one in self.learned:
            one.renumber(strings, addresses)
        numbers = numbers_by_kind(strings, addresses)
        self._store.renumber(numbers)
        for parts in self._events.values():
            for part in parts:
                _renumbered(part, numbers)

    def names_used(self) -> tuple[Array, Array]:
        """The numbers of strings and of addresses in counts and events, ascending: int64 (n,) each."""
        self.finish()
        found = self._store.used()
        for part in (part for parts in self._events.values() for part in parts if len(part)):
            for names, kind in ((EVENT_TEXTS, TEXT), (EVENT_ADDRESSES, ADDRESS)):
                found[kind].extend(part[name] for name in names)
        own = numbers_in(found[TEXT]), numbers_in(found[ADDRESS])
        return self.united(own, *(one.names_used() for one in self.learned))

    @staticmethod
    def united(*parts: tuple[Array, Array]) -> tuple[Array, Array]:
        """All numbers of some results of `names_used`."""
        if len(parts) == 1:
            return parts[0]
        texts, addresses = (distinct_values(np.concatenate(each)) for each in zip(*parts, strict=True))
        return texts, addresses

    def __getstate__(self) -> dict[str, Any]:
        """For other processes, which can merge these counts, but not add to them."""
        self.finish()
        of_this_process = ("sections", "_other", "_notable", "_counters", "_noted")
        state = {name: value for name, value in self.__dict__.items() if name not in of_this_process}
        return state | {"_store": CountStore(counts for counts in self.forms.values() if len(counts))}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.sections = self._load()
        forms = (form for section in self.sections for form in section.every_form)
        self._store = CountStore(self.forms.get(form.name) or FormCounts(form) for form in forms)
        self._noted = {section: sum(map(len, parts)) for section, parts in self._events.items()}
        self._other = _no_other


class LearnedCounts(SectionCounts):
    """What sections learn from more exchanges than a report shows, to make their findings. `report`: counts of the same
    exchanges. `only`: the names of the sections."""

    def __init__(self, wanted: Sequence[str], names: int, other: Callable[[], int], only: frozenset[str]) -> None:
        super().__init__(wanted, names, other, only=only)
        self.report = ReportCounts()

    def add(self, batch: Batch) -> None:
        super().add(batch)
        self.report.add(batch)
        self.report.limit(self._names, self._other)

    def merge(self, other: SectionCounts, numbers: Numbers | None = None) -> None:
        assert isinstance(other, LearnedCounts)
        super().merge(other, numbers)
        self.report.merge(other.report, numbers)
        self.report.limit(self._names, self._other)

    def renumber(self, strings: Array, addresses: Array) -> None:
        super().renumber(strings, addresses)
        self.report.renumber(strings, addresses)

    def names_used(self) -> tuple[Array, Array]:
        return self.united(super().names_used(), self.report.names_used())
