"""From TCP streams to Kafka exchanges. Knows Kafka's protocol, not where packets come from, and reads no captures.

schema, notation, catalog   message layouts: their model, the notation of messages/*.kmsg, the files read
definitions, overlay        Kafka's own JSON definitions, read into the same model; laid over the built-in layouts
errors, releases            facts: error codes, which release knows which versions
history                     what came and went with a version
fields, roles, profiles     fields by number, what they mean, which of them a run wants
compiler, program, disassembly  layouts to programs, kept compiled, and printed
machine, tape               the kernel that runs programs over bodies; views of what it writes
node, view                  one message as a tree
plans, treewalk, batch_heads, record_nodes  how it is made: of layouts, of the tape's rows, of batches and their records
nested, sasl, telemetry     what lies in byte fields: layouts of data/*.kmsg; what may be said of tokens and metrics
enums, secrets              what numbers are called; which fields are not shown
reference                   the slow and obvious decoder that the machine is tested against
dialogs, buffers            the tables of framing: what connections and streams keep between blocks
framing, search, starts     chunks to frames; the search for a boundary that was lost; what a connection carries
evidence                    what the first bytes of a frame say for it
correlation                 requests and responses of a connection, paired
exchanges, times, rows      what reports need of the bodies, the times told apart; the rows that come out
batches, record_reader, codecs, checksums  record batches and message sets: kernels, decompression, CRCs
records                     the inspector that reads records
inspection, facts           what sees each message while its bytes are there; what a line of show says of it
probes                      comparisons on decoded fields, as an inspector
dissector                   the loop that runs all of it over a block
"""
