"""`OUT/lake.json`: the options that change rows. A run with others would replace rows by fewer, or other ones.

`check_options` refuses such a run before it reads anything, unless it is to replace them (`--replace`). `remember`
notes the options of a run before its first commit.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import numpy as np

from ..captures.identity import capture_head
from ..captures.storage import File
from ..engine.limits import Limits
from ..engine.selection import TimeWindow
from ..splits.run_options import RunOptions
from .output.delta import is_delta, open_table, read_table
from .output.folders import Folder

NAME = "lake.json"
#: Raised when what the file means changes.
_FORMAT = 1
#: Captures of new names that are looked up.
_MOST_CAPTURES, _THREADS = 10_000, 16
#: The value of an option that is on. One with a key log may follow one without: it finds more rows.
_ON, KEY_LOG = "yes", "keylog"


class OtherOptions(ValueError):
    """A run has other options than the lake. The message says what it would replace, and what to do."""


def row_options(run: RunOptions) -> dict[str, str]:
    """The options of a run that change the rows of its captures, as the command line names them. Those of the time
    window are not among them."""
    read, usual = run.read, Limits()
    found = {"": run.selection.beside_window}
    found["port"] = ",".join(map(str, read.ports))
    if read.definitions is not None:
        found["definitions"] = read.definitions.digest
    if read.max_frame is not None:
        found["max-frame"] = str(read.max_frame)
    if read.late is not None:
        found["late"] = f"{read.late}ns"
    if read.limits is not None:
        for name, value in read.limits._asdict().items():
            if value != getattr(usual, name):
                found[f"max-{name}"] = str(value)
    if read.key_log is not None:
        found[KEY_LOG] = _ON
    return {name: value for name, value in found.items() if value}


def check_options(out: str, run: RunOptions, files: Sequence[File], replace: bool = False) -> None:
    """OtherOptions if rows of a lake were made with other options, or if a time window leaves out rows that it has.

    `files`: the captures of the run. `replace`: that is wanted.
    """
    if replace or not is_delta(out, "files"):
        return
    before, now = remembered_options(out), row_options(run)
    if before != now and {**before, KEY_LOG: _ON} != now:
        rows, captures = _rows_of(out, files, None)
        raise OtherOptions(
            f"{out}: its rows were made {_in_words(before)}, and this run is {_in_words(now)}. "
            f"{_what_goes(captures, rows)} Name another --output, or say --replace"
        )
    window = run.selection.window
    if window is not None:
        rows, captures = _rows_of(out, files, window)
        if rows:
            raise OtherOptions(
                f"{out}: it has {rows:,} exchanges of these captures that {'are' if window.is_resolved else 'may be'} "
                "outside of --from and --to, which this run would remove. Leave --from and --to out, or say --replace"
            )


def remember(out: str, run: RunOptions) -> None:
    """Note the options of a run that is about to commit."""
    data = json.dumps({"format": _FORMAT, "options": row_options(run)}, indent=2) + "\n"
    folder = Folder(out, run.is_decrypting)
    if folder.read(NAME) != data.encode():
        folder.write(NAME, data.encode())


def remembered_options(out: str) -> dict[str, str]:
    """The options of the rows of a lake. OSError if they cannot be read."""
    data = Folder(out).read(NAME)
    if data is None:
        return {}
    try:
        found = json.loads(data)
        options: dict[str, str] = found["options"]
        if found["format"] == _FORMAT:
            return options
    except (ValueError, KeyError, TypeError):
        raise OSError(f"{out}/{NAME} is damaged; restore it, or delete it if all runs had the usual options") from None
    raise OSError(f"{out}/{NAME} was written by a later version of kafkatap")


def _in_words(options: dict[str, str]) -> str:
    words = [f"--{name} {value}".removesuffix(f" {_ON}") if name else value for name, value in sorted(options.items())]
    return f"with {' '.join(words)}" if words else "without filters and limits"


def _what_goes(captures: int, rows: int) -> str:
    if not rows:
        return "The tables would have rows of both kinds."
    whose = "1 capture" if captures == 1 else f"{captures:,} captures"
    return f"It would replace {rows:,} exchanges of {whose} that are there."


def _rows_of(out: str, files: Sequence[File], window: TimeWindow | None) -> tuple[int, int]:
    """How many exchanges of captures are in the tables, and how many captures those are. `window`: without those in
    it."""
    import pyarrow.compute as pc

    if not files or not is_delta(out, "exchanges"):
        return 0, 0
    is_ours = pc.field("capture").isin(_captures_there(out, files))
    dataset = open_table(out, "exchanges").to_pyarrow_dataset()
    found = dataset.to_table(columns=["capture", "request_first", "response_first"], filter=is_ours)
    if window is not None and window.is_resolved:
        began = pc.coalesce(found["request_first"], found["response_first"]).cast("int64").to_numpy() * 1_000
        least, most = window.span(0)
        found = found.filter(np.asarray((began < least) | (began >= most)))
    return found.num_rows, len(pc.unique(found["capture"]))


def _captures_there(out: str, files: Sequence[File]) -> list[int]:
    """The identities of captures in the table `files`. Those of new names are looked up, up to a bound."""
    there = read_table(out, "files", ["path", "capture"])
    known: dict[str, int] = dict(zip(there["path"].to_pylist(), there["capture"].to_pylist(), strict=True))
    new = [file for file in files if file.path not in known]
    found = {known[file.path] for file in files if file.path in known}
    return sorted(found | set(_identities(new[:_MOST_CAPTURES])) & set(known.values()))


def _identities(files: Sequence[File]) -> list[int]:
    def identity(file: File) -> int:
        with suppress(OSError):
            return capture_head(file.path).identity
        return 0

    with ThreadPoolExecutor(_THREADS) as pool:
        return list(pool.map(identity, files))
