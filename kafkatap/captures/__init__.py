"""Captures: found, opened, decompressed, and read as blocks. The only place that opens files."""
