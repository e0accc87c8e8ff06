"""`kafkatap show`: every message in time order, one line each, or whole.

Files are read twice. The first pass finds the selected messages and the names of topics; the second one prints them.
Pipes, and files with `--stream`, are read once, and messages are printed as they come.
"""

from __future__ import annotations

import argparse
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import islice, takewhile

from kafkatap.kernels import store

from ...captures.pipes import is_pipe
from ...complaints import complain, name_of
from ...engine import Engine
from ...passes.message_index import Survey, survey
from ...passes.messages import Collector, LiveTopics, Message, read_messages, stream_messages, streaming_engine
from ...passes.node_names import NodeFinder
from ...run import Run
from ...selection import selection_of
from ...show.printing import Printer, make_printer
from ...show.viewing import Known
from ..console import advice_on, interrupts, no_kafka, progress, readable_captures, refuse
from ..exit_codes import DAMAGED, DONE, INTERRUPTED, WRONG
from ..values import chosen_definitions

_DIRECTIONS = {None: (0, 1), "requests": (0,), "responses": (1,)}


def run(options: argparse.Namespace) -> int:
    """Run the command; return its exit code."""
    store.verbose = options.verbose > 1
    try:
        task = _Task(options)
        return task.in_one_pass() if task.must_stream else task.in_two_passes()
    except BrokenPipeError:
        raise
    except (ValueError, OSError) as error:
        return refuse(error)


class _Task:
    """One call of the command. ValueError or OSError where the options do not work."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        if options.brief and not options.json:
            raise ValueError("--brief leaves the bodies out of --json: without that, each message is one line anyway")
        self.definitions = chosen_definitions(options)
        self.selection = selection_of(options, self.definitions)
        options.captures = readable_captures(options.captures, "show")
        self.make_engine = partial(
            Engine, ports=options.port or (), definitions=self.definitions, max_frame=options.max_frame
        )
        self.must_stream = options.stream or any(map(is_pipe, options.captures))
        self.directions = _DIRECTIONS[options.only]

    def collector(self, survey: Survey | None) -> Collector:
        order = None if survey is None else survey.order
        return Collector(order, with_frames=Printer.needs_frames(self.options), definitions=self.definitions)

    def in_two_passes(self) -> int:
        options = self.options
        with interrupts() as stop, progress(options) as drawn:
            found = survey(
                options.captures,
                self.make_engine,
                nodes=NodeFinder(self.definitions),
                selection=self.selection,
                directions=self.directions,
                first=options.number,
                last=options.tail,
                watch=lambda done: drawn(done) or bool(stop),
            )
        if found.run.interrupted:
            return INTERRUPTED
        printer = make_printer(options, Known(found.topic_names, found.nodes), self.definitions)
        shown = printer.print_all(read_messages(found, self.make_engine, self.collector(found)))
        if shown < found.found and sys.stderr.isatty():
            complain(f"{shown:,} of {found.found:,} messages shown")
        return self.finish(found.run, shown)

    def in_one_pass(self) -> int:
        options = self.options
        collector, nodes = self.collector(None), NodeFinder(self.definitions)
        engine = streaming_engine(self.make_engine, collector, nodes, self.selection)
        with interrupts() as stop:
            run = Run(options.captures, engine, watch=lambda done: bool(stop))
            printer = make_printer(options, Known(LiveTopics(engine), nodes.found), self.definitions)
            messages = self.shown_messages(stream_messages(run, collector, self.selection))
            shown = printer.print_all(takewhile(lambda _: not stop, messages))
        return INTERRUPTED if stop else self.finish(run, shown)

    def shown_messages(self, messages: Iterable[Message]) -> Iterator[Message]:
        """The messages that --only, -n and --tail leave, as they come."""
        options = self.options
        found = (m for m in messages if (m.id & 1) in self.directions)
        if options.number is not None:
            return islice(found, options.number)
        return iter(deque(found, options.tail)) if options.tail is not None else found

    def finish(self, run: Run, shown: int) -> int:
        """Warn of damaged captures; return the exit code."""
        for file in run.damaged:
            complain(f"{name_of(file.path)}: {file.damage}{advice_on(file, 'shown')}")
        if run.files and all(file.fatal for file in run.files):
            return WRONG
        if 0 in (self.options.number, self.options.tail):  # no message is wanted; one pass has read nothing then
            return DAMAGED if run.damaged else DONE
        context = run.context()
        found = any(context.ledger["requests"].values())
        if not found and not shown:
            complain(no_kafka(context))
        elif not shown:
            only = [f"--only {self.options.only}"] if self.options.only else []
            complain(f"no message is left with {' '.join([*filter(None, [self.selection.text]), *only])}")
        return DONE if found and not run.damaged else DAMAGED
