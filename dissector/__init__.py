"""From TCP streams to Kafka exchanges. It knows Kafka's protocol, reads no captures, and does no I/O.

dissector         the loop: chunks of streams in, finished exchanges out
framing/          chunks to frames, and requests paired with their responses
decoding          the tables of a drain, and the programs for bodies
drain             the kernel of a drain: bodies decoded and read, exchanges finished
exchanges         the fields of bodies that exchanges need
results           the results of a response, and the topics of a request
batch_headers     the headers of record batches and messages, one behind the other
problems          the fields at which messages are malformed
times             the durations of an exchange: broker time, head-of-line wait, throttle wait
expiry            requests without an answer, for input without an end
held_frames       a limit on the bytes of frames that are not complete
connection_state  the state of a connection, for runs that continue others
strings           interned strings
dtypes            the rows of exchanges and results, and their constants

inspection        the interface of inspectors, which see each message while its bytes are there
probes            the inspector that compares decoded fields
records/          record batches, and the inspector that reads them
tree/             one message as a tree of nodes

programs/         layouts compiled for the machine that decodes bodies
kafka/            facts: error codes, enums, releases
layouts/          message layouts: the model, its notation, Kafka's own definitions
messages/         the layouts as data: one file for each API, and nested/ for byte fields

Imports go down this list: framing, records and tree import programs, programs import layouts. docs/ARCHITECTURE.md has
the way of the data.
"""
