"""Messages onto standard output: as lines, as trees below their lines, or as JSON, one object a line."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ..selected_messages.message import Message
from .hexdump import hexdump
from .lines import LineMaker
from .message_json import message_json
from .output import Output
from .tree_text import terminal_paint, tree_text
from .viewing import Known, MessageViewer

if TYPE_CHECKING:
    from kafkatap.dissector.layouts.overlay import Definitions

#: Messages between two flushes if the output is no terminal.
FLUSH_EVERY = 256


class Printer:
    """Writes messages as lines; with -v each with its tree, with --hex with its bytes."""

    def __init__(self, options: argparse.Namespace, known: Known) -> None:
        self._lines = LineMaker(known.topics, options.utc, bool(options.verbose))
        self._output = Output(sys.stdout, options.color)

    @staticmethod
    def needs_frames(options: argparse.Namespace) -> bool:
        """Whether the options need more of a message than one line."""
        return bool(options.verbose or options.hex or (options.json and not options.brief))

    def print_all(self, messages: Iterable[Message]) -> int:
        """Write them all; return how many there were."""
        count = 0
        for message in messages:
            self.print(message)
            count += 1
            if self._output.terminal or count % FLUSH_EVERY == 0 or count == 1:
                self._output.flush()
        self._output.flush()
        return count

    def print(self, message: Message) -> None:
        day = self._lines.day(message)
        if day is not None:
            self._output.write([(day, "bold cyan")])
        self._output.write(self._lines.line(message))


class WholePrinter(Printer):
    """Below each line the message's tree, its bytes, or both."""

    def __init__(self, options: argparse.Namespace, known: Known, viewer: MessageViewer) -> None:
        super().__init__(options, known)
        self._viewer = viewer
        self._paint = terminal_paint(self._output.begin_and_end)
        self._with_tree, self._with_bytes = bool(options.verbose), options.hex
        self._records, self._secrets = options.records, options.show_secrets

    def print(self, message: Message) -> None:
        super().print(message)
        tree = self._viewer.view(message)
        if self._with_tree:
            self._output.write_text("\n".join(tree_text(tree, self._paint, margin="  ")))
        if self._with_bytes:
            for line in hexdump(message.frame, tree, self._records, self._secrets):
                self._output.write([("  ", ""), *line])
        self._output.write_text("")


class JsonPrinter(Printer):
    """One JSON object a line."""

    def __init__(self, options: argparse.Namespace, known: Known, viewer: MessageViewer | None) -> None:
        super().__init__(options, known)
        self._topics = known.topics
        self._viewer = viewer

    def print(self, message: Message) -> None:
        self._output.write_text(json.dumps(message_json(message, self._topics, self._viewer)))


def make_printer(options: argparse.Namespace, known: Known, definitions: Definitions | None) -> Printer:
    """The printer for the form of output in the options."""
    if not Printer.needs_frames(options):
        return JsonPrinter(options, known, None) if options.json else Printer(options, known)
    viewer = MessageViewer(known, definitions, options.show_secrets, options.records, options.max_frame)
    return JsonPrinter(options, known, viewer) if options.json else WholePrinter(options, known, viewer)
