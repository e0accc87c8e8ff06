"""A comparison as text: what got worse first, then what got better, then what is different.

Each finding has a title, and lines for what has changed, where the time went, how sure that is, and the commands that
show more of each side. All texts from the wire are escaped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .. import units
from ..commands import with_captures
from ..model import Row, as_number
from ..rendering.text_tables import Line, wrapped
from .comparison import Compared
from .stories import BETTER, DIFFERENT, WORSE

_STYLES = {WORSE: "bold red", BETTER: "bold green", DIFFERENT: "bold cyan"}
_HEADS = {WORSE: "Worse", BETTER: "Better", DIFFERENT: "Different"}
_LABEL = 12  # columns of the labels of lines


def render_comparison(
    compared: Compared, width: int | None, *, top: int = 12, utc: bool = False, one_sided: bool = False,
    captures: tuple[Sequence[str], Sequence[str]] = ((), ()),
) -> Iterator[Line]:  # fmt: skip
    """The lines of a comparison. `top`: findings of each kind, 0 for all. `one_sided`: also what only one side has
    without being sure. `captures`: the captures of each side, for the commands."""
    sides = compared.table("sides").named_rows()
    for side in sides:
        yield from _labelled(str(side["side"]), "bold cyan", units.safe(side_text(side, utc)), width)
    for number, (sentence, command) in enumerate(compared.left_out):
        if not number:
            yield []
        yield from wrapped(f"! {units.safe(sentence)}", width, "bold yellow", "  ")
        yield [(f"  more: {command}", "dim")]
    yield []
    yield from wrapped(compared.verdict, width, "bold")
    changes: dict[int, list[Row]] = {}
    for row in compared.table("changes").named_rows():
        changes.setdefault(int(as_number(row["number"])), []).append(row)
    findings = compared.table("findings").named_rows()
    for kind in (WORSE, BETTER, DIFFERENT):
        own = [row for row in findings if row["kind"] == kind]
        for row in own[: top or None]:
            yield []
            yield from _finding(row, changes.get(int(as_number(row["number"])), []), width, captures, utc)
        if top and len(own) > top:
            yield []
            yield [(f"… and {len(own) - top:,} more findings of this kind (-n all shows them)", "dim")]
    yield from _presence(compared, width, one_sided)
    for warning in compared.warnings:
        yield []
        yield from wrapped(f"! {units.safe(warning)}", width, "yellow", "  ")


def side_text(row: Row, utc: bool) -> str:
    """A side in one line: its captures, when, and how much."""
    names = row["captures"] if isinstance(row["captures"], tuple) else ()
    shown = f"{names[0]}" if len(names) == 1 else f"{len(names)} captures"
    only = f", only {row['selection']}" if row["selection"] else ""
    if row["first"] is None:
        return f"{shown}{only}: no packets"
    first, last = int(as_number(row["first"])), int(as_number(row["last"]))
    when = f"{units.clock(first, utc, 1, True)} to {units.clock(last, utc, 1)} ({units.duration(last - first)})"
    requests, clients = int(as_number(row["requests"])), int(as_number(row["client_ids"]))
    counts = f"{requests:,} request{'s' * (requests != 1)} of {clients:,} client id{'s' * (clients != 1)}"
    return f"{shown}{only}: {when}, {counts}"


def _finding(
    row: Row, changes: list[Row], width: int | None, captures: tuple[Sequence[str], Sequence[str]], utc: bool
) -> Iterator[Line]:  # fmt: skip
    kind = str(row["kind"])
    yield from _labelled(_HEADS[kind], _STYLES[kind], units.safe(str(row["finding"])), width, "bold")
    if row["begin"] is not None:
        yield from _labelled("when", "dim", _span_text(row, utc), width)
    main = changes[0]["on"] if changes and row["event"] is None else None
    for change in changes:
        on = "" if change["on"] == main else f" ({change['on']})"
        text = units.safe(f"{change['what']}: {change['change']}{on}")
        yield from _labelled("", "", text, width)
    if row["time_shares"]:
        yield from _labelled("where", "dim", units.safe(str(row["time_shares"])), width)
    yield from _labelled("how sure", "dim", units.safe(str(row["evidence"])), width)
    for side, name in enumerate(("before", "after")):
        command = with_captures(str(row[f"command_{name}"]), captures[side])
        yield [(f"{name:<{_LABEL}}", "dim"), (command, "dim")]


def _span_text(row: Row, utc: bool) -> str:
    begin = units.clock(int(as_number(row["begin"])), utc, 1, True)
    if row["end"] == row["begin"]:
        return begin
    return f"{begin} to {units.clock(int(as_number(row['end'])), utc, 1)}" if row["end"] is not None else f"{begin} on"


def _presence(compared: Compared, width: int | None, one_sided: bool) -> Iterator[Line]:
    findings = tuple(str(row["finding"]) for row in compared.table("findings").named_rows())
    rows = [
        row for row in compared.table("presence").named_rows()
        if row["what"] != "broker" or not any(text.startswith(f"{row['name']} ") for text in findings)
    ]  # fmt: skip
    shown = [row for row in rows if row["is_sure"] or one_sided]
    for change in ("disappeared", "appeared"):
        own = [row for row in shown if row["change"] == change]
        if not own:
            continue
        yield []
        for n, row in enumerate(own):
            sure = "" if row["is_sure"] else ", perhaps by chance"
            count = int(as_number(row["exchanges"]))
            noun = "exchange" if row["ja4"] is None else "connection"
            text = f"{row['name']} ({count:,} {noun}{'s' * (count != 1)}{sure})"
            yield from _labelled(change.capitalize() if n == 0 else "", "bold cyan", units.safe(text), width)
    left = len(rows) - len(shown)
    if left:
        yield []
        noun = "thing was" if left == 1 else "things were"
        yield [(f"{left:,} {noun} seen on one side only, perhaps by chance (-v lists them)", "dim")]


def _labelled(label: str, style: str, text: str, width: int | None, text_style: str = "") -> Iterator[Line]:
    """A label, and a text beside it on as many lines as it needs."""
    room = None if width is None else max(width - _LABEL, 30)
    lines = [text] if room is None else ["".join(t for t, _ in line) for line in wrapped(text, room, "")] or [""]
    for n, one in enumerate(lines):
        head = f"{label:<{_LABEL}}" if n == 0 else " " * _LABEL
        yield [(head, style), (one, text_style)]
