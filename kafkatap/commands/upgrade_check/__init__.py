"""`kafkatap upgrade-check`: clients that a newer release of Kafka refuses."""
