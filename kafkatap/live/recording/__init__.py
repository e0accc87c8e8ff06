"""Packets on disk: all of them, or those around incidents."""
