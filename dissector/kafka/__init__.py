"""Facts about Kafka: error codes, enums, and which release knows which versions."""
