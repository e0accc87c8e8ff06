"""Packets from network interfaces."""
