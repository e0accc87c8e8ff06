"""The options of `kafkatap extract`."""

from __future__ import annotations

import argparse

from ..shared_options import (
    EXIT_CODES,
    add_captures,
    add_limits,
    add_output,
    add_overwrite,
    add_reading,
    add_selection,
    add_verbose,
)

DESCRIPTION = (
    "Copy the packets of the selected exchanges to a pcapng, with what they need around them, and with packet comments "
    "that Wireshark shows."
)
EXAMPLES = (
    """\
examples:
  kafkatap extract capture.pcap -f 'latency > 500ms' -o slow.pcapng
  kafkatap extract ring/*.pcap.zst --client billing --from 15:10 --to 15:12 -o billing.pcapng
  kafkatap extract capture.pcap -f 'error' --connections -o failed.pcapng
  kafkatap extract capture.pcap -f 'error' --no-secrets -o for-a-colleague.pcapng
  kafkatap extract capture.pcap -f 'error' --anonymize -o for-the-vendor.pcapng
  kafkatap extract tls.pcap --keylog keys.log -f 'error' --with-secrets -o failed.pcapng
  kafkatap extract tls.pcap --keylog keys.log -f 'error' --anonymize -o for-the-vendor.pcapng
  kafkatap extract capture.pcap -f 'exchange == 6204715131861012345' -o - | tshark -r - -T fields -e frame.comment

"""
    + EXIT_CODES
)
#: What -h shows.
OFTEN = (
    "--output",
    "--filter",
    "--from",
    "--to",
    "--client",
    "--connections",
    "--anonymize",
    "--no-secrets",
    "--with-secrets",
    "--keylog",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options to the command's parser."""
    add_captures(parser)
    what = parser.add_argument_group("selection")
    add_selection(what)
    what.add_argument("--connections", action="store_true",
                      help="copy all packets of the connections with selected exchanges")  # fmt: skip
    add_reading(what)
    how = parser.add_argument_group("output")
    add_output(how, "FILE", "the pcapng to write; - for standard output")
    add_overwrite(how)
    how.add_argument("--no-comments", dest="comments", action="store_false",
                     help="write no packet comments and no names of addresses, and copy no comments, interface names "
                     "and capture filters")  # fmt: skip
    how.add_argument("--no-secrets", dest="blank_secrets", action="store_true",
                     help="write filler in place of passwords, tokens, proofs, salts and sensitive values of "
                     "configurations, and copy no texts of CAPTURE; names and records stay")  # fmt: skip
    how.add_argument("--anonymize", action="store_true",
                     help="replace names, addresses, tokens and the contents of records; keep sizes and "
                     "times; decrypted connections are without TLS")  # fmt: skip
    how.add_argument("--anonymize-key", metavar="KEYFILE",
                     help="take the pseudonyms from this key, so that extracts with the same key have the same names "
                     "(default: a random key)")  # fmt: skip
    how.add_argument("--with-secrets", dest="secrets", action="store_true",
                     help="also write the TLS secrets of the copied connections to FILE, so that Wireshark and "
                     "kafkatap decrypt them: whoever has FILE can read them. Without this option FILE has no secrets, "
                     "also if CAPTURE has some")  # fmt: skip
    how.add_argument("--utc", action="store_true", help="read times in UTC instead of local time")
    how.add_argument("--no-progress", dest="progress", action="store_false",
                     help="show no progress bar on standard error")  # fmt: skip
    add_verbose(how)
    add_limits(parser)
