"""`kafkatap compare LAKE --before SPAN --after SPAN`: two spans of the tables that `kafkatap spark` wrote."""

from __future__ import annotations

import argparse
import gc
import re

from kafkatap.reports.counting.hour_counts import HOUR
from kafkatap.reports.literals import read_moment
from kafkatap.reports.units import iso

from ...captures.storage import absolute
from ...complaints import complain, reason_of
from ...engine.selection import selection_of
from ..console import refuse
from ..exit_codes import WRONG
from ..kept_options import kept_options
from ..lakes import other_options
from ..report.lake import apis_of, clients_of
from .arguments import add_arguments
from .output import finish

#: The options that apply to a lake, by their names in `options`.
_ANSWERED = {
    "captures", "command", "before", "after", "client", "broker", "api", "cluster", "min_change", "one_sided",
    "exit_code", "number", "width", "utc", "color", "pager", "verbose", "progress", "json", "html", "overwrite",
}  # fmt: skip
_DAY = re.compile(r"\d{4}-\d\d-\d\d")


def run_on_lake(options: argparse.Namespace, lake: str) -> int:
    """Run the command; return its exit code."""
    from ...spark.cluster.java import SetupError
    from ...spark.output.delta import require_deltalake

    gc.enable()
    try:
        require_deltalake()
        spans = _checked(options)
        from ...spark.lake_query import LakeQuery, captures_of, hour_of
        from ...spark.lake_sides import lake_side

        selection, captures = selection_of(options), captures_of(absolute(lake), options.cluster)
        sides, texts = [], []
        for text, (start, end) in spans:
            begin, until = (hour_of(read_moment(each, options.utc)) for each in (start, end))
            if begin >= until:
                raise ValueError(f"{text} ends before it begins")
            query = LakeQuery(selection, begin, until, clients_of(options), apis_of(options), captures)
            side = lake_side(absolute(lake), query, text)
            sides.append(side._replace(context=side.context._replace(options=kept_options(options))))
            window = f"--from {iso(begin * HOUR)[:16]}Z --to {iso(until * HOUR)[:16]}Z"
            texts.append(" ".join(filter(None, (selection.text, window))))
    except SetupError as error:
        complain(str(error))
        return WRONG
    except ValueError as error:
        return refuse(error)
    except OSError as error:
        complain(reason_of(error))
        return WRONG
    return finish(options, sides, (texts[0], texts[1]), ([lake], [lake]), has_damage=False)


def _checked(options: argparse.Namespace) -> list[tuple[str, tuple[str, str]]]:
    """The spans, with their words. ValueError if an option is wrong, or asks for what a lake lacks."""
    if len(options.captures) > 1:
        raise ValueError("a lake is compared with itself: name nothing beside it, and two spans, --before and --after")
    for option in other_options(options, add_arguments, _ANSWERED):
        raise ValueError(
            f"{option} needs captures: leave it out, or run `kafkatap compare` over the captures of a lake"
        )
    if options.before is None or options.after is None:
        raise ValueError(
            "of a lake two spans are compared: --before 2026-11-21 --after 2026-11-22, or hours: "
            "--before 2026-11-21T08:00Z/2026-11-21T12:00Z"
        )
    return [(text, _span(option, text)) for option, text in (("--before", options.before), ("--after", options.after))]


def _span(option: str, text: str) -> tuple[str, str]:
    """Begin and end of a span, as times. ValueError for anything else."""
    start, slash, end = text.partition("/")
    if slash:
        return start, end
    day = _DAY.match(text.strip())
    if day is None or not re.fullmatch(r"\s*(Z|UTC)?", text.strip()[day.end() :]):
        raise ValueError(
            f"{option} {text}: neither a day (2026-11-21) nor two times (2026-11-21T08:00/2026-11-21T12:00)"
        )
    from datetime import date, timedelta

    try:
        after = date.fromisoformat(day.group()) + timedelta(days=1)
    except ValueError as error:
        raise ValueError(f"{option} {text}: {error}") from None
    zone = text.strip()[day.end() :]
    return f"{day.group()}T00:00{zone}", f"{after}T00:00{zone}"
