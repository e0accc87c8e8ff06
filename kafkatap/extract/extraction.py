"""`extract`: copy the packets of selected exchanges to a pcapng that reads like the original.

The captures are read twice: the first pass finds the exchanges, the second copies packets. Then the copy is read as a
report reads it. Where a selected exchange has another row than in the original, its whole connection is copied, and
where a topic has lost its name, the exchanges that name it. So the rows are equal by check, not by hope.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from itertools import pairwise
from operator import itemgetter
from typing import Any

import numpy as np

from kafkatap.reassembly import pcapng_blocks as blocks
from kafkatap.reassembly.pcap_writer import packet_blocks

from ..captures.capture_reader import FileReport
from ..captures.pipes import Interrupted, is_pipe
from ..engine.read_options import AS_USUAL, ReadOptions
from ..engine.selection import EVERYTHING, Selection
from ..installation import own_version
from ..output_file import OutputFile, UnnamedFile, check_output
from ..run import Watch, never
from .exchange_index import ExchangeIndex, SameExchanges, index_exchanges
from .findings import Findings
from .host_names import host_names
from .neighbourhood import COPY_NONE, COPY_WHOLE, Plan, make_plan
from .row_check import compare_rows
from .source_blocks import SourceInterface
from .wanted_packets import CapturePass, SegmentChooser, WantedPackets, merged_packets

Array = np.ndarray[Any, Any]
#: How often the plan is widened. Whole connections, and then names, need no more.
MOST_ROUNDS = 4
#: The end of an extract's application: `kafkatap doctor` knows extracts by it.
EXTRACT_MARK = " (extract)"


@dataclass
class Summary:
    """What was extracted.

    `exchanges`: how many are selected. `copied`: exchanges that were copied for them or with them. `packets`, `bytes`:
    of the extracted capture. `whole`: keys of connections that were copied whole because a row would differ.
    `different`: selected exchanges whose rows still differ. `secrets`: connections whose TLS secrets were written.
    `secret_messages`: messages with secrets that can be read in the copy, by API.
    `selected_packets`: numbers, in the extracted capture, of the packets with the first byte of a selected request
    (int64). `files`: reports on the captures.
    """

    exchanges: int = 0
    connections: int = 0
    copied: int = 0
    packets: int = 0
    bytes: int = 0
    whole: list[int] = field(default_factory=list)
    different: int = 0
    secrets: int = 0
    secret_messages: Mapping[str, int] = field(default_factory=dict)
    is_interrupted: bool = False
    selected_packets: Array = field(default_factory=lambda: np.zeros(0, np.int64))
    files: Sequence[FileReport] = ()
    index: ExchangeIndex | None = None


def extract(
    captures: Sequence[str],
    output: str | UnnamedFile,
    selection: Selection | SameExchanges = EVERYTHING,
    *,
    connections: bool = False,
    comments: bool = True,
    names: bool = True,
    commented: Array | None = None,
    command: str = "",
    secrets: bool = False,
    is_checked: bool = True,
    read: ReadOptions = AS_USUAL,
    watch: Watch = never,
    overwrite: bool = False,
) -> Summary:
    """Extract the packets of selected exchanges from `captures` to `output`.

    `output`: a path, `-` for standard output, or a file that stays open. `selection`: EVERYTHING copies all packets
    of all connections with Kafka. `connections`: copy all packets of the connections with selected exchanges.
    `comments`: packet comments with findings; False also leaves out all texts of the original: comments, names of
    interfaces, capture filters. `names`: a name resolution block. `commented`: only exchanges whose request begins in
    one of these packets get comments. `command`: the comment of the whole file. `secrets`: also write the TLS secrets
    of the copied connections. `is_checked`: compare the rows of the copy with those of the original.
    `overwrite`: replace a pcapng of that name that is no copy of kafkatap's.

    Nothing is written if no exchange is selected, or if `watch` ends the reading. ValueError for pipes, and for
    an output that is one of the captures. OSError if a file cannot be read or written.
    """
    if any(map(is_pipe, captures)):
        raise ValueError("extract reads captures twice, and a pipe can be read only once: save it to a file first")
    check_output(output, captures, overwrite)
    progress = _Progress(watch)
    index = index_exchanges(captures, selection, read, progress.note)
    # With secrets, the copy has all that is needed to read it.
    read = read._replace(key_log=None if secrets else index.run.engine.key_log)
    made = Summary(files=index.run.files, index=index, is_interrupted=index.run.interrupted)
    made.exchanges = len(index.rows)
    wanted = index.selected_connections if selection else np.flatnonzero(index.connections["is_kafka"])
    made.connections = len(wanted)
    if made.is_interrupted or not len(wanted):
        return made
    with _opened(output, overwrite) as file, progress.interruptible(made):
        whole = wanted if connections or not selection else np.zeros(0, np.int64)
        keys = index.connections["key"][index.selected_connections].tolist()
        also = index.one_naming.exchanges(index.topic_ids, keys)
        for _ in range(MOST_ROUNDS):
            plan = make_plan(index, whole, also)
            writer = _Writer(file, index, plan, comments, names, commented, command)
            if secrets:
                made.secrets = writer.write_secrets(index, plan)
            writer.write(_packets(index, plan, comments, progress))
            file.file.flush()
            if not is_checked:
                break
            # A file without a name is no copy that anybody sees.
            difference = compare_rows(index, file.path, read, progress.go_on, isinstance(file, OutputFile))
            made.different, made.secret_messages = difference.exchanges, difference.secrets
            more = difference.connections[plan.how[difference.connections] != COPY_WHOLE]
            naming = np.setdiff1d(difference.naming, index.places["number"][plan.chosen])
            if not len(more) and not len(naming):
                break
            made.whole += index.connections["key"][more].tolist()
            whole, also = np.union1d(whole, more), np.union1d(also, naming)
        made.copied = int(plan.chosen.sum())
        made.packets, made.bytes = writer.packets, writer.bytes
        made.selected_packets = np.concatenate(writer.findings.request_packets)
        file.publish()
    return made


def _opened(output: str | UnnamedFile, overwrite: bool) -> AbstractContextManager[OutputFile | UnnamedFile]:
    return nullcontext(output) if isinstance(output, UnnamedFile) else OutputFile(output, overwrite=overwrite)


class _Progress:
    """Asks `watch` in all passes; it gets the bytes that the first pass has read."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._done = 0

    def note(self, done: int) -> bool:
        self._done = done
        return self._watch(done)

    def go_on(self, _: int = 0) -> bool:
        """False. Raises Interrupted if the user wants to end the run."""
        if self._watch(self._done):
            raise Interrupted
        return False

    @contextmanager
    def interruptible(self, made: Summary) -> Iterator[None]:
        """Within this context an interruption ends the work."""
        try:
            yield
        except Interrupted:
            made.is_interrupted = True


