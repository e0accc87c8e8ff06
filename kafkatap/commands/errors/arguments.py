"""The options of `kafkatap errors`."""

from __future__ import annotations

import argparse

from ..shared_options import add_color, add_pager

DESCRIPTION = (
    "List Kafka's error codes: what they mean, whether a client may retry, and their names in earlier releases. With "
    "captures, only the codes in them, with the APIs that had them."
)
EXAMPLES = """\
examples:
  kafkatap errors                            all error codes
  kafkatap errors 6                          one, by number
  kafkatap errors NotLeaderForPartition      or by a name of any release, document or exception
  kafkatap errors capture.pcap               those of a capture, with the APIs that had them
  kafkatap errors --json | jq '.errors[] | select(.retriable) | .name'

"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options to the command's parser."""
    parser.add_argument("words", nargs="*", metavar="CODE|CAPTURE", help="an error code, by number or name; or a "
                        "capture")  # fmt: skip
    how = parser.add_argument_group("output")
    add_color(how)
    add_pager(how)
    how.add_argument("--json", action="store_true", help="write everything as one JSON object")
