"""Captures read in splits and joined, in this process and without Spark: what `Captures` does, over the same tasks.

`join(splits)` surveys, plans and decodes until the plan holds; `local(paths)` is the local engine over the same files;
`assert_same` wants the same rows of both, with the same keys. Splits are those of `plan_splits`, or
begin at any bytes or packets: `cut_at`, `cut_at_packets`.
"""

from __future__ import annotations

import pickle
import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import tests.wire.harness  # noqa: F401  (engines share what is read of programs)
from kafkatap import analyze
from kafkatap.captures.splits import Split, plan_splits
from kafkatap.reports.tables import TABLES, arrow_schema, files_table, ledger_table
from kafkatap.selection import EVERYTHING, Selection
from kafkatap.spark import tasks
from kafkatap.spark.captures import Captures, ProvedPlan
from kafkatap.spark.output.merged_connections import merged_rows
from kafkatap.spark.output.split_tables import SplitResult
from kafkatap.spark.splits.located_split import LocatedSplit
from kafkatap.spark.splits.plan import Corrections, Plan, make_plan, shipped
from kafkatap.spark.splits.proof import prove
from kafkatap.spark.splits.survey import SplitSurvey
from kafkatap.spark.splits.surveys import Surveys
from kafkatap.spark.splits.task_rows import (
    OUTCOME,
    SEAM,
    CutInput,
    DecodeInput,
    ReadOptions,
    Row,
    batch_of,
    surveys_of,
    task_row,
)  # fmt: skip
from tests.support.captures import PcapRecords

# ---------------------------------------------------------------- splits


