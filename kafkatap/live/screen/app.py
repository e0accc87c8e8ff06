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

from . import terminal
from .breakdown import Scope
from .columns import Line, fit
from .drawing import Drawing, place_cursor, screen_lines
from .pages import TEXTS, VIEWS, WINDOWS, Frozen, Live, Page, Section, Shown, sections
from .recent_exchanges import Connection, Message, Recent

if TYPE_CHECKING:
    from ..monitor import Monitor

#: Seconds between two checks for a new status.
STATUS_INTERVAL = 0.2
#: The share of a core for reading rows, at most. With thousands of clients they are not read every second.
SHARE = 0.03


def run_screen(
    monitor: Monitor, recent: Recent, *, utc: bool = False, window: int | None = WINDOWS[0],
    stop: threading.Event | None = None, notice: Callable[[], str] = str,
) -> None:  # fmt: skip
    """Show the screen in the main thread until q is pressed, `stop` is set, or the terminal is gone.

    `window`: the first window, one of WINDOWS (seconds; None: since the start). `notice` returns a line for the user
    or "".
    """
    with terminal.signal_handlers_restored(), terminal.real_size():
        app = LiveApp(Live(monitor, recent), Shown(window=window, utc=utc), terminal.has_colors(), notice)
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

    def __init__(self, live: Live, shown: Shown, colors: bool, notice: Callable[[], str]) -> None:
        super().__init__(driver_class=terminal.Driver, ansi_color=True)
        self.animation_level = "none"
        self.live = live
        self.shown = shown
        self._notice = notice
        self.pages: list[Page] = [Page("table")]
        self.frozen: Frozen | None = None
        self.editing = False
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
        drawing = Drawing(
            self.page, len(self.pages), self.shown, look.status, self._sections, held, self.editing, self._notice()
        )
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
        if event.key in ("enter", "escape", "ctrl+c"):
            self.editing = False
            if event.key != "enter":
                self.shown.filter = ""
        elif event.key in ("backspace", "ctrl+h"):
            self.shown.filter = self.shown.filter[:-1]
        elif event.character and event.is_printable:
            self.shown.filter += event.character
        self.redraw()

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
        names = [c.name for c, _ in fit(columns, self.canvas.size.width) if c.key is not None]
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
        if isinstance(row, Message):
            self._enter(Page("message", message=row))
        elif scope:
            self._enter(Page("detail" if len(scope) == 1 else "messages", scope=scope))

    def open_last(self) -> None:
        if self.page.kind not in ("messages", *TEXTS):
            self._enter(Page("messages", scope=self._chosen()[0] or self.page.scope))

    def _chosen(self) -> tuple[Scope, object]:
        """The part of the traffic that the chosen row opens, and the row: () and None without rows."""
        chosen = place_cursor(self.page, self._sections)
        if chosen is None:
            return (), None
        section, i = self._sections[chosen[0]], chosen[1]
        return () if isinstance(section.rows[i], Message) else (*section.scope, section.keys[i]), section.rows[i]

    def open_help(self) -> None:
        if self.page.kind != "help":
            self._enter(Page("help"))

    def _enter(self, page: Page) -> None:
        row = self._chosen()[1]
        page.ends = f"{row.client} to {row.broker}" if isinstance(row, Connection) else ""
        self.shown.filter = ""
        self.pages.append(page)

    def start_filter(self) -> None:
        self.editing = self.page.kind not in TEXTS

    def back(self) -> None:
        """Clear the filter, else close the page."""
        if self.shown.filter:
            self.shown.filter = ""
        elif len(self.pages) > 1:
            self.pages.pop()

    def hold(self) -> None:
        self.frozen = Frozen(self.live) if self.frozen is None else None

    def zero(self) -> None:
        self.live.monitor.reset()


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
    "?": LiveApp.open_help,
    **dict.fromkeys(("escape", "backspace", "ctrl+h"), LiveApp.back),
    **dict.fromkeys(("p", " "), LiveApp.hold),
    "z": LiveApp.zero,
    "ctrl+z": lambda app: app.action_suspend_process(),
    **dict.fromkeys(("q", "ctrl+c", "ctrl+q"), lambda app: app.exit()),
}
