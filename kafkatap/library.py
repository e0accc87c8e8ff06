"""The library: `analyze(captures)` returns the tables of captures as Arrow."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from kafkatap.reports.batch import Context
from kafkatap.reports.literals import moment_of

from .engine.read_options import AS_USUAL, ReadOptions
from .engine.selection import EVERYTHING, Selection

if TYPE_CHECKING:
    from datetime import datetime

    import pyarrow as pa

    from kafkatap.dissector.inspection import Inspector
    from kafkatap.reports.counting.counts import ReportCounts
    from kafkatap.reports.model import Report
    from kafkatap.reports.section_parts.section_counts import SectionCounts

    from .captures.capture_reader import FileReport
    from .extract import Summary
    from .parquet.row_groups import RowGroup
    from .request_log.log_join import LogJoin
    from .run import Run
    from .selected_messages.message import Messages
    from .show.viewing import Known

    #: A time as reports print it; seconds or ns since the epoch; or a time of pandas.
    Time = str | int | float | datetime

Path = str | os.PathLike[str]
#: Messages of which the JSON is made at once.
_AT_ONCE = 256


class UnreadableCaptureError(Exception):
    """No capture of an analysis could be read at all; the message says which and why."""


class Analysis:
    """The tables of some captures, read when first asked for. Each is a `pyarrow.Table` (`.to_pandas()` for pandas).

    exchanges    a request with its response, or one without the other
    results      what each response said of a topic-partition, group or resource, with its error code
    connections  TCP connections: round trip, bytes, retransmissions, gaps, client software
    files        the captures: format, packets, drops, damage
    ledger       every packet, payload byte, request and response in one named place
    records      the records of Produce requests and Fetch responses (`record_tables` gives them piece by piece)

    `messages()` gives single messages, `report()` the reports of the command line, `request_log()` the exchanges that
    are in a broker's request log too.

    Columns are described in docs/tables.md. `connections`, `files` and `ledger` alone cost less than the first two.
    With a filter, exchanges, results and records are those of matching exchanges; the rest is of all.
    """

    def __init__(
        self,
        captures: Iterable[Path],
        read: ReadOptions = AS_USUAL,
        selection: Selection = EVERYTHING,
        block_size: int | None = None,
    ) -> None:
        from .captures.paths import find_captures
        from .captures.pipes import is_pipe
        from .captures.storage import is_uri

        self.captures = tuple(find_captures(os.fspath(c) for c in captures))
        if not self.captures:
            raise ValueError("no capture is named")
        for path in self.captures:
            if not (is_uri(path) or is_pipe(path) or os.path.exists(path)):
                raise FileNotFoundError(f"{path}: there is no such capture")
        self._reading = read
        self._block_size = block_size
        self.selection = selection
        self._is_read = False

    def __repr__(self) -> str:
        captures = ", ".join(map(repr, self.captures[:3])) + (", …" if len(self.captures) > 3 else "")
        only = f", {self.selection.text}" if self.selection else ""
        return f"<Analysis of {captures}{only}>"

    def _repr_html_(self) -> str:
        """For notebooks: the captures. It does not read them."""
        from kafkatap.reports.rendering.html.notebook import captures_html

        names = "exchanges, results, connections, files, ledger, records; report(), messages()"
        return captures_html(self.captures, self.selection.text, names)

    @property
    def exchanges(self) -> pa.Table:
        return self._decoded[0]

    @property
    def results(self) -> pa.Table:
        return self._decoded[1]

    @cached_property
    def connections(self) -> pa.Table:
        _need_arrow()
        from kafkatap.reports.tables import connections_table
        from kafkatap.reports.twins import note_twins

        note_twins(self.context.connections)
        return connections_table(self.context.connections, self.context)

    @cached_property
    def files(self) -> pa.Table:
        _need_arrow()
        from kafkatap.reports.tables import files_table

        return files_table(self.context)

    @cached_property
    def ledger(self) -> pa.Table:
        _need_arrow()
        from kafkatap.reports.tables import ledger_table

        return ledger_table(self.context)

    @cached_property
    def records(self) -> pa.Table:
        _need_arrow()
        import pyarrow as pa

        from kafkatap.dissector.programs.loading import load_programs
        from kafkatap.dissector.records.record_inspector import RecordCollector
        from kafkatap.reports.record_table import empty_table, numbered_table, with_names

        from .selected_messages.selected_records import record_chunks
        from .selected_messages.topic_names import topic_names

        collector = RecordCollector(load_programs("records", self._reading.definitions))
        run = self._run(all_results=False, inspectors=[collector])
        tables = [numbered_table(chunk) for chunk in record_chunks(run, collector)]
        self._check(run)
        if not tables:
            return empty_table()
        table = with_names(pa.concat_tables(tables), collector.topics, topic_names(run.engine), run.engine.strings)
        if not self.selection:
            return table
        import pyarrow.compute as pc

        return table.filter(pc.is_in(table["exchange"], self.exchanges["exchange"].combine_chunks()))

    def record_tables(self) -> Iterator[pa.Table]:
        """Yield the table `records` in parts, so that a large capture needs no large memory.

        Files are read twice, so that topic ids have names. In a pipe an id has a name only if it came before.
        """
        _need_arrow()
        from kafkatap.reports.record_table import records_table

        from .selected_messages.selected_records import RecordReader, RecordSelection

        self._read_once()
        reader = RecordReader(self.captures, self._reading, RecordSelection(self.selection))
        yield from map(records_table, reader.rows())
        self._check(reader.run)

    def messages(self, *, body: bool = True, records: bool = False, secrets: bool = False) -> Iterator[dict[str, Any]]:
        """Yield selected requests and responses in time order, as `kafkatap show --json` prints them (docs/json.md).

        `body` False: without header and body. `records`: with the records in bodies. `secrets`: with SASL tokens,
        passwords and keys, which are hidden by default. Files are read twice, so that ids have names. Pipes are read
        once: messages come as they are read, and an id has a name only if the name came before.
        """
        from .show.message_json import JsonMaker
        from .show.viewing import MessageViewer

        known, made = self._streamed(body) if self._has_pipes else self._indexed(body)
        viewer = (
            MessageViewer(known, self._reading.definitions, secrets, records, self._reading.max_frame) if body else None
        )
        maker = JsonMaker(known.topics, viewer)
        for messages in made:
            for first in range(0, messages.total, _AT_ONCE):
                yield from map(json.loads, maker.lines(messages.rows_at(slice(first, first + _AT_ONCE))))

    def _indexed(self, with_frames: bool) -> tuple[Known, Iterator[Messages]]:
        """The messages of captures that are read twice, and the names of topics and nodes."""
        from .selected_messages.message_collector import MessageCollector
        from .selected_messages.message_index import index_messages
        from .selected_messages.messages import read_messages
        from .selected_messages.node_names import NodeNames
        from .show.viewing import Known

        nodes = NodeNames(self._reading.definitions)
        index = index_messages(self.captures, self._reading, nodes=nodes, selection=self.selection)
        self._check(index.run)
        collector = MessageCollector(index.ids, with_frames, self._reading.definitions)
        return Known(index.topic_names, index.node_names), read_messages(index, self._reading, collector)

    def _streamed(self, with_frames: bool) -> tuple[Known, Iterator[Messages]]:
        """The same for captures that are read once. The names grow while the messages are read."""
        from .run import Run
        from .selected_messages.message_collector import MessageCollector
        from .selected_messages.messages import stream_messages, streaming_engine
        from .selected_messages.node_names import NodeNames
        from .selected_messages.topic_names import TopicNames
        from .show.viewing import Known

        self._read_once()
        nodes, selection = NodeNames(self._reading.definitions), self.selection
        collector = MessageCollector(None, with_frames, self._reading.definitions)
        run = Run(self.captures, streaming_engine(self._reading, collector, nodes, selection))

        def made() -> Iterator[Messages]:
            for messages in stream_messages(run, collector, selection):
                if messages is not None:
                    yield messages
            self._check(run)

        return Known(TopicNames(run.engine), nodes.names), made()

    @cached_property
    def context(self) -> Context:
        """Names, connections, files and ledger: all that does not need the bodies of messages."""
        if "_whole" in self.__dict__:
            whole: Context = self._whole[1]
            return whole
        run = self._run_for_tables(all_results=False)
        for _ in run.batches():
            pass
        self._check(run)
        context: Context = run.context()
        return context

    def report(
        self,
        by: str = "api",
        filter: str | None = None,
        sections: str | Sequence[str] | None = None,
        options: Mapping[str, Any] | None = None,
        request_log: Path | Iterable[Path] | None = None,
        curves: bool = True,
    ) -> Report:
        """The reports of `kafkatap report` as tables of plain rows.

        `by`: api, client, broker, connection, version or topic. `filter`: an expression as of `analyze`, instead of the
        filter of `analyze`. `sections`: names as of --sections (docs/questions.md), one or several, or "all";
        `options`: theirs, by name, as the command line parses them. `curves`: with the data that plots need
        (`kafkatap.plot`). `request_log`: as of `request_log()`; adds the section broker-times to the usual ones.
        ValueError if one of them is wrong.
        """
        from kafkatap.reports.build import build_report
        from kafkatap.reports.counting.counts import ReportCounts
        from kafkatap.reports.model import PageSource
        from kafkatap.reports.section_parts.registry import chosen_sections, counted_sections, needs_of
        from kafkatap.reports.sections.latency import check_by
        from kafkatap.reports.sections.twin_findings import counted_twice

        from .captures.storage import stored_bytes

        check_by(by)
        if sections is not None:
            sections = chosen_sections([sections] if isinstance(sections, str) else sections)
        log_join = None
        if request_log is not None:
            log_join = self._log_join(request_log, by_client=by == "client")
            options = {**(options or {}), "request_log": log_join}
        selection = self.selection
        if filter is not None:
            selection = Selection.of(filter=filter, definitions=self._reading.definitions)
        late = (options or {}).get("late")
        counted = counted_sections(sections, stored_bytes(self.captures))
        if log_join is not None and sections is None:
            counted = ("broker-times", *counted)

        runs: list[Run] = []

        def read(twins: Mapping[int, int] = {}) -> tuple[ReportCounts, SectionCounts | None, Context]:
            run = self._run(
                all_results=by == "topic", selection=selection, late=late, twins=twins,
                **needs_of(counted)._asdict(),
            )  # fmt: skip
            counts = ReportCounts(by_topic=by == "topic", by_connection=by == "connection", fine=curves)
            over_facts = None
            if counted:
                over_facts = run.engine.section_counts(counted, learning=selection.learning)
                run.engine.on_connections(over_facts.add_connections)
                if log_join is not None:
                    run.engine.on_connections(log_join.also(over_facts.add_connections))
            for batch in selection.apply(run.batches(), run.engine, over_facts):
                counts.add(batch)
                if over_facts is not None:
                    over_facts.add(batch)
                if log_join is not None:
                    log_join.add(batch)
            self._check(run)
            runs[:] = [run]
            return counts, over_facts, run.context()

        counts, over_facts, context = read()
        if log_join is None and not self._has_pipes:
            twins = counted_twice(over_facts, counts, lambda: context, lambda _: selection.shown(context.first))
            if twins:
                counts, over_facts, context = read(twins)
        report = build_report(
            counts, context, by=by, selected=selection.shown(context.first), sections=sections, over_facts=over_facts,
            options=options, curves=curves,
        )  # fmt: skip
        read_packets = None if self._has_pipes else partial(_read_packets, runs[0].files)
        return report.replace(source=PageSource(tuple(map(str, self.captures)), read_packets))

    def extract(
        self, output: Path, *, connections: bool = False, comments: bool = True, secrets: bool = False,
        overwrite: bool = False, blank_secrets: bool = False,
    ) -> Summary:  # fmt: skip
        """Copy the packets of the selected exchanges to a pcapng, as `kafkatap extract` does (docs/extract.md).

        `connections`: all packets of their connections. `comments`: packet comments with findings, and names of
        addresses. `secrets`: the TLS secrets of the copied connections. `overwrite`: replace a pcapng of that name that
        is no copy of kafkatap's. `blank_secrets`: with filler in place of passwords, proofs and tokens. ValueError
        for pipes, and for one of the captures. OSError if it cannot be written. No file is made if nothing is selected.
        """
        from .extract import extract
        from .extract.anonymized import extract_without_secrets

        if blank_secrets and secrets:
            raise ValueError("blank_secrets and secrets exclude each other")
        if blank_secrets:
            made, _ = extract_without_secrets(
                self.captures, os.fspath(output), self.selection, connections=connections, comments=comments,
                read=self._reading, overwrite=overwrite,
            )  # fmt: skip
        else:
            made = extract(
                self.captures, os.fspath(output), self.selection, connections=connections, comments=comments,
                names=comments, secrets=secrets, read=self._reading, overwrite=overwrite,
            )  # fmt: skip
        self._check(made)
        return made

    def request_log(self, logs: Path | Iterable[Path]) -> pa.Table:
        """The exchanges that are also in request logs of brokers, with the times of both clocks (docs/tables.md).

        `logs`: one file or several of `kafka.request.logger` at DEBUG, also .gz and .zst, and globs. OSError if one
        cannot be opened, ValueError if none is a request log.
        """
        _need_arrow()
        from .request_log.joined_table import joined_table

        log_join = self._log_join(logs)
        run = self._run(all_results=False, selection=self.selection)
        run.engine.on_connections(log_join.add_connections)
        for batch in self.selection.apply(run.batches(), run.engine):
            log_join.add(batch)
        self._check(run)
        context = run.context()
        return joined_table(log_join.joined(context), context)

    @staticmethod
    def _log_join(logs: Path | Iterable[Path], by_client: bool = False) -> LogJoin:
        from .request_log.log_files import read_logs
        from .request_log.log_join import LogJoin

        return LogJoin(read_logs([logs] if isinstance(logs, (str, os.PathLike)) else logs), by_client)

    @cached_property
    def _whole(self) -> tuple[RowGroup, Context]:
        from .parquet.row_groups import RowGroup

        run = self._run_for_tables(all_results=True, selection=self.selection)
        rows = RowGroup.of(list(self.selection.apply(run.batches(), run.engine)))
        self._check(run)
        return rows, run.context()

    @cached_property
    def _decoded(self) -> tuple[pa.Table, pa.Table]:
        _need_arrow()
        rows, context = self._whole
        self.__dict__.setdefault("context", context)  # so that no other table reads the captures again
        return rows.exchanges_table(context), rows.results_table(context)

    def _run(
        self, all_results: bool, inspectors: Sequence[Inspector] = (), selection: Selection = EVERYTHING,
        late: int | None = None, twins: Mapping[int, int] = {}, **options: Any,
    ) -> Run:  # fmt: skip
        from .captures.capture_reader import BLOCK_SIZE
        from .engine.engine import Engine
        from .run import Run

        self._read_once()
        needed = selection.engine_options
        engine = Engine(
            self._reading._replace(late=late, twins=twins),
            all_results=all_results or needed.all_results,
            inspectors=[*needed.inspectors, *inspectors],
            apis=needed.apis,
            **options,
        )
        return Run(self.captures, engine, block_size=self._block_size or BLOCK_SIZE)

    def _run_for_tables(self, **options: Any) -> Run:
        """A run whose context has the rows of `connections`."""
        from kafkatap.reports.section_parts.registry import needs_of

        return self._run(**options, **needs_of((), with_connections=True)._asdict())

    @property
    def _has_pipes(self) -> bool:
        from .captures.pipes import is_pipe

        return any(map(is_pipe, self.captures))

    def _read_once(self) -> None:
        """ValueError where pipes are among the captures that were read before."""
        if self._is_read and self._has_pipes:
            raise ValueError("what is read from a pipe can be read only once (save it to a file first)")
        self._is_read = True

    def _check(self, run: Any) -> None:
        unreadable = [f for f in run.files if f.fatal]
        if unreadable and len(unreadable) == len(run.files):
            raise UnreadableCaptureError("; ".join(f"{f.path}: {f.damage}" for f in unreadable))
        if self._has_pipes:  # what comes from them cannot be read again for it
            self.__dict__.setdefault("context", run.context())


def _need_arrow() -> None:
    """ImportError with what to install where pyarrow is missing, before captures are read for a table."""
    from .installation import has_arrow, without_arrow

    if not has_arrow():
        raise ImportError(without_arrow("tables need"))


def analyze(
    captures: Path | Iterable[Path],
    *,
    ports: int | Iterable[int] = (),
    definitions: Path | Iterable[Path] | None = None,
    filter: str | None = None,
    client: str | Iterable[str] = (),
    connection: str | Iterable[str] = (),
    topic: str | Iterable[str] = (),
    broker: str | Iterable[str] = (),
    api: str | Iterable[str] = (),
    start: Time | None = None,
    end: Time | None = None,
    max_frame: int | None = None,
    keylog: Path | Iterable[Path] | None = None,
    hosts: Path | Iterable[Path] | None = None,
) -> Analysis:
    """Analyze one capture or many (pcap or pcapng, also .gz and .zst). Packets are put in time order.

    `captures`: files; folders, of which all captures are read; globs; pipes. A pipe is read only once: you get one
    table (or iterator), and `files`, `connections` and `ledger` with it. Nothing is read before you use a table.
    `ports`: hints that brokers listen there; Kafka is found without them. `definitions`: message definitions
    (.json) of a newer Kafka or a vendor, laid over the built-in ones: a folder, a kafka-clients jar or another archive,
    a file, or several of these, of which later ones go before. They are read at once. `max_frame`: messages larger than
    this many bytes (None: 100 MiB) are measured, and only their heads decoded. `keylog`: files with the secrets of TLS
    connections, in the format of SSLKEYLOGFILE, also .gz and .zst, and globs. These connections are decrypted. Secrets
    in a pcapng are used without it. `hosts`: files with names of addresses, as of `--hosts` (docs/hosts.md).

    The other arguments select exchanges, as the options of the command line do. `filter`: an expression
    (docs/filters.md). `client`, `topic`: names with the wildcards * and ?; `connection`: its client as ADDRESS:PORT;
    `broker`: ADDRESS, ADDRESS:PORT or :PORT; `api`: names or keys; each one or several. `start`, `end`: `15:10:39`,
    `2026-11-21 15:10:39`, `+10s`, seconds (1795236239.5) or ns since the epoch, or a time of pandas; an exchange that
    begins at `end` is left out. Times without a zone are local.

    ValueError where definitions, a selection or a key log are wrong, with the place in a filter. FileNotFoundError
    where a file does not exist. On first use: OSError where a file cannot be opened, `UnreadableCaptureError` where
    none is a capture.
    """
    if isinstance(captures, (str, os.PathLike)):
        captures = [captures]
    known = None
    if definitions is not None:
        from .engine.engine import open_definitions

        known = open_definitions(definitions)
    key_log = None
    if keylog is not None:
        from .engine.tls.key_log_files import open_key_logs

        key_log = open_key_logs([keylog] if isinstance(keylog, (str, os.PathLike)) else keylog)
    named = None
    if hosts is not None:
        from .engine.host_names import open_hosts

        named = open_hosts([hosts] if isinstance(hosts, (str, os.PathLike)) else hosts)
    selection = Selection.of(
        filter=filter,
        clients=_several(client),
        connections=_several(connection),
        topics=_several(topic),
        brokers=_several(broker),
        apis=_several(api),
        start=None if start is None else moment_of(start),
        end=None if end is None else moment_of(end),
        definitions=known,
    )
    read = ReadOptions(_ports(ports), known, max_frame, key_log=key_log, hosts=named)
    return Analysis(captures, read, selection)


def _read_packets(
    files: Sequence[FileReport], wanted: list[tuple[int, int]], brokers: frozenset[str]
) -> Mapping[int, Any]:  # fmt: skip
    from .extract.sequences import read_sequences

    return read_sequences(files, wanted, brokers)


def _ports(ports: int | Iterable[int]) -> tuple[int, ...]:
    found = (ports,) if isinstance(ports, (int, str)) else tuple(ports)
    for port in found:
        if not hasattr(port, "__index__") or not 0 < int(port) < 65536:
            raise ValueError(f"{port!r} is not a port number")
    return found


def _several(values: str | Iterable[str]) -> tuple[str, ...]:
    return (values,) if isinstance(values, str) else tuple(values)
