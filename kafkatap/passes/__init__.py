"""Passes over captures for single messages: which ones match, in what order, and their bytes."""
