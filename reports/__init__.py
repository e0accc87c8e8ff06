"""Reports: count exchanges, make tables and reports from the counts, and render them.

This package sees rows and counts only. It knows no packets, sockets or capture files. Counts are small and mergeable,
so that a laptop, a live monitor and a Spark job print the same numbers.

Rooms, in the order of the data:

expressions/    filter expressions: parse and check them, and apply them to batches
counting/       add exchanges to counts; merge counts; roll them up to the rows of a report
groups/         consumer groups: members, rebalances, lag; the section `groups` and advice are made of them
sections/       one module for each section of a report: latency, throttle, clients, timeline and so on
rendering/      a report as text, JSON, CSV or plots; records as lines

Modules between the rooms:

batch           the input: `Batch` (rows) and `Context` (names, connections, files, ledger)
connection_columns the columns of connections, each declared once; their rows and table come from it
connection_words    the words of numbers in these rows
literals        read numbers, durations, sizes and times
addresses       read addresses and ports
build           `build_report`: the report of a run, from counts and context
model           `Report`, `Table`, `Column`: a report before rendering
units           format numbers and times, escape texts
exchange_texts  words on an exchange for the comments of its packets
tables          the Arrow tables of the library: exchanges, results, connections, files, ledger
table_columns   the columns of tables that are not made of rows of one dtype
row_columns     columns of rows as Arrow arrays
name_table      numbers for the strings and addresses of several processes
record_rows     records as Python values, and as columns of numbers
record_table    the Arrow table of records

A new section is a module in sections/ and a line in build.py. A new output format is a module in rendering/.
"""
