"""The sections of a report, one module each: counts in, tables of a report out."""
