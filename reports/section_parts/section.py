"""`Section`: what a section of the report declares.

A run gathers the exchanges of some batches. Then `read` adds to the section's counts, and notes events. Counts of
several runs are added up, and their events are put in order of time. At the end `tables` makes the tables of the report
from both. So a result is the same for any number of processes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from kafkatap.kernels import Kernel
from kafkatap.kernels.arrays import dict_rows

from ..batch import Array, Context, endpoint
from ..counting.count_forms import CountForm
from ..findings import Finding
from ..model import Column, ReportTable
from .gathered import Gathered

if TYPE_CHECKING:
    from ..counting.count_table import CountTable
    from ..counting.counts import ReportCounts
    from .counted import Counted
    from .section_counts import SectionCounts, Tally
    from .selected import Selected

_Made = TypeVar("_Made")
#: The name of what others were added up to.
OTHERS = "(other)"


class CountRow(dict[str, Any]):
    """A row of a form by name, and the texts of its numbers."""

    def __init__(self, row: Mapping[str, int], context: Context) -> None:
        super().__init__(row)
        self.context = context

    def text(self, name: str) -> str | None:
        return self.context.text(self[name])

    def end(self, end: str) -> str:
        """Address and port of the client or broker."""
        if self["client_ip"] < 0 and self["broker_ip"] < 0:
            return OTHERS
        return endpoint(self.context.address(self[f"{end}_ip"]), self[f"{end}_port"])


class BatchCount(NamedTuple):
    """Counts of all exchanges of a batch, notable or not.

    The kernel `add(probe, *tables, exchanges, first)` adds the exchanges from `first` on to the arrays of `forms`
    (CountArrays), at most two rows for each. It returns the first one for which there is no room, or else their number.
    `probe`: room for a key.
    """

    forms: Sequence[CountForm]
    add: Kernel


class BatchCounter:
    """Adds batches as one BatchCount says. The kernel is bound to the tables until one of them grows."""

    def __init__(self, count: BatchCount) -> None:
        self.names = [form.name for form in count.forms]
        self._add = count.add
        self._bound_to: list[Array] = []
        self._bound: Callable[..., int]

    def add(self, exchanges: Array, tables: Sequence[CountTable]) -> None:
        """Add exchanges to the tables of the forms."""
        done = 0
        while done < len(exchanges):
            for table in tables:
                table.reserve(2)
            arrays = [array for table in tables for array in table.arrays]
            if [*map(id, arrays)] != [*map(id, self._bound_to)]:
                self._bound = self._add.bound(_PROBE, *(table.arrays for table in tables))
                self._bound_to = arrays
            done = self._bound(exchanges, done)


#: Room for the longest key.
_PROBE: Array = np.zeros(16, np.int64)


def reads_nothing(gathered: Gathered, tally: Tally) -> None:
    """`Section.read` of a section whose counts say what they read."""


def makes_nothing(given: SectionInput) -> Sequence[ReportTable]:
    """`Section.tables` of a section that reads for others."""
    return ()


class Section(NamedTuple):
    """`name`: as in --sections. `question`: what it answers. `columns`: the columns of its tables, by their names.
    `tables(input)` makes them. `counts`: forms that say what they count, connections that ended too.

    `facts`: the kinds of facts that `read` needs, besides those of `counts`. `exact_facts`: kinds that are counted only
    where others read them. `forms`: counts of `read`.
    `read(gathered, tally)` reads exchanges, facts and estimates. It must not depend on which exchanges are gathered
    together. `measures`: the run has to measure TCP (`reassembly.measures`).
    `under_selection`: a note on its first table if exchanges are selected. `findings(input)`: what the first lines of
    the report say of it. `made_of`: sections that read for it, and are loaded with it (`registry.load_sections`):
    several sections may be made of the same counts.

    `reads_notable`: `read` and `counts` need only notable exchanges (`notable`), and results with error codes.
    `batch_counts`: what is counted of others too. `reads_twins`: `counts` are also of connections that are others once
    more, which a report leaves out.
    """

    name: str
    question: str = ""
    columns: Mapping[str, Sequence[Column]] = MappingProxyType({})
    tables: Callable[[SectionInput], Sequence[ReportTable]] = makes_nothing
    facts: Sequence[str] = ()
    forms: Sequence[CountForm] = ()
    counts: Sequence[Counted] = ()
    read: Callable[[Gathered, Tally], None] = reads_nothing
    measures: bool = False
    under_selection: str = ""
    findings: Callable[[SectionInput], Sequence[Finding]] | None = None
    made_of: Sequence[str] = ()
    reads_notable: bool = False
    reads_twins: bool = False
    batch_counts: Sequence[BatchCount] = ()
    exact_facts: Sequence[str] = ()

    @property
    def makes_something(self) -> bool:
        """Whether it makes tables or findings, and does not only read for others."""
        return self.tables is not makes_nothing or self.findings is not None

    @property
    def reads_batches(self) -> bool:
        """Whether it reads anything but connections that ended."""
        return self.read is not reads_nothing or any(each.reads_batches for each in self.counts)

    @property
    def every_form(self) -> tuple[CountForm, ...]:
        """The forms of all its counts."""
        return forms_counted(self.forms, self.counts, self.batch_counts)

    @property
    def every_fact(self) -> tuple[str, ...]:
        """The kinds of facts that it needs: of `facts` and `counts`."""
        return facts_needed(self.facts, self.counts, self.exact_facts)


def forms_counted(
    forms: Iterable[CountForm], counts: Iterable[Counted], batch_counts: Iterable[BatchCount]
) -> tuple[CountForm, ...]:
    """Forms, with those of counts."""
    of_batches = (form for each in batch_counts for form in each.forms)
    return tuple({form.name: form for form in (*forms, *(each.form for each in counts), *of_batches)}.values())


def facts_needed(facts: Sequence[str], counts: Iterable[Counted], exact: Collection[str]) -> tuple[str, ...]:
    """Kinds of facts, with those of counts that are not counted only where others read them."""
    of_counts = (kind for each in counts for kind in each.facts if kind not in exact)
    return tuple(dict.fromkeys((*facts, *of_counts)))


#: `under_selection` of sections that rebuild states from what they read.
READ_SELECTED = "Only the selected exchanges were read: what others did is not known here."


class SectionInput:
    """What a section's tables are made of. `options`: by name, what the user set for sections (`--quota`).

    `sections`: the counts of all wanted sections. A section may read those of another one only if it is wanted too.
    `selected`: what the report shows; None: everything. `whole`: of counts that sections learned, the input of the
    report.
    """

    __slots__ = ("_events", "_learned", "_made", "context", "counts", "options", "sections", "selected", "whole")

    def __init__(
        self, sections: SectionCounts, counts: ReportCounts, context: Context, options: Mapping[str, Any],
        selected: Selected | None = None, whole: SectionInput | None = None,
    ) -> None:  # fmt: skip
        self.whole = whole or self
        self.sections, self.counts, self.context, self.options = sections, counts, context, options
        self.selected = selected
        sections.put_in_order(context)
        self._learned: dict[int, SectionInput] = {}
        self._made: dict[Callable[[SectionInput], Any], Any] = {}
        self._events: dict[str, Array] = {}

    def once(self, make: Callable[[SectionInput], _Made]) -> _Made:
        """What a function makes of this input, or yields: made when it is first asked for, and shared. Nobody changes
        it."""
        if make not in self._made:
            made: Any = make(self)
            self._made[make] = list(made) if isinstance(made, Iterator) else made
        found: _Made = self._made[make]
        return found

    def forget(self) -> None:
        """Drop all that was made of this input, which refers to it: it would live until Python looks for cycles."""
        for made in (self._made, self._learned, self._events):
            made.clear()
        del self.whole

    def learned_by(self, section: str) -> SectionInput:
        """What the findings of a section are made of, which may be more than the report shows."""
        found = self.whole.sections.learned_by(section)
        if found is None:
            return self
        made = self.whole._learned
        if id(found) not in made:
            made[id(found)] = SectionInput(found, found.report, self.context, self.options, whole=self.whole)
        return made[id(found)]

    def keys(self, form: str) -> dict[str, Array]:
        """The key columns of a form: int64 (rows,) each."""
        return self.sections.forms[form].keys()

    def values(self, form: str) -> dict[str, Array]:
        """The value columns of a form: int64 (rows,) each."""
        return self.sections.forms[form].values()

    def rows(self, form: str, where: Callable[[dict[str, Array]], Array] | None = None) -> Iterator[dict[str, int]]:
        """The rows of a form, keys and values by name. `where`: says of their columns which rows are wanted (bool)."""
        columns = self.keys(form) | self.values(form)
        if where is not None:
            at = np.flatnonzero(where(columns))
            columns = {name: column[at] for name, column in columns.items()}
        return dict_rows(columns)

    def count_rows(self, form: str) -> list[CountRow]:
        """The rows of a form with their texts."""
        return [CountRow(row, self.context) for row in self.rows(form)]

    def events(self, section: str) -> Array:
        """The EVENT rows of a section in order of time."""
        found = self._events.get(section)
        if found is None:
            found = self._events[section] = self.sections.events(section)
        return found
