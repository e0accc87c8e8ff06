"""Packets of a span of time from the hosts where `kafkatap live --keep` keeps them.

    places      what a HOST means, and the command that reaches it: ssh or kubectl
    far_side    the conversation with a host: its clock, the names of its files, their bytes
    span        the packets of the span, by this host's clock, as a capture
    collection  many hosts at once

Nothing listens anywhere for this: ssh and kubectl are the system's. kafkatap reads what comes from a host as it reads
any capture.
"""
