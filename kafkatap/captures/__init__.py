"""Captures: find and open them, decompress them, read them as blocks of packets. No other package opens captures.

paths              the captures that a user names: files, pipes, folders, globs
storage            files by local path or URI (s3://, gs://, hdfs://), found and opened
stores             the schemes of URIs, and pyarrow's file systems of them
store_settings     credentials and endpoints: of URIs, of `spark.hadoop.fs.*`, of environment variables
identity           an integer for each capture file, of its bytes
pipes              captures that can be read only once: standard input, named pipes
decompression      gzip and zstd, up to the byte where they are damaged
capture_bytes      the decompressed bytes of one file or pipe
capture_reader     the packets of one capture, block by block, and a report on the capture
merge              the time order of packets of several sources, and what a source is
merged_captures    several captures as one sequence of packets, with their numbers and capture points
growing_file       the packets of a capture that another program still writes
growing_capture    such a capture as a source of `merge`
followed_captures  files and folders that grow, as one sequence of packets
capture_points     which captures were made at the same place
splits             byte ranges of one capture, each read without those before it
split_checks       whether the splits of a file fit together, and the sums of their reports
packs              which small captures are read one after the other, as one split
pack_reader        the packets of a pack, and a report on each of its files
readahead          a generator in a thread, a few items ahead of its consumer

It knows packets and their times, but not TCP, Kafka, commands or Spark.
"""
