"""`TwoPasses`: captures in splits, surveyed and then decoded. Its subclasses run the tasks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

from kafkatap.reports.batch import Context, FileInfo

from ..captures.packs import pack_splits
from ..captures.splits import plan_splits
from .decode import sum_ledgers
from .located_split import LocatedSplit
from .plan import Corrections, Plan, make_plan
from .proof import prove
from .surveys import Surveys

if TYPE_CHECKING:
    from ..captures.storage import File
    from .checkpoint import Checkpoint
    from .decode import Outcome
    from .survey import SplitSurvey
    from .task_rows import ReadOptions

#: Called before a pass with its name and the bytes that each task reads; returns a function to call at its end.
Begin = Callable[[str, Sequence[int]], Callable[[], None]]
#: The result of decoding a split.
Result = TypeVar("Result")


def quiet(stage: str, sizes: Sequence[int]) -> Callable[[], None]:
    """A `Begin` that shows nothing."""
    return lambda: None


class TwoPasses:
    """Captures in splits, surveyed when a property needs it.

    An heir has `files`, `options` and `begin`; `checkpoint` and `keep_open` if the captures are a batch of a stream. It
    has three methods: `_choose_size`, `_survey` and `_check`.
    """

    options: ReadOptions
    begin: Begin
    checkpoint: Checkpoint | None
    keep_open: bool

    @property
    def files(self) -> Sequence[File]:
        """The captures."""
        raise NotImplementedError

    def _choose_size(self) -> int:
        """Bytes of a split, 0 for whole files."""
        raise NotImplementedError

    def _survey(self, found: Surveys, splits: list[int]) -> dict[int, SplitSurvey]:
        """The surveys of some splits."""
        raise NotImplementedError

    def _check(self, found: Surveys) -> None:
        """Raise an exception if the captures cannot be used."""

    @cached_property
    def _surveyed(self) -> Surveys:
        size = self._choose_size()
        packs = pack_splits(plan_splits(self.files, size), size)
        found = Surveys([LocatedSplit(pack) for pack in packs], size)
        done = self.begin("survey", [place.length for place in found.places])
        found.run(lambda splits: self._survey(found, splits))
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

    @property
    def resolved(self) -> ReadOptions:
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

    def _lacking_secrets(self, outcomes: Mapping[int, Outcome]) -> set[int]:
        """The splits that looked for secrets which the key log has, but which were not among its lines for them."""
        key_log = self.options.key_log
        if key_log is None:
            return set()
        seen = {random for survey in self._surveyed.surveys for random in survey.client_randoms} | self.late_randoms
        found = {}
        for split, outcome in outcomes.items():
            new = {random for random in outcome.without_key - seen if key_log.secrets(random) is not None}
            if new:
                found[split] = new
        self.late_randoms.update(*found.values())
        return set(found)

    def _prove(
        self,
        decode: Callable[[Plan, set[int]], Mapping[int, Result]],
        outcome_of: Callable[[Result], Outcome],
        needs_names: bool = True,
    ) -> tuple[Plan, dict[int, Result], int]:
        """Decode until all claims of the plan hold. Splits that no correction touches are decoded once.
        `needs_names`: as of `prove`.

        Return the plan, the result of each split, and how often splits were decoded.
        """
        surveys, rounds = self._surveyed, 0

        def counted(plan: Plan, splits: set[int]) -> Mapping[int, Result]:
            nonlocal rounds
            rounds += 1
            found = dict(decode(plan, splits))
            while lacking := self._lacking_secrets({split: outcome_of(each) for split, each in found.items()}):
                found.update(decode(plan, lacking))
            return found

        def plan(corrections: Corrections) -> Plan:
            return make_plan(surveys.surveys, surveys.file_numbers, corrections, self.checkpoint, self.keep_open)

        sizes = [place.length for place, s in zip(self.places, surveys.surveys, strict=True) if s.packets]
        finished = self.begin("decode", [*sizes, 0] if self.checkpoint is not None else sizes)
        made, results = prove(plan, counted, outcome_of, needs_names)
        finished()
        return made, results, rounds


def with_duplicates(files: Sequence[FileInfo], outcomes: Sequence[Outcome]) -> list[FileInfo]:
    """Files with the duplicates that splits found in them."""
    found: dict[int, int] = {}
    for outcome in outcomes:
        for capture, count in outcome.duplicates.items():
            found[capture] = found.get(capture, 0) + count
    return [info._replace(duplicates=found.get(info.capture, 0)) for info in files]


def context_of(outcomes: Sequence[Outcome], files: Sequence[FileInfo]) -> Context:
    """Files, ledger and the sums over splits: what reports need beside names, connections and counts."""
    ledger = sum_ledgers(outcome.ledger for outcome in outcomes)
    payload = ledger.get("payload bytes", {})
    total = payload.get("total", 0) - payload.get("duplicate", 0)
    return Context(
        files=files,
        ledger=ledger,
        first=min((o.first for o in outcomes if o.first is not None), default=None),
        last=max((o.last for o in outcomes if o.last is not None), default=None),
        packets=ledger.get("packets", {}).get("total", 0),
        encrypted_share=payload.get("encrypted", 0) / total if total else 0.0,
        not_captured=sum(outcome.not_captured for outcome in outcomes),
    )
