"""Which findings of the summary people see first, and their sentences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from .. import kinds, units
from ..findings import NOTE
from ..model import ReportTable, Row, Value, as_number
from ..sections.summary import SHOWN
from .text_tables import LONGEST_SENTENCE, cell_text

#: Lines of one kind of finding, so that many of one kind do not hide the others.
_OF_A_KIND = 3
#: A finding shows when it began, if it lasted for less than this share of the capture: otherwise that says nothing.
_PASSING = 0.9
#: A setting is so all the time. What it does shows when it began, if that was after this share of the capture.
_LATER = 0.05


def first_lines(table: ReportTable, whole: bool = False) -> tuple[list[Row], int]:
    """The rows to show, by column name, and the number of those left out. What follows from another finding is left
    out, and does not count. What was not checked is always shown. `whole`: show all others."""
    own = [row for row in table.named_rows() if row["cause"] is None]
    if whole:
        return own, 0
    seen: Counter[Value] = Counter()
    place = []
    is_wrong = any(row["severity"] != NOTE for row in own)
    for n, row in enumerate(own):
        if is_wrong and row["finding"] in kinds.USUAL and row["severity"] == NOTE:
            continue  # usual work is no line on the first screen while something is wrong
        seen[row["finding"]] += 1
        place.append((seen[row["finding"]] > _OF_A_KIND, seen[row["finding"]] > 1, n))
    last = [n for n, row in enumerate(own) if row["finding"] == kinds.NOT_CHECKED]
    others = sorted(each for each in place if each[-1] not in last)
    room = SHOWN - len(last)
    room += len(others) == room + 1  # no line says that one more is left
    chosen = [*(n for is_hidden, _, n in others[:room] if not is_hidden), *last]
    return [own[n] for n in sorted(chosen)], len(own) - len(chosen)


def finding_text(row: Row, heading: ReportTable, utc: bool) -> str:
    """The sentence of a finding, escaped, with the time when it began and the setting to change."""
    text = units.safe(cell_text(row["text"], LONGEST_SENTENCE))
    if row["setting"]:
        text += f"; change {units.safe(str(row['setting']))}"
    when = _when(row, heading, utc)
    return f"{when} {text}" if when else text


def _when(row: Row, heading: ReportTable, utc: bool) -> str:
    """`04:36:44.6`; with the date if the capture has several."""
    found: Mapping[str, Any] = heading.named_rows()[0]
    begin, first, last = row["begin"], found["first"], found["last"]
    if not isinstance(begin, int) or first is None or last is None:
        return ""
    if row["setting"] and begin - first <= _LATER * (last - first):
        return ""
    end = int(as_number(row["end"])) if row["end"] is not None else begin
    if end - begin >= _PASSING * (last - first):
        return ""
    days = units.clock(first, utc, 0, True)[:10] != units.clock(last, utc, 0, True)[:10]
    return units.clock(begin, utc, 1, days)
