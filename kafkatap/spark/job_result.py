"""The progress of a job (`Watch`) and its result (`JobResult`). No Spark in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from kafkatap.reports.model import Report

_TABLES_OF_ROWS = ("exchanges", "results", "connections", "records")
#: The stages of a job, in order.
STAGES = ("survey", "decode", "publish")


class Watch(Protocol):
    """A function that a job calls with its progress: at any time, from any thread, for each stage from 0 to its end."""

    def __call__(self, stage: str, done: int, total: int, bytes_read: int = 0) -> None:
        """`stage`: one of STAGES. `done` of `total` tasks, or of tables in "publish". `bytes_read`: bytes of captures
        that this stage read."""


@dataclass(frozen=True, slots=True)
class JobResult:
    """What a job published.

    `tables`: rows of this run by table. `bytes_read`: bytes of captures, both passes. `bytes_shuffled`: bytes that
    tasks wrote for other tasks, as Spark counts them. `damage`: a sentence for each damaged file, starting with its
    name. `notes`: other sentences for the user. `report`: the report that was published with the tables, if any.
    `has_kafka`: whether the captures have any requests, selected or not, or all were left out. `bytes_to_driver`: bytes
    of results, as Spark counts them, or uncompressed with Spark Connect. `rounds`: how often splits were decoded until
    the plan was proved. `is_damaged`: for the sum of several results, whether any of them has damage. `is_left_out`: a
    version of a capture was not read, as another one is better, and has other packets.
    """

    tables: Mapping[str, int]
    bytes_read: int
    bytes_shuffled: int
    files_written: int
    damage: list[str] = field(default_factory=list)
    report: Report | None = None
    notes: list[str] = field(default_factory=list)
    has_kafka: bool = True
    bytes_to_driver: int = 0
    rounds: int = 1
    is_damaged: bool = False
    is_left_out: bool = False


class DamagedInput(Exception):
    """A capture is damaged and the job is `strict`. Nothing is published."""


def rows_text(rows: Mapping[str, int]) -> str:
    """`5,595 exchanges, 221 connections`: rows by table, without the small tables and those of the rollup."""
    return ", ".join(f"{count:,} {table}" for table, count in rows.items() if table in _TABLES_OF_ROWS)


def has_kafka(ledger: Mapping[str, Mapping[str, int]]) -> bool:
    """Whether a ledger counts any requests."""
    return any(ledger.get("requests", {}).values())


def ignore(stage: str, done: int, total: int, bytes_read: int = 0) -> None:
    """A `Watch` that shows nothing."""
