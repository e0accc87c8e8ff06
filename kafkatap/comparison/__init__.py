"""Compare two captures, before and after a change. `reports.comparison` has the arithmetic.

reading    captures to the counts of one side, or of both sides of a moment
compared   `compare` and `Comparison`: the library
"""
