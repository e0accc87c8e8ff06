"""The live screen as lines of text, independent of the terminal.

`screen_lines` returns all lines of a screen of any size, each a list of (text, style). Fields of the head and the foot
have ranks: fields of the highest rank are dropped first if the screen is narrow.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kafkatap.reports import units

from ..broker_health import value
from ..governor import FULL, LEVELS
from ..status import Status
from .breakdown import SECOND
from .columns import BAD, DIM, WARN, Line, Span, cells, fit, heading, message_lines, rate
from .pages import TEXTS, VIEWS, Page, Section, Shown, scope_text, window_text

Field = tuple[int, list[Span]]  #: rank, spans
KEYS = (
    (1, "1-5", "view"), (2, "w", "window"), (2, "s", "sort"), (3, "/", "filter"), (2, "⏎", "open"), (4, "l", "last"),
    (3, "p", "hold"), (5, "z", "zero"), (0, "?", "help"), (0, "q", "quit"),
)  # fmt: skip
#: What the marks in tables mean, and the height of a screen that says so.
MARKS = ((0, "(1.02 s)", "waits for data or members"), (1, "▼", "sorted by it"), (1, "-", "none"))
_WITH_MARKS = 16
KEYS_INSIDE = (
    (0, "esc", "back"), (3, "tab", "next part"), (2, "⏎", "open"), (4, "l", "last"), (2, "w", "window"),
    (3, "/", "filter"), (3, "p", "hold"), (1, "?", "help"), (0, "q", "quit"),
)  # fmt: skip

HELP = """\
Keys
  1 2 3 4       by API, client, topic, broker; also tab, left and right
  5             the connections of each broker
  w             window: the last 10 s, the last minute, since the start
  s  < >        sort by the next column; by the one to the left or right
  r             reverse the order
  /             only rows that contain a text; enter keeps it, esc clears it
  up down       choose a row; also j k, page up, page down, home, end
  enter         open it: its parts, connections and last messages
                enter on a message: all that is known of it
  tab           the next part of an opened row
  l             the last messages of the chosen row
  esc           back; also backspace
  p  space      hold the screen; counting continues
  z             restart the counts
  q             quit, and print the report

Columns
  req/s         requests a second
  p50  p99      broker time: from the request's last byte to the response's
                first byte, without head-of-line wait and throttle wait
  (1.02 s)      in brackets: the requests wait for data or for other members
                (Fetch, JoinGroup, SyncGroup); this does not show a slow
                broker. Rows with other requests show the times of those
  total p99     from the request's first byte to the response's last byte
  throttled     responses with throttle_time_ms above 0
  thr.wait      throttle wait: time that requests waited on the wire because
                of throttling, summed
  unans.        requests without a response
  failed        exchanges with an error code
  codes/s       error codes a second, at any level of the responses
  error code    the most frequent error code
  in/s  out/s   bytes of requests and of responses a second

Connections (5)
  open          open connections
  opened        handshakes in the window
  refused       a RST or ICMP answered the SYN: no process listens, or a firewall
                rejects
  no answer     nothing answered the SYN for a second
  resets        connections that a RST ended
  retrans.      retransmitted packets of both ends
  zero win.     packets with a receive window of zero
  rtt           mean round trip of the handshakes

Head
  drops         packets that the kernel dropped, not read in time
  level         full: everything is decoded; no topics: only error codes and
                throttling of the bodies; headers only: requests, responses
                and their times; paused: at times nothing is read
  waiting       requests without a response so far
  encrypted     the share of the traffic that is TLS, and was not decrypted
  decrypted     the share of the traffic that is TLS, and was decrypted
"""


HELP_LINES: list[Line] = [[(line, "bold" if line[:1].strip() else "")] for line in HELP.splitlines()]


@dataclass(slots=True)
class Drawing:
    """What the screen shows. `held`: since when it is held; `editing`: whether the filter is being typed; `notice`: a
    line for the user."""

    page: Page
    depth: int
    shown: Shown
    status: Status
    sections: Sequence[Section]
    held: int | None = None
    editing: bool = False
    notice: str = ""


def screen_lines(drawing: Drawing, width: int, height: int) -> list[Line]:
    """`height` lines, none wider than `width`. Sets the `cursor`, `at` and `top` of the page."""
    head = list(_head(drawing, width))
    keep = 4 if height >= 14 else 2 if height >= 8 else 1
    head = head[:keep] if keep == 4 else [head[-1]] if keep == 1 else [head[2], head[3]]
    foot = list(_foot(drawing, width)) if height >= 6 else []
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
    if page.kind == "table":
        fields.append((1, _tabs(page.by)))
    elif page.kind in TEXTS:
        fields.append((0, [(page.kind, "bold reverse")]))
    else:
        text = scope_text(page) or "all"
        text = f"{'last messages: ' if page.kind == 'messages' else ''}{text}"
        room = max(width - (12 if drawing.held is None else 24), 10)
        fields.append((0, [(units.cut(text, room), "bold")]))
    if page.kind == "table":
        fields.append((2, [(window_text(shown.window), "bold")]))
    if drawing.editing:
        fields.append((0, [("/", "bold"), (units.safe(shown.filter), "bold"), ("▏", "blink")]))
    elif shown.filter:
        fields.append((1, [("only ", DIM), (f"/{units.safe(shown.filter)}", "bold")]))
    hidden = sum(section.hidden for section in drawing.sections)
    if hidden:
        fields.append((3, [(f"{hidden:,} hidden", DIM)]))
    if drawing.held is not None:
        fields.insert(1, (0, [(f"HELD at {units.clock(drawing.held, shown.utc, 0)}", f"bold {WARN} reverse")]))
    return _fields(fields, width, "  ")


def _tabs(by: str) -> list[Span]:
    spans: list[Span] = []
    for n, name in enumerate(VIEWS, 1):
        title = {"api": "API"}.get(name, name)
        text = f"[{n} {title}]" if name == by else f" {n} {title} "
        spans.append((text, "bold reverse" if name == by else ""))
    return spans


def _foot(drawing: Drawing, width: int) -> Iterator[Line]:
    if drawing.notice:
        yield [(units.safe(drawing.notice), WARN)]
    if drawing.editing:
        yield _fields([(0, [("⏎", "bold"), (" keep", DIM)]), (0, [("esc", "bold"), (" clear", DIM)])], width, "  ")
        return
    keys = KEYS if drawing.depth == 1 else KEYS_INSIDE
    yield _fields([(rank, [(key, "bold"), (f" {what}", DIM)]) for rank, key, what in keys], width, "  ")


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
        text = HELP_LINES if page.message is None else message_lines(page.message, shown.utc)
        page.top = max(0, min(page.top, len(text) - height))
        return _filled(text[page.top :], height)
    titles = page.kind == "detail"
    chosen = place_cursor(page, sections)
    fits = [fit(section.columns, width) for section in sections]
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


def _filled(lines: list[Line], height: int) -> list[Line]:
    return lines[:height] + [[] for _ in range(height - len(lines))]
