"""`extract_anonymized`: an extract whose names, addresses and contents are replaced. `extract_without_secrets`: one
whose secrets are blanked.

Three steps: the packets are extracted as they are, without any text, to a file without a name. (If some are encrypted
and can be decrypted, plain segments replace them, and the same exchanges are extracted once more.) Its packets are
rewritten to a second such file, and that is searched for originals. At last the second file is extracted with comments,
which thus have pseudonyms only. As they have no name, all files are gone when the process ends, even if it is killed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from kafkatap.reassembly import pcapng_blocks as blocks
from kafkatap.reassembly.pcap_writer import packet_blocks

from ..anonymize import CaptureRewriter, random_key
from ..anonymize.audit import find_original, originals_of
from ..captures.pipes import Interrupted
from ..engine.read_options import AS_USUAL, ReadOptions
from ..engine.selection import EVERYTHING, Selection
from ..output_file import UnnamedFile, check_output, folder_of
from ..run import Watch, never
from .exchange_index import SameExchanges
from .extraction import Summary, extract
from .plain_segments import write_plain
from .row_check import compare_rows
from .source_blocks import SourceReader

#: Random keys that are tried: with one of them new bytes may have an original by chance.
_KEYS = 3
#: The comment of the whole file, by which it can be told from one with originals.
MARK = "anonymized by kafkatap: names, addresses and contents are replaced"


@dataclass(frozen=True, slots=True)
class Anonymized:
    """How an extract was anonymized.

    `left_out`: packets that do not lead to TCP. `unplaced`: frames that became filler as their place was not found.
    `unfitted`: record batches that do not decompress any more. `changed_problems`: damaged messages whose damage is at
    another place. `searched`: how many originals were searched for. `is_left`: one of them is still there, where only
    secrets were blanked.
    """

    left_out: int
    unplaced: int
    batches: int
    unfitted: int
    changed_problems: int
    searched: int
    is_left: bool = False


class OriginalLeftError(ValueError):
    """An original is still in the anonymized packets, so nothing is written."""


def extract_anonymized(
    captures: Sequence[str],
    output: str,
    selection: Selection = EVERYTHING,
    *,
    key: bytes | None = None,
    connections: bool = False,
    comments: bool = True,
    read: ReadOptions = AS_USUAL,
    watch: Watch = never,
    overwrite: bool = False,
) -> tuple[Summary, Anonymized | None]:
    """Extract the packets of selected exchanges, anonymized. Arguments and errors as for `extract`.

    `key`: determines the pseudonyms; captures that are anonymized with the same key have the same ones. None: a random
    one. OriginalLeftError if the search afterwards finds an original.
    """
    check_output(output, captures, overwrite)
    folder = folder_of(output)
    with UnnamedFile(folder) as new:
        with UnnamedFile(folder) as plain:
            made = extract(
                captures, plain, selection, connections=connections, comments=False, names=False, read=read,
                watch=watch,
            )  # fmt: skip
            if made.is_interrupted or not made.packets:
                return made, None
            done_before = sum(file.bytes for file in made.files)

            def is_over(_: int) -> bool:
                """Whether the user ends the run. The captures themselves are read."""
                return watch(done_before)

            try:
                made = _decrypt(plain, folder, made, selection, connections, read, is_over)
            except Interrupted:
                return replace(made, is_interrupted=True), None
            # Nothing encrypted is left that could be decrypted, and the names of addresses are not to be known.
            read = read._replace(key_log=None, hosts=None)
            for turn in range(1 if key is not None else _KEYS):
                try:
                    done, numbers = _rewrite(plain.path, new, key or random_key(), read, is_over)
                    break
                except Interrupted:
                    return replace(made, is_interrupted=True), None
                except OriginalLeftError:
                    if key is not None or turn == _KEYS - 1:
                        raise
        commented = np.searchsorted(numbers, made.selected_packets) + 1
        last = extract(
            [new.path], output, comments=comments, names=comments, commented=commented, command=MARK,
            is_checked=False, read=read, watch=is_over, overwrite=overwrite,
        )  # fmt: skip
    return replace(made, packets=last.packets, bytes=last.bytes, is_interrupted=last.is_interrupted), done


def extract_without_secrets(
    captures: Sequence[str],
    output: str,
    selection: Selection = EVERYTHING,
    *,
    connections: bool = False,
    comments: bool = True,
    command: str = "",
    read: ReadOptions = AS_USUAL,
    watch: Watch = never,
    overwrite: bool = False,
) -> tuple[Summary, Anonymized | None]:
    """Extract the packets of selected exchanges, with filler in place of secrets.

    Texts of the captures are not copied. Arguments and errors as for `extract`; OriginalLeftError if a message still
    has a secret.
    """
    check_output(output, captures, overwrite)
    folder = folder_of(output)
    with UnnamedFile(folder) as new:
        with UnnamedFile(folder) as plain:
            made = extract(
                captures, plain, selection, connections=connections, comments=False, names=False, read=read,
                watch=watch,
            )  # fmt: skip
            if made.is_interrupted or not made.packets:
                return made, None
            assert made.index is not None
            done_before = sum(file.bytes for file in made.files)
            read = read._replace(key_log=made.index.run.engine.key_log)
            try:
                done, numbers = _rewrite(
                    plain.path, new, None, read._replace(key_log=None), lambda _: watch(done_before)
                )
                difference = compare_rows(made.index, new.path, read, lambda _: watch(done_before))
                _go_on(watch)
            except Interrupted:
                return replace(made, is_interrupted=True), None
        if difference.secrets:
            raise OriginalLeftError(
                "messages with secrets are still in the copy, so nothing is written. This is a defect of kafkatap: "
                "please report it"
            )
        commented = np.searchsorted(numbers, made.selected_packets) + 1
        last = extract(
            [new.path], output, comments=comments, names=comments, commented=commented, command=command,
            is_checked=False, read=read, watch=lambda _: watch(done_before), overwrite=overwrite,
        )  # fmt: skip
    return replace(
        made, packets=last.packets, bytes=last.bytes, different=difference.exchanges, secret_messages={},
        is_interrupted=last.is_interrupted,
    ), done  # fmt: skip


def _decrypt(
    plain: UnnamedFile, folder: str | None, made: Summary, selection: Selection, connections: bool, read: ReadOptions,
    watch: Watch,
) -> Summary:  # fmt: skip
    """Extract the same exchanges from plain segments, if some of their connections can be decrypted.

    Interrupted if `watch` ends it.
    """
    index = made.index
    assert index is not None
    if not index.connections["is_decrypted"].any():
        return made
    with UnnamedFile(folder) as clear:
        write_plain(plain.path, clear, folder, read._replace(key_log=index.run.engine.key_log), watch)
        _go_on(watch)
        again = extract(
            [clear.path], plain, SameExchanges(index.rows) if selection else EVERYTHING, connections=connections,
            comments=False, names=False, read=read._replace(key_log=None), watch=watch,
        )  # fmt: skip
    lost = made.exchanges - again.exchanges if selection else 0
    return replace(
        again, exchanges=made.exchanges, connections=made.connections, different=again.different + lost,
        files=made.files, index=index,
    )  # fmt: skip


def _rewrite(
    plain: str, new: UnnamedFile, key: bytes | None, read: ReadOptions, watch: Watch
) -> tuple[Anonymized, np.ndarray[Any, Any]]:
    """Write the packets of one file to another, anonymized; return the numbers of those that were not left out. `key`
    None: without secrets.

    Interrupted if `watch` ends it.
    """
    numbers = [np.zeros(0, np.int64)]
    with CaptureRewriter(plain, key, read, watch) as rewriter:
        _go_on(watch)
        new.restart()
        file = new.file
        file.write(blocks.section_header("kafkatap"))
        reader = SourceReader(plain, with_texts=False)
        interfaces = 0
        try:
            while reader.fill():
                _go_on(watch)
                for interface in reader.interfaces[interfaces:]:
                    description = interface.link_type, interface.snap_length, interface.options
                    file.write(blocks.interface_description(*description))
                interfaces = len(reader.interfaces)
                rows = np.arange(reader.position, reader.count)
                packets = reader.packets[reader.position : reader.count]
                made, are_kept = rewriter.rewrite_all(reader.buffer, packets)
                numbers.append(packets["number"][are_kept])
                file.write(packet_blocks(made, *reader.blocks_of(rows[are_kept]))[0].data)
                reader.position = reader.count
        finally:
            reader.close()
        new.publish()
        _go_on(watch)
        originals = originals_of(rewriter.names)
        left = originals.found_in(rewriter.learner.streams.tables.data.data)
        left = left or find_original(new.path, originals, read, watch)
        if left is not None and key is not None:
            raise OriginalLeftError(
                f"a string of the original with {len(left)} bytes is still in the anonymized packets, so nothing is "
                "written. This is a defect of kafkatap: please report it"
            )
        records = rewriter.learner.messages.records
        done = Anonymized(
            rewriter.left_out, rewriter.learner.counts.unplaced, records.batches, records.unfitted,
            rewriter.learner.messages.changed_problems, len(originals),
            left is not None,
        )  # fmt: skip
        _go_on(watch)
    return done, np.concatenate(numbers)


def _go_on(watch: Watch) -> None:
    """Interrupted if the user ends the run."""
    if watch(0):
        raise Interrupted
