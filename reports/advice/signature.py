"""`Signature`: a pattern on the wire that a setting explains."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from kafkatap.kernels.arrays import is_among

from ..batch import Array
from ..counting.count_forms import CountForm
from ..findings import Finding
from ..section_parts.gathered import Gathered
from ..section_parts.section import BatchCount, SectionInput, reads_nothing

if TYPE_CHECKING:
    from ..section_parts.section_counts import Tally

#: The label of findings that are no outage, but a setting that others should have.
_ADVICE = "advice"


class Signature(NamedTuple):
    """One row of the catalogue. Texts are plain English, for docs/signatures.md.

    `id`: of its findings. `title`: what is wrong, in a few words. `wire`: what it looks like in packets. `setting`:
    what to change, as Kafka calls it. `remedy`: how, in a sentence. `threshold`: when it is named, and why not earlier.

    `findings(given)` makes the findings from `forms`, `counts` and `events`; none without evidence. `read`,
    `read_connections`, `facts`, `forms` and `measures` are as in `Section`, and `batch_count` is one
    of its `batch_counts`. Forms have names that begin with "advice.". `events`: the kinds of its events, which no other
    signature has (`events_of_kind`).

    `follows`: ids of signatures that explain a finding of this one on the same party: it is folded under theirs.
    `exact_facts`: kinds of facts that make its numbers exact where they are read: with `--sections advice`.
    `from_all`: its findings are on states, which it learns from all that is read, whatever is selected.
    `label`: of its findings, one or two words: what is broken, or "advice" on a setting that could be better.
    `on_request`: it reads only with `--sections advice`, or small input (`registry.SMALL_INPUT`), because it
    costs more than the usual report may: facts of Produce or Fetch, or measures of TCP.
    """

    id: str
    title: str
    wire: str
    setting: str
    remedy: str
    threshold: str
    findings: Callable[[SectionInput], list[Finding]]
    forms: Sequence[CountForm] = ()
    read: Callable[[Gathered, Tally], None] = reads_nothing
    read_connections: Callable[[Array, Tally], None] | None = None
    facts: Sequence[str] = ()
    events: Sequence[int] = ()
    measures: bool = False
    on_request: bool = False
    from_all: bool = False
    exact_facts: Sequence[str] = ()
    follows: Sequence[str] = ()
    label: str = _ADVICE
    batch_count: BatchCount | None = None

    def is_read(self, given: SectionInput) -> bool:
        """Whether a run has read what the findings are made of."""
        forms = given.sections.forms
        read = {section.name for section in given.sections.sections}
        return all(form.name in forms for form in self.forms) and section_of(self) in read


def section_of(signature: Signature) -> str:
    """The section that reads a signature, and keeps its events."""
    return "advice-from-all" if signature.from_all else "advice-on-request" if signature.on_request else "advice"


def events_of_kind(given: SectionInput, signature: Signature, *kinds: int) -> Array:
    """The EVENT rows of some kinds of a signature, in order of time."""
    events = given.events(section_of(signature))
    found: Array = events[is_among(events["kind"], kinds)]
    return found
