"""kafkatap: see what Kafka clients and brokers really say to each other."""
