"""What `kafkatap compare` prints and writes of two sides."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from ...complaints import complain, reason_of
from ...output_file import write_whole
from ..console import discard_output
from ..exit_codes import BREAKS, DAMAGED, DONE, WRONG

if TYPE_CHECKING:
    from kafkatap.reports.comparison.comparison import Compared
    from kafkatap.reports.comparison.leaves import Side


def finish(
    options: argparse.Namespace, sides: list[Side], texts: tuple[str | None, str | None],
    captures: tuple[list[str], list[str]], has_damage: bool,
) -> int:  # fmt: skip
    """Compare two sides, and print; return the exit code. `texts`: the options that select the exchanges of each."""
    from kafkatap.reports.comparison.comparison import compare_sides
    from kafkatap.reports.comparison.judging import Demands

    compared = compare_sides(sides[0], sides[1], Demands(ratio=options.min_change / 100), texts)
    try:
        _print(options, compared, captures)
        if options.html is not None:
            _write_page(options, compared, captures)
    except OSError as error:
        complain(reason_of(error))
        return WRONG
    if options.exit_code and compared.worse:
        return BREAKS
    return DAMAGED if has_damage else DONE


def _write_page(options: argparse.Namespace, compared: Compared, captures: tuple[list[str], list[str]]) -> None:
    from kafkatap.reports.comparison.html import comparison_page

    from ...installation import own_version

    page = comparison_page(compared, captures=captures, utc=options.utc, version=own_version())
    write_whole(options.html, page, options.overwrite)
    complain(f"wrote {options.html}")


def _print(options: argparse.Namespace, compared: Compared, captures: tuple[list[str], list[str]]) -> None:
    from ...installation import own_version

    try:
        if options.json:
            from kafkatap.reports.comparison.json_form import write_comparison

            write_comparison(compared, sys.stdout, own_version())
        else:
            from kafkatap.reports.comparison.text import render_comparison
            from kafkatap.reports.rendering.text import write_lines

            color = None if options.color == "auto" else options.color == "always"
            write_lines(
                lambda width: render_comparison(
                    compared, width, top=options.number, utc=options.utc, one_sided=options.one_sided, captures=captures
                ),
                sys.stdout, color=color, width=options.width,
            )  # fmt: skip
        sys.stdout.flush()
    except BrokenPipeError:
        discard_output()
