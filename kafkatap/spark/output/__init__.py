"""Tables and reports of a job, published completely or not at all.

split_tables          the rows of one split
merged_connections    rows of connections that splits share, merged
summing               reports from counts that Spark adds up
report_files          report.json and report.txt
late_names            topic names that came later than their rows
publish               hidden files, the journal, and how they become visible
folders, locks        the folder that a run writes to: local, HDFS or an object store
"""
