"""`RunOptions`: what a run over splits makes of captures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from kafkatap.reports.section_parts.registry import OF_LAKES, counted_sections

from ..engine.read_options import AS_USUAL, ReadOptions
from ..engine.selection import EVERYTHING, Selection


@dataclass(frozen=True, slots=True)
class RunOptions:
    """`read`: how captures are decoded; each process has the limits for itself. `records`: decode records too.
    `selection`: the exchanges that become rows and counts; tasks need absolute times in it.

    Of a report: `by_topic`, `by_connection`, `fine`: as of `ReportCounts`. `wanted`: its sections (None: the usual
    ones), and `section_options`: what the user set for them. `kept`: as `Context.options`. `input_bytes`: as of
    `counted_sections`; `TwoPasses.resolved` sets it. `for_lake`: count what a lake keeps, too.
    """

    read: ReadOptions = AS_USUAL
    records: bool = False
    by_topic: bool = False
    by_connection: bool = False
    selection: Selection = EVERYTHING
    wanted: tuple[str, ...] | None = None
    section_options: Mapping[str, Any] = field(default_factory=dict)
    fine: bool = False
    kept: tuple[tuple[str, str], ...] = ()
    input_bytes: int | None = None
    for_lake: bool = False

    @property
    def sections(self) -> tuple[str, ...]:
        """The sections whose counts the report needs."""
        return counted_sections(self.wanted, self.input_bytes)

    @property
    def kept_sections(self) -> tuple[str, ...]:
        """The sections of which counts are kept by capture and hour, with those of the report."""
        return tuple(dict.fromkeys((*self.sections, *counted_sections(OF_LAKES)))) if self.for_lake else ()

    @property
    def is_decrypting(self) -> bool:
        """Whether there is a key log. Then what is written is only for the user who has it."""
        return self.read.key_log is not None

    @property
    def for_tasks(self) -> RunOptions:
        """The same without the key log: tasks get only the lines that they need, beside their inputs. Names of hosts go
        along, without labels."""
        hosts = self.read.hosts
        return replace(self, read=self.read._replace(key_log=None, hosts=None if hosts is None else hosts.names_alone))
