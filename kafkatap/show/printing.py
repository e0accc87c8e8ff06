"""Messages onto standard output: as lines, as trees below their lines, or as JSON, one object a line."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from itertools import repeat
from typing import TextIO

from kafkatap.dissector.layouts.overlay import Definitions
from kafkatap.reports import units
from kafkatap.reports.rendering.text import text_width

from ..selected_messages.message import FRAME, Message, Messages
from .hexdump import hexdump
from .lines import LineMaker, Span
from .message_json import JsonMaker
from .tree_text import TreeWriter, terminal_paint
from .viewing import Known, MessageViewer

#: Messages that are printed at once: their lines are made together. Whole messages are many lines each. Those whose
#: frames have more bytes are printed in parts.
LINES_AT_ONCE, WHOLE_AT_ONCE, JSON_AT_ONCE = 2_048, 512, 16
BYTES_AT_ONCE = 1 << 20


class Printer:
    """Writes messages as lines; with -v each with its tree, with --hex with its bytes."""

    at_once = LINES_AT_ONCE

    def __init__(self, options: argparse.Namespace, known: Known) -> None:
        self._output = Output(sys.stdout, options.color)
        self._lines = LineMaker(
            known.topics, self._output.begin_and_end, options.utc, options.tree, with_heading=self._output.terminal
        )
        self._width = text_width(options.width, True) if self._output.terminal or options.width else None

    @staticmethod
    def needs_frames(options: argparse.Namespace) -> bool:
        """Whether the options need more of a message than one line."""
        return bool(options.tree or options.hex or (options.json and not options.brief))

    def print_all(self, parts: Iterable[Messages], is_over: Callable[[], bool] = lambda: False) -> int:
        """Write messages until `is_over`; return how many there were."""
        count = 0
        for messages in parts:
            for first in range(0, messages.total, self.at_once):
                if is_over():
                    return count
                some = messages.rows_at(slice(first, first + self.at_once))
                self.print(some)
                self._output.flush()
                count += some.total
        return count

    def print(self, messages: Messages) -> None:
        lines = self._lines.lines(messages)
        if self._width is not None:
            lines = [part for line in "\n".join(lines).split("\n") for part in broken(line, self._width)]
        self._output.write_lines(lines)


class WholePrinter(Printer):
    """Below each line the message's tree, its bytes, or both."""

    at_once = WHOLE_AT_ONCE

    def __init__(self, options: argparse.Namespace, known: Known, viewer: MessageViewer) -> None:
        super().__init__(options, known)
        self._viewer = viewer
        self._trees = TreeWriter(terminal_paint(self._output.begin_and_end), margin="  ")
        self._with_tree, self._with_bytes = options.tree, options.hex
        self._records, self._secrets = options.records, options.show_secrets

    def print(self, messages: Messages) -> None:
        sizes = list(map(len, messages.objects[:, FRAME].tolist()))
        for some in map(messages.rows_at, _parts(sizes)):
            trees: Iterable[str] = self._trees.texts(self._viewer, some) if self._with_tree else repeat("", some.total)
            lines: list[str] = []
            for place, (line, tree) in enumerate(zip(self._lines.lines(some), trees, strict=True)):
                lines += [line, tree] if tree else [line]
                if self._with_bytes:
                    lines += self._bytes(some.at(place))
                lines.append("")
            self._output.write_lines(lines)

    def _bytes(self, message: Message) -> Iterator[str]:
        """The lines of a message's bytes."""
        for line in hexdump(message.frame, self._viewer.view(message), self._records, self._secrets):
            yield self._output.styled([("  ", ""), *line])


#: Escape sequences of styles, which take no room.
_STYLE = re.compile(r"\x1b\[[0-9;]*m")
#: How far the rest of a line stands to the right.
_INDENT = 12


def broken(line: str, width: int) -> list[str]:
    """A line in parts that fit a width, broken between its columns. A longer column stays whole."""
    found, room = [""], width
    for part in re.split(r"(?<=\S)(?=  )", line):
        cells = units.cells(_STYLE.sub("", part))
        if cells > room and found[-1]:
            found.append(" " * _INDENT + part.lstrip())
            room = width - _INDENT - units.cells(_STYLE.sub("", part.lstrip()))
        else:
            found[-1] += part
            room -= cells
    return found


def _parts(sizes: list[int]) -> Iterator[slice]:
    """Split messages whose frames have these sizes."""
    first = total = 0
    for place, size in enumerate(sizes):
        if total and total + size > BYTES_AT_ONCE:
            yield slice(first, place)
            first, total = place, 0
        total += size
    if first < len(sizes):
        yield slice(first, len(sizes))


class JsonPrinter(Printer):
    """One JSON object a line."""

    def __init__(self, options: argparse.Namespace, known: Known, viewer: MessageViewer | None) -> None:
        super().__init__(options, known)
        self._json = JsonMaker(known.topics, viewer)
        self.at_once = LINES_AT_ONCE if viewer is None else JSON_AT_ONCE

    def print(self, messages: Messages) -> None:
        self._output.write_lines(self._json.lines(messages))


def make_printer(options: argparse.Namespace, known: Known, definitions: Definitions | None) -> Printer:
    """The printer for the form of output in the options."""
    if not Printer.needs_frames(options):
        return JsonPrinter(options, known, None) if options.json else Printer(options, known)
    viewer = MessageViewer(known, definitions, options.show_secrets, options.records, options.max_frame)
    return JsonPrinter(options, known, viewer) if options.json else WholePrinter(options, known, viewer)


class Output:
    """Writes lines in the encoding of a file. `color`: "auto" (on a terminal, unless NO_COLOR or TERM=dumb is set),
    "always" or "never"."""

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
