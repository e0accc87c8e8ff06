"""Chunks of TCP streams to frames, and frames to requests with their responses."""
