"""Errors and warnings for the user, one line each on standard error."""

from __future__ import annotations

import sys
from contextlib import suppress

from .captures.pipes import STANDARD_INPUT
from .captures.storage import without_credentials


def complain(text: str) -> None:
    """Print one line on standard error. Control characters (of file names and captures) are escaped, and passwords in
    URIs are left out."""
    shown = "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in without_credentials(text))
    with suppress(OSError):  # standard error is closed
        print(f"kafkatap: {shown}", file=sys.stderr)


def name_of(path: str) -> str:
    """How a message names a capture."""
    return "standard input" if path == STANDARD_INPUT else path


def reason_of(error: Exception) -> str:
    """The text of an error, for `complain`."""
    if not isinstance(error, OSError) or error.strerror is None:
        return str(error)
    what = error.strerror[:1].lower() + error.strerror[1:]
    return f"{name_of(str(error.filename))}: {what}" if error.filename is not None else what
