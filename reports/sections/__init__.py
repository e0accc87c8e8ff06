"""The sections of a report. Each module makes one or two tables from counts."""
