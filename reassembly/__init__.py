"""From captured bytes to TCP streams in sequence space. Knows link layers, IP and TCP, and not one word of Kafka.

dtypes            the arrays that go in and out: packets, segments, connections, chunks
errors            what can be wrong with a capture

pcap              splits classic pcap blocks into packets
pcapng            splits pcapng blocks into packets, with their interfaces and statistics
scanner           one capture's bytes in, in any format; PACKET rows or chunks out
boundaries        finds where records begin in the middle of a capture
afpacket          reads the packets of a Linux packet ring in place
pcap_writer       packets to the bytes of capture files
pcapng_blocks     blocks of a pcapng that is written: interfaces, names, secrets, packets with comments

link_types        numbers and names of link layers
headers           the headers of usual packets, and the flow of a segment
layers            the link layers and tunnels that may lie around TCP
inner_packets     packets whose TCP lies in tunnels or fragments
trail             where each header of a packet begins, up to TCP
fragments         the table of incomplete IP datagrams
packet_counts     what is counted of packets
segments          packets to TCP segments
flows             the table of 4-tuples
listeners         the ends that answer SYNs
streams           segments to in-order chunks and gaps, by connection and direction
connection_rules  which connection a segment belongs to, when it begins and when it is over
recent_packets    the latest packets, to find those that were captured twice
syn_options       the TCP options of a SYN
measures          windows, bytes in flight, round trips and stalls, for runs that measure
capture_points    how far each of several capture points saw a connection
held_segments     segments that wait behind a gap
stream_tables     the tables of these kernels, as one argument
packet_tables     the same with those of packets
one_pass          packets to chunks, each packet in one pass
connection_state  the state of connections as bytes; how a connection is resumed
assembler         owns the tables, runs the kernels, and grows what is full

A direction's row is 2 * connection + direction. Nothing here opens a file: bytes come in as numpy arrays, and chunks go
out with their positions in those arrays.
"""
