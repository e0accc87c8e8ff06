"""Reports from rows of counts (`kafkatap.reports.counting.count_rows`) of any number of splits.

    report = report_of(sum_rows(tables), connections, files, ledger, by="client")

Only sums leave the tasks, so memory grows with the number of keys and histogram buckets, not with the captures. The
Arrow tables `connections`, `files` and `ledger` supply everything that is not counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from kafkatap.dissector.programs.loading import load_programs
from kafkatap.dissector.strings import OTHER
from kafkatap.reports.batch import Array, Context, FileInfo
from kafkatap.reports.build import build_report
from kafkatap.reports.counting.connection_counts import count_connections
from kafkatap.reports.counting.connection_rows import connection_counts_of_rows, rows_of_connections
from kafkatap.reports.counting.count_rows import ADDED_BY, COLUMNS, KEYS, NameTable, counts_of_rows
from kafkatap.reports.counting.small_rows import add_up_small_rows
from kafkatap.reports.model import Report
from kafkatap.reports.sections.ledger import WORDS
from kafkatap.reports.table_columns import FILES, LEDGER
from kafkatap.reports.tables import arrow_schema, as_declared, connection_rows

from ..limits import Limits
from .split_sections import SplitSections, sum_sections

if TYPE_CHECKING:
    import pyarrow as pa

    from kafkatap.dissector.layouts.overlay import Definitions

#: Rows that are gathered before they are added up.
_GATHER = 500_000


def sum_rows(tables: Iterable[pa.Table]) -> pa.Table:
    """The sums of rows of counts: one row for each key, measure and bucket, with the same columns."""
    return _summed(gather_rows(tables))


def gather_rows(tables: Iterable[pa.Table]) -> pa.Table:
    """Rows of counts that add up to those of all tables: the rows themselves, or sums if there are many."""
    import pyarrow as pa

    gathered, count = [arrow_schema(COLUMNS).empty_table()], 0
    for table in tables:
        gathered.append(table)
        count += table.num_rows
        if count > _GATHER:
            gathered, count = [_summed(pa.concat_tables(gathered))], 0
    return pa.concat_tables(gathered)


def _summed(rows: pa.Table) -> pa.Table:
    """The sums of rows, grouped by one number for each key: grouping by 21 columns takes three times as long."""
    import pyarrow as pa

    values = [name for name, _ in ADDED_BY.values()]
    numbered = pa.table({"key": _keys(rows), "row": np.arange(rows.num_rows), **{name: rows[name] for name in values}})
    sums = numbered.group_by("key", use_threads=False).aggregate([("row", "min"), *ADDED_BY.values()])
    found = rows.select(KEYS).take(sums["row_min"])
    for name, function in ADDED_BY.values():
        found = found.append_column(name, sums[f"{name}_{function}"])
    schema = arrow_schema(COLUMNS)
    return found.select(schema.names).cast(schema)


def _keys(rows: pa.Table) -> Array:
    """A number for each row, int64: the same for rows of the same key."""
    keys, count = np.zeros(rows.num_rows, np.int64), 1
    for name in KEYS:
        column = rows[name].combine_chunks()
        if column.null_count == rows.num_rows:
            continue
        encoded = column.dictionary_encode()
        distinct = len(encoded.dictionary) + 1
        if count * distinct >= 1 << 62:
            kept, keys = np.unique(keys, return_inverse=True)
            count = len(kept)
        numbers = encoded.indices.cast("int64").fill_null(-1).to_numpy()
        keys, count = keys * distinct + numbers + 1, count * distinct
    return keys


def report_of(
    rows: pa.Table,
    connections: pa.Table,
    files: pa.Table,
    ledger: pa.Table,
    *,
    by: str = "api",
    interval: int | None = None,
    curves: bool = False,
    selected: str | None = None,
    wanted: Sequence[str] | None = None,
    section_names: tuple[str, ...] = (),
    sections: Iterable[SplitSections] = (),
    section_options: Mapping[str, Any] | None = None,
    limits: Limits | None = None,
    kept: tuple[tuple[str, str], ...] = (),
    **known: Any,
) -> Report:
    """The reports of rows of counts and of tables, equal to those of one process over all captures.

    `by`: api, client, broker, connection, version, or topic (then the rows are of counts by topic); `interval`: ns of
    the timeline, if one is set; `curves`, `selected`: as of `build_report`; `wanted`: the names of sections, and
    `section_options`: what the user set for these. `section_names`: the sections over facts that were counted
    (`ReadOptions.sections`), and `sections`: their counts of each split. `known`: what `context_of_tables` takes.
    `limits`: those of names bound the rows of counts. `kept`: as `Context.options`.
    """
    counts, names = counts_of_rows(rows, by_topic=by == "topic", interval=interval)
    counts = add_up_small_rows(counts, (limits or Limits()).names, lambda: names.string(OTHER))
    over_facts = None
    if section_names:
        over_facts, shared = sum_sections(section_names, sections, names, limits)
        over_facts.add_connections(shared)
    context = context_of_tables(connections, files, ledger, names, **known)._replace(options=kept)
    return build_report(
        counts, context, by=by, curves=curves, selected=selected, sections=wanted, over_facts=over_facts,
        options=section_options,
    )  # fmt: skip


def context_of_tables(
    connections: pa.Table,
    files: pa.Table,
    ledger: pa.Table,
    names: NameTable | None = None,
    *,
    topic_names: Mapping[bytes, bytes] | None = None,
    not_captured: int = 0,
    definitions: Definitions | None = None,
    counted: pa.Table | None = None,
) -> Context:
    """The facts that reports need beside counts, from the tables of a run.

    `names`: names of the counts, to which those of the connections are added. `topic_names`: names of topics by their
    16-byte ids, beside those that the counts know. `not_captured`: bytes of payload that the snap length cut off;
    `definitions`: those of the decoding, if not the built-in ones. `counted`: rows of counts of connections
    (`reports.counting.connection_rows`), in place of the rows of `connections`.
    """
    names = names or NameTable()
    for topic_id, name in (topic_names or {}).items():
        names.name_topic(topic_id, name)
    infos = _files(files)
    sections = _ledger(ledger)
    payload = {part: count for part, count in sections.get("payload bytes", {}).items() if part != "total"}
    total = sum(payload.values()) - payload.get("duplicate", 0)
    firsts = [f.first for f in infos if f.first is not None]
    lasts = [f.last for f in infos if f.last is not None]
    return Context(
        strings=names.strings,
        addresses=names.addresses,
        topic_names=names.topic_names,
        connections=connection_rows(connections, names),
        files=infos,
        ledger=sections,
        first=min(firsts, default=None),
        last=max(lasts, default=None),
        packets=sections.get("packets", {}).get("total", sum(f.packets for f in infos)),
        encrypted_share=payload.get("encrypted", 0) / total if total else 0.0,
        known_versions=load_programs("summary", definitions).known_versions,
        not_captured=not_captured,
        counted=None if counted is None else connection_counts_of_rows(counted, names),
    )


def counts_of_connections(table: pa.Table) -> pa.Table:
    """The rows of counts (`reports.counting.connection_rows`) of a table `connections`."""
    names = NameTable()
    return rows_of_connections(count_connections(connection_rows(table, names)), names)


def _files(table: pa.Table) -> list[FileInfo]:
    """Files in the order of their packets."""
    table = as_declared(table, FILES)
    for name in ("first", "last"):
        table = table.set_column(table.schema.get_field_index(name), name, table[name].cast("int64"))
    rows = sorted(table.to_pylist(), key=lambda row: (row["first_packet"], row["path"]))
    return [FileInfo(**{**row, "link_types": tuple(row["link_types"])}) for row in rows]


def _ledger(table: pa.Table) -> dict[str, dict[str, int]]:
    """Sections and their parts in the usual order, rows of the same part added up; those of no name known come last."""
    found: dict[str, dict[str, int]] = {}
    for row in as_declared(table, LEDGER).to_pylist():
        parts = found.setdefault(row["section"], {})
        parts[row["part"]] = parts.get(row["part"], 0) + row["count"]
    return {
        section: {part: found[section][part] for part in _in_order(found[section], WORDS.get(section, {}))}
        for section in _in_order(found, WORDS)
    }


def _in_order(found: Mapping[str, object], usual: Mapping[str, object]) -> list[str]:
    return [name for name in usual if name in found] + sorted(name for name in found if name not in usual)
