"""What tests stand on.

truth      truth files, and how an `exchanges` table is compared with one
captures   read and write captures in every form, cut large ones by packet
tcp        TCP conversations crafted packet by packet, with loss, copies, other orders, on any link layer
broker     a real Apache Kafka broker, started and stopped by a test or a sample
"""
