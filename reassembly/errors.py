"""The errors of captures.

CaptureError            the base: a message and a byte offset
├── NotACapture         the first bytes are of no known capture format
├── EmptyCapture        there are no bytes at all
└── DamagedCapture      a record is damaged; the records before it were read
    └── TruncatedCapture    the capture ends inside of a record
"""

from __future__ import annotations


class CaptureError(Exception):
    """Something is wrong with a capture, at byte `offset` of its (decompressed) bytes."""

    def __init__(self, message: str, offset: int = 0) -> None:
        super().__init__(message)
        self.message = message
        self.offset = offset


class NotACapture(CaptureError):
    """The first bytes are of no known capture format."""


class EmptyCapture(CaptureError):
    """There are no bytes at all."""


class DamagedCapture(CaptureError):
    """A record is damaged. The records before it were read."""


class TruncatedCapture(DamagedCapture):
    """The capture ends inside of a record."""
