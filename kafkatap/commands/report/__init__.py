"""`kafkatap report`.

arguments  its options
command    its run
reporting  from counts to the printed report
files      CSV and plots
page       the page of --html
jobs       several processes
lake       the report of a lake
"""
