"""Wireshark's extcap interface: packets of Kafka connections, with comments, while they are captured.

protocol         what Wireshark reads: sentences on interfaces, link types and options, and the pipe of packets
held_packets     packets that wait until it is known whether Wireshark gets them: by what their connections carry
kafka_capture    the loop: packets from interfaces, through the engine, to the pipe with their comments

It captures with `kafkatap.live.capture`. It makes no reports.
"""
