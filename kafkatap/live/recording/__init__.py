"""Packets on disk: all of them, those around incidents, or those of the last minutes."""
