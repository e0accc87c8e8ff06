"""The options of `kafkatap records`."""

from __future__ import annotations

import argparse

from ..shared_options import (
    EXIT_CODES,
    add_appearance,
    add_captures,
    add_follow,
    add_limits,
    add_number,
    add_output,
    add_overwrite,
    add_pager,
    add_reading,
    add_selection,
    add_verbose,
)
from ..values import parse_count

DESCRIPTION = "List the records in Produce requests and Fetch responses. They can be confidential."
EXAMPLES = (
    """\
examples:
  kafkatap records capture.pcap
  kafkatap records --topic 'orders*' -n 20 --max-bytes 80 capture.pcap
  kafkatap records --json capture.pcap | jq 'select(.value.form == "json").value.data'
  kafkatap records -f 'record.key == "order-17"' capture.pcap
  kafkatap records --api Produce --values hex ring/*.pcap.gz
  kafkatap records -o records.parquet capture.pcap
  kafkatap records --follow --topic orders ring/

"""
    + EXIT_CODES
)
#: What -h shows.
OFTEN = ("--topic", "--filter", "--from", "--to", "-n", "--values", "--json", "--output", "--follow")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options to the command's parser."""
    add_captures(parser)
    add_follow(parser, "records are printed as they come")
    what = parser.add_argument_group("selection")
    add_selection(what)
    add_number(what, "records, the first ones", default=None)
    add_reading(what)
    how = parser.add_argument_group("output")
    how.add_argument("--values", choices=("auto", "utf8", "json", "hex", "base64", "none"), default=None,
                     help="write keys and values as JSON, text or bytes, whichever fits (auto); always as one of "
                     "these; or not at all (none) (default: auto; none if the filter names record.*, but to a "
                     "FILE.parquet)")  # fmt: skip
    how.add_argument("--max-bytes", type=parse_count, metavar="N",
                     help="write at most N bytes of each key and value (default: 256 in text, all with "
                     "--json)")  # fmt: skip
    add_appearance(how)
    add_pager(how)
    add_verbose(how)
    how.add_argument("--json", action="store_true", help="write one JSON object a line")
    add_output(how, "FILE", "write to FILE in place of standard output; as a table with all columns and whole values "
               "to a FILE.parquet or FILE.csv, as JSON to a FILE.json or FILE.jsonl", is_needed=False)  # fmt: skip
    add_overwrite(how)
    add_limits(parser)
