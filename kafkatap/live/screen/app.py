"""The live screen: keys, and lines that change.

textual owns the terminal. One widget, `Canvas`, shows the lines of `drawing` and redraws only changed ones. Once a
second, when the monitor has a new status, and after each key, `LiveApp` reads rows (`pages`) and draws them.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

os.environ.setdefault("TEXTUAL_DISABLE_KITTY_KEY", "1")  # read when textual is imported; plain keys suffice

from rich.segment import Segment
from rich.style import Style
from textual import events, message
from textual.app import App, ComposeResult
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from kafkatap.reports.findings import Finding

from . import terminal
from .breakdown import Scope
from .columns import Line, fit
from .drawing import Drawing, place_cursor, screen_lines
from .look import Frozen, Kept, Live
from .page_sections import sections
from .pages import OPENED, TEXTS, VIEWS, WINDOWS, Page, Section, Shown, scope_text
from .recent_exchanges import Connection, Message
from .scope_filter import ends_filter, scope_filter
from .typed_filter import NOTHING, Typed, read_typed
from .waits import Wait

if TYPE_CHECKING:
    from ..monitor import Monitor

#: Seconds between two checks for a new status.
STATUS_INTERVAL = 0.2
#: Seconds for which a line of the screen itself is shown.
SAID = 10.0
#: Begins to save the packets that a filter selects, which a text describes; returns a line for the user.
Save = Callable[[str, str], str]
#: The share of a core for reading rows, at most. With thousands of clients they are not read every second.
SHARE = 0.03


def run_screen(
    monitor: Monitor, kept: Kept, *, utc: bool = False, window: int | None = WINDOWS[0],
    stop: threading.Event | None = None, notice: Callable[[], str] = str, save: Save | None = None,
) -> None:  # fmt: skip
    """Show the screen in the main thread until q is pressed, `stop` is set, or the terminal is gone.

    `kept`: its sinks are the monitor's. `window`: the first window, one of WINDOWS (seconds; None: since the start).
    `notice` returns a line for the user or "". `save` begins to save the packets that a filter selects, which a text
    describes, and returns a line; None: no packets are in memory.
    """
    with terminal.signal_handlers_restored(), terminal.real_size():
        app = LiveApp(Live(monitor, kept), Shown(window=window, utc=utc), terminal.has_colors(), notice, save)
        if stop is not None:
            threading.Thread(target=_end_with, args=(app, stop), daemon=True, name="live-screen-stop").start()
        app.run(mouse=False)
        app.close_terminal()


def _end_with(app: LiveApp, stop: threading.Event) -> None:
    stop.wait()
    app.end_soon()


class Canvas(Widget, can_focus=True):
    """Lines of text. Only changed lines are drawn."""

    DEFAULT_CSS = "Canvas { width: 100%; height: 100%; background: ansi_default; color: ansi_default; }"

    def __init__(self, colors: bool) -> None:
        super().__init__()
        self._colors = colors
        self._lines: list[Line] = []

    class Resized(message.Message):
        """The size changed."""

    def on_resize(self) -> None:
        self.post_message(self.Resized())

    def draw(self, lines: list[Line]) -> None:
        before, self._lines = self._lines, lines
        if len(before) != len(lines):
            self.refresh()
            return
        changed = [Region(0, y, self.size.width, 1) for y, line in enumerate(lines) if line != before[y]]
        if changed:
            self.refresh(*changed)

    def render_line(self, y: int) -> Strip:
        line = self._lines[y] if y < len(self._lines) else []
        strip = Strip([Segment(text, _style(style, self._colors)) for text, style in line])
        return strip.adjust_cell_length(self.size.width, _style("", self._colors))


@lru_cache(maxsize=256)
def _style(name: str, colors: bool) -> Style:
    style = Style.parse(name)
    return style if colors else style.without_color


class LiveApp(App[None]):
    """`pages`: the opened pages, the current one last. The first is always a table."""

    ENABLE_COMMAND_PALETTE = False
    CSS = "Screen { background: ansi_default; color: ansi_default; overflow: hidden; }"
    BINDINGS: ClassVar[list[Any]] = []

    def __init__(
        self, live: Live, shown: Shown, colors: bool, notice: Callable[[], str], save: Save | None = None
    ) -> None:
        super().__init__(driver_class=terminal.Driver, ansi_color=True)
        self.animation_level = "none"
        self.live = live
        self.shown = shown
        self._notice, self._save = notice, save
        self._said = ("", 0.0)  # a line of the screen itself, and until when it is shown
        self.pages: list[Page] = [Page("table")]
        self.frozen: Frozen | None = None
        self.editing = self.refused = False
        self.canvas = Canvas(colors)
        self._sections: list[Section] = []
        self._drawn: object = None
        self._stale = False  # whether rows are older than the head
        self._next = 0.0  # when rows may be read again, by the monotonic clock
        self._ending = False

    def compose(self) -> ComposeResult:
        yield self.canvas

    def on_mount(self) -> None:
        self.canvas.focus()
        self.set_interval(STATUS_INTERVAL, self._check_status)
        self.app_resume_signal.subscribe(self, lambda _: self.canvas.refresh())  # the terminal was cleared
        if self._ending:
            self.exit()

    def end_soon(self) -> None:
        """End the screen, from another thread, also before its loop runs."""
        self._ending = True
        if isinstance(self._driver, terminal.Driver):
            self._driver.output.ending.set()  # do not wait for a terminal that accepts no output
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self.exit)

    def close_terminal(self) -> None:
        """Close the terminal, after `run`."""
        if isinstance(self._driver, terminal.Driver):
            self._driver.output.close()

    def _check_status(self) -> None:
        """Draw if the status is new; end if the terminal is gone."""
        if self._ending or terminal.gone():
            self.exit()
        elif self.frozen is None and (self._stale or self.live.status is not self._drawn):
            self._stale = time.monotonic() < self._next
            if not self._stale or self.live.status is not self._drawn:
                self.redraw(gather=not self._stale)

    @property
    def page(self) -> Page:
        return self.pages[-1]

    def on_canvas_resized(self) -> None:
        self.redraw(gather=not self._sections)

    def redraw(self, gather: bool = True) -> None:
        look = self.frozen or self.live
        self._drawn = self.live.status
        if gather:
            began = time.thread_time()
            self._sections = sections(self.page, look, self.shown)
            self._next = time.monotonic() + (time.thread_time() - began) / SHARE
        held = None if self.frozen is None else self.frozen.status.now
        said, until = self._said
        last = next((finding.begin for _, finding in self.live.events), None)
        drawing = Drawing(
            self.page, len(self.pages), self.shown, look.status, self._sections, held, self.editing,
            said if time.monotonic() < until else self._notice(), self.refused, last or 0,
        )  # fmt: skip
        self.canvas.draw(screen_lines(drawing, *self.canvas.size))

    def on_key(self, event: events.Key) -> None:
        event.stop()
        event.prevent_default()
        if self.editing:
            self._edit(event)
        else:
            self._press(event)

    def _edit(self, event: events.Key) -> None:
        """Handle a key while the filter is typed."""
        shown, text = self.shown, self.shown.filter
        if event.key in ("escape", "ctrl+c"):
            self.set_filter(NOTHING)
        elif event.key == "enter":
            self.refused = bool(shown.wrong.reason)
            if not self.refused:
                self.set_filter(read_typed(text, self.live.monitor.engine, shown.utc))
        elif event.key in ("backspace", "ctrl+h"):
            self._retype(text[:-1])
        elif event.character and event.is_printable:
            self._retype(text + event.character)
        self.redraw()

    def _retype(self, text: str) -> None:
        """Show what is typed: a word selects rows at once, an expression when it is complete."""
        self.shown.filter, self.refused = text, False
        typed = read_typed(text, self.live.monitor.engine, self.shown.utc)
        self.shown.wrong, self.shown.word = typed, typed.word

    def set_filter(self, typed: Typed) -> None:
        """Show only what a filter selects, or what contains a word."""
        shown = self.shown
        self.editing = self.refused = False
        shown.filter, shown.word, shown.wrong = typed.text, typed.word, NOTHING
        if shown.selection != typed.selection:
            shown.selection = typed.selection
            self.live.narrow(typed.selection)
            if self.frozen is not None:
                self.frozen.narrow(typed.selection)

    def _press(self, event: events.Key) -> None:
        key = event.character if event.character and event.is_printable else event.key
        action = KEYS.get(key)
        if action is not None:
            gather = action(self)
            if not self._exit:
                self.redraw(gather is not False)

    def show_by(self, by: str) -> None:
        self.pages = [Page("table", by)]

    def turn(self, step: int) -> None:
        """Show the next view; on a detail page choose the next section."""
        if self.page.kind == "table":
            self.show_by(VIEWS[(VIEWS.index(self.page.by) + step) % len(VIEWS)])
            return
        chosen = place_cursor(self.page, self._sections)
        if chosen is not None:
            order = [(chosen[0] + step * n) % len(self._sections) for n in range(1, len(self._sections) + 1)]
            n = next(n for n in order if self._sections[n].rows)
            self.page.cursor = self._sections[n].keys[0]

    def next_window(self) -> None:
        self.shown.window = WINDOWS[(WINDOWS.index(self.shown.window) + 1) % len(WINDOWS)]

    def sort(self, step: int, wrap: bool = False) -> None:
        """Sort by the next visible column."""
        columns = self._sections[0].columns if self._sections else ()
        fitting = fit(columns, self.canvas.size.width, self.page.wide.get(0, 0)) if columns else []
        names = [c.name for c, _ in fitting if c.key is not None]
        if not names:
            return
        at = names.index(self.shown.sort) if self.shown.sort in names else 0
        self.shown.sort = names[(at + step) % len(names) if wrap else max(0, min(at + step, len(names) - 1))]
        self.page.cursor = None

    def turn_round(self) -> None:
        self.shown.reverse = not self.shown.reverse
        self.page.cursor = None

    def move(self, step: int) -> bool:
        if self.page.kind in TEXTS:
            self.page.top = max(0, self.page.top + step)
            return False
        place_cursor(self.page, self._sections)
        keys = [key for section in self._sections for key in section.keys]
        if keys:
            at = max(0, min(self.page.at + step, len(keys) - 1))
            self.page.cursor = keys[at] if at else None
        return False

    def move_page(self, step: int) -> bool:
        return self.move(step * max(self.canvas.size.height - 8, 1))

    def open(self) -> None:
        """Open the chosen row: its parts, its last messages if it is a part already, or one message."""
        scope, row = self._chosen()
        if isinstance(row, Wait):
            row = row.oldest
        if isinstance(row, Message):
            self._enter(Page("message", message=row))
        elif isinstance(row, Finding):
            self._enter(Page("event", event=row))
        elif scope:
            self._enter(Page("detail" if len(scope) == 1 else "messages", scope=scope))

    def open_last(self) -> None:
        scope, row = self._chosen()
        if self.page.kind in ("messages", *TEXTS) or (scope[:1] and scope[0][0] == "group"):
            return
        if isinstance(row, Wait):
            scope = (("client", row.oldest.client_id),)
        self._enter(Page("messages", scope=scope or self.page.scope))

    def _chosen(self) -> tuple[Scope, object]:
        """The part of the traffic that the chosen row opens, and the row: () and None without rows."""
        chosen = place_cursor(self.page, self._sections)
        if chosen is None:
            return (), None
        section, i = self._sections[chosen[0]], chosen[1]
        kind = section.keys[i][0]
        return (*section.scope, section.keys[i]) if kind in OPENED else (), section.rows[i]

    def open_help(self) -> None:
        if self.page.kind != "help":
            self._enter(Page("help"))

    def _enter(self, page: Page) -> None:
        row = self._chosen()[1]
        page.ends = f"{row.client} to {row.broker}" if isinstance(row, Connection) else ""
        if self.shown.selection is None:
            self.set_filter(NOTHING)
        page.inherited = self.shown.filter
        self.pages.append(page)

    def start_filter(self) -> None:
        self.editing = self.page.kind not in TEXTS

    def back(self) -> None:
        """Clear the filter of this page, else close the page."""
        if self.shown.filter and (self.shown.filter != self.page.inherited or len(self.pages) == 1):
            self.set_filter(NOTHING)
        elif len(self.pages) > 1:
            self.pages.pop()

    def save_packets(self) -> None:
        """Save the packets of the chosen row, or else of the page."""
        scope, row = self._chosen()
        message = row.oldest if isinstance(row, Wait) else row if isinstance(row, Message) else self.page.message
        scope = scope or self.page.scope
        if message is not None:
            what, wanted = f"connection {message.client} to {message.broker}", ends_filter(message.client)
        elif isinstance(row, Connection):
            what, wanted = f"connection {row.client} to {row.broker}", ends_filter(row.client)
        elif scope:
            what = scope_text(Page("detail", scope=scope, ends=self.page.ends))
            wanted = scope_filter(scope, self.page.ends)
        elif isinstance(row, Finding) or self.page.event is not None:
            self.say("events: --write-pcap FILE --on-events saves the packets around each")
            return
        else:
            self.say("choose a row whose packets are to be saved")
            return
        if self._save is None:
            self.say(f"no packets are in memory: --write-pcap FILE or --keep keeps the last ones (here: {what})")
            return
        both = [wanted, *([f"({self.shown.filter})"] if self.shown.selection is not None else [])]
        self.say(self._save(" and ".join(both), what))

    def say(self, text: str) -> None:
        """Show a line for some seconds."""
        self._said = (text, time.monotonic() + SAID)

    def hold(self) -> None:
        self.frozen = Frozen(self.live) if self.frozen is None else None
        if self.frozen is not None:
            self.frozen.narrow(self.shown.selection)

    def zero(self) -> None:
        self.live.restart()


#: Keys and their actions. An action that returns False does not need new rows.
KEYS: dict[str, Any] = {
    **{str(n): (lambda app, by=by: app.show_by(by)) for n, by in enumerate(VIEWS, 1)},
    **dict.fromkeys(("tab", "right"), lambda app: app.turn(1)),
    **dict.fromkeys(("shift+tab", "left"), lambda app: app.turn(-1)),
    "w": LiveApp.next_window,
    "s": lambda app: app.sort(1, wrap=True),
    "<": lambda app: app.sort(-1),
    ">": lambda app: app.sort(1),
    "r": LiveApp.turn_round,
    "/": LiveApp.start_filter,
    **dict.fromkeys(("up", "k"), lambda app: app.move(-1)),
    **dict.fromkeys(("down", "j"), lambda app: app.move(1)),
    "pageup": lambda app: app.move_page(-1),
    "pagedown": lambda app: app.move_page(1),
    "home": lambda app: app.move(-(1 << 30)),
    "end": lambda app: app.move(1 << 30),
    "enter": LiveApp.open,
    "l": LiveApp.open_last,
    "d": LiveApp.save_packets,
    "?": LiveApp.open_help,
    **dict.fromkeys(("escape", "backspace", "ctrl+h"), LiveApp.back),
    **dict.fromkeys(("p", " "), LiveApp.hold),
    "z": LiveApp.zero,
    "ctrl+z": lambda app: app.action_suspend_process(),
    **dict.fromkeys(("q", "ctrl+c", "ctrl+q"), lambda app: app.exit()),
}
