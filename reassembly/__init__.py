"""From captured bytes to TCP streams in sequence space. Knows link layers, IP and TCP, and not one word of Kafka.

rows        the arrays that go in and out: packets, segments, connections, chunks
pcap        kernels that split classic pcap blocks into packets
pcapng      the same for pcapng, with its interfaces and statistics
boundaries  kernels that find where records begin in the middle of a capture
scanner     one capture's bytes in, PACKET rows out, whatever its format
headers     kernel: packets to TCP segments, each with its flow
listeners   which ends answer SYNs
streams     kernel: segments to in-order chunks and gaps, by connection and direction
assembler   the tables that those kernels work on, grown when they ask for it

Nothing here opens a file: bytes come in as numpy arrays, chunks go out with their positions in those arrays.
"""
