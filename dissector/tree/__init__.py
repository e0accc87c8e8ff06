"""One message as a tree of nodes, for people. It includes the layouts that lie in byte fields.

node          a node of the tree
plans         what a walk has to know of a message's layout, prepared once for each version
treewalk      the walk over a message's tape that makes the nodes
view          a whole frame: size, header, body, and the bytes behind them
node_rows     trees of many messages as rows of a table, and the kernel that makes them
message_rows  what that kernel has to know, and the meanings of values
nested        layouts in byte fields, such as group metadata and control records
batch_heads   the heads of record batches
record_nodes  the records below them
sasl          SASL tokens
telemetry     the names of metrics that clients push
summary       the facts of a message that fit on one line
packed_facts  the kernel that packs them

This room knows layouts, programs and records. It does not know connections or exchanges.
"""
