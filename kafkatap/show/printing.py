"""Messages onto standard output: as lines, as trees below their lines, or as JSON, one object a line."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from ..selected_messages.message import Message, Messages
from .hexdump import hexdump
from .lines import LineMaker
from .message_json import JsonMaker
from .output import Output
from .tree_text import TreeWriter, terminal_paint
from .viewing import Known, MessageViewer

if TYPE_CHECKING:
    from kafkatap.dissector.layouts.overlay import Definitions

#: Messages that are printed at once: their lines are made together. Whole messages are many lines each.
LINES_AT_ONCE, WHOLE_AT_ONCE = 2_048, 16


class Printer:
    """Writes messages as lines; with -v each with its tree, with --hex with its bytes."""

    at_once = LINES_AT_ONCE

    def __init__(self, options: argparse.Namespace, known: Known) -> None:
        self._output = Output(sys.stdout, options.color)
        self._lines = LineMaker(known.topics, self._output.begin_and_end, options.utc, options.tree)

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
        self._output.write_lines(self._lines.lines(messages))


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
        for line, message in zip(self._lines.lines(messages), messages.each(), strict=True):
            self._output.write_lines([line])
            self._output.write_lines(self._below(message))
            self._output.write_lines([""])

    def _below(self, message: Message) -> list[str]:
        tree = self._viewer.view(message)
        lines = self._trees.lines(tree) if self._with_tree else []
        if self._with_bytes:
            for line in hexdump(message.frame, tree, self._records, self._secrets):
                lines.append(self._output.styled([("  ", ""), *line]))
        return lines


class JsonPrinter(Printer):
    """One JSON object a line."""

    def __init__(self, options: argparse.Namespace, known: Known, viewer: MessageViewer | None) -> None:
        super().__init__(options, known)
        self._json = JsonMaker(known.topics, viewer)
        self.at_once = LINES_AT_ONCE if viewer is None else WHOLE_AT_ONCE

    def print(self, messages: Messages) -> None:
        self._output.write_lines(self._json.lines(messages))


def make_printer(options: argparse.Namespace, known: Known, definitions: Definitions | None) -> Printer:
    """The printer for the form of output in the options."""
    if not Printer.needs_frames(options):
        return JsonPrinter(options, known, None) if options.json else Printer(options, known)
    viewer = MessageViewer(known, definitions, options.show_secrets, options.records, options.max_frame)
    return JsonPrinter(options, known, viewer) if options.json else WholePrinter(options, known, viewer)
