"""Rewrites a capture so that it identifies nobody: names and addresses become pseudonyms, contents filler.

keyed              permutations of numbers under a key
addresses          pseudonyms of IPv4, IPv6 and MAC addresses, also as texts
names              pseudonyms of names and uuids
fields             which strings of messages stay
sasl_tokens        the tokens of SASL
exact_compression  compression into a given number of bytes
plausible          headers of record batches without a right CRC
record_batches     record batches and message sets
record_structure   the bytes of records that are no contents
messages           frames
blanking           frames without their secrets, and all else as it is
message_rows       many frames at once
stream_map         the new bytes of TCP streams
captured_streams   the bytes of streams until their frames are known
learning           the first pass: from a capture to the map of its streams
packets            the second pass: packets with new headers and payload
headers            what is kept of each header up to TCP
segments           many packets at once, and what is kept of TCP
rewriter           both passes for one capture
audit              searches the result for what was replaced

What is copied is only what is known to be harmless; all other bytes are filler (docs/anonymize.md). The package reads
captures, but writes no files: `kafkatap.extract` does.
"""

from __future__ import annotations

from .keyed import random_key, read_key
from .rewriter import CaptureRewriter

__all__ = ["CaptureRewriter", "random_key", "read_key"]
