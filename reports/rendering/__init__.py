"""Reports and records as text, JSON, CSV and plots."""
