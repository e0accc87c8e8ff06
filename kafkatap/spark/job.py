"""`run_job`, the work of `kafkatap spark`: it writes captures as tables, and their reports.

Executors write the rows of tables where they decode them. They return file names, proofs, counts, and the rows of
connections that splits share.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from kafkatap.reports.finding_words import counted

from ..captures.storage import absolute, find
from ..splits.capture_ledgers import sum_ledgers
from ..splits.checkpoint import Checkpoint
from ..splits.run_options import RunOptions
from . import section_tables
from .captures import Captures, DamagedCaptureError
from .cluster.job_stages import Stages
from .cluster.shared_folders import shared_folders
from .job_result import DamagedInput, JobResult, Watch, has_kafka, ignore
from .lake_options import check_options, remember
from .neighbours import check_neighbours, cut_note, has_records
from .output.delta import Outrun
from .output.delta_schema import tables_of_run
from .output.publication import Publication, open_publication
from .output.report_files import delete_old_reports, write_report
from .output.run_tables import clusters_of, files_rows, first_date, ledger_rows, replaced_captures
from .path_pattern import PathPattern
from .series import Series, Start, publish
from .stream_batch import ReadBatch, decoded, report_on
from .versions import BestVersions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kafkatap.reports.batch import FileInfo


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
    stages, begun = Stages(spark, watch), time.time_ns()
    read = Captures(spark, captures, split_size, options or RunOptions(), strict, stages)
    job = Job(absolute(out), by, replace_rows, watch, pattern)
    try:
        while (result := job.run(read, begun)) is None:  # another run is there first, and this one goes on from it
            read, begun = replace(read, folders=None), time.time_ns()
    except DamagedCaptureError as error:
        raise DamagedInput(str(error)) from None
    if stages.figures:  # Spark's own; Spark Connect reports none
        shuffled = sum(stage.bytes_shuffled for stage in stages.figures.values())
        received = sum(stage.bytes_to_driver for stage in stages.figures.values())
        return replace(result, bytes_shuffled=shuffled, bytes_to_driver=received)
    return result


@dataclass(frozen=True, slots=True)
class Job:
    """A run that writes to `out`. Fields: as of `run_job`."""

    out: str
    by: str
    replace_rows: bool
    watch: Watch
    pattern: PathPattern | None

    def run(self, read: Captures, begun: int) -> JobResult | None:
        """Read captures and publish their rows. None if another run changed what this one goes on from. `begun`: as of
        `Publication`."""
        out, options = self.out, read.options
        read.choose = choice = BestVersions(out, self.replace_rows)
        check_options(out, options, read.files, self.replace_rows)
        series, start = Series(out, options), None
        series.complete()
        if options.selection.window is None and read.surveys.files():  # a window has ends of its own
            start = series.start(read.surveys, begun)
        if start is not None and start.again:
            choice = BestVersions(out, self.replace_rows)
            read = _with_others(read, start.again, choice)
        found = read.surveys.files()
        check_neighbours(out, found, start.replaced if start else ())
        if not options.records and has_records(out, found):
            options = replace(options, records=True)
            choice.notes.append(f"{out} has records of these captures: they are written again, with the other rows.")
        if self.pattern is not None:
            self.pattern.check(read.paths)
        read.options = replace(options, input_bytes=sum(file.size for file in read.files))
        try:
            with (
                open_publication(out, is_private=options.is_decrypting) as publication,
                shared_folders(read.paths, out) as read.folders,
            ):
                result = self._published(read, publication, series, start)
        except Outrun:
            if start is not None:
                series.discard(start)
            return None
        return replace(result, notes=[*choice.notes, *result.notes, *series.notes], is_left_out=choice.has_others)

    def _published(self, read: Captures, publication: Publication, series: Series, start: Start | None) -> JobResult:
        out, options = self.out, read.options
        read.checkpoint, read.keep_open = Checkpoint() if start is None else start.checkpoint, start is not None
        publication.number = None if start is None else start.number
        publication.clusters = clusters_of(out, read.surveys.files(), self.pattern)
        begin = min((info.first for info in read.surveys.files() if info.first is not None), default=None)
        batch = last = decoded(read, publication, self.by, begin)
        written = [
            *batch.written,
            *publication.write("files", files_rows(batch.files, publication, self.pattern)),
            *publication.write("ledger", ledger_rows(batch.ledgers)),
        ]
        if start is not None:  # the rows of what is open, as far as they are known
            rest = replace(publication, run=f"{publication.run}-open", number=start.number + 1)
            captures = Captures(None, [], 0, read.options, checkpoint=batch.checkpoint, listed=[])
            last = decoded(captures, rest, self.by, begin)
            written += [*last.written, *rest.write("ledger", ledger_rows(last.ledgers))]
        since = first_date(out, batch.files)
        tables, captured = tables_of_run(options.records), tuple(sorted(replaced_captures(batch.files)))
        how: dict[str, Any] = {"since": since, "watch": lambda done, total: self.watch("publish", done, total)}
        remember(out, options)
        if start is None:
            published = publication.publish(written, tables, captured, **how)
        else:
            commit = start.commit(read.surveys, written=written, tables=tables, captures=captured)
            state = series.save(start, batch, commit)
            published = publish(publication, state, tables, after=start.after, **how)
            series.drop(start)
        if section_tables.are_there(out):
            list(section_tables.update_sections(out))
        damage = [f"{info.path}: {info.damage}" for info in batch.files if info.damage]
        report = report_on(_of_run(last, batch.files), batch.files, last.options, self.by)
        try:
            write_report(out, report, publication.is_private, publication.run)
            delete_old_reports(out)
        except OSError as error:
            damage.append(f"the tables are complete, but not the report beside them: {error}")
        cut = cut_note(out, batch.files, since)
        ledger = sum_ledgers([*batch.ledgers.values(), *last.ledgers.values()])
        return JobResult(
            published.rows, batch.bytes_read, 0, published.files, damage, report,
            [*batch.notes, *([cut] if cut else [])], not batch.files or has_kafka(ledger), read.bytes_received,
            batch.rounds,
        )  # fmt: skip


def _of_run(batch: ReadBatch, files: Sequence[FileInfo]) -> Checkpoint:
    """What a batch leaves, with the times of these files alone."""
    first = min((info.first for info in files if info.first is not None), default=None)
    last = max((info.last for info in files if info.last is not None), default=None)
    return replace(batch.checkpoint, sums=replace(batch.checkpoint.sums, first=first, last=last))


def _with_others(read: Captures, again: Mapping[str, int], choice: BestVersions) -> Captures:
    """Captures with others that are read again. `again`: paths and identities of these. ValueError if one has
    changed."""
    others = [file for path in again if path not in read.paths for file in find([path])]
    whole = replace(read, listed=[*read.files, *others], choose=choice)
    there = replaced_captures(whole.surveys.files())
    changed = sorted(path for path, capture in again.items() if capture not in there)
    if changed:
        raise ValueError(f"{changed[0]} has changed since it was read; remove its rows with `kafkatap lake forget`")
    verb = "is" if len(others) == 1 else "are"
    choice.notes.append(
        f"{counted(len(others), 'capture')} with later packets of the same connections {verb} read again."
    )
    return whole
