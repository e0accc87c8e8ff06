"""Captures read in splits and joined, in this process and without Spark: what `Captures` does, over the same tasks.

`join(splits)` surveys, plans and decodes until the plan holds; `local(paths)` is the local engine over the same files;
`assert_same` wants the same rows of both, with the same keys. Splits are those of `planned_splits`, packs those of
`planned_packs`, or splits begin at any bytes or packets: `cut_at`, `cut_at_packets`.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import tests.wire.harness  # noqa: F401  (engines share what is read of programs)
from kafkatap import analyze
from kafkatap.captures.packs import Pack
from kafkatap.captures.splits import Split
from kafkatap.engine.read_options import ReadOptions
from kafkatap.engine.selection import EVERYTHING, Selection
from kafkatap.engine.tls.key_log import KeyLog
from kafkatap.reports.tables import TABLES, arrow_schema, connections_table, files_table, ledger_table
from kafkatap.spark.captures import notes_of
from kafkatap.spark.output.delta import read_table
from kafkatap.splits.capture_ledgers import Ledger
from kafkatap.splits.executor import HERE, InProcess, Place
from kafkatap.splits.located_split import LocatedSplit
from kafkatap.splits.plan import Corrections, Plan
from kafkatap.splits.run_options import RunOptions
from kafkatap.splits.survey import SplitSurvey
from kafkatap.splits.surveys import Surveys
from kafkatap.splits.task_rows import dump, load
from kafkatap.splits.two_passes import TwoPasses, quiet, report_context
from tests.support.captures import PcapRecords
from tests.support.split_plans import planned_splits

# ---------------------------------------------------------------- splits


def cut_at(path: Path | str, starts: Iterable[int], file: int = 0) -> list[Split]:
    """A capture (not a compressed one) in splits that begin at its first byte and at these bytes."""
    whole = planned_splits([str(path)], 0)[0]
    inside = sorted({s for s in starts if 0 < s < whole.size})
    if not inside:
        return [replace(whole, file=file)]
    planned = planned_splits([str(path)], -(-whole.size // 2))
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
    """Takes rows of tables as `writing.TableWriter` does."""

    def __init__(self) -> None:
        self.written: dict[int, list[tuple[str, pa.Table]]] = {}
        self._spilled: dict[str, bytes] = {}

    def spill(self, data: bytes) -> str:
        name = str(len(self._spilled))
        self._spilled[name] = data
        return name

    def fetch(self, name: str) -> bytes:
        return self._spilled[name]

    def drop(self, names: Iterable[str]) -> None:
        for name in names:
            del self._spilled[name]

    def open(self, split: int, place: Place = HERE) -> _SplitRows:
        self.written[split] = []
        return _SplitRows(self.written[split])


class _SplitRows:
    keeper = None
    group_bytes = 16 << 20

    def __init__(self, rows: list[tuple[str, pa.Table]]) -> None:
        self.written: list[Any] = []
        self._rows = rows

    def __enter__(self) -> _SplitRows:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def write(self, table: str, rows: pa.Table, first_packets: Any = None) -> None:
        self._rows.append((table, rows))

    def count(self, table: str, rows: Any, context: Any, results: Any = None) -> None:
        """As of `RowFiles`."""


class _Pickling(InProcess):
    """Tasks, inputs and results are pickled, as they go to other processes. `watch` gets the splits to decode."""

    def __init__(self, watch: Callable[[set[int]], None]) -> None:
        self.surveyed = 0
        self._watch = watch

    def run(self, task: Any, inputs: Sequence[Any]) -> list[Any]:
        if task.name == "decode":
            self._watch({mine.task.split for group in inputs for mine in group.inputs})
        else:
            self.surveyed += len(inputs)
        sink = getattr(task, "sink", None)
        if sink is not None:  # it stays here
            task = replace(task, sink=None)
        task = load(dump(task))
        if sink is not None:
            task = replace(task, sink=sink)
        return load(dump(super().run(task, [load(dump(mine)) for mine in inputs])))


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
    followed: int = 0  # bytes of seams that splits read
    finished: Counter[int] = field(default_factory=Counter)
    ledgers: dict[int, Ledger] = field(default_factory=dict)  # by capture

    @property
    def rounds(self) -> int:
        return len(self.plans)


class _Joining(TwoPasses):
    """Reads splits of any place in this process."""

    begin = staticmethod(quiet)
    checkpoint = None
    keep_open = False
    files = ()

    def __init__(
        self, splits: Sequence[Split | Pack], options: RunOptions, split_size: int, watch: Callable[[set[int]], None]
    ) -> None:
        self.options, self.executor = options, _Pickling(watch)
        self.found = Surveys([LocatedSplit(_pack(split)) for split in splits], split_size)
        self.plans: list[Plan] = []

    def _cut(self) -> Surveys:
        return self.found

    def _plan(self, corrections: Corrections) -> Plan:
        self.corrections = corrections
        self.plans.append(super()._plan(corrections))
        return self.plans[-1]


def _pack(split: Split | Pack) -> Pack:
    return split if isinstance(split, tuple) else (split,)


def join(
    splits: Sequence[Split | Pack],
    *,
    split_size: int = 0,
    records: bool = False,
    ports: tuple[int, ...] = (),
    tamper: Callable[[list[SplitSurvey]], None] | None = None,
    begin: Mapping[int, int] | None = None,
    selection: Selection = EVERYTHING,
    key_log: KeyLog | None = None,
    watch: Callable[[set[int]], None] = lambda splits: None,
) -> Joined:
    """Splits' tables, joined. `tamper` may spoil the surveys before they are planned by; `begin`: bytes that
    splits are to begin at first, instead of those where a record was searched and found. `watch` gets the splits that
    are decoded, in each round."""
    joining = _Joining(splits, RunOptions(ReadOptions(ports, key_log=key_log), records), split_size, watch)
    for i, place in (begin or {}).items():
        joining.found.places[i] = replace(joining.found.places[i], exact=place)
    surveys = joining.surveys.surveys
    began_wrong = joining.executor.surveyed - len(joining.places)
    joining.options = replace(joining.options, selection=selection.at(joining.surveys.first or 0))
    if tamper is not None:
        tamper(surveys)
    rows = _Rows()
    proved = joining.prove(joining.options, counting=True, sink=rows)
    context = proved.context(joining.file_infos)
    parts: dict[str, list[pa.Table]] = {name: [] for name in TABLES}
    finished: Counter[int] = Counter()
    for split, name, table in ((s, *pair) for s, written in rows.written.items() for pair in written):
        parts[name].append(table)
        finished[split] += len(table) if name == "exchanges" else 0
    total = proved.total(joining.options)
    shared = total.end_connections()
    parts["connections"].append(connections_table(shared, report_context(total, context, joining.options)))
    parts["files"], parts["ledger"] = [files_table(context)], [ledger_table(context)]
    tables = {
        name: pa.concat_tables(found) if found else arrow_schema(TABLES[name]).empty_table()
        for name, found in parts.items()
    }
    followed = sum(result.outcome.followed for result in proved.results)
    return Joined(
        tables, surveys, joining.plans, joining.corrections, notes_of(proved.plan), began_wrong, followed, finished,
        proved.ledgers(),
    )  # fmt: skip


# ---------------------------------------------------------------- comparing


def local(paths: Sequence[str | Path] | str | Path, *, records: bool = False, **options: Any) -> dict[str, pa.Table]:
    """The tables of the local engine. `options`: of `analyze`."""
    found = analyze(paths, **options)
    names = [name for name in TABLES if name != "records" or records]
    return {name: getattr(found, name) for name in names}


def published(out: Path | str, names: Iterable[str] = tuple(TABLES)) -> dict[str, pa.Table]:
    """The committed rows of Delta tables in their declared columns; the ledger summed over all captures."""
    tables = {name: read_table(str(out), name, [column.name for column in TABLES[name]]) for name in names}
    if "ledger" in tables:
        sums = tables["ledger"].group_by(["section", "part"], use_threads=False).aggregate([("count", "sum")])
        sums = sums.rename_columns(["section", "part", "count"])
        is_finished = pc.and_(pc.equal(sums["part"], "unfinished"), pc.equal(sums["count"], 0))
        tables["ledger"] = sums.filter(pc.invert(is_finished))
    return tables


def compared(tables: Mapping[str, pa.Table]) -> dict[str, Counter[bytes]]:
    """The rows of each table, with their keys. Keys are distinct and join the tables."""
    for name, key in (("exchanges", "exchange"), ("connections", "connection")):
        keys = tables[name][key]
        assert pc.count_distinct(keys).as_py() == len(keys), f"two {name} with one key"
    for name, key, of in (("results", "exchange", "exchanges"), ("exchanges", "connection", "connections")):
        assert pc.all(pc.is_in(tables[name][key], tables[of][key].combine_chunks())).as_py() is not False, name
    # `twin_of` is known when all connections are: what publishes them sets it (tests/ways, tests/spark/test_twins.py).
    columns = {name: [c for c in table.column_names if c != "twin_of"] for name, table in tables.items()}
    return {name: Counter(_texts(table, columns[name]).to_pylist()) for name, table in tables.items()}


def unnumbered(tables: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
    """The tables of packets, without what depends on how these are numbered."""
    return {
        name: table.drop_columns(
            [column for column in table.column_names if "_packet_" in column or column == "packet"]
        )
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


def check(
    splits: Sequence[Split | Pack],
    *,
    records: bool = False,
    ports: tuple[int, ...] = (),
    keylog: Path | None = None,
    **options: Any,
) -> Joined:
    """`join`, compared with the local engine over the same files."""
    found = {part.file: part.path for split in splits for part in _pack(split)}
    paths = [found[number] for number in sorted(found)]
    key_log = None if keylog is None else KeyLog([str(keylog)])
    joined = join(splits, records=records, ports=ports, key_log=key_log, **options)
    files = tuple((path, os.stat(path).st_mtime_ns) for path in paths)
    assert_same(joined, _wanted(files, records, ports, keylog))
    return joined


@lru_cache(8)
def _wanted(
    files: Sequence[tuple[str, int]], records: bool, ports: tuple[int, ...], keylog: Path | None
) -> dict[str, Counter[bytes]]:
    """What the local engine makes of files, which tests cut in several ways. `files`: with the time of each."""
    return compared(local([path for path, _ in files], records=records, ports=ports, keylog=keylog))
