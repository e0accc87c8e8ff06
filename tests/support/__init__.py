"""What tests stand on.

truth      truth files, and how an `exchanges` table is compared with one
captures   read and write captures in every form; craft TCP conversations packet by packet
broker     a real Apache Kafka broker, started and stopped by a test or a sample
"""
