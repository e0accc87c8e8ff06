"""Kafka's messages in the project's notation, one `.kmsg` file per API."""
