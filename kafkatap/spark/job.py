"""`run_job`, the work of `kafkatap spark`: it writes captures as tables, and their reports.

Executors write the rows of tables where they decode them. They return file names, proofs, counts, and the rows of
connections that splits share.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ..captures.storage import absolute
from ..splits.run_options import RunOptions
from ..splits.two_passes import report_of
from .captures import Captures, DamagedCaptureError, notes_of
from .cluster.job_stages import Stages
from .cluster.shared_folders import shared_folders
from .job_result import DamagedInput, JobResult, Watch, has_kafka, ignore
from .lake_options import check_options, remember
from .neighbours import check_neighbours, cut_note, has_records
from .output.delta_schema import tables_of_run
from .output.publication import Publication, open_publication
from .output.report_files import delete_old_reports, write_report
from .output.run_tables import files_rows, first_date, ledger_rows, replaced_captures
from .path_pattern import PathPattern
from .versions import BestVersions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run_job(
    spark: SparkSession,
    captures: str | Sequence[str],
    out: str,
    *,
    split_size: int | None = None,
    options: RunOptions | None = None,
    strict: bool = False,
    by: str = "api",
    replace_rows: bool = False,
    path_pattern: str | None = None,
    watch: Watch = ignore,
) -> JobResult:
    """Write the tables and reports of captures (paths, folders, globs, URIs) to `out`.

    `path_pattern`: where clusters, sites and hosts are in paths (`PathPattern`), for the table `files`.

    No table changes before everything is written. Records of captures that `out` has are written again, too. Of several
    versions of a capture, in `captures` or `out`, only the best one counts (`versions`). DamagedInput if `strict` and a
    capture is damaged; OtherOptions if `out` has rows that were made with other options, unless `replace_rows`;
    SharedConnections if it has other captures that share connections with these; ValueError if `path_pattern` is wrong
    or matches no capture; FileNotFoundError, UnreadableCaptureError and FolderInUse as raised below.
    """
    pattern = None if path_pattern is None else PathPattern(path_pattern)
    out, stages = absolute(out), Stages(spark, watch)
    try:
        choice = BestVersions(out, replace_rows)
        read = Captures(spark, captures, split_size, options or RunOptions(), strict, stages, choose=choice)
        check_options(out, read.options, read.files, replace_rows)
        check_neighbours(out, read.file_infos)
        if not read.options.records and has_records(out, read.file_infos):
            read.options = replace(read.options, records=True)
            choice.notes.append(f"{out} has records of these captures: they are written again, with the other rows.")
        if pattern is not None:
            pattern.check(read.paths)
        private = read.options.is_decrypting
        with (
            open_publication(out, is_private=private) as publication,
            shared_folders(read.paths, out) as read.folders,
        ):
            result = _published(read, publication, by, watch, pattern)
        result = replace(result, notes=[*choice.notes, *result.notes], is_left_out=choice.has_others)
    except DamagedCaptureError as error:
        raise DamagedInput(str(error)) from None
    if stages.figures:  # Spark's own; Spark Connect reports none
        shuffled = sum(stage.bytes_shuffled for stage in stages.figures.values())
        received = sum(stage.bytes_to_driver for stage in stages.figures.values())
        return replace(result, bytes_shuffled=shuffled, bytes_to_driver=received)
    return result


def _published(
    read: Captures, publication: Publication, by: str, watch: Watch, pattern: PathPattern | None = None
) -> JobResult:
    proved, options = read.counted(publication.writer, by)
    context, total = proved.context(read.file_infos), proved.total(options)
    written = [
        *proved.written,
        *publication.write_connections(total.end_connections(), total.names, read.capture_index),
    ]
    written += publication.write("files", files_rows(context.files, publication, pattern))
    written += publication.write("ledger", ledger_rows(proved.ledgers()))
    report = report_of(total, context, options, by)
    remember(publication.out, read.options)
    since = first_date(publication.out, context.files)
    published = publication.publish(
        written, tables_of_run(options.records), replaced_captures(context.files), since=since,
        watch=lambda done, total: watch("publish", done, total),
    )  # fmt: skip
    damage = [f"{info.path}: {info.damage}" for info in context.files if info.damage]
    try:
        write_report(publication.out, report, publication.is_private, publication.run)
        delete_old_reports(publication.out)
    except OSError as error:
        damage.append(f"the tables are complete, but not the report beside them: {error}")
    cut = cut_note(publication.out, context.files, since)
    return JobResult(
        published.rows, 2 * read.bytes_read, 0, published.files, damage, report,
        [*notes_of(proved.plan), *([cut] if cut else [])],
        not context.files or has_kafka(context.ledger), read.bytes_received, proved.rounds,
    )  # fmt: skip
