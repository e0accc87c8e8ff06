"""`kafkatap show`: list messages in time order, one line each or whole.

Files are read twice. The first pass finds the selected messages and the names of topics, the second prints them. A pipe
is read once, and so are files with `--stream`: then messages are printed as they come.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from kafkatap.kernels import store
from kafkatap.kernels.arrays import is_among

from ...captures.pipes import is_pipe
from ...complaints import complain, name_of
from ...engine.selection import selection_of
from ...run import Run
from ...selected_messages.message import Messages, joined_messages
from ...selected_messages.message_collector import MessageCollector
from ...selected_messages.message_index import MessageIndex, index_messages
from ...selected_messages.messages import read_messages, stream_messages, streaming_engine
from ...selected_messages.node_names import NodeNames
from ...selected_messages.selected_records import with_matching_records
from ...selected_messages.topic_names import TopicNames
from ...show.printing import Printer, make_printer
from ...show.viewing import Known
from ..console import (
    SIGNALS_OF_FOLLOW,
    advice_on,
    following,
    interrupts,
    no_kafka,
    note_key_log,
    nothing_matches,
    progress,
    readable_captures,
    refuse,
    unread_batches,
)
from ..exit_codes import DAMAGED, DONE, INTERRUPTED, WRONG
from ..values import chosen_key_log, read_options

Array = np.ndarray[Any, Any]
_DIRECTIONS = {None: (0, 1), "requests": (0,), "responses": (1,)}


def run(options: argparse.Namespace) -> int:
    """Carry out `kafkatap show`; return its exit code."""
    store.verbose = options.verbose > 0
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
        reading = read_options(options)
        self.selection = selection_of(options, reading.definitions)
        self.follow = following(options)
        if self.follow is None:
            options.captures = readable_captures(options.captures, "show")
        self.reading = reading._replace(key_log=chosen_key_log(options, is_growing=self.follow is not None))
        self.must_stream = options.stream or self.follow is not None or any(map(is_pipe, options.captures))
        if self.must_stream and self.selection.reads_records:
            raise ValueError(
                "record.*: `kafkatap show` looks into the records of files alone, without --stream and --follow; "
                "`kafkatap records` also into those of pipes"
            )
        self.directions = _DIRECTIONS[options.only]
        #: The record batches that were compared, by status; None: none.
        self.batches: Array | None = None

    def collector(self, index: MessageIndex | None) -> MessageCollector:
        ids = None if index is None else index.ids
        return MessageCollector(
            ids, with_frames=Printer.needs_frames(self.options), definitions=self.reading.definitions
        )

    def in_two_passes(self) -> int:
        options = self.options
        of_records = self.selection.reads_records
        limits = {"first": options.number or None, "last": options.tail}
        with interrupts() as stop, progress(options) as drawn:

            def watch(done: int) -> bool:
                return drawn(done) or bool(stop)

            index = index_messages(
                options.captures,
                self.reading,
                nodes=NodeNames(self.reading.definitions),
                selection=self.selection,
                directions=self.directions,
                watch=watch,
                **({} if of_records else limits),
            )
            if of_records and not index.run.interrupted:
                index, tally = with_matching_records(index, self.reading, self.selection, watch=watch, **limits)
                self.batches = tally.batches
        if index.run.interrupted:
            return INTERRUPTED
        printer = make_printer(options, Known(index.topic_names, index.node_names), self.reading.definitions)
        printed = printer.print_all(read_messages(index, self.reading, self.collector(index)))
        if printed < index.total and options.tail != 0:
            complain(f"{printed:,} of {index.total:,} messages shown")
        return self.finish(index.run, printed)

    def in_one_pass(self) -> int:
        options = self.options
        collector, nodes = self.collector(None), NodeNames(self.reading.definitions)
        engine = streaming_engine(self.reading, collector, nodes, self.selection)
        with interrupts(SIGNALS_OF_FOLLOW if self.follow else ()) as stop:
            run = Run(options.captures, engine, watch=lambda done: bool(stop), follow=self.follow)
            printer = make_printer(options, Known(TopicNames(engine), nodes.names), self.reading.definitions)
            messages = self.chosen(stream_messages(run, collector, self.selection), run)
            printed = printer.print_all(messages, lambda: bool(stop) and self.follow is None)
        if stop and self.follow is None:
            return INTERRUPTED
        code = self.finish(run, printed)
        return INTERRUPTED if stop else code

    def chosen(self, parts: Iterable[Messages | None], run: Run) -> Iterator[Messages]:
        """What the options ask for, of messages as they come. With --follow, --tail counts the messages that were there
        at the start."""
        left, tail = self.options.number or None, self.options.tail
        waiting: list[Messages] = []
        for part in parts:
            if part is not None:
                passed = part.picked(is_among(part.heads["id"] & 1, self.directions)).rows_at(slice(left))
                waiting.append(passed)
            if tail is not None:
                waiting = _last(waiting, tail)
                if not run.is_caught_up:
                    continue
                tail = None
            if waiting:
                passed, waiting = joined_messages(waiting), []
                yield passed
                if left is not None:
                    left -= passed.total
                    if left == 0:
                        return
        yield from waiting

    def finish(self, run: Run, printed: int) -> int:
        """Say what is to be said of the captures; the exit code."""
        for file in run.damaged:
            complain(f"{name_of(file.path)}: {file.damage}{advice_on(file, 'shown')}")
        if run.files and all(file.fatal for file in run.files):
            return WRONG
        if self.options.tail == 0:  # nothing was asked for; one pass has then read nothing
            return DAMAGED if run.damaged else DONE
        if self.batches is not None and (unread := unread_batches(self.batches, with_cut=True)):
            complain(f"not all records could be read and compared: {unread}")
        context = run.context()
        note_key_log(self.options, run.files, run.engine.key_log, context)
        found = any(context.ledger["requests"].values())
        is_lost = self.batches is not None and bool(unread_batches(self.batches))
        if not found and not printed:
            complain(no_kafka(context))
        elif not printed:
            only = f"--only {self.options.only}" if self.options.only else ""
            selected = " ".join(filter(None, (self.selection.text, only)))
            nothing_matches("message", selected, has_output=False, options=self.options)
        return DONE if found and not run.damaged and not is_lost else DAMAGED


def _last(parts: list[Messages], number: int) -> list[Messages]:
    """The last messages of some tables."""
    count = sum(part.total for part in parts)
    if not count or count <= number:
        return parts
    messages = joined_messages(parts)
    return [messages.rows_at(np.arange(count - number, count))]
