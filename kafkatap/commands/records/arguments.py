"""The options of `kafkatap records`."""

from __future__ import annotations

import argparse

from ..shared_options import EXIT_CODES, add_appearance, add_captures, add_max_frame, add_reading, add_selection
from ..values import parse_count

DESCRIPTION = "List the records in Produce requests and Fetch responses. They can be confidential."
EXAMPLES = (
    """\
examples:
  kafkatap records capture.pcap
  kafkatap records --topic 'orders*' -n 20 --max-bytes 80 capture.pcap
  kafkatap records --json capture.pcap | jq 'select(.value.form == "json").value.data'
  kafkatap records --api Produce --values hex ring/*.pcap.gz
  kafkatap records --parquet records.parquet capture.pcap

"""
    + EXIT_CODES
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options to the command's parser."""
    add_captures(parser)
    what = parser.add_argument_group("selection")
    add_selection(what)
    what.add_argument("-n", "--number", type=parse_count, metavar="N", help="only the first N records")
    add_reading(what)
    add_max_frame(what)
    how = parser.add_argument_group("output")
    how.add_argument("--values", choices=("auto", "utf8", "json", "hex", "base64", "none"), default="auto",
                     help="form of keys and values: JSON, text or bytes, depending on the value (auto), or always this "
                     "form; none leaves them out")  # fmt: skip
    how.add_argument(
        "--max-bytes",
        type=parse_count,
        metavar="N",
        help="print at most N bytes of each key and value (default: 256 as text, all with --json)",
    )
    add_appearance(how)
    how.add_argument("-v", "--verbose", action="count", default=0, help="print more details on standard error")
    instead = parser.add_argument_group("other output").add_mutually_exclusive_group()
    instead.add_argument("--json", action="store_true", help="print one JSON object on a line for each record")
    instead.add_argument(
        "--parquet",
        metavar="FILE_OR_DIR",
        help="write a Parquet file with all columns and whole values, and print nothing",
    )
