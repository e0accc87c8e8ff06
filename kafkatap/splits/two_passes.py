"""`TwoPasses`: captures in splits, surveyed and then decoded by an executor, until the plan for them is proved.

A run over splits is the same in one process, in several, and on Spark: only the executor differs.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from kafkatap.dissector.programs.loading import load_programs
from kafkatap.reports.batch import Context, FileInfo
from kafkatap.reports.build import build_report
from kafkatap.reports.model import Report

from ..captures.packs import pack_splits, shared_tasks, weight_of
from ..captures.splits import plan_splits
from ..captures.storage import File
from ..engine.known_twins import SEEN_TWICE
from .capture_ledgers import CaptureIndex, Ledger, sum_ledgers
from .checkpoint import Checkpoint
from .decode import Outcome
from .executor import Executor
from .located_split import LocatedSplit
from .plan import Corrections, Plan, make_plan
from .proof import prove
from .run_options import RunOptions
from .secrets import needed_lines
from .split_counts import SplitCounts, TotalCounts
from .survey import SplitSurvey
from .surveys import Choice, Surveys
from .task_rows import DecodeGroup, DecodeInput, SurveyInput, decode_inputs
from .tasks import DecodeTask, RowSink, SplitResult, SumInput, SumTask, SurveyTask

#: Called before a pass with its name and the bytes that each task reads; returns a function to call at its end.
Begin = Callable[[str, Sequence[int]], Callable[[], None]]


#: Counts of splits that a task or the driver adds up. If there are more splits, tasks spill theirs.
MOST_COUNTS = 64


def quiet(stage: str, sizes: Sequence[int]) -> Callable[[], None]:
    """A `Begin` that shows nothing."""
    return lambda: None


class TwoPasses:
    """Captures in splits, surveyed when a property needs it.

    An heir has `files`, `options`, `begin` and `executor`; `checkpoint` and `keep_open` if the captures are a batch of
    a stream; `choose` if captures are left out after the survey. It has the method `_choose_size`, and may have
    `_check`.
    """

    options: RunOptions
    executor: Executor
    begin: Begin
    checkpoint: Checkpoint | None
    keep_open: bool
    choose: Choice | None = None

    @property
    def files(self) -> Sequence[File]:
        """The captures."""
        raise NotImplementedError

    def _choose_size(self) -> int:
        """Bytes of a split, 0 for whole files."""
        raise NotImplementedError

    def _check(self, found: Surveys) -> None:
        """Raise an exception if the captures cannot be used."""

    def _cut(self) -> Surveys:
        """The splits, not surveyed yet."""
        size = self._choose_size()
        packs = pack_splits(plan_splits(self.files, size), size)
        return Surveys([LocatedSplit(pack) for pack in packs], size)

    @cached_property
    def _surveyed(self) -> Surveys:
        found = self._cut()
        done = self.begin("survey", [place.length for place in found.places])

        def survey(splits: list[int]) -> dict[int, SplitSurvey]:
            inputs = [SurveyInput(i, found.places[i]) for i in splits]
            return dict(zip(splits, self.executor.run(SurveyTask(self.options.for_tasks), inputs), strict=True))

        found.run(survey, self.choose)
        done()
        self._check(found)
        return found

    @property
    def surveys(self) -> Surveys:
        """The surveys of all splits."""
        return self._surveyed

    @property
    def places(self) -> list[LocatedSplit]:
        """All splits."""
        return self._surveyed.places

    @cached_property
    def file_infos(self) -> list[FileInfo]:
        """The files, in order."""
        return self._surveyed.files(self.checkpoint.packets if self.checkpoint is not None else 0)

    @cached_property
    def capture_index(self) -> CaptureIndex:
        """The captures in which rows can begin."""
        earlier = self.checkpoint.captures if self.checkpoint is not None else ()
        return CaptureIndex.of([*earlier, *((f.first_packet, f.packets, f.capture) for f in self.file_infos)])

    @property
    def resolved(self) -> RunOptions:
        """The options with absolute times, and the size of the input. Relative times count from the first packet of all
        captures."""
        options = self.options
        if self.checkpoint is None:  # a stream has no end
            options = replace(options, input_bytes=sum(file.size for file in self.files))
        if options.selection.is_resolved:
            return options
        first = self._surveyed.first
        if self.checkpoint is not None and self.checkpoint.sums.first is not None:
            first = self.checkpoint.sums.first
        return replace(options, selection=options.selection.at(first or 0))

    @cached_property
    def late_randoms(self) -> set[bytes]:
        """Client randoms that no survey saw, and of which the key log has secrets."""
        return set()

    def _lacking_secrets(self, results: Mapping[int, SplitResult]) -> set[int]:
        """The splits that looked for secrets which the key log has, but which were not among its lines for them."""
        key_log = self.options.read.key_log
        if key_log is None:
            return set()
        seen = {random for survey in self._surveyed.surveys for random in survey.client_randoms} | self.late_randoms
        found = {}
        for split, result in results.items():
            unknown = result.outcome.without_key - seen
            new = {random for random in unknown if key_log.secrets(random) is not None}
            if new:
                found[split] = new
        self.late_randoms.update(*found.values())
        return set(found)

    @property
    def _open_randoms(self) -> set[bytes]:
        """The client randoms of the TLS connections that the checkpoint leaves open."""
        flows = self.checkpoint.flows.values() if self.checkpoint is not None else ()
        known = (history for flow in flows for history in (flow.history, flow.state.history) if history is not None)
        return {history.client_random for history in known} - {b""}

    @cached_property
    def _groups(self) -> list[range]:
        return shared_tasks([weight_of(place.pack) for place in self.places], self._surveyed.split_size)

    def _group_of(self, split: int) -> range:
        """The splits that one task decodes together with a split. If one of them is decoded again, all are."""
        at = bisect(self._groups, split, key=lambda group: group.start) - 1
        return self._groups[at] if split < len(self.places) else range(split, split + 1)

    def _plan(self, corrections: Corrections) -> Plan:
        surveys = self._surveyed
        return make_plan(surveys.surveys, surveys.file_numbers, corrections, self.checkpoint, self.keep_open)

    def decode_task(self, plan: Plan, options: RunOptions, **purpose: Any) -> DecodeTask:
        """The task that decodes splits of a plan. `options`: `resolved`; `purpose`: other fields of the task."""
        lines = needed_lines(options.read.key_log, self.surveys.surveys, self._open_randoms | self.late_randoms)
        return DecodeTask(options.for_tasks, plan.topic_names, self.capture_index, lines, **purpose)

    def decode_inputs(self, plan: Plan, splits: Container[int]) -> list[DecodeInput]:
        """The inputs of that task."""
        return list(decode_inputs(plan, splits, self.places, self.checkpoint, self.surveys.surveys))

    def prove(self, options: RunOptions, needs_names: bool = True, **purpose: Any) -> Proved:
        """Decode until all claims of the plan hold. Splits that no correction touches are decoded once.

        `options`: `resolved`. `needs_names`: as of `proof.prove`. `purpose`: fields of the `DecodeTask`.
        """
        surveys, rounds = self.surveys.surveys, 0

        def once(plan: Plan, splits: set[int]) -> dict[int, SplitResult]:
            groups: dict[range, list[DecodeInput]] = {}
            for mine in self.decode_inputs(plan, {other for split in splits for other in self._group_of(split)}):
                groups.setdefault(self._group_of(mine.task.split), []).append(mine)
            inputs = [DecodeGroup(tuple(some)) for some in groups.values()]
            found = self.executor.run(self.decode_task(plan, options, **purpose), inputs)
            return {result.outcome.split: result for results in found for result in results}

        def decode(plan: Plan, splits: set[int]) -> dict[int, SplitResult]:
            nonlocal rounds
            rounds += 1
            found = once(plan, splits)
            while lacking := self._lacking_secrets(found):
                found |= once(plan, lacking)
            return found

        sizes = [place.length for place, s in zip(self.places, surveys, strict=True) if s.packets]
        sink: RowSink | None = purpose.get("sink")
        if sink is not None and len(surveys) > MOST_COUNTS:
            purpose["spilling"] = True
        finished = self.begin("decode", [*sizes, 0] if self.checkpoint is not None else sizes)
        made, results = prove(self._plan, decode, needs_names)
        ordered = [results[task.split] for task in made.tasks]
        counts = self._summed([result.counts for result in ordered if result.counts is not None], options, purpose)
        finished()
        return Proved(made, ordered, counts, rounds)

    def _summed(
        self, found: Sequence[SplitCounts | str], options: RunOptions, purpose: Mapping[str, Any]
    ) -> list[SplitCounts]:
        """The counts of all splits in their order. Those that were spilled are added up by tasks, some at a time, until
        there are few."""
        sink: RowSink | None = purpose.get("sink")
        names = [one for one in found if isinstance(one, str)]
        if sink is None or not names:
            return [one for one in found if not isinstance(one, str)]
        spilled = list(names)
        task = SumTask(options.for_tasks, sink, purpose.get("interval"))
        while names:
            groups = [tuple(names[at : at + MOST_COUNTS]) for at in range(0, len(names), MOST_COUNTS)]
            is_last = len(groups) <= MOST_COUNTS
            sums = self.executor.run(task, [SumInput(group, is_last) for group in groups])
            names = [] if is_last else sums
            spilled += names
        sink.drop(spilled)
        return sums


@dataclass(frozen=True, slots=True)
class Proved:
    """A plan that holds, and the result of each split in the order of the plan. `counts`: of splits, or of some one
    after the other. `rounds`: how often splits were decoded until it held."""

    plan: Plan
    results: Sequence[SplitResult] = ()
    counts: Sequence[SplitCounts] = ()
    rounds: int = 1

    @property
    def written(self) -> list[Any]:
        """What a sink made of all rows."""
        return [written for result in self.results for written in result.written]

    def ledgers(self, latest: int = 0) -> dict[int, Ledger]:
        """The ledgers of captures. `latest`: the capture that gets the counts of packets of earlier batches."""
        found: dict[int, list[Ledger]] = {}
        for result in self.results:
            for capture, ledger in result.outcome.ledgers.items():
                found.setdefault(capture or latest, []).append(ledger)
        return {capture: sum_ledgers(ledgers) for capture, ledgers in found.items()}

    def total(self, options: RunOptions, interval: int | None = None, before: SplitCounts | None = None) -> TotalCounts:
        """The sum of all counts. The connections that splits share have not ended. `before`: of earlier splits."""
        total = TotalCounts(options, interval)
        for counts in (before, *self.counts):
            if counts is not None:
                total.add(counts)
        total.name_topics((self.plan.topic_names, *(result.outcome.names for result in self.results)))
        return total

    def context(self, files: Sequence[FileInfo]) -> Context:
        """Ledger, files and times of the splits. `files`: those of the run, in which duplicates are not counted."""
        outcomes = [result.outcome for result in self.results]
        return context_of(
            sum_ledgers(outcome.ledger for outcome in outcomes), _with_duplicates(files, outcomes),
            min((o.first for o in outcomes if o.first is not None), default=None),
            max((o.last for o in outcomes if o.last is not None), default=None),
            sum(outcome.not_captured for outcome in outcomes),
        )  # fmt: skip


def _with_duplicates(files: Sequence[FileInfo], outcomes: Sequence[Outcome]) -> list[FileInfo]:
    """Files with the duplicates that splits found in them."""
    found: dict[int, int] = {}
    for outcome in outcomes:
        for capture, ledger in outcome.ledgers.items():
            found[capture] = found.get(capture, 0) + ledger.get("packets", {}).get("duplicate", 0)
    return [info._replace(duplicates=found.get(info.capture, 0)) for info in files]


def context_of(
    ledger: Mapping[str, Mapping[str, int]],
    files: Sequence[FileInfo],
    first: int | None,
    last: int | None,
    not_captured: int,
) -> Context:
    """What reports need beside names, connections and counts. `first`, `last`: times of packets."""
    payload = ledger.get("payload bytes", {})
    total = payload.get("total", 0) - payload.get("duplicate", 0) - payload.get(SEEN_TWICE, 0)
    return Context(
        files=files,
        ledger=ledger,
        first=first,
        last=last,
        packets=ledger.get("packets", {}).get("total", 0),
        encrypted_share=payload.get("encrypted", 0) / total if total else 0.0,
        not_captured=not_captured,
    )


def report_of(total: TotalCounts, context: Context, options: RunOptions, by: str = "api") -> Report:
    """The report of all counts. `context`: as of `context_of`; `by`: as of `build_report`."""
    return build_report(
        total.report, report_context(total, context, options), by=by,
        selected=options.selection.shown(context.first), sections=options.wanted, over_facts=total.sections,
        options=options.section_options,
    )  # fmt: skip


def report_context(total: TotalCounts, context: Context, options: RunOptions) -> Context:
    """A context with the names and connections of all counts."""
    names = total.names
    return context._replace(
        strings=names.strings, addresses=names.addresses, topic_names=names.topic_names, counted=total.connections,
        known_versions=load_programs("summary", options.read.definitions).known_versions, options=options.kept,
        hosts=options.read.hosts,
    )  # fmt: skip
