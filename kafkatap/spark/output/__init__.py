"""Tables and reports of a job.

writing, parquet_file the files that tasks write, and the capture and the date of each row
publication           how a run's files become Delta tables
delta                 commits to Delta tables, and what these tables have
edits                 committed files that are replaced: rows of captures that are read again, late topic names
compaction            small files joined, old files deleted
clustering            rows sorted by client, so that queries skip files
run_tables            the tables `files` and `ledger` of a run
report_files          report.json and report.txt
folders, stores       the place that a run writes to: local, HDFS or an object store
"""
