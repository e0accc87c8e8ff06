"""`Captures`: some captures on a Spark session; its tables are DataFrames, its plan is made once.

Everything goes through DataFrames and functions of Arrow batches, so that it works through Spark Connect as well.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812

from kafkatap.reports.batch import Context, FileInfo
from kafkatap.reports.tables import TABLES, arrow_schema, files_table, ledger_table

from ..analysis import UnreadableCaptureError
from ..captures.splits import SPLIT_SIZE, dropped, misinformed, misplaced, plan_splits, void
from ..captures.storage import expand
from ..partitions import to_microseconds
from . import tasks
from .output.connection_parts import merged_connections, merged_rows
from .splits.decode import compare
from .splits.plan import Corrections, Plan, make_plan, shipped
from .splits.survey import SplitSurvey

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kafkatap.dissector.layouts.overlay import Definitions
    from kafkatap.reports.model import Report

    from .output.publish import Staging
    from .splits.carry import Carry

#: Called with the name of a stage and the number of its tasks before it runs; gives what is called at its end.
Begin = Callable[[str, int], Callable[[], None]]
#: Times that a plan is corrected before heads that do not hold are given up all at once.
ROUNDS = 20


class DamagedCaptureError(Exception):
    """A capture is damaged, and nothing is to be made of damaged ones; the message names it and the damage."""


def _quiet(stage: str, tasks: int) -> Callable[[], None]:
    return lambda: None


@dataclass
class Captures:
    """Captures (paths, folders, globs, URIs) to be read on `spark`. Nothing is read before a table is asked for.

    `split_size`: bytes of a split. `ports`, `definitions`: as for `analyze`. `strict`: DamagedCaptureError where a
    capture is damaged. FileNotFoundError where a pattern matches nothing.
    """

    spark: SparkSession
    captures: str | Sequence[str]
    split_size: int = SPLIT_SIZE
    ports: tuple[int, ...] = ()
    definitions: Definitions | None = None
    strict: bool = False
    begin: Begin = _quiet
    records: bool = False
    by_topic: bool = False
    #: What came before, of a stream; and whether more is to come.
    carry: Carry | None = None
    following: bool = False
    _kept: list[DataFrame] = field(default_factory=list)

    @cached_property
    def paths(self) -> list[str]:
        return expand(self.captures) if self.captures else []

    @property
    def _reading(self) -> tasks.Reading:
        return tasks.Reading(self.ports, self.definitions, self.records, self.by_topic)

    # ------------------------------------------------------------ survey

    @cached_property
    def _surveyed(self) -> _Surveyed:
        places = [tasks.Place(split) for split in plan_splits(self.paths, self.split_size)]
        found = _Surveyed(places)
        again: Iterable[int] = range(len(places))
        done = self.begin("survey", len(places))
        while again:
            self._survey(found, list(again))
            again = found.to_be_read_again()
        found.leave_out_void()
        done()
        damaged = [f"{info.path}: {info.damage}" for info in found.files() if info.damage]
        if self.strict and damaged:
            raise DamagedCaptureError(damaged[0])
        if damaged and not any(survey.packets for survey in found.surveys) and len(damaged) == len(self.paths):
            raise UnreadableCaptureError("; ".join(damaged))
        return found

    def _survey(self, found: _Surveyed, splits: list[int]) -> None:
        rows: list[tasks.Row] = [(i, i, tasks.TASK, None, pickle.dumps(found.places[i])) for i in splits]
        frame = self._run(self._frame(rows, len(found.places)), tasks.SurveyTask(self._reading)).persist()
        self._kept.append(frame)
        for split, survey in tasks.surveys_of(_collected(frame, tasks.SURVEY)).items():
            found.surveys[split] = survey
        found.frames = [(other, mine - set(splits)) for other, mine in found.frames]
        found.frames.append((frame, set(splits)))

    def _frame(self, rows: Sequence[tasks.Row], splits: int) -> DataFrame:
        """Rows of MESSAGE, each split's in a partition of its own."""
        return self._spread(self._local(rows), splits)

    def _local(self, rows: Sequence[tasks.Row]) -> DataFrame:
        return self.spark.createDataFrame(pa.Table.from_batches([tasks.messages(rows)]))

    @staticmethod
    def _spread(frame: DataFrame, splits: int) -> DataFrame:
        return frame.repartitionById(splits, "split")

    @staticmethod
    def _run(frame: DataFrame, task: Any, schema: Any = tasks.MESSAGE) -> DataFrame:
        def run(batches: Any) -> Any:
            return task(batches)

        return frame.mapInArrow(run, schema)

    # ------------------------------------------------------------ plan

    @cached_property
    def _planned(self) -> Proved:
        """The plan, proved by a run that makes no rows."""
        return self.prove()

    def prove(self, staging: Staging | None = None, counting: bool = False) -> Proved:
        """Run the plan until all its claims hold, writing rows to `staging` if there is one; splits that no
        correction touches run once. `counting`: what reports are made of, too."""
        corrections = Corrections()
        planned = self._plan(corrections)
        again = [task.split for task in planned.plan.tasks]
        done: dict[int, tasks.Done] = {}
        frames: list[tuple[DataFrame, set[int]]] = []
        finished = self.begin("decode", len(again))
        for _ in range(ROUNDS):
            task = tasks.DecodeTask(
                self._reading, planned.plan.bases, planned.plan.topic_names, None, staging, counting
            )
            frame = self._run(self._given(planned, set(again)), task).persist()
            self._kept.append(frame)
            found = _collected(frame, tasks.OUTCOME)
            done.update((split, pickle.loads(payload)) for split, _, _, _, payload in found)
            frames = [(other, mine - set(again)) for other, mine in frames]
            frames.append((frame, set(again)))
            outcomes = [done[t.split].outcome for t in planned.plan.tasks]
            following = compare(outcomes, planned.plan.topic_names, corrections)
            if following is None:
                finished()
                return replace(planned, done=done, frames=frames)
            before, corrections = planned, following
            planned = self._plan(corrections)
            again = planned.changed(before)
        raise RuntimeError(f"the splits of these captures did not fit together after {ROUNDS} rounds")

    def _plan(self, corrections: Corrections) -> Proved:
        surveyed = self._surveyed
        plan = make_plan(
            surveyed.surveys, [place.split.file for place in surveyed.places], corrections, self.carry, self.following
        )
        return Proved(plan)

    def _given(self, planned: Proved, splits: set[int]) -> DataFrame:
        """What each of these splits is decoded by: its task, and its seams from wherever they are."""
        surveyed, plan = self._surveyed, planned.plan
        rows: list[tasks.Row] = [
            (t.split, t.split, tasks.TASK, None, pickle.dumps(tasks.Given(self._place(t.split), t)))
            for t in plan.tasks
            if t.split in splits
        ]
        if plan.carry in splits and self.carry is not None:
            left = self.carry.flows
            for key in plan.tasks[0].primed:
                rows.append((plan.carry, plan.carry, tasks.SEAM, key, left[key].seam.dump()))
        frame = self._local(rows)
        owners = [(source, flow, owner) for source, flow, owner in shipped(plan) if owner in splits]
        if owners:
            sources, flows, gets = zip(*owners, strict=True)
            table = pa.table({
                "source": pa.array(sources, pa.int32()), "flow": pa.array(flows, pa.binary()),
                "owner": pa.array(gets, pa.int32()),
            })  # fmt: skip
            known = F.broadcast(self.spark.createDataFrame(table))
            for seams, mine in surveyed.frames:
                if mine & set(sources):
                    cut = seams.where((F.col("kind") == tasks.SEAM) & F.col("source").isin(sorted(mine)))
                    to = cut.join(known, ["source", "flow"])
                    frame = frame.union(to.select(F.col("owner").alias("split"), "source", "kind", "flow", "payload"))
        wanted: list[tasks.Row] = []
        for source, heads in plan.missing.items():
            gets_it = {flow: plan.owners[flow, source] for flow in heads if plan.owners[flow, source] in splits}
            if gets_it:
                asked = (surveyed.places[source], {flow: heads[flow] for flow in gets_it}, gets_it)
                wanted.append((source, source, tasks.TASK, None, pickle.dumps(asked)))
        if wanted:
            frame = frame.union(self._run(self._frame(wanted, len(surveyed.places)), tasks.CutTask()))
        return self._spread(frame, len(surveyed.places) + 1).sortWithinPartitions("split", "kind")

    def _place(self, split: int) -> tasks.Place | None:
        places = self._surveyed.places
        return places[split] if split < len(places) else None

    # ------------------------------------------------------------ tables

    def table(self, name: str) -> DataFrame:
        """One of the tables of `reports.tables` as a DataFrame, times in microseconds."""
        if name not in TABLES:
            raise ValueError(f"there is no table {name!r}; there are {', '.join(TABLES)}")
        if name == "files":
            return self.spark.createDataFrame(to_microseconds(files_table(self.context)))
        if name == "ledger":
            return self.spark.createDataFrame(to_microseconds(ledger_table(self.context)))
        planned = self._planned
        plan = planned.plan
        task = tasks.DecodeTask(self._reading, plan.bases, plan.topic_names, table=name)
        frame = self._run(self._given(planned, {t.split for t in plan.tasks}), task, spark_schema(name))
        return merged_connections(frame) if name == "connections" else frame

    def report(self, by: str = "api") -> Report:
        """The reports of `kafkatap report`, added up by Spark. `by`: api, client, broker, version or topic."""
        from .output.summing import report_of

        proved = replace(self, by_topic=by == "topic", _kept=self._kept)._counted(self._surveyed)
        context = self.context_of(proved)
        return report_of(
            proved.counts(), merged_rows([done.connections for done in proved.done.values()]),
            files_table(context), ledger_table(context), by=by, not_captured=context.not_captured,
            definitions=self.definitions, topic_names=proved.plan.topic_names,
        )  # fmt: skip

    def _counted(self, surveyed: _Surveyed) -> Proved:
        self.__dict__["_surveyed"] = surveyed
        return self.prove(counting=True)

    @cached_property
    def context(self) -> Context:
        """Files and ledger, and what else a report says of the whole input."""
        return self.context_of(self._planned)

    def context_of(self, planned: Proved, before: Carry | None = None) -> Context:
        """The same of a run that was proved, together with all that came `before`."""
        done = list(planned.done.values())
        ledger = _summed([d.outcome.ledger for d in done] + ([before.ledger] if before is not None else []))
        payload = ledger.get("payload bytes", {})
        total = payload.get("total", 0)
        times = [(d.first, d.last) for d in done] + ([(before.first, before.last)] if before is not None else [])
        earlier = before.files if before is not None else []
        return Context(
            files=[*earlier, *self._surveyed.files(before.packets if before is not None else 0)],
            ledger=ledger,
            first=min((first for first, _ in times if first is not None), default=None),
            last=max((last for _, last in times if last is not None), default=None),
            packets=ledger.get("packets", {}).get("total", 0),
            encrypted_share=payload.get("encrypted", 0) / total if total else 0.0,
            not_captured=sum(d.outcome.not_captured for d in done) + (before.not_captured if before is not None else 0),
        )

    @property
    def notes(self) -> list[str]:
        """What else is to be said of these captures: sentences."""
        return self.notes_of(self._planned)

    @staticmethod
    def notes_of(planned: Proved) -> list[str]:
        both = len(planned.plan.both_ends)
        return [both_ends_note(both)] if both else []

    @property
    def places(self) -> list[tasks.Place]:
        """All splits."""
        return self._surveyed.places

    @property
    def bytes_read(self) -> int:
        """Bytes of all captures."""
        return sum(info.bytes for info in self._surveyed.files())

    @staticmethod
    def bytes_shuffled(planned: Proved) -> int:
        """Bytes of packets that went from one split to another."""
        return sum(done.received for done in planned.done.values())

    def close(self) -> None:
        """Give back what executors keep for this."""
        for frame in self._kept:
            frame.unpersist()
        self._kept.clear()


