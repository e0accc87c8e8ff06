"""`kafkatap extract`: copy the packets of selected exchanges to a pcapng."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import numpy as np

from kafkatap.kernels import store
from kafkatap.reports import units
from kafkatap.reports.batch import endpoint
from kafkatap.reports.connection_words import P_FOREIGN, P_TLS, P_UNKNOWN
from kafkatap.reports.counting.connection_counts import connection_totals

from ...captures.pipes import is_pipe
from ...captures.storage import without_credentials
from ...complaints import complain, name_of
from ...engine.read_options import ReadOptions
from ...engine.selection import Selection, selection_of
from ...extract import Summary, extract
from ...output_file import STANDARD_OUTPUT, check_not_read
from ...run import Watch
from ..console import (
    advice_on,
    interrupts,
    no_kafka,
    note_key_log,
    nothing_matches,
    progress,
    readable_captures,
    refuse,
)
from ..exit_codes import DAMAGED, DONE, INTERRUPTED, WRONG
from ..values import chosen_key_log, other_inputs, read_options

#: Captures that the comment of the file names.
MOST_CAPTURES = 20
#: Signals that end the run as Ctrl-C does, with no file left.
SIGNALS = ("SIGTERM", "SIGHUP")


def run(options: argparse.Namespace) -> int:
    """Carry out `kafkatap extract`; return its exit code."""
    store.verbose = options.verbose > 0
    try:
        reading = read_options(options)
        selection = selection_of(options, reading.definitions)
        if any(map(is_pipe, options.captures)):
            raise ValueError("extract reads captures twice, and a pipe can be read only once: save it to a file first")
        options.captures = readable_captures(options.captures, "extract")
        check_not_read("--output", options.output, other_inputs(options))
        reading = reading._replace(key_log=chosen_key_log(options))
        with interrupts(SIGNALS) as stop, progress(options) as drawn:
            made = _write(options, selection, reading, lambda done: drawn(done) or bool(stop))
    except BrokenPipeError:
        raise
    except (ValueError, OSError) as error:
        return refuse(error)
    return _finish(options, selection, made)


def _write(options: argparse.Namespace, selection: Selection, reading: ReadOptions, watch: Watch) -> Summary:
    """Extract as the options say."""
    if options.anonymize or options.anonymize_key:
        return _write_anonymized(options, selection, reading, watch)
    if options.blank_secrets:
        return _write_without_secrets(options, selection, reading, watch)
    return extract(
        options.captures, options.output, selection, connections=options.connections, comments=options.comments,
        names=options.comments, command=_command(options, selection) if options.comments else "",
        secrets=options.secrets, read=reading, watch=watch, overwrite=options.overwrite,
    )  # fmt: skip


def _write_anonymized(options: argparse.Namespace, selection: Selection, reading: ReadOptions, watch: Watch) -> Summary:
    """Extract with pseudonyms, and say what could not be kept."""
    from ...anonymize import read_key
    from ...extract.anonymized import extract_anonymized

    if not options.anonymize:
        raise ValueError("--anonymize-key is for --anonymize")
    if options.secrets:
        raise ValueError(
            "--anonymize and --with-secrets exclude each other: an anonymized copy has no TLS (--keylog decrypts it) "
            "and needs no secrets"
        )
    key = None if options.anonymize_key is None else read_key(options.anonymize_key)
    made, done = extract_anonymized(
        options.captures, options.output, selection, key=key, connections=options.connections,
        comments=options.comments, read=reading, watch=watch, overwrite=options.overwrite,
    )  # fmt: skip
    if done is not None:
        for number, what in (
            (done.left_out, "left out, not TCP"),
            (done.unplaced, "overwritten whole, as their place in the stream was not found"),
            (done.changed_problems, "damaged at another place than in the original"),
        ):
            if number:
                complain(f"anonymized: {_count(number, 'packet' if what.startswith('left') else 'message')} {what}")
        if done.unfitted:
            complain(f"anonymized: {done.unfitted:,} of {done.batches:,} record batches do not decompress any more")
    return made


def _write_without_secrets(
    options: argparse.Namespace, selection: Selection, reading: ReadOptions, watch: Watch
) -> Summary:
    """Extract with filler in place of secrets."""
    from ...extract.anonymized import extract_without_secrets

    if options.secrets:
        raise ValueError("--no-secrets and --with-secrets exclude each other")
    made, done = extract_without_secrets(
        options.captures, options.output, selection, connections=options.connections, comments=options.comments,
        command=_command(options, selection) if options.comments else "", read=reading, watch=watch,
        overwrite=options.overwrite,
    )  # fmt: skip
    if done is not None and done.is_left:
        complain("the text of a secret is also a name or in a record of the copy; --anonymize replaces these")
    return made


def _command(options: argparse.Namespace, selection: Selection) -> str:
    """The call as a shell command, for the comment of the file. Passwords in URIs are left out."""
    captures = [units.shell_word(without_credentials(path)) for path in options.captures]
    if len(captures) > MOST_CAPTURES:
        captures = [*captures[:MOST_CAPTURES], "..."]
    words = ["kafkatap", "extract", *captures, selection.text or "", "--connections" if options.connections else ""]
    return units.safe(" ".join(filter(None, words)))


def _finish(options: argparse.Namespace, selection: Selection, made: Summary) -> int:
    """Print what was extracted, and what is to be said of the captures; return the exit code."""
    for file in made.files:
        if file.damage:
            complain(f"{name_of(file.path)}: {file.damage}{advice_on(file, 'extracted')}")
    if made.files and all(file.fatal for file in made.files):
        return WRONG
    if made.is_interrupted:
        return INTERRUPTED
    assert made.index is not None
    found = any(made.index.context.ledger["requests"].values())
    if not made.packets:
        if found:
            return nothing_matches("exchange", selection.text, has_output=True, options=options)
        complain(no_kafka(made.index.context))
        return DAMAGED
    note_key_log(options, made.files, made.index.run.engine.key_log, made.index.context)
    for line in _about_secrets(options, made):
        complain(line)
    complain(summary_line(options.output, made, is_anonymized=options.anonymize))
    if not selection and (others := other_protocols(made)):
        complain(others)
    if options.verbose:
        for line in _whole_connections(made):
            complain(line)
    return DAMAGED if any(file.damage for file in made.files) else DONE


def _about_secrets(options: argparse.Namespace, made: Summary) -> Iterator[str]:
    """Lines on the secrets that were written, or were not."""
    if options.secrets and made.secrets:
        yield f"with the TLS secrets of {_count(made.secrets, 'connection')}: keep {options.output} as safe as a key"
    elif options.secrets:
        yield "no copied connection was decrypted, so there are no TLS secrets to write"
    elif made.secret_messages and not options.anonymize:
        parts = ", ".join(f"{count:,} {name}" for name, count in sorted(made.secret_messages.items()))
        yield f"{_where(options.output)} holds passwords, proofs or tokens ({parts}); --no-secrets blanks them"
    if any(file.secrets for file in made.files) and not (options.secrets or options.anonymize):
        yield "the TLS secrets in the captures are not copied; --with-secrets copies those of the copied connections"


def _whole_connections(made: Summary) -> Iterator[str]:
    """A line for each connection that was copied whole because a row would differ."""
    assert made.index is not None
    context = made.index.context
    rows = context.connections
    for row in rows[np.isin(rows["connection"], made.whole)]:
        client, broker = (
            endpoint(context.address(int(row[f"{end}_ip"])), int(row[f"{end}_port"])) for end in ("client", "broker")
        )
        yield f"copied whole: {client} > {broker}, {_count(int(row['packets']), 'packet')}"


def summary_line(output: str, made: Summary, is_anonymized: bool = False) -> str:
    """One line on what was extracted."""
    text = f"{_where(output)}: {'anonymized: ' if is_anonymized else ''}{_count(made.packets, 'packet')}, "
    text += f"{units.size(made.bytes)}: "
    text += f"{_count(made.exchanges, 'selected exchange')} of {_count(made.connections, 'connection')}"
    if made.copied > made.exchanges:
        text += f", {made.copied - made.exchanges:,} more around them"
    if made.whole:
        text += f"; {_count(len(made.whole), 'connection')} copied whole, as rows depend on more of them"
    if made.different:
        text += f"; {_count(made.different, 'row')} differ from those of the original"
    return text


def _where(output: str) -> str:
    return "standard output" if output == STANDARD_OUTPUT else output


def other_protocols(made: Summary) -> str:
    """One line on the connections that were left out as they are not Kafka; empty if there are none."""
    assert made.index is not None
    totals = connection_totals(made.index.context)
    kinds = ((P_TLS, "encrypted (TLS)"), (P_FOREIGN, "of another protocol"), (P_UNKNOWN, "of an unknown protocol"))
    counts = [(totals.of_protocol(protocol), what) for protocol, what in kinds]
    parts = [f"{number:,} {what}" for number, what in counts if number]
    return f"left out: {_count(sum(n for n, _ in counts), 'connection')}: {', '.join(parts)}" if parts else ""


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
