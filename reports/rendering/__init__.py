"""Renderers: a report as text, JSON, CSV or plots, and records as lines."""
