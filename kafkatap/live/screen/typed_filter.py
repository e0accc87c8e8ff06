"""What is typed after `/`: a filter as everywhere, or one word that rows have to contain."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafkatap.reports.expressions import ExpressionError

from ...engine.selection import Selection

if TYPE_CHECKING:
    from ...engine.engine import Engine

#: A word, which may be a part of a name. It is no expression unless it is one of its names, such as `error`.
_WORD = re.compile(r"[^\s=<>!~()\"'&|]+")


@dataclass(frozen=True, slots=True)
class Typed:
    """`text`: as it was typed. `word`: what rows have to contain, in any case; "": `selection` decides. `reason`: what
    is wrong with it, "" if nothing is, at `text[at:end]`."""

    text: str = ""
    word: str = ""
    selection: Selection | None = None
    reason: str = ""
    at: int = 0
    end: int = 0

    def __bool__(self) -> bool:
        return bool(self.text)


NOTHING = Typed()


def read_typed(text: str, engine: Engine, utc: bool) -> Typed:
    """What a text means for the rows of this engine."""
    if not text.strip():
        return NOTHING
    try:
        selection = Selection.of(filter=text, utc=utc)
        why = _why_not(selection, text.strip(), engine)
    except ExpressionError as error:
        if _WORD.fullmatch(text.strip()):
            return Typed(text, text.strip())
        return Typed(text, reason=error.message, at=error.at, end=error.end)
    except ValueError as error:
        return Typed(text, reason=str(error).split("\n", 1)[0], end=len(text))
    return Typed(text, reason=why, end=len(text)) if why else Typed(text, selection=selection)


def _why_not(selection: Selection, text: str, engine: Engine) -> str:
    """Why it cannot be applied to what is decoded already; "" if it can."""
    needed = selection.engine_options
    if needed.inspectors:
        return f"fields of messages are read only from the start: kafkatap live -f {shlex.quote(text)}"
    if needed.all_results and not engine.has_all_results:
        return "topics, partitions and results are not decoded now: see the level"
    return ""
