"""Advice: patterns on the wire that a setting explains, and what to change.

signature     `Signature`: what a pattern declares
catalogue     all of them, in the order of docs/findings.md
sums          sums over exchanges and clients that several signatures use

Each of the other modules has one signature, or a few of one kind. Sections of the report read them
(`reports.sections.advice`, `reports.sections.advice_on_request`).
"""
