"""The commands of `kafkatap`, one module each, and what they share: options, values, terminal output."""
