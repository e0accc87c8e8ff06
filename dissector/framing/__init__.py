"""From chunks of TCP streams to frames, and from frames to requests with their responses.

chunks           the kernel over a block's chunks, and what each does to its stream
frames           the frames of a stream in sync
detection        what a connection carries, by its first bytes
openings         other protocols, by the first bytes of a stream
proxy_protocol   the header that a proxy sends before the client's first byte
lone_request     a connection that ends after one request
resync           the search for the next boundary where sync was lost
evidence         how far the first bytes of a frame can be believed
correlation      requests and responses, matched
waiting          the requests of a connection that wait for their response
samples          samples of exchanges, by which a connection is recognised under other addresses
known_brokers    the ends that connections have shown to be brokers'
program_index    which program decodes a body
advertised       the APIs beyond Kafka's own that a broker lists
headers, cursor  the fields of headers; bounded reads
buffers          the pool of stream buffers
tables           the other tables
connections      the tables of connections and streams, and their states

Imports go down this list.
"""
