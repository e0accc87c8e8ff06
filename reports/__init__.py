"""Reports: what the tables of exchanges and results add up to, and how that is shown.

It sees rows and counts only: no packet, no socket, no capture file. What is counted is small and mergeable, so that a
laptop, a live monitor and a thousand executors print the same numbers.

batch        what goes in: `Batch` (rows), `Context` (what their numbers mean), `CONNECTION_ROW`, `FileInfo`
filters      the part of the traffic that is asked for: time window, clients, brokers, APIs, topics
histogram    log-linear buckets with less than 1 % error, and percentiles from them
count_table  a growing table of key columns -> columns that are added up; merging is adding
connection_counts    what reports need of TCP connections
tally        the kernels that add exchanges, errors and topics to those tables
counts       `ReportCounts`: all that reports are made of
count_rows   the same counts as rows that SQL adds up, and back
rollup       groups of counts rolled up to the rows of a report
model        `Column`, `Table`, `Report`: what every renderer takes
latency, throttle, errors, clients, timeline, not_decoded, heading, ledger    one report each
build        `build_report`: all of them
units        numbers, times and hostile text made readable
text, json_report, csv_report, plots    renderers
expressions  filter expressions: parsed, checked, judged on batches
tables       the Arrow tables of the library: their contract, and how they are made from rows
record_table, record_lines    the table of records; records as lines of text or JSON
"""
