"""Parquet files of the tables, written while captures are read.

table_writer   writes the tables of a run
row_groups     rows of exchanges that become one row group of a table, and a queue of them
row_names      the strings and addresses that some rows refer to
parquet_files  files that appear in a folder together, when all of them are complete
"""
