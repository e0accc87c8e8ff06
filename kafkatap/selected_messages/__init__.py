"""Passes over captures for single messages and records: the selected ones, in time order, with their bytes.

message_index      the first pass: which messages are selected, in which order, and names of ids
messages           the selected messages: the second pass after an index, or the only pass over a pipe
message            `Messages`, requests and responses as columns, and `Message`, one of them
message_collector  an inspector that makes `Messages` of the selected messages
envelopes          the requests that brokers forward to their controller
selected_records   tables of the selected records, and the messages that hold them
record_filter      the records that a filter on keys, values and headers selects
topic_names        names of topics by id, as far as a run has seen them
node_names         addresses of brokers by node id

It knows runs, selections and the dissector's inspectors, but not how messages are printed, nor commands.
"""
