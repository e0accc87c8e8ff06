"""Errors and warnings for the user, one line each on standard error."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from .captures.pipes import STANDARD_INPUT
from .captures.storage import without_credentials

_form = "text"
#: Lines that wait while a pager has the terminal; None: they are printed at once.
_waiting: list[str] | None = None


def complain(text: str, kind: str = "notice", **fields: Any) -> None:
    """Print one line on standard error. Control characters (of file names and captures) are escaped, and passwords in
    URIs are left out. `kind`, `fields`: what the line has besides where it is JSON (`log_format`)."""
    text = without_credentials(text)
    if _form == "json":
        line = json_line(time.time_ns(), kind, text=text, **fields)
    else:
        line = "kafkatap: " + "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text)
    if _waiting is not None:
        _waiting.append(line)
    else:
        _print(line)


def _print(line: str) -> None:
    if sys.stderr is None:
        return
    with suppress(OSError):  # standard error is closed
        sys.stderr.write(line + "\n")  # at once: other threads write lines, too


def hold_complaints() -> None:
    """From now on, complaints wait for `release_complaints`: another program has the terminal."""
    global _waiting
    _waiting = []


def release_complaints() -> None:
    """Print the complaints that wait."""
    global _waiting
    waiting, _waiting = _waiting, None
    for line in waiting or ():
        _print(line)


def json_line(now: int, kind: str, **fields: Any) -> str:
    """A line of a log as a JSON object. `now`: ns since the epoch."""
    import json  # few commands need it here

    from kafkatap.reports.units import iso

    return json.dumps({"time": iso(now), "kind": kind, **fields})


@contextmanager
def log_format(form: str) -> Iterator[None]:
    """Until the end of the block, lines on standard error are `text` or `json`."""
    global _form
    before, _form = _form, form
    try:
        yield
    finally:
        _form = before


def name_of(path: str) -> str:
    """How a message names a capture."""
    return "standard input" if path == STANDARD_INPUT else path


def reason_of(error: Exception) -> str:
    """The text of an error, for `complain`."""
    if not isinstance(error, OSError) or error.strerror is None:
        return str(error)
    what = error.strerror[:1].lower() + error.strerror[1:]
    return f"{name_of(str(error.filename))}: {what}" if error.filename is not None else what
