"""Extraction: the original packets of selected exchanges, as a pcapng with findings as packet comments.

    extraction      the whole run: index, plan, copy, check; widens the plan until the rows are equal
    exchange_index  first pass: exchanges, connections, and which packet carries which bytes of a stream
    neighbourhood   which exchanges belong to the selected ones, and the byte ranges and times to copy
    wanted_packets  second pass: the packets within these ranges, in time order
    fragment_places which packets are IP fragments of the same datagram
    source_blocks   interfaces and packet options of the captures that are read
    topic_naming    which exchange names a topic id
    findings        what the packet comments say
    sequences       the packets of a few connections, for the page of a report
    host_names      names of addresses
    row_check       are the rows of the extracted capture those of the original?
    plain_segments  the packets of decrypted connections without their TLS
    anonymized      the whole run with --anonymize, and with --no-secrets

`extraction` copies packets and changes none; `anonymize` rewrites an extracted capture.
"""

from .extraction import Summary, extract

__all__ = ["Summary", "extract"]
