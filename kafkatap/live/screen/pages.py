"""Pages of the live screen, and what all of them have in common.

A page has sections, one below the other. `page_sections` makes them of what `look` has, as plain rows. `columns` and
`drawing` decide how they look.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from kafkatap.reports.findings import Finding

from ...engine.selection import Selection
from .breakdown import BY, SECOND, Scope
from .columns import Column, shown_name
from .recent_exchanges import Message
from .typed_filter import NOTHING, Typed

#: Lengths of the windows, seconds; None: since the start.
WINDOWS = (10, 60, None)
#: Views: requests by one of BY, the connections of brokers, who waits, events, groups, and error codes.
VIEWS = (*BY, "connections", "waiting", "events", "groups", "errors")
SINGULARS = {"api": "API"}
#: Kinds of keys whose rows open a page of their part of the traffic.
OPENED = frozenset((*BY, "connection", "group", "error"))
#: Kinds of pages without rows.
TEXTS = ("message", "event", "help")


@dataclass(slots=True)
class Page:
    """`kind`: table (`by` one of VIEWS), detail (of `scope`), messages (of `scope`), message, event, help. `ends`: the
    name of the scope's connection, `about`: what else the heading says. `cursor`: the key of the chosen row, None for
    the first; `at`: its last place. `top`: how many lines are scrolled out above. `wide`: by section, the width of the
    longest name so far. `inherited`: the filter of the page before."""

    kind: str
    by: str = "api"
    scope: Scope = ()
    ends: str = ""
    about: str = ""
    message: Message | None = None
    event: Finding | None = None
    cursor: Any = None
    at: int = 0
    top: int = 0
    wide: dict[int, int] = field(default_factory=dict)
    inherited: str = ""


@dataclass(frozen=True, slots=True)
class Section:
    """Rows of one kind. `keys` identify them from one second to the next. `scope`: the part of the traffic that the
    rows are of. A row other than a message opens its own part of that, if its key is a part. `wide`: the width of the
    longest name.

    `hidden`: how many rows did not pass the filter. `more`: a text about rows that are left out. `sort`: the column by
    which they are sorted, "" if they cannot be sorted.
    """

    title: str
    columns: Sequence[Column[Any]]
    rows: Sequence[Any]
    keys: Sequence[Any]
    scope: Scope
    empty: str
    hidden: int = 0
    more: str = ""
    sort: str = ""
    wide: int = 0


@dataclass(slots=True)
class Shown:
    """What all pages have in common: window, order and filter.

    `filter`: the text as it was typed. It means `word`, which rows have to contain, or `selection`. `wrong`: what is
    wrong with the text that is typed.
    """

    window: int | None = WINDOWS[0]
    sort: str = "requests"
    reverse: bool = False
    filter: str = ""
    utc: bool = False
    word: str = ""
    selection: Selection | None = None
    wrong: Typed = NOTHING


def window_text(window: int | None) -> str:
    if window is None:
        return "since the start"
    return f"last {window} s" if window < 60 else f"last {window // 60} min"


def window_length(window: int | None, now: int, since: int) -> int:
    """ns that the counts of a window cover, which begin at `since`."""
    length = max(now - since, SECOND)
    return length if window is None else min(window * SECOND, length)


def scope_text(page: Page) -> str:
    """`client billing > API Produce`; escaped."""
    parts = [(kind, page.ends if kind == "connection" and page.ends else name) for kind, name in page.scope]
    return " > ".join(
        f"{SINGULARS.get(kind, kind)} {shown_name(None if name is None else str(name))}" for kind, name in parts
    )
