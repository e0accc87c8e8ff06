"""The first lines of a report: what happened, who is slow and why, what fails, what was lost.

All lines are findings (`reports.findings`): of the sections `events` and `advice`, and of what each report counts. What
follows from another finding is folded under it. Events that explain others come first, and then what cost people the
most time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kafkatap.dissector.dtypes import ANSWERED, IN_FLIGHT, ORPHAN_RESPONSE, UNANSWERED

from .. import kinds
from ..batch import Context
from ..counting.counts import ReportCounts
from ..finding_words import counted
from ..findings import ERROR, NOTE, WARNING, Finding
from ..model import ReportTable, as_number
from . import finding_rows
from .alike import repeats_in_one, retried_in_one
from .error_meanings import MEANINGS
from .error_words import NO_WORDS, ErrorWords
from .failure_findings import error_findings, not_decoded_finding
from .folding import folded, known_of
from .folds import outage_spans
from .loss_findings import lost_finding, mixed_times_finding
from .lossy_hosts import lossy_host_findings
from .slow_findings import slow_findings
from .slow_times import LossTimes, SlowTimes
from .sufferers import Units
from .tls_findings import tls_findings
from .unanswered import Unanswered
from .unanswered_finding import unanswered_finding

COLUMNS = finding_rows.COLUMNS
#: Lines on a screen; the rest is counted.
SHOWN = 8
_NONE = "no Kafka request was found, or none matches the selection"
#: A lossy path that cost less than this share of what cost most is one of those that cost time.
_LOSSY_SHARE = 0.1
#: Refused requests come first if there are so many, or if this share of what their clients sent was refused.
_OFTEN, _MOSTLY = 5, 0.5


class Tables(NamedTuple):
    """The tables that the summary is made from."""

    errors: ReportTable
    clients: ReportTable
    not_decoded: ReportTable


class Learned(NamedTuple):
    """What was learned beside the tables. `found`: the findings of sections, by the section's name. `slow`, `losses`:
    when requests were slow, and waited for lost segments; `unanswered`: what is known of requests without a response;
    None: not known. `versions`: those that brokers may not know. `words`: what brokers say of errors.
    `twins`: the findings on connections that are seen twice. `units`: who asked whom, and how often it was slow."""

    found: Mapping[str, Sequence[Finding]] = {}
    slow: SlowTimes | None = None
    losses: LossTimes | None = None
    unanswered: Unanswered | None = None
    versions: Sequence[str] = ()
    words: ErrorWords = NO_WORDS
    twins: Sequence[Finding] = ()
    units: Units | None = None


NOTHING_LEARNED = Learned()


def summary(
    counts: ReportCounts,
    context: Context,
    tables: Tables,
    selected: str | None = None,
    learned: Learned = NOTHING_LEARNED,
    unchecked: Finding | None = None,
) -> ReportTable:
    """A row for each finding, the most important first; those that follow from another one after it. `selected`: the
    selection as the user wrote it. `unchecked`: a note on what was not looked for, which comes last."""
    findings = summary_findings(counts, context, tables, selected is not None, learned)
    findings += [] if unchecked is None or findings[0].id == kinds.NO_REQUESTS else [unchecked]
    events = {finding.key for finding in learned.found.get("events", ())}
    rows = finding_rows.finding_rows(findings, context, selected, events)
    return ReportTable("summary", "Findings", COLUMNS, rows, whole=True)


def summary_findings(
    counts: ReportCounts, context: Context, tables: Tables, is_selection: bool, learned: Learned
) -> list[Finding]:
    """The findings in the order of the first lines."""
    outcomes = counts.groups.value_rows()[:, :ORPHAN_RESPONSE].sum(axis=0).tolist()
    requests = sum(outcomes)
    single = (
        unanswered_finding(counts, context, learned.unanswered, learned.versions),
        not_decoded_finding(tables.not_decoded),
        lost_finding(counts, context, is_selection),
    )
    own = [
        *learned.twins,
        *lossy_host_findings(counts, context, learned.losses),
        *slow_findings(
            counts,
            context,
            tables.clients,
            learned.slow,
            learned.units,
            outage_spans(learned.found.get(kinds.EVENTS, ()), context.last or 0),
        ),
        *error_findings(tables.errors, counts, context, learned.words),
        *tls_findings(context),
        *(finding for finding in single if finding is not None),
    ]
    mixed = mixed_times_finding(context) if any(finding.id.startswith("slow_") for finding in own) else None
    own += [] if mixed is None else [mixed]
    of_sections = [(name, finding) for name, findings in learned.found.items() for finding in findings]
    all_of_them = repeats_in_one([*of_sections, *(("", finding) for finding in own)])
    ordered = _ordered(retried_in_one(folded(all_of_them, known_of(counts, context)), context))
    if not requests and not any(map(_hides_all, ordered)):
        return [Finding(kinds.NO_REQUESTS, NOTE, "no requests", _NONE, command=""), *ordered]
    if not outcomes[ANSWERED] and outcomes[IN_FLIGHT] and all(finding.severity == NOTE for finding in ordered):
        return [_none_answered(outcomes[IN_FLIGHT], context), *ordered]
    if all(finding.severity == NOTE for finding in ordered):
        has_lost = any(finding.id == kinds.LOST for finding in ordered)
        text = _all_well(outcomes, bool(tables.errors.rows), bool(learned.slow), has_lost, _has_no_advice(learned))
        label = "all well"
        if is_selection:  # what was left out may decide
            text, label = f"{text} The selection left out others.", "no finding"
        return [Finding(kinds.NOTHING, NOTE, label, text, command=""), *ordered]
    return ordered


def _none_answered(requests: int, context: Context) -> Finding:
    """A line on requests of which none had a response when the capture ended."""
    text = (
        f"{counted(requests, 'request')} waited for a response when the capture ended, and none had one before: the "
        "brokers are silent, or the capture is too short to show it"
    )
    return Finding(
        kinds.NONE_ANSWERED, WARNING, "no response", text, begin=context.first,
        options=(("filter", "outcome == in_flight"),), command="show",
    )  # fmt: skip


def _ordered(found: Sequence[tuple[str, Finding]]) -> list[Finding]:
    """Events that something follows from, lossy paths, and records that a reader misses. Then what cost the most time,
    and then the usual order. What follows from a finding comes after it, and its time counts for it."""
    follow: dict[object, list[Finding]] = {}
    most = max((finding.time_lost_ns for _, finding in found), default=0)
    for _, finding in found:
        if finding.cause is not None:
            follow.setdefault(finding.cause, []).append(finding)

    def effects(finding: Finding) -> list[Finding]:
        return [each for f in follow.get(finding.key, ()) if f.key != finding.key for each in (f, *effects(f))]

    def place(section: str, finding: Finding) -> tuple[object, ...]:
        kind = finding.id if finding.id in kinds.ORDER else section
        order = kinds.ORDER.index(kind) if kind in kinds.ORDER else -1
        weighty = [f for f in effects(finding) if f.severity != NOTE]
        cost = max([finding.time_lost_ns, *(f.time_lost_ns for f in weighty)])
        explains = section == kinds.EVENTS and bool(weighty) and finding.id != kinds.REBALANCED  # that is usual work
        is_last = finding.id == kinds.LOST or (finding.severity == NOTE and not explains)
        last = 2 if finding.id == kinds.RETRIED or _is_noise(finding) else int(is_last)
        is_cause = (explains and cost > 0) or (section != "" and finding.severity == ERROR)
        is_minor = finding.id == kinds.LOSSY and cost < _LOSSY_SHARE * most
        is_cause = is_cause or (_is_broken(finding) and not is_minor) or _is_grave(finding)
        many = as_number(finding.numbers.get("codes"))
        return (not _hides_all(finding), last, not is_cause, -cost, order, -many, finding.begin or 0, finding.text)

    ordered: list[Finding] = []
    for _, finding in sorted((each for each in found if each[1].cause is None), key=lambda each: place(*each)):
        ordered += [finding, *sorted(effects(finding), key=lambda f: (-f.time_lost_ns, f.text))]
    return ordered


def _hides_all(finding: Finding) -> bool:
    """Whether most of the traffic could not be read, so that all else is on a small part of it."""
    return finding.id == kinds.ENCRYPTED and finding.severity != NOTE


def _is_noise(finding: Finding) -> bool:
    """Whether a finding is a note on what clients retried, or left behind when they closed: nobody misses it."""
    return finding.severity == NOTE and finding.id in (kinds.ERRORS, kinds.UNANSWERED)


def _is_grave(finding: Finding) -> bool:
    """Whether error codes say what is broken, and it is not one request of many that was refused."""
    meaning, codes = MEANINGS.get(str(finding.numbers.get("error"))), as_number(finding.numbers.get("codes"))
    share = as_number(finding.numbers.get("failed_share"))
    return meaning is not None and (meaning.label != "failing" or codes >= _OFTEN or share >= _MOSTLY)


def _is_broken(finding: Finding) -> bool:
    is_expired = finding.id == kinds.CERTIFICATE and finding.severity == ERROR
    return finding.id in kinds.BROKEN or is_expired


def _has_no_advice(learned: Learned) -> bool:
    return kinds.ADVICE in learned.found and not learned.found[kinds.ADVICE]


def _all_well(outcomes: Sequence[int], has_errors: bool, has_slow: bool, has_lost: bool, has_no_advice: bool) -> str:
    requests, in_flight, left = sum(outcomes), outcomes[IN_FLIGHT], outcomes[UNANSWERED]
    many = "The only request was" if requests == 1 else f"All {requests:,} requests were"
    open_ones = [
        f"{n:,} {'was' if n == 1 else 'were'} {how}"
        for n, how in ((in_flight, "in flight at the end"), (left, "left behind by clients that closed")) if n
    ]  # fmt: skip
    if open_ones:
        many = f"Of {counted(requests, 'request')}, {' and '.join(open_ones)}. All others were"
    failed = "failed beyond what clients mend by themselves" if has_errors else "failed"
    slow, lost = "slow for long" if has_slow else "slow", "little" if has_lost else "nothing"
    looked = " No outage, and no setting that costs time." if has_no_advice else ""
    return (
        f"{many} answered, or expected no answer. None was {slow}, {failed} or throttled, and {lost} was lost.{looked}"
    )
