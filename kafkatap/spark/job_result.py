"""What a job says of itself: while it runs (`Watch`), and in the end (`JobResult`). No Spark in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from kafkatap.reports.model import Report

#: The parts of a job, in order.
STAGES = ("survey", "decode", "publish")


class Watch(Protocol):
    """Called by the job as often as it likes, from any thread, each stage from 0 to its end."""

    def __call__(self, stage: str, done: int, total: int, bytes_read: int = 0) -> None:
        """`stage`: one of STAGES; `done` of `total` tasks (of publish: files); `bytes_read`: of captures, by this
        stage."""


@dataclass(frozen=True, slots=True)
class JobResult:
    """What a job did, once all of it is published.

    `tables`: rows by table, those of this run; `bytes_read`: of the captures' files, both passes; `bytes_shuffled`:
    what crossed between executors and the driver that was neither counts nor captures; `damage`: a sentence for each
    damaged file, its name first; `notes`: what else is to be said, sentences. `report` was published with the tables
    (`report_files.write_report`), if there is one.
    """

    tables: Mapping[str, int]
    bytes_read: int
    bytes_shuffled: int
    files_written: int
    damage: list[str] = field(default_factory=list)
    report: Report | None = None
    notes: list[str] = field(default_factory=list)


class DamagedInput(Exception):
    """A capture is damaged, and that was asked to end the job (`strict`). Nothing is published."""


def ignore(stage: str, done: int, total: int, bytes_read: int = 0) -> None:
    """A `Watch` that shows nothing."""
