"""From chunks of TCP streams to frames, and from frames to requests with their responses.

chunks          the kernel over a block's chunks, and what each does to its stream
frames          frames of a stream in sync
resync          the search for the next boundary where sync was lost
detection       what a connection carries, by its first bytes
evidence        how far the first bytes of a frame can be believed
correlation     requests and responses, matched
waiting         the requests of a connection that wait for their response
headers, cursor the fields of headers; bounded reads
program_index   which program decodes a body
connections     the tables of connections and streams, and their states
tables          all other tables
buffers         the pool of stream buffers

Each module imports only modules below it, as far as they depend on each other.
"""
