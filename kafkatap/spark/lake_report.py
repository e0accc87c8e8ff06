"""`lake_report`: the report of a lake, from its rollup and the tables `files` and `ledger`. It needs no Java.

A rollup has the counts of each capture and UTC hour. So a report is of whole hours, and of clients, brokers and APIs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from kafkatap.dissector.dtypes import ANSWERED, ORPHAN_RESPONSE, OUTCOMES
from kafkatap.dissector.programs.loading import load_programs
from kafkatap.reports import kinds
from kafkatap.reports.batch import Context, FileInfo
from kafkatap.reports.build import build_report
from kafkatap.reports.counting.connection_counts import ConnectionCounts
from kafkatap.reports.counting.counts import ReportCounts
from kafkatap.reports.counting.hour_counts import HOUR, HourCounts
from kafkatap.reports.finding_words import counted
from kafkatap.reports.findings import NOTE, Finding
from kafkatap.reports.model import Report
from kafkatap.reports.name_table import NameTable
from kafkatap.reports.rollup_tables import FORMS, ROLLUP_TABLES, add_rollup

from ..engine.known_twins import SEEN_TWICE
from ..splits.capture_ledgers import sum_ledgers
from ..splits.two_passes import context_of
from .lake_options import NAME
from .lake_points import Shared, shared_rows
from .lake_query import LakeQuery, read_rows
from .lake_sections import LakeSections, over_messages
from .output.delta import is_delta, read_table, row_counts
from .output.folders import Folder
from .output.run_tables import file_infos

#: By outcome, the part of the ledger that has its response.
_RESPONSES = {OUTCOMES[ANSWERED]: "matched", OUTCOMES[ORPHAN_RESPONSE]: "orphan"}
_UNCHECKED = Finding(
    kinds.NOT_CHECKED, NOTE, "not checked",
    "outages, restarts, settings and what else messages say: a rollup has counts by hour; `kafkatap report` over the "
    "captures looks for them",
)  # fmt: skip


def is_lake(path: str) -> bool:
    """Whether a folder, local or in a store, is a lake. OSError if the store cannot be read."""
    return bool(Folder(path).sizes_of([NAME]))


def lake_report(
    out: str,
    query: LakeQuery,
    *,
    by: str = "api",
    sections: Sequence[str] | None = None,
    curves: bool = False,
    options: tuple[tuple[str, str], ...] = (),
    section_options: Mapping[str, Any] | None = None,
) -> Report:
    """The report of the counts of a lake, as of `build_report`. `options`: as of `Context`. FileNotFoundError if it has
    none; OSError if they cannot be read; ValueError if a report needs what they lack."""
    _check(query, by, sections)
    missing = [table for table in FORMS if not is_delta(out, table)]
    if missing:
        raise FileNotFoundError(
            f"{out}: there is no {' and no '.join(missing)}: deleted, or an earlier version of kafkatap made this "
            f"lake; run its captures again (`kafkatap spark`)"
        )
    names, total, connections = NameTable(), ReportCounts(by_topic=by == "topic"), ConnectionCounts()
    files = [f for f in file_infos(read_table(out, "files")) if query.captures is None or f.capture in query.captures]
    shared = shared_rows(out, query, files, names)
    chosen: set[int] = set()
    for counts in _counts(out, query, shared, names):
        counts.add_to(total)
        connections.merge(counts.connection_counts())
        chosen |= counts.captures()
    stored = None if query.chooses_ends else LakeSections.read(out, query, sections, names, by == "topic")
    if stored is not None:
        total.merge(stored.report)
    files = [info for info in files if info.capture in chosen or not query.selection]
    left_out = Counter() if shared is None else shared.left_out
    context = context_of_lake(out, files, query, left_out)._replace(
        strings=names.strings, addresses=names.addresses, topic_names=names.topic_names, counted=connections,
        known_versions=load_programs("summary").known_versions, options=options,
        hosts=query.hosts,
    )  # fmt: skip
    report = build_report(
        total,
        context,
        by=by,
        selected=query.selection.shown(context.first),
        sections=sections,
        curves=curves,
        options=section_options,
        over_facts=None if stored is None else stored.sections,
        unchecked=_UNCHECKED if stored is None else None,
    )
    notes = [*_notes(out, total, left_out, query, context.ledger)]
    if stored is not None:
        notes += _notes_on_sections(stored, chosen, left_out.total())
    return report.replace(warnings=(*notes, *report.warnings))


def _check(query: LakeQuery, by: str, sections: Sequence[str] | None) -> None:
    """ValueError if a report needs what a lake has no counts of."""
    if by == "connection":
        raise ValueError("a lake has no counts by connection; read its tables exchanges and results (docs/recipes.md)")
    wanted = [*(["--by topic"] if by == "topic" else []), *(f"--sections {name}" for name in over_messages(sections))]
    if wanted and query.chooses_ends:
        raise ValueError(
            f"{wanted[0]} of a lake is of all clients, brokers and APIs: leave out --client, --broker and --api, or "
            f"run `kafkatap report` over its captures"
        )


def _notes_on_sections(stored: LakeSections, captures: Collection[int], twice: int) -> Iterator[str]:
    """What a reader has to know of the counts of sections. `captures`: those with exchanges. `twice`: how many of
    these are there again."""
    if lacking := len(set(captures) - stored.captures):
        yield (
            f"sections over messages are without {counted(lacking, 'capture')}, which an earlier version of kafkatap "
            f"read; run {'it' if lacking == 1 else 'them'} again"
        )
    if stored.unread:
        yield (
            "counts of messages that another version of kafkatap kept are left out; run the captures again "
            f"({', '.join(sorted(stored.unread))})"
        )
    if twice:
        yield f"sections over messages count {counted(twice, 'exchange')} of captures of several runs twice"


def _counts(out: str, query: LakeQuery, shared: Shared | None, names: NameTable) -> Iterator[HourCounts]:
    """The counts of a query, in parts. `shared`: what counts in place of rows of the rollup."""
    for table, form in FORMS.items():
        columns = [column.name for column in ROLLUP_TABLES[table]]
        wanted = query.hours() & query.of_apis() if "api_key" in form.keys else query.hours()
        for rows in read_rows(out, table, (*columns, "capture"), wanted):
            rows = query.of_ends(rows if shared is None else rows.filter(~shared.places.has(rows)))
            counts = HourCounts(most_rows=None, names=names)
            add_rollup(table, rows, counts)
            yield counts
    if shared is not None:
        yield shared.counts


def context_of_lake(
    out: str, files: Sequence[FileInfo], query: LakeQuery, left_out: Mapping[str, int] = MappingProxyType({})
) -> Context:
    """Ledger, files and times of captures, within the hours of the query. `left_out`: as of `Shared`."""
    import pyarrow as pa
    import pyarrow.compute as pc

    rows = read_table(out, "ledger")
    rows = rows.filter(pc.is_in(rows["capture"], pa.array([info.capture for info in files], pa.int64())))
    sums = rows.group_by(["section", "part"], use_threads=False).aggregate([("count", "sum")]).to_pylist()
    ledger = sum_ledgers({row["section"]: {row["part"]: row["count_sum"]}} for row in sums)
    for parts in ledger.values():
        if parts.get("unfinished", 0) < 0:  # begun in captures that are not among these
            parts["total"] -= parts.pop("unfinished")
    for outcome, count in left_out.items():
        request, response = outcome != OUTCOMES[ORPHAN_RESPONSE], _RESPONSES.get(outcome)
        for section, part in (("requests", outcome if request else None), ("responses", response)):
            if part is not None:
                ledger[section][part] -= count
                ledger[section]["total"] -= count
    first = min((info.first for info in files if info.first is not None), default=None)
    last = max((info.last for info in files if info.last is not None), default=None)
    if query.begin is not None and first is not None:
        first = max(first, query.begin * HOUR)
    if query.end is not None and last is not None:
        last = min(last, query.end * HOUR)
    return context_of(ledger, files, first, last, 0)


def _notes(
    out: str, report: ReportCounts, left_out: Counter[str], query: LakeQuery, ledger: Mapping[str, Mapping[str, int]]
) -> Iterator[str]:  # fmt: skip
    """What a reader has to know of these counts. `left_out`: as of `Shared`. `ledger`: of the lake."""
    twice = left_out.total()
    if not query.selection:
        counted = sum(map(report.total, OUTCOMES)) + twice
        there = row_counts(out, "exchanges")
        of_twins = [ledger.get(section, {}).get(SEEN_TWICE, 0) for section in ("requests", "responses")]
        lacking = 0 if there is None else there - counted - of_twins[0]
        if lacking and not 0 <= lacking <= of_twins[1]:  # of twins, orphan responses are among the responses only
            yield (
                f"the rollup has {counted:,} of {there:,} exchanges: a run was killed, or an earlier version of "
                f"kafkatap made the others; run their captures again (`kafkatap lake verify` names them)"
            )
        failed, errors = report.total("error_codes"), int(report.errors.value_rows()[:, 0].sum())
        if failed != errors:
            yield (
                f"rollup_errors has {errors:,} of {failed:,} error codes: a run was killed; run its captures again "
                f"(`kafkatap lake verify` names them)"
            )
    if twice:
        yield (
            f"{twice:,} exchanges are in captures of several places, and count once: of the capture with the most "
            f"clients of the broker (`kafkatap lake verify` names these captures)"
        )