def cut_at(path: Path | str, starts: Iterable[int], file: int = 0) -> list[Split]:
    """A capture (not a compressed one) in splits that begin at its first byte and at these bytes."""
    whole = plan_splits([str(path)], 0)[0]
    inside = sorted({s for s in starts if 0 < s < whole.size})
    if not inside:
        return [replace(whole, file=file)]
    planned = plan_splits([str(path)], -(-whole.size // 2))
    head, interfaces = planned[0].head, planned[1].interfaces
    bounds = [0, *inside, None]
    return [
        Split(str(path), start or 0, end, file, n, head, interfaces if n else b"", whole.size)
        for n, (start, end) in enumerate(pairwise(bounds))
    ]


def cut_at_packets(path: Path, numbers: Iterable[int], file: int = 0) -> list[Split]:
    """A pcap in splits that begin with its first packet and with these ones (from 0)."""
    starts = PcapRecords(path).starts
    return cut_at(path, [starts[n] for n in numbers], file)


def cut_evenly(path: Path, count: int) -> list[Split]:
    """A capture in `count` splits of the same length in bytes."""
    size = path.stat().st_size
    return cut_at(path, [size * n // count for n in range(1, count)])


def rotate(path: Path, folder: Path, numbers: Iterable[int], seed: int = 0) -> list[str]:
    """A pcap as files that begin with its first packet and with these ones; their names' order is not that of time."""
    records = PcapRecords(path)
    bounds = [0]
    for n in sorted(set(numbers)):  # files that begin at the same time are in the order of their names
        if records.record(n)[:8] != records.record(bounds[-1])[:8]:
            bounds.append(n)
    bounds.append(len(records))
    names = [f"{n:03d}.pcap" for n in range(len(bounds) - 1)]
    random.Random(seed).shuffle(names)
    folder.mkdir(parents=True, exist_ok=True)
    for name, (first, last) in zip(names, pairwise(bounds), strict=True):
        (folder / name).write_bytes(records.slice(first, last))
    return sorted(str(folder / name) for name in names)


def packets_at_random(path: Path, count: int, seed: int) -> list[int]:
    """`count` numbers of packets of a pcap, none of them its first."""
    return sorted(random.Random(seed).sample(range(1, len(PcapRecords(path))), count))


# ---------------------------------------------------------------- joining


class _Rows:
    """Takes rows of tables as `publish.Staging` does."""

    def __init__(self) -> None:
        self.written: dict[int, list[tuple[str, pa.Table]]] = {}

    def write(self, name: str, table: pa.Table, split: int = 0, part: int = 0, *where: Any) -> list[Any]:
        self.written[split].append((name, table))
        return []


@dataclass
class Joined:
    """The tables of splits that were joined, and how that went. `plans`: one for each round. `finished`: exchanges of
    each split."""

    tables: dict[str, pa.Table]
    surveys: list[SplitSurvey]
    plans: list[Plan]
    corrections: Corrections
    notes: list[str]
    began_wrong: int = 0
    sizes: dict[tuple[bytes, int], int] = field(default_factory=dict)  # bytes shipped, by flow and split
    finished: Counter[int] = field(default_factory=Counter)

    @property
    def rounds(self) -> int:
        return len(self.plans)

    @property
    def shipped(self) -> int:
        """Bytes of packets that went from one split to another in the last round."""
        return sum(self.sizes.values())


class _Driver:
    """Does without Spark what `Captures` does on a session."""

    def __init__(self, splits: Sequence[Split], options: ReadOptions) -> None:
        self.options = options
        self.surveyed = Surveys([LocatedSplit(split) for split in splits])
        self.seams: dict[tuple[bytes, int], bytes] = {}
        self.sizes: dict[tuple[bytes, int], int] = {}  # of seams that were shipped, by flow and split
        self.began_wrong = 0
        self.plans: list[Plan] = []
        self.rows = _Rows()

    def survey(self) -> None:
        self.surveyed.run(self._survey)
        self.began_wrong -= len(self.surveyed.places)

    def _survey(self, splits: list[int]) -> dict[int, SplitSurvey]:
        self.began_wrong += len(splits)
        self.seams = {place: seam for place, seam in self.seams.items() if place[1] not in splits}
        rows = _run(tasks.SurveyTask(self.options), [task_row(i, self.surveyed.places[i]) for i in splits])
        for split, _, _, flow, payload in rows:
            if flow is not None:
                self.seams[flow, split] = payload
        return surveys_of(rows)

    def plan(self, corrections: Corrections) -> Plan:
        self.corrections = corrections
        return make_plan(self.surveyed.surveys, self.surveyed.file_numbers, corrections)

    def decode(self, plan: Plan, splits: set[int]) -> dict[int, SplitResult]:
        self.plans.append(plan)
        self.rows.written.update({split: [] for split in splits})
        task = tasks.DecodeTask(self.options, plan.bases, plan.topic_names, staging=self.rows)  # type: ignore[arg-type]
        found = _run(task, self.inputs(plan, splits))
        return {split: pickle.loads(payload) for split, _, kind, _, payload in found if kind == OUTCOME}

    def inputs(self, plan: Plan, splits: set[int]) -> list[Row]:
        """The inputs of these splits."""
        places = self.surveyed.places
        rows = [task_row(t.split, DecodeInput(places[t.split], t)) for t in plan.tasks if t.split in splits]
        for source, flow, owner in shipped(plan):
            if owner in splits:
                rows.append((owner, source, SEAM, flow, self.seams[flow, source]))
        for source, heads in plan.missing.items():
            owners = {flow: plan.owners[flow, source] for flow in heads if plan.owners[flow, source] in splits}
            if owners:
                cut = CutInput(places[source], {flow: heads[flow] for flow in owners}, owners)
                rows += _run(tasks.CutTask(), [task_row(source, cut)])
        self.sizes |= {(row[3], row[1]): len(row[4]) for row in rows if row[2] == SEAM and row[3] is not None}
        return sorted(rows, key=lambda row: (row[0], row[2]))


def _run(task: Any, rows: list[Row]) -> list[Row]:
    found: list[Row] = []
    for batch in task(iter([batch_of(rows)])):
        found += zip(*(batch.column(n).to_pylist() for n in batch.schema.names), strict=True)
    return found


def join(
    splits: Sequence[Split],
    *,
    records: bool = False,
    ports: tuple[int, ...] = (),
    tamper: Callable[[list[SplitSurvey]], None] | None = None,
    begin: Mapping[int, int] | None = None,
    selection: Selection = EVERYTHING,
) -> Joined:
    """Splits' tables, joined. `tamper` may spoil the surveys before they are planned by; `begin`: bytes that
    splits are to begin at first, instead of those where a record was searched and found."""
    driver = _Driver(splits, ReadOptions(ports, records=records))
    for i, place in (begin or {}).items():
        driver.surveyed.places[i] = replace(driver.surveyed.places[i], exact=place)
    driver.survey()
    surveys = driver.surveyed.surveys
    driver.options = replace(driver.options, selection=selection.at(driver.surveyed.first or 0))
    if tamper is not None:
        tamper(surveys)
    plan, done = prove(driver.plan, driver.decode, lambda result: result.outcome)
    captures = Captures(None, [])  # type: ignore[arg-type]
    captures.__dict__["_surveyed"] = driver.surveyed
    proved = ProvedPlan(plan, done)
    context = captures.context_of(proved)
    shared = [d.connections for d in done.values() if d.connections is not None and d.connections.num_rows]
    parts: dict[str, list[pa.Table]] = {name: [] for name in TABLES}
    finished: Counter[int] = Counter()
    for split, name, table in ((s, *pair) for s, written in driver.rows.written.items() for pair in written):
        parts[name].append(table)
        finished[split] += len(table) if name == "exchanges" else 0
    if shared:
        parts["connections"].append(merged_rows(shared))
    parts["files"], parts["ledger"] = [files_table(context)], [ledger_table(context)]
    tables = {
        name: pa.concat_tables(found) if found else arrow_schema(TABLES[name]).empty_table()
        for name, found in parts.items()
    }
    sizes = {place: size for place, size in driver.sizes.items() if place in plan.owners}
    return Joined(tables, surveys, driver.plans, driver.corrections, proved.notes, driver.began_wrong, sizes, finished)


# ---------------------------------------------------------------- comparing


def local(paths: Sequence[str | Path] | str | Path, *, records: bool = False, **options: Any) -> dict[str, pa.Table]:
    """The tables of the local engine. `options`: of `analyze`."""
    found = analyze(paths, **options)
    names = [name for name in TABLES if name != "records" or records]
    return {name: getattr(found, name) for name in names}


def compared(tables: Mapping[str, pa.Table]) -> dict[str, Counter[bytes]]:
    """The rows of each table, with their keys. Keys are distinct and join the tables."""
    for name, key in (("exchanges", "exchange"), ("connections", "connection")):
        keys = tables[name][key]
        assert pc.count_distinct(keys).as_py() == len(keys), f"two {name} with one key"
    for name, key, of in (("results", "exchange", "exchanges"), ("exchanges", "connection", "connections")):
        assert pc.all(pc.is_in(tables[name][key], tables[of][key].combine_chunks())).as_py() is not False, name
    return {name: Counter(_texts(table, table.column_names).to_pylist()) for name, table in tables.items()}


def unnumbered(tables: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
    """The tables of packets, without what depends on how these are numbered."""
    return {
        name: table.drop_columns([column for column in table.column_names if "_packet_" in column])
        for name, table in tables.items()
        if name != "files"
    }


def _texts(table: pa.Table, names: Iterable[str]) -> Any:
    """Each row of some columns as a text."""
    columns = []
    for name in names:
        column = table[name].combine_chunks()
        if pa.types.is_timestamp(column.type):
            column = column.cast("int64")
        if pa.types.is_nested(column.type):
            column = pa.array([repr(value) if value else None for value in column.to_pylist()], pa.string())
        texts = column.cast(pa.binary() if pa.types.is_binary(column.type) else pa.string()).cast(pa.binary())
        columns.append(pc.binary_join_element_wise(name.encode(), pc.fill_null(texts, b"null"), b"="))
    return pc.binary_join_element_wise(*columns, b" ")


def differences(left: Mapping[str, Counter[bytes]], right: Mapping[str, Counter[bytes]]) -> list[str]:
    """What is only in the one and only in the other, a few rows of each; [] where all tables are the same."""
    lines = []
    for name, rows in right.items():
        for word, rest in (("missing", rows - left[name]), ("too many", left[name] - rows)):
            lines += [f"{name}: {rest.total()} {word}"] if rest else []
            lines += [f"    {row!r}" for row in list(rest)[:2]]
    return lines


def assert_same(joined: Joined, wanted: Mapping[str, Counter[bytes]]) -> None:
    """The joined tables are those of the local engine, as `compared` gives them."""
    lines = differences(compared(joined.tables), wanted)
    assert not lines, "\n".join(lines)


def check(splits: Sequence[Split], *, records: bool = False, ports: tuple[int, ...] = (), **options: Any) -> Joined:
    """`join`, compared with the local engine over the same files."""
    paths = list(dict.fromkeys(split.path for split in splits))
    joined = join(splits, records=records, ports=ports, **options)
    assert_same(joined, compared(local(paths, records=records, ports=ports)))
    return joined
