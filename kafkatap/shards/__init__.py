"""One run by several engines in processes of their own. Each has the connections of some ends.

blocks        the bytes of a capture in memory that processes share
shard         one engine over these bytes: its counts and its rows
shard_run     all of them: the counts of captures for a report
workers       the processes: an executor of tasks
local_tables  the tables of what they read, as Parquet files

All engines see all packets in the same order, and assemble those of their own connections. So no packet is copied or
handed over, and each connection is read as by one engine: `kafkatap.reassembly.shards` says what else an engine knows.
"""
