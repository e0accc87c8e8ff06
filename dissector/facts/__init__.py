"""Facts: rows with the values of chosen fields, for report sections.

fact_kinds      which fields of which messages make a row: the one place to extend
fact_rows       the dtype of a row, and the kernel that makes rows from a tape
batch_heads     the kernel that makes rows from the headers of record batches
fact_collector  decodes the messages of each drain, and keeps their rows until the exchange is finished; decompresses
                and checks a sample of the record batches

Only runs with such sections pay for facts.
"""
