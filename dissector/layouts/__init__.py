"""Message layouts: their model, their notation (`messages/*.kmsg`), and Kafka's own definitions laid over them."""
