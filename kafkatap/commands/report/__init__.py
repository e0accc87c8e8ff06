"""`kafkatap report`.

arguments  its options
command    its run
reporting  from counts to the printed report
files      CSV and plots
outputs    the checks of what is to be written; the page of --html
jobs       several processes
lake       the report of a lake
"""
