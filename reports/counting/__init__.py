"""Counts: small tables that add up exchanges, and that can be merged."""