def _packets(
    index: ExchangeIndex, plan: Plan, with_texts: bool, progress: _Progress
) -> Iterator[tuple[list[WantedPackets], Array]]:
    """The packets that a plan wants, in time order."""
    chooser = SegmentChooser(index, plan)
    has_fragments = index.run.engine.assembler.fragments.seen > 0
    files = [report for report in index.run.files if report.first is not None]
    files.sort(key=lambda report: report.first_packet)  # packets of the same time follow it
    return merged_packets(
        [
            CapturePass(report, order, chooser, with_texts, has_fragments, progress.go_on)
            for order, report in enumerate(files)
        ]
    )


class _Writer:
    """Writes the extracted capture to a file, from its start."""

    def __init__(
        self, file: OutputFile | UnnamedFile, index: ExchangeIndex, plan: Plan, comments: bool, names: bool,
        commented: Array | None, command: str,
    ) -> None:  # fmt: skip
        file.restart()
        self._file = file.file
        rows = index.rows
        if commented is not None:
            rows = rows[np.isin(rows["request_packet_first"], commented)]
        found = host_names(index.context, index.connections["key"][plan.how != COPY_NONE], index.node_names)
        context = found.added_to(index.context) if comments else index.context
        self.findings = Findings(rows, index.errors, context, comments)
        self._interfaces: dict[int, int] = {}  # by id of a SourceInterface, the number of its copy
        self._kept: list[SourceInterface] = []
        self._same: dict[SourceInterface, int] = {}
        self._next = self.packets = self.bytes = 0
        self._put(blocks.section_header(f"kafkatap {own_version()}{EXTRACT_MARK}", command))
        if names:
            if found.derived:
                self._put(blocks.name_resolution(found.derived, blocks.FROM_TRAFFIC))
            if found.known:  # behind: Wireshark shows the last name of an address
                self._put(blocks.name_resolution(found.known))

    def write_secrets(self, index: ExchangeIndex, plan: Plan) -> int:
        """Write the TLS secrets of the connections that are copied; return how many have some."""
        key_log = index.run.engine.key_log
        rows = index.connections
        randoms = rows["client_random"][(plan.how != COPY_NONE) & rows["is_decrypted"]]
        distinct = {random.tobytes() for random in randoms}
        lines = b"" if key_log is None else key_log.lines_for(distinct)
        if lines:
            self._put(blocks.decryption_secrets(lines))
        return len(distinct) if lines else 0

    def write(self, parts: Iterable[tuple[list[WantedPackets], Array]]) -> None:
        """Write all packets, parts of several captures each with their order."""
        for part, order in parts:
            starts = np.cumsum([0, *(len(one.rows) for one in part)])
            described = self._add_interfaces(part, np.argsort(order), starts)
            options = [one.options for one in part]
            comments = self.findings.all_of(np.concatenate([one.numbers for one in part])[order], self.packets)
            for place, found in comments.items():
                row = int(order[place])
                source = int(np.searchsorted(starts, row, "right")) - 1 if len(part) > 1 else 0
                row -= int(starts[source])
                texts = [(blocks.COMMENT, blocks.text_value(text)) for text in found]
                options[source][row] = [*texts, *options[source].get(row, ())]
            self.packets += len(order)
            packed = [packet_blocks(one.buffer, one.rows, of) for one, of in zip(part, options, strict=True)]
            if len(part) == 1 and not described:
                self._put(packed[0][0].data)
                continue
            pieces = [made[at:end] for made, ends in packed for at, end in pairwise([0, *ends.tolist()])]
            for place, row in enumerate(order.tolist()):
                self._put(described.get(place, b""))
                self._put(pieces[row].data)

    def _add_interfaces(self, part: list[WantedPackets], places: Array, starts: Array) -> dict[int, bytes]:
        """Replace the numbers of interfaces in a part's rows; return the descriptions of new ones, by the places of
        their first packets. `places`: of the packets, of which each capture's begin at `starts`."""
        firsts = []
        for one, start in zip(part, starts.tolist(), strict=False):
            numbers, rows = np.unique(one.rows["interface"], return_index=True)
            firsts += [
                (place, one.interfaces[n]) for place, n in zip(places[start + rows].tolist(), numbers, strict=True)
            ]
        made = {place: self._description(source) for place, source in sorted(firsts, key=itemgetter(0))}
        for one in part:
            numbers = np.array([self._interfaces.get(id(source), 0) for source in one.interfaces], np.int64)
            one.rows["interface"] = numbers[one.rows["interface"]]
        return {place: data for place, data in made.items() if data}

    def _description(self, source: SourceInterface) -> bytes:
        """The block of an interface, unless it has one: several captures may have the same one."""
        if id(source) in self._interfaces:
            return b""
        self._kept.append(source)  # so that its id stays its own
        number = self._interfaces[id(source)] = self._same.setdefault(source, self._next)
        if number < self._next:
            return b""
        self._next += 1
        return blocks.interface_description(source.link_type, source.snap_length, source.options)

    def _put(self, data: bytes | memoryview) -> None:
        self._file.write(data)
        self.bytes += len(data)
