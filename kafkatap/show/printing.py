"""Messages onto standard output: as lines, as trees below their lines, or as JSON, one object a line."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafkatap.messages import Message

from .lines import LineMaker
from .output import Output

if TYPE_CHECKING:
    from kafkatap.dissector.overlay import Definitions

#: Messages between two flushes where output is no terminal.
FLUSH_EVERY = 256


@dataclass(frozen=True, slots=True)
class Known:
    """What numbers on the wire are called: topics by id (bytes), "host:port" by node id. Both may grow."""

    topics: Mapping[bytes, bytes]
    nodes: Mapping[int, str]


class Printer:
    """Writes messages as lines; with -v each with its tree, with --hex with its bytes."""

    def __init__(self, options: argparse.Namespace, known: Known) -> None:
        self._lines = LineMaker(known.topics, options.utc)
        self._output = Output(sys.stdout, options.color)

    @staticmethod
    def needs_frames(options: argparse.Namespace) -> bool:
        """Whether the options ask for more of a message than one line."""
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


def make_printer(options: argparse.Namespace, known: Known, definitions: Definitions | None) -> Printer:
    """What writes messages in the form that the options ask for."""
    return Printer(options, known)