def both_ends_note(count: int) -> str:
    if count == 1:
        return "1 connection was captured at both ends; each of its packets is counted once as sent again."
    return f"{count:,} connections were captured at both ends; each of their packets is counted once as sent again."


@dataclass
class _Surveyed:
    """All splits with their surveys, and where the seams of which splits lie."""

    places: list[tasks.Place]
    surveys: list[SplitSurvey] = field(init=False)
    frames: list[tuple[DataFrame, set[int]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.surveys = [SplitSurvey(i) for i in range(len(self.places))]

    def _told(self) -> list[tuple[Any, int | None, int | None]]:
        pairs = zip(self.places, self.surveys, strict=True)
        return [(place.split, survey.begins, survey.ends) for place, survey in pairs]

    def to_be_read_again(self) -> list[int]:
        """The splits that began at the wrong place or did not know of all interfaces; they know now."""
        number = {(place.split.file, place.split.number): i for i, place in enumerate(self.places)}
        again = []
        for split, exact in misplaced(self._told()):
            i = number[split.file, split.number]
            self.places[i] = replace(self.places[i], exact=exact)
            again.append(i)
        if not again:
            told = [(p.split, s.interfaces) for p, s in zip(self.places, self.surveys, strict=True)]
            for split in misinformed(told):
                i = number[split.file, split.number]
                self.places[i] = replace(self.places[i], split=split)
                again.append(i)
        return again

    def leave_out_void(self) -> None:
        """Forget what was read beyond damage, and where each split begins is known from here on."""
        beyond = set(void(self._told()))
        for i, place in enumerate(self.places):
            if place.split in beyond:
                self.surveys[i] = SplitSurvey(i)
            else:
                self.places[i] = replace(place, exact=self.surveys[i].begins)

    def files(self, base: int = 0) -> list[FileInfo]:
        """The table `files`: what the splits of each add up to. `base`: packets before all of them."""
        by_file: dict[int, list[SplitSurvey]] = {}
        for place, survey in zip(self.places, self.surveys, strict=True):
            by_file.setdefault(place.split.file, []).append(survey)
        order = sorted(by_file, key=lambda f: (_head_time(by_file[f]) is not None, _head_time(by_file[f]) or 0, f))
        files = []
        for number in order:
            surveys = by_file[number]
            packets = sum(s.packets for s in surveys)
            files.append(_file_info(surveys, base + 1 if packets else 1, packets))
            base += packets
        return files


def _head_time(surveys: Sequence[SplitSurvey]) -> int | None:
    return next((s.head_time for s in surveys if s.packets), None)


def _file_info(surveys: Sequence[SplitSurvey], first_packet: int, packets: int) -> FileInfo:
    reports = [s.report for s in surveys if s.report is not None]
    firsts = [r.first for r in reports if r.first is not None]
    lasts = [r.last for r in reports if r.last is not None]
    links = dict.fromkeys(link for r in reports for link in r.link_types)
    drops = reports[0].drops if len(reports) == 1 else dropped(s.drops for s in surveys)
    return FileInfo(
        reports[0].path, reports[0].kind, first_packet, packets, sum(r.bytes for r in reports), tuple(links),
        min(firsts, default=None), max(lasts, default=None), drops,
        next((r.damage for r in reports if r.damage), None),
    )  # fmt: skip


@dataclass(frozen=True)
class Proved:
    """A plan, and what came of it. `frames`: where the rows of which splits' outcomes lie."""

    plan: Plan
    done: Mapping[int, tasks.Done] = field(default_factory=dict)
    frames: list[tuple[DataFrame, set[int]]] = field(default_factory=list)

    def counts(self) -> DataFrame:
        """Rows of counts of all splits (`reports.count_rows`)."""
        from .output.summing import count_schema

        def unpacked(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for payload in batch.column("payload"):
                    yield from pa.ipc.open_stream(io.BytesIO(payload.as_py()))

        frames = [
            frame.where((F.col("kind") == tasks.COUNTS) & F.col("split").isin(sorted(mine)))
            for frame, mine in self.frames
            if mine or len(self.frames) == 1  # no packets, no splits: a frame without rows
        ]
        return reduce(lambda a, b: a.union(b), frames).mapInArrow(unpacked, count_schema())

    def changed(self, before: Proved) -> list[int]:
        """The splits that have to run again."""
        if self.plan.topic_names != before.plan.topic_names:
            return [task.split for task in self.plan.tasks]
        old = {task.split: task for task in before.plan.tasks}
        again = {t.split for t in self.plan.tasks if not t.same(old[t.split])}
        for place, owner in self.plan.owners.items():
            if before.plan.owners.get(place) != owner:
                again |= {owner, before.plan.owners.get(place, owner)}
            key, source = place
            now, then = (p.missing.get(source, {}).get(key) for p in (self.plan, before.plan))
            if now != then:
                again.add(owner)
        return sorted(again)


def _summed(ledgers: Iterable[Mapping[str, Mapping[str, int]]]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for ledger in ledgers:
        for section, parts in ledger.items():
            total = found.setdefault(section, {})
            for part, count in parts.items():
                total[part] = total.get(part, 0) + count
    return found


def _collected(frame: DataFrame, kind: str) -> list[tasks.Row]:
    table = frame.where(F.col("kind") == kind).toArrow()
    columns = [table[name].to_pylist() for name in ("split", "source", "kind", "flow", "payload")]
    return list(zip(*columns, strict=True))


def spark_schema(name: str) -> Any:
    """The Spark schema of a table, from its declaration."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(to_microseconds(arrow_schema(TABLES[name]).empty_table()).schema)
