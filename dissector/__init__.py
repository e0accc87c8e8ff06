"""From TCP streams to Kafka exchanges. It knows Kafka's protocol, not where packets come from, and reads no captures.

    chunks ─▶ framing ─▶ frames, matched ─▶ decoding (programs) ─▶ exchanges, results, times ─▶ Finished

Folders:

kafka       facts: error codes, names of numbers, releases and their versions
layouts     layouts of messages: their model, the notation of messages/*.kmsg, Kafka's own definitions, secrets
messages    the layouts, one file for each API
programs    layouts compiled to programs, and the machine that runs them over bodies
framing     chunks of TCP streams to frames, frames to requests with their responses
records     record batches and message sets
tree        one message as a tree

Modules:

dissector         owns the tables, and runs all of it over a block
decoding          the bodies of a drain: decoded, then read into exchanges and results
exchanges         from tape to exchanges: what reports need of the bodies
results           results of a response, topics of a request
problems          where malformed messages are malformed
times             the times of each exchange by their causes
expiry            requests that nothing will answer any more
connection_state  a connection's state, for drivers that read it in several runs
strings           interned strings
dtypes            the rows that come out
inspection        what sees each message while its bytes are there
probes            comparisons on decoded fields, as an inspector
"""
