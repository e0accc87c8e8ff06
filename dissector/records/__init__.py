"""Record batches and message sets: what lies in the `records` fields of messages.

batches           kernels that find batches, and the tables that they fill
record_reader     kernels that read the records of a batch
codecs            decompression, with a limit on the size of the result
checksums         CRCs
fetched           which records of Fetch responses consumers drop
nested_sets       compressed messages within compressed messages
record_inspector  the inspector that collects the records of a run

This room knows programs, to find the fields. It does not know layouts, connections or trees.
"""
