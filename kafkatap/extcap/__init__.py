"""Wireshark's extcap interface: packets of Kafka connections, with comments, while they are captured.

interface_lines  the sentences that Wireshark reads: interfaces, link types, options
connection_watch which connection each packet belongs to, and what it carries
held_packets     packets that wait until it is known whether Wireshark gets them
packet_pipe      the pipe to Wireshark
kafka_capture    the loop: packets from interfaces, through the engine, to the pipe with their comments

It captures with `kafkatap.live.capture`. It makes no reports.
"""
