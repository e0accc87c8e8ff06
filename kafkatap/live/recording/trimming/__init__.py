"""Tokens of SASL in packets that are about to be written, and packets cut to their headers.

Only what is known to be no token stays. Of a client, requests are walked from one to the next by their sizes; tokens in
them become filler. Of a broker, bytes stay while the client's requests are followed, and its answers to tokens become
filler, too. Of connections that use TLS, everything stays. Where it is not known where requests begin (another
protocol, or packets are missing), packets are cut behind their TCP headers, until it is known again: a request fills a
segment, or two follow each other. Fragments, and packets that are not TCP, are cut behind the headers that lead to TCP.

This reads each packet once, before the engine does, and holds nothing back. So a token is never on disk for a while.

    flows     the tables of connections, and how bytes become filler
    requests  what clients send: where requests begin, and tokens in them
    answers   what brokers send
    packets   packets to the connections of their segments, and the kernel
"""
