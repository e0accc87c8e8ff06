"""Tables and reports of a job.

split_tables          the rows of one split
writing, parquet_file the files that tasks write, and the capture and the date of each row
publication           how a run's files become tables: Delta, or plain Parquet
delta                 commits to Delta tables, and what these tables have
edits, late_names     committed files that are replaced: rows of captures that are read again, late topic names
compaction            small files joined, old files deleted
merged_connections    rows of connections that splits share, merged
packed_rows           counts as compressed bytes, from tasks to the driver
summing               reports from counts, added up
report_files          report.json and report.txt
folders, stores       the place that a run writes to: local, HDFS or an object store
"""
