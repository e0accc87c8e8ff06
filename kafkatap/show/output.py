"""Lines of styled spans onto a file: with colours for a terminal, in the file's encoding."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from functools import cache
from typing import TextIO

from .lines import Span


class Output:
    """Writes lines. `color`: "auto" (on a terminal, unless NO_COLOR or TERM=dumb is set), "always" or "never"."""

    def __init__(self, file: TextIO, color: str = "auto") -> None:
        self._file = file
        self._encoding = file.encoding or "utf-8"
        self.terminal = file.isatty()
        wanted = self.terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        self.colored = color == "always" or (color == "auto" and wanted)

    def write_lines(self, lines: Sequence[str]) -> None:
        """Write lines and their ends."""
        if lines:
            text = "\n".join(lines)
            if not text.isascii():
                text = text.encode(self._encoding, "backslashreplace").decode(self._encoding)
            self._file.write(text)  # it may be long: it is not copied for its end
            self._file.write("\n")

    def styled(self, spans: Iterable[Span]) -> str:
        """A line of spans, without blank ones at its end."""
        kept = list(spans)
        while kept and not kept[-1][0].strip():
            kept.pop()
        return "".join(text.join(self.begin_and_end(style)) for text, style in kept).rstrip()

    def begin_and_end(self, style: str) -> tuple[str, str]:
        """The escape sequences before and behind text of this style."""
        if not self.colored or not style:
            return "", ""
        begin, _, end = _ansi(style).partition("\0")
        return begin, end

    def flush(self) -> None:
        self._file.flush()


@cache
def _ansi(style: str) -> str:
    """The escape sequences of a style around "\\0"."""
    from rich.color import ColorSystem
    from rich.style import Style

    return Style.parse(style).render("\0", color_system=ColorSystem.STANDARD)
