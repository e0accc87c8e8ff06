"""Advice: settings that explain what a capture shows, the costliest first (`reports.advice`).

Signatures that cost little are read by every report. The others are read by the section `advice_on_request`, which adds
to the same table.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

from .. import kinds
from ..advice.catalogue import CATALOGUE, ON_REQUEST, USUAL
from ..advice.signature import Signature, section_of
from ..findings import NOTE, SEVERITIES, Finding
from ..model import ReportTable
from ..section_parts.gathered import Gathered
from ..section_parts.section import Section, SectionInput, makes_nothing
from ..section_parts.section_counts import Tally
from . import finding_rows
from .folding import folded
from .folds import Known
from .selected_findings import selected_findings

_T = TypeVar("_T")
#: As of every list of findings. Here the setting and what to change are for people.
_RANKS = {"finding": 0, "label": 9, "time_lost_ns": 0, "begin": 4, "end": 5, "setting": 0, "remedy": 0, "command": 9}
COLUMNS = tuple(column._replace(rank=_RANKS.get(column.name, column.rank)) for column in finding_rows.COLUMNS)


_UNDER_SELECTION = "Advice is learned from all exchanges that match, at any time. This is in the selected time."


def findings(given: SectionInput) -> list[Finding]:
    """What the signatures find that were read and selected: the one that cost the most time first, then the gravest."""
    return selected_findings(given, given.learned_by("advice").once(all_advice))


def all_advice(given: SectionInput) -> list[Finding]:
    """What the signatures find at any time, as of `findings`."""
    found = [
        (kinds.ADVICE, finding)
        for signature in CATALOGUE
        if signature.is_read(of := given.learned_by(section_of(signature)))
        for finding in of.once(signature.findings)
    ]
    made = [finding for _, finding in folded(found, Known(given.context))]
    return sorted(made, key=lambda f: (-f.time_lost_ns, SEVERITIES.index(f.severity), f.id, f.begin or 0, f.text))


def unchecked_finding(given: SectionInput) -> Finding | None:
    """A note on the signatures that were not read, although the others were; None if all were."""
    left = [signature for signature in CATALOGUE if not signature.is_read(given)]
    if len(left) == len(CATALOGUE) or not left:
        return None
    titles = "; ".join(f"whether {signature.title}" for signature in left)
    text = f"of input this large, `--sections advice` alone looks {titles}"
    return Finding(kinds.NOT_CHECKED, NOTE, "not checked", text, options=(("sections", "advice"),))


def tables(given: SectionInput) -> tuple[ReportTable, ...]:
    """One row for each finding."""
    rows = finding_rows.finding_rows(given.once(findings), given.context, None)
    return (ReportTable("advice", "Advice", COLUMNS, rows, empty="no setting explains what was captured"),)


def _each_once(found: Iterable[Sequence[_T]]) -> tuple[_T, ...]:
    """What signatures count, which may share it: once."""
    return tuple({id(count): count for counts in found for count in counts}.values())


def signatures_section(
    name: str,
    question: str,
    signatures: Sequence[Signature],
    is_main: bool,
    more_facts: Sequence[str] = (),
    made_of: Sequence[str] = (),
) -> Section:
    """A section that reads signatures."""

    def read(gathered: Gathered, tally: Tally) -> None:
        for signature in signatures:
            signature.read(gathered, tally)

    return Section(
        name, question,
        columns={"advice": COLUMNS} if is_main else {}, tables=tables if is_main else makes_nothing,
        facts=(*(kind for each in signatures for kind in each.every_fact), *more_facts),
        forms=[form for each in signatures for form in each.forms],
        counts=_each_once(each.counts for each in signatures),
        read=read, measures=any(each.measures for each in signatures),
        under_selection=_UNDER_SELECTION if is_main else "", findings=findings if is_main else None, made_of=made_of,
        reads_notable=True, batch_counts=_each_once(each.batch_counts for each in signatures),
        exact_facts=[kind for each in signatures for kind in each.exact_facts],
    )  # fmt: skip


assert all(section_of(signature) == "advice" for signature in USUAL)
SECTION = signatures_section(
    "advice", "Which settings explain what is slow or failing?", USUAL, is_main=True,
    made_of=("section_parts.cluster:READING",),
)  # fmt: skip
ON_REQUEST_SECTION = signatures_section(
    "advice-on-request", "", [each for each in ON_REQUEST if not each.from_all], is_main=False,
    more_facts=tuple(kind for signature in USUAL for kind in signature.exact_facts),
    made_of=("groups.offsets_over_time:READING", "section_parts.follower_waits:READING"),
)  # fmt: skip
FROM_ALL_SECTION = signatures_section(
    "advice-from-all", "", [each for each in ON_REQUEST if each.from_all], is_main=False,
    made_of=("sections.transaction_reading",),
)  # fmt: skip
