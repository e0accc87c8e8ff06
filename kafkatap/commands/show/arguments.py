"""The options of `kafkatap show`."""

from __future__ import annotations

import argparse

from ..shared_options import (
    EXIT_CODES,
    add_appearance,
    add_captures,
    add_follow,
    add_limits,
    add_number,
    add_pager,
    add_reading,
    add_selection,
    add_verbose,
    add_width,
)
from ..values import parse_count

DESCRIPTION = "List the requests and responses of one or more captures in time order."
EXAMPLES = (
    """\
examples:
  kafkatap show capture.pcap | less -S
  kafkatap show -f 'api == Produce and error != NONE' capture.pcap
  kafkatap show --tree -n 2 --api Metadata capture.pcap
  kafkatap show -f 'latency > 200ms and topic ~ "^orders"' --from +30s ring/*.pcap.zst
  kafkatap show --definitions ~/automq --api AutomqRegisterNode capture.pcap
  kafkatap show --json --client billing capture.pcap | jq .body
  tcpdump -w - port 9092 | kafkatap show -
  kafkatap show --follow --tail 20 -f 'error' ring/

"""
    + EXIT_CODES
)
#: What -h shows.
OFTEN = ("--filter", "--from", "--to", "--client", "--api", "-n", "--tree", "--hex", "--json", "--follow")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options to the command's parser."""
    add_captures(parser)
    add_follow(parser, "messages are printed as they come")
    what = parser.add_argument_group("selection")
    add_selection(what)
    what.add_argument("--only", choices=("requests", "responses"), help="only requests, or only responses")
    add_number(what, "messages, the first ones", default=None)
    what.add_argument("--tail", type=parse_count, metavar="N", help="only the last N messages")
    add_reading(what)
    what.add_argument("--stream", action="store_true",
                      help="read once and show each message as it arrives (as for pipes); a topic id has a name only "
                      "after a message with that name")  # fmt: skip
    how = parser.add_argument_group("output")
    how.add_argument("--tree", action="store_true",
                     help="show whole messages: all fields, with their offsets in the frame")  # fmt: skip
    how.add_argument("-x", "--hex", action="store_true", help="also show the bytes of each message")
    how.add_argument("--json", action="store_true", help="write one JSON object a line, with the body")
    how.add_argument("--brief", action="store_true", help="with --json: leave out the body")
    how.add_argument("--records", action="store_true",
                     help="also show the records in messages: keys, values and headers, which may be "
                     "confidential")  # fmt: skip
    how.add_argument("--show-secrets", action="store_true",
                     help="also show passwords, tokens and keys (SASL, SCRAM, delegation tokens, confidential "
                     "settings)")  # fmt: skip
    add_appearance(how)
    add_pager(how)
    add_width(how)
    add_verbose(how)
    add_limits(parser)
