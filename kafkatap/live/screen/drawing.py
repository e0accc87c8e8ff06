"""The live screen as lines of text, independent of the terminal.

`screen_lines` returns all lines of a screen of any size, each a list of (text, style). Fields of the head and the foot
have ranks: fields of the highest rank are dropped first if the screen is narrow.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kafkatap.reports import units

from ..broker_health import value
from ..governor import FULL, LEVELS
from ..status import Status
from .breakdown import SECOND
from .columns import BAD, DIM, WARN, Line, Span, cells, fit, heading, message_lines, rate
from .help_text import HELP_LINES
from .last_events import event_lines
from .pages import TEXTS, VIEWS, Page, Section, Shown, scope_text, window_text

Field = tuple[int, list[Span]]  #: rank, spans
#: Keys and what they do: by rank, as fields. The text of `w` is the window.
KEYS = (
    (1, "1-9", "view"), (2, "w", ""), (2, "s", "sort"), (3, "/", "filter"), (2, "⏎", "open"), (4, "l", "last"),
    (3, "d", "save"), (3, "p", "hold"), (5, "z", "zero"), (0, "?", "help"), (0, "q", "quit"),
)  # fmt: skip
#: What the marks in tables mean, and the height of a screen that says so.
MARKS = ((0, "(1.02 s)", "waits for data or members"), (1, "▼", "sorted by it"), (1, "-", "none"))
_WITH_MARKS = 16
#: Lines for a notice on such a screen, at most: those of events are long.
_NOTICE_LINES, _FOR_WORDS = 3, 40
KEYS_INSIDE = (
    (0, "esc", "back"), (4, "tab", "next part"), (2, "⏎", "open"), (5, "l", "last"), (2, "w", ""),
    (3, "/", "filter"), (3, "d", "save"), (4, "p", "hold"), (1, "?", "help"), (0, "q", "quit"),
)  # fmt: skip
#: Words for views where there is little room.
_SHORT = {"connections": "conns", "waiting": "waits"}
#: For how long a new event marks its view, ns.
_NEW = 60 * SECOND


@dataclass(slots=True)
class Drawing:
    """What the screen shows. `held`: since when it is held; `editing`: whether the filter is being typed, and
    `refused`: whether it was to be used although it is wrong; `notice`: a line for the user; `event`: when the last
    event came."""

    page: Page
    depth: int
    shown: Shown
    status: Status
    sections: Sequence[Section]
    held: int | None = None
    editing: bool = False
    notice: str = ""
    refused: bool = False
    event: int = 0


def screen_lines(drawing: Drawing, width: int, height: int) -> list[Line]:
    """`height` lines, none wider than `width`. Sets the `cursor`, `at` and `top` of the page."""
    head = list(_head(drawing, width))
    keep = 4 if height >= 14 else 2 if height >= 8 else 1
    head = head[:keep] if keep == 4 else [head[-1]] if keep == 1 else [head[2], head[3]]
    if drawing.editing and drawing.shown.wrong.reason:
        head.append(_wrong_line(drawing, width))
    foot = list(_foot(drawing, width, height)) if height >= 6 else []
    if height >= _WITH_MARKS and drawing.page.kind not in TEXTS:
        foot.insert(0, _fields([(rank, [(mark, ""), (f" {what}", DIM)]) for rank, mark, what in MARKS], width))
    body = _body(drawing, width, max(height - len(head) - len(foot), 1))
    return [cropped(line, width) for line in (*head, *body, *foot)][:height]


def cropped(line: Line, width: int) -> Line:
    """The part of a line that fits."""
    kept: Line = []
    for text, style in line:
        if width <= 0:
            break
        kept.append((units.cut(text, width), style))
        width -= units.cells(text)
    return kept


def _fields(fields: Sequence[Field], width: int, gap: str = "   ") -> Line:
    """Fields side by side, as many as fit."""
    shown = list(fields)

    def needed() -> int:
        return sum(units.cells(text) for _, spans in shown for text, _ in spans) + len(gap) * (len(shown) - 1)

    while len(shown) > 1 and needed() > width:
        shown.remove(max(shown, key=lambda f: f[0]))
    line: Line = []
    for n, (_, spans) in enumerate(shown):
        line += [(gap, "")] * (n > 0) + spans
    return line


def _field(rank: int, name: str, value: str, style: str = "bold") -> Field:
    return rank, [(f"{name} ", DIM), (value, style)]


def _head(drawing: Drawing, width: int) -> Iterator[Line]:
    s, utc = drawing.status, drawing.shown.utc
    names = ", ".join(map(units.safe, s.interfaces))
    since = f"{units.clock(s.started, utc, 0)} ({units.duration(max(s.now - s.started, 0) // SECOND * SECOND)})"
    yield _fields(
        [
            (1, [("kafkatap live", "bold")]),
            (0, [(units.cut(names, max(width // 3, 8)), "bold")]),
            (0, [(f"{units.clock(s.now, utc, 0)} {units.zone(s.now, utc)}", "")]),
            _field(2, "counts since", since, ""),
        ],
        width,
    )
    drops: list[Span] = [("drops ", DIM), (f"{s.dropped:,}", "bold")]
    if s.dropped_lately:
        drops = [(f"DROPS {s.dropped_lately:,} in 10 s", f"{BAD} reverse"), (f", {s.dropped:,} in all", BAD)]
    yield _fields(
        [
            (1, [(rate(s.packet_rate) if s.packet_rate else "0", "bold"), (" packets/s", DIM)]),
            (1, [(f"{units.size(int(s.byte_rate))}/s", "bold")]),
            (0, drops),
            _field(2, "cpu", f"{100 * s.cpu:.0f} %"),
            _field(3, "memory", units.size(s.memory)),
        ],
        width,
    )
    level: list[Span] = [("level ", DIM), (LEVELS[s.level], "bold")]
    if s.level != FULL:
        why = f": {s.reason}" if s.reason else ""
        level = [
            ("LEVEL ", WARN), (LEVELS[s.level], f"bold {WARN} reverse"),
            (f" since {units.clock(s.level_since, utc, 0)}{why}", WARN),
        ]  # fmt: skip
    yield _fields(
        [
            (0, level),
            _field(1, "connections", f"{s.connections:,}"),
            _field(1, "waiting", f"{s.waiting:,}"),
            *_troubles(s),
            *([_field(2, "events late", f"{s.events_late} s", WARN)] if s.events_late else []),
            _field(2, "encrypted", units.share(s.encrypted_share)),
            *([_field(2, "decrypted", units.share(s.decrypted_share))] if s.decrypted_share else []),
        ],
        width,
    )
    yield _view_line(drawing, width)


#: A wait, beyond what the broker may hold a request, from which on the head names the broker: ns.
HANGS = 3 * SECOND


def _troubles(status: Status) -> list[Field]:
    """The broker that does not answer, and connections that could not be opened, or were reset, in the last 10 s. Empty
    if there are none."""
    resets = value(status.troubles, "reset_by_client") + value(status.troubles, "reset_by_broker")
    counts = (
        (0, "refused", value(status.troubles, "refused"), f"{BAD} reverse"),
        (0, "no answer", value(status.troubles, "unanswered"), f"{BAD} reverse"),
        (1, "resets", resets, WARN),
    )
    found = [_field(rank, name, f"{count:,} in 10 s", style) for rank, name, count, style in counts if count]
    broker = max(status.longest_waits, key=lambda each: status.longest_waits[each], default="")
    if broker and (ns := status.longest_waits[broker]) >= HANGS:
        waits = f"{units.duration(ns // SECOND * SECOND)} at {units.safe(broker)}"
        found.insert(0, _field(0, "NO ANSWER for", waits, f"{BAD} reverse"))
    return found


def _view_line(drawing: Drawing, width: int) -> Line:
    """The line above the rows: the view, the window and the filter."""
    page, shown = drawing.page, drawing.shown
    fields: list[Field] = []
    if drawing.editing:
        return cropped([("/", "bold"), (units.safe(shown.filter), "bold"), ("▏", "blink")], width)
    only: list[Span] = []
    if shown.filter:
        mark = "" if shown.selection is not None else "/"
        text = units.cut(f"{mark}{units.safe(shown.filter)}", max(width // 3, 12))
        only = [("only ", DIM), (text, "bold")]
    if page.kind == "table":
        taken = sum(units.cells(text) + 2 for text, _ in only) + (24 if drawing.held is not None else 0)
        fields.append((1, _tabs(drawing, width - taken)))
    elif page.kind in TEXTS:
        fields.append((0, [(page.kind, "bold reverse")]))
    else:
        text = scope_text(page) or "all"
        text = f"{'last messages: ' if page.kind == 'messages' else ''}{text}"
        room = max(width - (12 if drawing.held is None else 24), 10)
        fields.append((0, [(units.cut(text, room), "bold")]))
        if page.about:
            left = room - units.cells(text) - 2
            fields.append((2, [(units.cut(units.safe(page.about), max(left, 10)), "")]))
    if only:
        fields.append((0, only))
    if page.kind == "table":
        fields.append((2, [(window_text(shown.window), "bold")]))
        fields += [(3, [(section.more, DIM)]) for section in drawing.sections if section.more]
    hidden = sum(section.hidden for section in drawing.sections)
    if hidden:
        fields.append((3, [(f"{hidden:,} hidden", DIM)]))
    if drawing.held is not None:
        fields.insert(1, (0, [(f"HELD at {units.clock(drawing.held, shown.utc, 0)}", f"bold {WARN} reverse")]))
    return _fields(fields, width, "  ")


def _tabs(drawing: Drawing, width: int) -> list[Span]:
    """The views: in full, shorter, or only the chosen one by name."""
    by = drawing.page.by
    words = {name: {"api": "API"}.get(name, name) for name in VIEWS}
    shorter = {name: _SHORT.get(name, word) for name, word in words.items()}
    least = {name: word if name == by else "" for name, word in shorter.items()}
    marks = _marks(drawing)
    spans: list[Span] = []
    for titles, gap in ((words, "  "), (shorter, " "), (least, " ")):
        spans = []
        for n, (name, title) in enumerate(titles.items(), 1):
            text = f"{n} {title}".rstrip()
            spans += [(gap, "")] * (n > 1)
            spans.append((f"[{text}]", "bold reverse") if name == by else (text, marks.get(name, "")))
        if sum(units.cells(text) for text, _ in spans) <= width:
            break
    return spans


def _marks(drawing: Drawing) -> dict[str, str]:
    """Styles of the views that show what is wrong now; the head and lines say so, too."""
    marks = {}
    if max(drawing.status.longest_waits.values(), default=0) >= HANGS:
        marks["waiting"] = BAD
    if drawing.event and drawing.status.now - drawing.event < _NEW:
        marks["events"] = WARN
    return marks


def _wrong_line(drawing: Drawing, width: int) -> Line:
    """What is wrong with the text that is typed, and where."""
    wrong, style = drawing.shown.wrong, BAD if drawing.refused else WARN
    before = 1 + units.cells(units.safe(wrong.text[: wrong.at]))
    carets = "^" * max(units.cells(units.safe(wrong.text[wrong.at : wrong.end])), 1)
    reason = units.safe(wrong.reason)
    if before + len(carets) + 1 + units.cells(reason) <= width:
        return [(" " * before, ""), (carets, style), (f" {reason}", style)]
    if units.cells(reason) + 2 <= before and before + len(carets) <= width:
        return [(reason, style), (" " * (before - units.cells(reason)), ""), (carets, style)]
    return [(reason, style)]


def _foot(drawing: Drawing, width: int, height: int) -> Iterator[Line]:
    if drawing.notice:
        text = units.safe(drawing.notice)
        is_wide = height >= _WITH_MARKS and width >= _FOR_WORDS
        wrap = textwrap.TextWrapper(width, max_lines=_NOTICE_LINES, placeholder=" …", break_on_hyphens=False)
        for line in wrap.wrap(text) if is_wide else [text]:
            yield [(line, WARN)]
    if drawing.editing:
        example = "api == Produce and latency > 50ms, or a word"
        keys = [(0, "⏎", "keep"), (0, "esc", "clear"), (1, example, "")]
    else:
        known = KEYS if drawing.depth == 1 else KEYS_INSIDE
        keys = [(rank, key, what or _window(drawing.shown)) for rank, key, what in known]
    yield _fields([(rank, [(key, "bold"), (f" {what}", DIM)]) for rank, key, what in keys], width, "  ")


def _window(shown: Shown) -> str:
    return "all" if shown.window is None else window_text(shown.window)


#: Lines of the body that are not rows of a section.
_TITLE, _HEADING, _EMPTY, _MORE, _BLANK = range(-5, 0)


def _lines(sections: Sequence[Section], titles: bool) -> list[tuple[int, int]]:
    """(section, row or one of the constants above) of each line of the body."""
    lines: list[tuple[int, int]] = []
    for n, section in enumerate(sections):
        if titles:
            lines += [(n, _BLANK)] * (n > 0) + [(n, _TITLE), (n, _HEADING)]
        lines += [(n, i) for i in range(len(section.rows))] or [(n, _EMPTY)]
    return lines


def place_cursor(page: Page, sections: Sequence[Section]) -> tuple[int, int] | None:
    """The chosen (section, row): that of the key, or the one in its place if it is gone. None without rows."""
    places = [(n, i) for n, section in enumerate(sections) for i in range(len(section.rows))]
    if not places:
        return None
    at = 0
    if page.cursor is not None:
        keys = [sections[n].keys[i] for n, i in places]
        at = keys.index(page.cursor) if page.cursor in keys else min(page.at, len(places) - 1)
        page.cursor = keys[at]
    page.at = at
    return places[at]


def _body(drawing: Drawing, width: int, height: int) -> list[Line]:
    page, shown, sections = drawing.page, drawing.shown, drawing.sections
    if page.kind in TEXTS:
        text = _text_lines(page, shown.utc, width)
        page.top = max(0, min(page.top, len(text) - height))
        return _filled(text[page.top :], height)
    titles = page.kind == "detail"
    chosen = place_cursor(page, sections)
    for n, section in enumerate(sections):  # names never get less room again, so columns stay where they are
        page.wide[n] = max(page.wide.get(n, 0), section.wide)
    fits = [fit(section.columns, width, page.wide[n]) for n, section in enumerate(sections)]
    fixed: list[Line] = []
    if not titles and height > 2:
        fixed = [heading(fits[0], sections[0].sort, shown.reverse)]
    lines_of = _lines(sections, titles)
    room = height - len(fixed)
    at = lines_of.index(chosen) if chosen is not None else 0
    first = 0 if chosen is None or page.at == 0 else at  # show the lines above the first row with it
    page.top = max(0, min(page.top, first, max(len(lines_of) - room, 0)), at - room + 1)
    body: list[Line] = []
    for n, i in lines_of[page.top : page.top + room]:
        section = sections[n]
        if i >= 0:
            body.append(cells(fits[n], section.rows[i], (n, i) == chosen))
        elif i == _TITLE:
            body.append([(section.title, "bold")] + ([(f", {section.more}", DIM)] if section.more else []))
        elif i == _HEADING:
            body.append(heading(fits[n], section.sort, shown.reverse))
        else:
            body.append([(section.empty if i == _EMPTY else "", DIM)])
    return _filled(fixed + body, height)


def _text_lines(page: Page, utc: bool, width: int) -> list[Line]:
    if page.message is not None:
        return message_lines(page.message, utc)
    return HELP_LINES if page.event is None else event_lines(page.event, utc, width)


def _filled(lines: list[Line], height: int) -> list[Line]:
    return lines[:height] + [[] for _ in range(height - len(lines))]
