"""The broker's own request log beside a capture: its lines, joined with exchanges.

Kafka's logger `kafka.request.logger` writes a line for each request at DEBUG, with the times that it spent in each part
of the broker. `--request-log` and `Analysis.request_log` join these lines with exchanges.

log_line     one line: formats of Kafka 0.8 to 4.x
log_files    files of lines (plain, .gz, .zst; rotated) as one table of fixed size for each line
log_join     exchanges of a run joined with the lines, by connection, correlation id and time
joined_table the joined exchanges as an Arrow table

Only numbers, addresses and listeners are kept of a line. Bodies and principals are not.
"""
