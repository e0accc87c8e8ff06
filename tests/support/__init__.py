"""Tools for tests: real captures, crafted ones, a real broker, and what to compare with.

broker          a real Apache Kafka broker, started and stopped by a test or a sample
captures        read and write captures in every form, cut large ones by packet
clients         librdkafka clients of a small shop, and what they see
definition_messages  random messages of Kafka's own definitions, and what they must decode to
messages        random valid Kafka messages and their bytes
newer           definitions and a capture of a Kafka newer than the product
record_talk     a conversation with records of every version and codec
records         record batches of every version and codec, and all ways to compress them
secrets         a capture full of secrets, and the search for them in outputs
spark_clusters  Spark's own servers
tcp             TCP conversations crafted packet by packet, with loss, copies, other orders, on any link layer
truth           truth files, and the comparison of an `exchanges` table with one
wireshark       the same messages as tshark and as kafkatap decode them
"""
