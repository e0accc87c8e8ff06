"""A comparison as HTML: a page, and what a notebook shows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath

from .. import units
from ..commands import with_captures
from ..model import ReportTable, Row, Value
from ..rendering.html.notebook import tables_html
from ..rendering.html.page import PageFinding, render_page
from .comparison import Compared
from .stories import BETTER, WORSE
from .text import side_text

_TONES = {WORSE: "bad", BETTER: "good"}
#: Findings at the top of the page; the table has all.
_FIRST = 12


def comparison_page(
    compared: Compared, *, captures: tuple[Sequence[str], Sequence[str]] = ((), ()), utc: bool = False,
    version: str = "",
) -> str:  # fmt: skip
    """The page. `captures`: the captures of each side, for the commands."""
    findings = compared.table("findings").named_rows()
    changes = compared.table("changes").named_rows()

    def commands(table: ReportTable, row: tuple[Value, ...]) -> Sequence[str]:
        if table.name != "findings":
            return ()
        return _commands(table.named(row), captures)

    sides = compared.table("sides").named_rows()
    first = sides[0]["first"]
    return render_page(
        f"{_name(captures[0])} compared with {_name(captures[1])}" if captures[0] else "Two captures compared",
        [compared.table(name) for name in ("findings", "changes", "presence", "sides")],
        subtitle=compared.verdict,
        findings=[_finding(row, changes, captures) for row in findings[:_FIRST]],
        facts=[(str(side["side"]), side_text(side, utc)) for side in sides],
        warnings=compared.all_warnings,
        notes=(f"Times are {units.zone(first, utc)}.",) if isinstance(first, int) else (),
        commands=commands,
        utc=utc,
        first=first if isinstance(first, int) else None,
        version=version,
    )


def comparison_html(compared: Compared) -> str:
    """The findings and what is behind them, for a notebook."""
    facts = [(str(side["side"]), side_text(side, utc=False)) for side in compared.table("sides").named_rows()]
    facts.append(("result", compared.verdict))
    tables = [(compared.table(name), name == "findings") for name in ("findings", "changes", "presence")]
    return tables_html(tables, facts)


def _finding(row: Row, changes: list[Row], captures: tuple[Sequence[str], Sequence[str]]) -> PageFinding:
    own = [f"{c['what']} {c['change']}" for c in changes if c["number"] == row["number"]][:2]
    parts = ["; ".join([str(row["finding"]), *own])]
    parts += [str(row[name]) for name in ("time_shares", "evidence") if row[name]]
    kind = str(row["kind"])
    text = ". ".join(part[0].upper() + part[1:] for part in parts)
    return PageFinding(kind, text, _commands(row, captures), _TONES.get(kind, ""), "findings")


def _commands(row: Row, captures: tuple[Sequence[str], Sequence[str]]) -> tuple[str, ...]:
    """What prints more of each side."""
    sides = enumerate(("before", "after"))
    return tuple(with_captures(str(row[f"command_{side}"]), captures[n]) for n, side in sides)


def _name(captures: Sequence[str]) -> str:
    if len(captures) == 1:
        return "standard input" if captures[0] == "-" else PurePath(captures[0]).name
    return f"{len(captures):,} captures"
