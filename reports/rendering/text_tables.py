"""A table as lines of text: the columns that fit, the most important rows, and the number of rows left out.

A line is a list of spans of (text, style). A `width` of None is that of a file or pipe: no column is dropped, and no
text of a usual length is cut. All texts from the wire are escaped, and cells have limits: names and lists of them can
be as long as a sender likes. JSON, CSV and Parquet are whole.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from .. import units
from ..model import Column, ReportTable, Value, as_number

Span = tuple[str, str]  #: text and a rich style ("" for plain)
Line = list[Span]

#: Where sentences are wrapped if there is no width.
PLAIN_WIDTH = 120
#: Widths of texts on a terminal. LONGEST is the maximum. On a narrow one texts are cut to NARROW before columns are
#: dropped, and to SOFTEST after all possible columns are dropped. Only then texts of _FIRM are cut as well, down to
#: SHORTEST.
LONGEST, NARROW, SOFTEST, SHORTEST = 40, 20, 13, 9
#: Columns whose texts are cut last.
_FIRM = frozenset((
    "error", "api", "verdict", "section", "address", "client_ip", "broker", "client", "connection", "group",
    "topic", "transactional_id",
))  # fmt: skip
#: Columns with sentences. They are wrapped onto several lines, not cut: at most SENTENCE wide, and no less than
#: HALF_A_SENTENCE before other columns are dropped.
SENTENCES = frozenset(
    ("finding", "fix", "what", "message", "evidence", "example", "reason", "text", "setting", "remedy", "meaning")
)
SENTENCE, HALF_A_SENTENCE, LEAST_OF_A_SENTENCE = 60, 32, 20
#: Characters of a cell, and of one with a sentence, whatever the width. Names of topics have 249 at most. A longer list
#: ends with the number of the others.
LONGEST_CELL, LONGEST_SENTENCE = 300, 1_000
#: Characters of a command. A longer one is not shown: it holds a hostile name, and a part of it does something else.
LONGEST_COMMAND = 1_000
#: Rows of a table that is shown whole, unless `-n` wants more.
MOST_WHOLE_ROWS = 2_000
#: The length of a bar, and the least width of a terminal that has them.
_BAR, _WITH_BARS = 8, 100
#: Columns that are shown whatever the width. Others are dropped from the right if even short texts do not fit.
FEWEST = 2
#: Columns of this rank are for programs only.
FOR_PROGRAMS = 9
_GAP = "  "
#: A space at which no line is broken.
_KEPT = "\xa0"
#: Texts that are shown whole, or not at all: a part of a command or of an address is of no use. By name, their longest:
#: an IPv6 address in brackets with a port; a hostile name is longer.
_ADDRESS = 54
_WHOLE = {"command": LONGEST_COMMAND, **dict.fromkeys(("address", "broker", "client", "client_ip"), _ADDRESS)}
_TEXTS = frozenset(("text", "texts", "versions", "numbers", "parties", "packets"))
RIGHT = frozenset(("count", "ns", "ms", "bytes", "share", "packet", "number"))
_VERDICTS = {
    "network": "magenta", "broker": "red", "client": "yellow", "head-of-line": "yellow", "throttled": "cyan",
    "ok": "green", "failing": "red",
}  # fmt: skip
#: Columns whose values above zero are a problem.
BAD = {
    "failed_exchanges": "red", "error_codes": "red", "unanswered": "red", "throttled": "yellow",
    "throttle_wait_sum_ns": "yellow", "drops": "red",
}  # fmt: skip


def render_table(
    table: ReportTable, width: int | None, top: int, utc: bool, first: int | None = None, brief: bool = False
) -> Iterator[Line]:
    """The lines of one table: title, columns that fit, most important rows, notes. `first`: the time of the capture's
    first packet. `top`: the number of rows, 0 for all. `brief`: with one note at most."""
    if not table.rows:
        yield [(table.title, "bold"), (f": {table.empty}", "")]
        return
    yield [(table.title, "bold")]
    most = max(top, MOST_WHOLE_ROWS) if table.whole else top
    rows = chosen_rows(table, most) if top and most + 1 < len(table.rows) else table.rows
    digits, date = clock_form(table, rows, first, utc)
    columns = columns_for_people(table)
    texts = {i: [cell(table.columns[i], row[i], utc, digits, date) for row in rows] for i in columns}
    if width is None or width >= _WITH_BARS:
        for i in (i for i in columns if table.columns[i].name in table.bars):
            texts[i] = _with_bars(texts[i], [as_number(row[i]) for row in rows])
    shown, widths = _fit(table, columns, texts, width)
    yield from _head_lines(table, shown, widths)
    yield [(_GAP.join("─" * w for w in widths), "dim")]
    for n, row in enumerate(rows):
        cells = [_cell_lines(table.columns[i], texts[i][n], w) for i, w in zip(shown, widths, strict=True)]
        for level in range(max(map(len, cells))):
            line: Line = []
            for at, (i, limit, lines) in enumerate(zip(shown, widths, cells, strict=True)):
                text = lines[level] if level < len(lines) else ""
                padded = _pad(text, limit, table.columns[i], last=at == len(shown) - 1)
                line += [(_GAP, "")] * (at > 0) + [(padded, _style(table.columns[i], row[i], table, row))]
            yield line
    left = len(table.rows) - len(rows)
    if left:
        chosen = next((c for c in table.columns if c.name == table.chosen_by), None)
        title = "" if chosen is None else chosen.plain_title
        many, few = ("many", "fewer") if chosen is not None and chosen.kind == "count" else ("much", "less")
        fewer = "" if chosen is None else f" with as {many} {title} or {few}"
        rest = f"… and {left:,} more {'row' if left == 1 else 'rows'}{fewer} (-n {len(table.rows)} shows all)"
        yield [(rest, "dim")]
    packets = [table.columns[i].note for i in shown if table.columns[i].note.startswith("packet: ")]
    notes = (
        *(note for note in table.notes if _is_on(note, table, shown)),
        "; ".join([*dict.fromkeys(packets)]),
        table.order,
    )
    for note in list(filter(None, notes))[: 1 if brief else None]:
        yield from wrapped(note, width, "dim")


def _is_on(note: str, table: ReportTable, shown: Sequence[int]) -> bool:
    """Whether the columns that a note explains (`ratio, bad CRC: ...`) are shown; True if it explains none."""
    titles = {column.plain_title: i for i, column in enumerate(table.columns)}
    named = [titles.get(title) for title in note.partition(":")[0].split(", ")]
    return None in named or any(i in shown for i in named)


def _with_bars(texts: Sequence[str], values: Sequence[float]) -> list[str]:
    """The numbers of a column, each with a bar as long as its share of the largest."""
    longest, most = max(map(units.cells, texts), default=0), max(values, default=0)
    found = []
    for text, value in zip(texts, values, strict=True):
        eighths = round(value / most * _BAR * 8) if most > 0 else 0
        bar = "█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip()
        found.append(f"{' ' * (longest - units.cells(text))}{text} {bar:<{_BAR}}")
    return found


def _cell_lines(column: Column, text: str, limit: int) -> list[str]:
    """The text of a cell: one line, or several of a sentence."""
    if units.cells(text) <= limit or column.name not in SENTENCES:
        return [units.cut(text, limit)]
    parts = textwrap.wrap(text.replace(" %", _KEPT + "%"), limit, break_on_hyphens=False)
    return [units.cut(part.replace(_KEPT, " "), limit) for part in parts]


def wrapped(text: str, width: int | None, style: str, indent: str = "") -> Iterator[Line]:
    """A sentence on as many lines as it needs. Lines after the first one begin with `indent`."""
    columns = max(width or PLAIN_WIDTH, 20 + len(indent))
    joined = text.replace(" %", _KEPT + "%")  # a number stays with its sign
    for part in textwrap.wrap(joined, columns, subsequent_indent=indent, break_on_hyphens=False):
        yield [(part.replace(_KEPT, " "), style)]


def _head_lines(table: ReportTable, shown: list[int], widths: list[int]) -> Iterator[Line]:
    """The titles of the columns, with the last lines of all beside each other."""
    heads = [table.columns[i].title.split("\n") for i in shown]
    height = max(map(len, heads))
    for level in range(height):
        parts = [h[level - height + len(h)] if level >= height - len(h) else "" for h in heads]
        padded = [_pad(p, w, table.columns[i]) for i, p, w in zip(shown, parts, widths, strict=True)]
        yield [(_GAP.join(padded).rstrip(), "bold cyan")]


def chosen_rows(table: ReportTable, top: int) -> list[tuple[Value, ...]]:
    """The first `top` rows, or the rows with the largest values in `chosen_by`, in the order of the table."""
    if table.chosen_by is None:
        return table.rows[:top]
    at = next(i for i, c in enumerate(table.columns) if c.name == table.chosen_by)
    most = sorted(range(len(table.rows)), key=lambda n: (-as_number(table.rows[n][at]), n))[:top]
    return [table.rows[n] for n in sorted(most)]


def columns_for_people(table: ReportTable) -> list[int]:
    """The places of the columns that are shown where there is room: not those for programs, and none without values."""
    return [i for i, c in enumerate(table.columns) if c.rank < FOR_PROGRAMS and (not c.rank or has_values(table, i))]


def has_values(table: ReportTable, i: int) -> bool:
    """Whether a column has a value besides zero in any row."""
    return any(row[i] not in (None, 0, False, ()) for row in table.rows)


def clock_form(
    table: ReportTable, rows: Sequence[tuple[Value, ...]], first: int | None, utc: bool
) -> tuple[int, bool]:  # fmt: skip
    """(Digits of the seconds, whether times have a date). A time without a date is on the day of the first packet, so
    that --from and --to accept every time as it is printed."""
    times = [row[i] for i, c in enumerate(table.columns) if c.kind == "time" for row in rows]
    known = [t for t in times if isinstance(t, int)]
    whole = all(t % units.SECOND == 0 for t in known)
    days = {units.clock(t, utc, 0, True)[:10] for t in (known if first is None else [first, *known])}
    return (0 if whole else 3), len(days) > 1


def cell_text(value: Value, longest: int = LONGEST_CELL) -> str:
    """Texts and versions as one text of at most `longest` characters, and the number of those that are left out."""
    if not isinstance(value, tuple):
        return units.cut(str(value)[: longest + 1], longest)
    kept, size = 0, 0
    for item in value:
        size += len(units.joined((item,))) + 2
        if kept and size > longest + 2:
            break
        kept += 1
    text = units.cut(units.joined(value[:kept])[: longest + 1], longest)
    return f"{text} and {len(value) - kept:,} more" if kept < len(value) else text


def cell(column: Column, value: Value, utc: bool, digits: int, date: bool) -> str:
    """A value as people read it, escaped. `digits`, `date`: of times, as `clock_form` returns them."""
    if value is None or value == ():
        return "(none)" if column.name == "client_id" else "-"
    if isinstance(value, str | tuple):
        return units.safe(cell_text(value, LONGEST_SENTENCE if column.name in SENTENCES else LONGEST_CELL))
    if column.kind == "flag":
        return "yes" if value else "no"
    if column.kind == "number":
        return f"{round(float(value), 1) + 0.0:,.1f}"  # no "-0.0"
    if column.kind == "share":
        return units.share(float(value))
    number = int(value)
    if column.kind == "time":
        return units.clock(number, utc, digits, date)
    if column.kind == "ns":
        return units.duration(number)
    if column.kind == "ms":
        return units.duration(number * 1_000_000)
    if column.kind == "bytes":
        return units.size(number)
    return str(number) if column.kind == "packet" else f"{number:,}"


def _fit(
    table: ReportTable, columns: list[int], texts: dict[int, list[str]], width: int | None
) -> tuple[list[int], list[int]]:
    """The shown columns and their widths. Columns of the highest rank go first, then texts are cut. If that does not
    suffice, the columns on the right go, but not sentences."""
    widest = {i: max(map(units.cells, texts[i]), default=0) for i in columns}
    if width is None:
        return columns, [_width(table.columns[i], widest[i]) for i in columns]
    shown = columns
    while True:
        widths = [_width(table.columns[i], widest[i], _longest(table.columns[i])) for i in shown]
        floors = [_floor(table.columns[i], n) for i, n in zip(shown, widths, strict=True)]
        ranks = [table.columns[i].rank for i in shown]
        if sum(floors) + len(_GAP) * (len(shown) - 1) <= width or max(ranks, default=0) == 0:
            break
        worst = max(i for i in shown if table.columns[i].rank == max(ranks))
        shown = [i for i in shown if i != worst]
    least = {i: _least(table.columns[i], n) for i, n in zip(shown, widths, strict=True)}
    while sum(least[i] for i in shown) + len(_GAP) * (len(shown) - 1) > width:
        others = [i for i in shown[FEWEST:] if table.columns[i].name not in SENTENCES]
        if not others:
            break
        shown = [i for i in shown if i != others[-1]]
    widths = [_width(table.columns[i], widest[i], _longest(table.columns[i])) for i in shown]
    while sum(widths) + len(_GAP) * (len(shown) - 1) > width:
        # Cut the widest text first. The texts of _FIRM (an error, an API) are cut after all others are short.
        names = [table.columns[i].name for i in shown]
        texts_at = [n for n, i in enumerate(shown) if table.columns[i].kind in _TEXTS and widths[n] > least[i]]
        soft = [n for n in texts_at if names[n] not in _FIRM and widths[n] > SOFTEST]
        wide = [n for n in soft if names[n] not in SENTENCES or widths[n] > HALF_A_SENTENCE]
        if not texts_at:
            break
        widths[max(wide or soft or texts_at, key=lambda n: widths[n])] -= 1
    return shown, widths


def _least(column: Column, natural: int) -> int:
    """The least width of a column: of a text enough for its title."""
    if column.kind not in _TEXTS or _is_whole(column):
        return natural
    least = LEAST_OF_A_SENTENCE if column.name in SENTENCES else SHORTEST
    return min(natural, max(least, *map(len, column.title.split("\n"))))


def _width(column: Column, widest: int, longest: int | None = None) -> int:
    """The width of a column whose widest text has so many cells. `longest`: where texts are cut."""
    if column.kind in _TEXTS and longest is not None:
        widest = min(widest, longest)
    return max(widest, *map(len, column.title.split("\n")))


def _longest(column: Column) -> int:
    """Where texts are cut."""
    if _is_whole(column):
        return _WHOLE[column.name]
    return SENTENCE if column.name in SENTENCES else LONGEST


def _floor(column: Column, natural: int) -> int:
    """The width below which another column is dropped rather than this one cut."""
    if column.name in SENTENCES:
        return min(natural, HALF_A_SENTENCE)
    is_kept = column.kind not in _TEXTS or column.name in _FIRM or _is_whole(column)
    return natural if is_kept else min(natural, NARROW)


def _is_whole(column: Column) -> bool:
    return column.name in _WHOLE and column.kind == "text"


def _pad(text: str, width: int, column: Column, last: bool = False) -> str:
    space = " " * (width - units.cells(text))
    if column.kind in RIGHT:
        return space + text
    return text if last else text + space


def _style(column: Column, value: Value, table: ReportTable, row: tuple[Value, ...]) -> str:
    if column.name == "verdict":
        return _VERDICTS.get(str(value), "")
    if value is None or value == 0:
        return "dim"
    if column.name in BAD:
        return BAD[column.name]
    if column.name == "error":
        return "red"
    if column.name in ("broker_p99_ns", "total_p99_ns"):
        return "bold"
    if table.name == "ledger" and table.named(row)["part"] == "total":
        return "bold"
    return ""
