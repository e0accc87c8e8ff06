"""`kafkatap report LAKE`: the report of the tables that `kafkatap spark` wrote, from their rollup."""

from __future__ import annotations

import argparse
import gc
import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from kafkatap.reports.counting.hour_counts import HOUR
from kafkatap.reports.section_parts.registry import section_names

from ...captures.storage import absolute
from ...complaints import complain, reason_of
from ...engine.selection import Selection, selection_of, shows_groups
from ..console import refuse
from ..exit_codes import DAMAGED, DONE, WRONG
from ..kept_options import kept_options
from ..lakes import other_options
from ..values import check_section_options, chosen_hosts, section_options
from .arguments import add_arguments
from .outputs import check_outputs, has_curves

if TYPE_CHECKING:
    from kafkatap.reports.model import Report

#: The options that a report of a lake answers, by their names in `options`.
_ANSWERED = {
    "captures", "command", "by", "sections", "start", "end", "client", "broker", "api", "cluster", "group", "number",
    "sort", "width", "utc", "color", "pager", "ledger", "progress", "verbose", "json", "html", "csv", "plots",
    "overwrite", "release", "quota", "zones", "hosts",
}  # fmt: skip


def run_on_lake(options: argparse.Namespace, lake: str, judge: Callable[[Report], int | None]) -> int:
    """Run the command; return its exit code. `judge`: as of `command.run`."""
    from ...spark.cluster.java import SetupError
    from ...spark.output.delta import require_deltalake

    gc.enable()
    try:
        require_deltalake()
        selection = _checked(options)
        from ...spark.lake_query import LakeQuery, captures_of, hours_of
        from ...spark.lake_report import lake_report

        begin, end = hours_of(selection)
        captures = captures_of(absolute(lake), options.cluster)
        hosts = chosen_hosts(options)
        query = LakeQuery(selection, begin, end, clients_of(options), apis_of(options), captures, hosts)
        report = lake_report(
            absolute(lake), query, by=options.by, sections=options.sections, curves=has_curves(options),
            options=kept_options(options), section_options=section_options(options),
        )  # fmt: skip
    except SetupError as error:
        complain(str(error))
        return WRONG
    except (ValueError, OSError) as error:
        return refuse(error)
    from .reporting import as_ordered, has_requests, write_outputs

    report = as_ordered(options, report)
    found = has_requests(report)
    options.captures = []  # commands beside findings are for captures: most of them cannot read a lake
    if not found:
        complain(f"{lake}: no request" + (f" matches {selection.text}" if selection.text else ""))
    try:
        write_outputs(options, report, report)
    except OSError as error:
        complain(reason_of(error))
        return WRONG
    return judge(report) or (DONE if found or selection else DAMAGED)


def _checked(options: argparse.Namespace) -> Selection:
    """The selection. ValueError if an option is wrong, or asks for what a lake has no counts of."""
    if len(options.captures) > 1:
        raise ValueError("a lake is reported alone: name no captures beside it")
    for option in other_options(options, add_arguments, _ANSWERED):
        if option != "--interval" or options.interval != HOUR:
            raise ValueError(
                f"{option} needs captures: a lake has counts by hour, client, broker, API and version; leave it out, "
                f"or run `kafkatap report` over its captures"
            )
    from ...spark.lake_sections import lacking_sections

    if lacking := lacking_sections(options.sections or ()):
        there = [name for name in section_names() if not lacking_sections([name])]
        raise ValueError(
            f"--sections {','.join(lacking)} needs messages, and a lake has none; it has {', '.join(there)}"
        )
    if options.group and not shows_groups(options):
        raise ValueError("--group of a lake is for --sections groups alone")
    check_section_options(options)
    check_outputs(options)
    return selection_of(options)


def clients_of(options: argparse.Namespace) -> re.Pattern[str] | None:
    """What matches the clients of --client."""
    from kafkatap.reports.expressions.values import glob_pattern

    return glob_pattern("--client", options.client) if options.client else None


def apis_of(options: argparse.Namespace) -> frozenset[int] | None:
    """The keys of --api."""
    from ...engine.selection import api_keys

    names = [name for names in options.api or () for name in names]
    return frozenset(api_keys(names)) if names else None
