"""Comparison of two captures, before and after a change: arithmetic and tables, without packets.

statistics    tests of two sides over blocks of time; the false discovery rate
names         client ids without their random parts
side_counts   `SideCounts`: what is counted of one side, in blocks of time
leaves        the same keys of both sides beside each other
cells         sets of leaves that are compared as one, such as a client
measures      what is compared, and the test of each
judging       all comparisons of two sides
quality       what is not compared, because a capture cannot show it
presence      what only one side has
stories       the same change said once: findings of changes
wording       findings as sentences, and the commands that show more
comparison    `compare_sides`: the result, with its tables
text, html, json_form: the result for people and programs
"""
