"""`Signature`: a pattern on the wire that a setting explains."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from kafkatap.kernels.arrays import is_among

from ..batch import Array
from ..counting.count_forms import CountForm
from ..findings import WARNING, Finding, Party, Rule
from ..section_parts.counted import Counted
from ..section_parts.gathered import Gathered
from ..section_parts.section import BatchCount, SectionInput, facts_needed, forms_counted, reads_nothing
from ..section_parts.section_counts import Tally
from .parties import broker_party, client_option, client_parties

#: The label of findings that are no outage, but a setting that others should have.
_ADVICE = "advice"


class Signature(NamedTuple):
    """One row of the catalogue. Texts are plain English, for docs/findings.md.

    `id`: of its findings. `title`: what is wrong, in a few words. `wire`: what it looks like in packets. `setting`:
    what to change, as Kafka calls it. `remedy`: how, in a sentence. `threshold`: when it is named, and why not earlier.

    `findings(given)` makes the findings from `forms`, `counts` and `events`; none without evidence. `read`, `facts`,
    `forms`, `batch_counts` and `measures` are as in `Section`. Forms have names that begin with "advice.". `events`:
    the kinds of its events, which no other signature has (`events_of_kind`).

    `exact_facts`: kinds of facts that make its numbers exact where they are read: with `--sections advice`.
    `from_all`: its findings are on states, which it learns from all that is read, whatever is selected.
    `label`: of its findings, one or two words: what is broken, or "advice" on a setting that could be better.
    `on_request`: it reads only with `--sections advice`, or small input (`registry.SMALL_INPUT`), because it costs more
    than the usual report may: facts of Produce or Fetch, or measures of TCP. `counts`: as of `Section`.
    """

    id: str
    title: str
    wire: str
    setting: str
    remedy: str
    threshold: str
    findings: Callable[[SectionInput], Iterable[Finding]]
    forms: Sequence[CountForm] = ()
    read: Callable[[Gathered, Tally], None] = reads_nothing
    facts: Sequence[str] = ()
    events: Sequence[int] = ()
    measures: bool = False
    on_request: bool = False
    from_all: bool = False
    exact_facts: Sequence[str] = ()
    label: str = _ADVICE
    batch_counts: Sequence[BatchCount] = ()
    counts: Sequence[Counted] = ()

    @property
    def rule(self) -> Rule:
        """What its findings have in common."""
        return Rule(self.id, self.label, setting=self.setting, remedy=self.remedy)

    @property
    def every_form(self) -> tuple[CountForm, ...]:
        """The forms of all its counts."""
        return forms_counted(self.forms, self.counts, self.batch_counts)

    @property
    def every_fact(self) -> tuple[str, ...]:
        """The kinds of facts that it always reads: `facts`, and those that are counted."""
        return facts_needed(self.facts, self.counts, self.exact_facts)

    def found(
        self, given: SectionInput, row: Mapping[str, int], text: str, lost: int = 0,
        numbers: Mapping[str, Any] = MappingProxyType({}), see: Sequence[tuple[str, str | None]] = (),
        severity: str = WARNING, command: str = "report", **changed: Any,
    ) -> Finding:  # fmt: skip
        """A finding on whom a row of counts names, in its time. `see`: options of the command, to which those of the
        client come behind the first. `changed`: other fields of the finding."""
        context, parties = given.context, list[Party]()
        if "client_id" in row:
            parties += client_parties(context, row["client_id"], row["client_ip"])
            see = (*see[:1], *client_option(context, row["client_id"]), *see[1:])
        if "broker_ip" in row:
            parties.append(broker_party(context, row["broker_ip"], row["broker_port"]))
        made = self.rule._replace(command=command).found(
            text, *parties, begin=row.get("first"), end=row.get("last"), packets=[row.get("packet", 0)], lost=lost,
            see=see, severity=severity, **numbers,
        )  # fmt: skip
        return made._replace(**changed)

    def is_read(self, given: SectionInput) -> bool:
        """Whether a run has read what the findings are made of."""
        forms = given.sections.forms
        read = {section.name for section in given.sections.sections}
        return all(form.name in forms for form in self.every_form) and section_of(self) in read


def spanning(rows: Sequence[Mapping[str, int]]) -> dict[str, int]:
    """The first of some rows of counts, with the time and the first packet of all."""
    first, last = min(row["first"] for row in rows), max(row["last"] for row in rows)
    return {**rows[0], "first": first, "last": last, "packet": min(row["packet"] for row in rows)}


def section_of(signature: Signature) -> str:
    """The section that reads a signature, and keeps its events."""
    return "advice-from-all" if signature.from_all else "advice-on-request" if signature.on_request else "advice"


def events_of_kind(given: SectionInput, signature: Signature, *kinds: int) -> Array:
    """The EVENT rows of some kinds of a signature, in order of time."""
    events = given.events(section_of(signature))
    found: Array = events[is_among(events["kind"], kinds)]
    return found
